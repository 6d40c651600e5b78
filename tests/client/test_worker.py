"""The worker, against real servers: taking jobs, reporting, coming back, stopping."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import pytest

from switchgear.client import Client, ReconnectBackoff, Worker, WorkerJob
from switchgear.client.gearman.assigned_job import AssignedJob
from switchgear.client.gearman.worker import RunningHandler, Slots
from switchgear.errors import JobFailed
from switchgear.protocols.gearman.codec import REQUEST, GearmanDecoder, request, response
from switchgear.protocols.gearman.messages import Packet
from tests.client.background import Recorder, reverse, url_of, working
from tests.support.servers import HOST, Server, answers_version, free_port, running_gearmand, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind, Wire

pytestmark = pytest.mark.system

StartServer = Callable[[], AbstractContextManager[Server]]


@pytest.fixture
def client(any_server: Server) -> Iterator[Client]:
    with Client(url_of(any_server)) as client:
        yield client


def run(story: Coroutine[Any, Any, None]) -> None:
    async def within_time() -> None:
        async with asyncio.timeout(2 * DEADLINE_SECONDS):
            await story

    asyncio.run(within_time())


# --- jobs ---


def test_it_works(any_server: Server, client: Client, function: str) -> None:
    with working(url_of(any_server), {function: reverse}):
        for _ in range(3):
            assert client.submit(function, b"abc").wait(DEADLINE_SECONDS) == b"cba"


def test_it_sleeps_and_is_woken(any_server: Server, client: Client, function: str) -> None:
    with working(url_of(any_server), {function: reverse}), Wire(any_server.address) as wire:
        # A worker that is asleep has been told that there is no job, and waits without asking.
        eventually(lambda: any(function.encode() in line for line in wire.ask("workers")), "it is registered")
        assert client.submit(function, b"abc").wait(DEADLINE_SECONDS) == b"cba"


def test_a_handler_sees_its_job_and_can_talk(any_server: Server, client: Client, function: str) -> None:
    seen: list[WorkerJob] = []

    async def talk(job: WorkerJob) -> bytes:
        seen.append(job)
        job.progress(1, 2)
        job.warn(b"hm")
        job.data(b"part ")
        await job.drain()
        return b"end"

    with working(url_of(any_server), {function: talk}):
        submission = client.submit(function, b"in", unique="key")
        kinds = [str(update.kind) for update in submission.updates(DEADLINE_SECONDS)]
    assert kinds == ["status", "warning", "data", "complete"]
    assert [(job.handle, job.function, job.unique, job.payload) for job in seen] == [
        (submission.handle, function, "key", b"in")
    ]


class RecordingConnection:
    """What a handler's job needs of a connection; it is its own protocol."""

    def __init__(self) -> None:
        self.address = "tcp://server"
        self.jobs: dict[str, RunningHandler] = {}
        self.sent: list[bytes] = []
        self.protocol = self

    def assign(self) -> WorkerJob:
        job = WorkerJob(cast(Any, self), AssignedJob("H:a:1", "f", b""))
        self.jobs[job.handle] = RunningHandler(job, cast(Any, self))
        return job

    def progress(self, handle: str, done: int, total: int) -> None:
        self.sent.append(b"%d/%d" % (done, total))

    def data(self, handle: str, data: bytes) -> None:
        self.sent.append(data)

    warning = data

    def flush_soon(self) -> None: ...


def test_a_handler_whose_job_was_assigned_once_more_is_not_heard() -> None:
    """A server that takes a job back after its time limit may assign it to another slot of the same worker."""
    connection = RecordingConnection()
    late, present = connection.assign(), connection.assign()
    for job, word in ((late, b"late"), (present, b"present")):
        job.progress(1, 1 if job is late else 2)
        job.data(word)
        job.warn(word)
    assert connection.sent == [b"1/2", b"present", b"present"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (JobFailed("no reason"), b""),
        (JobFailed("text for the log", b"a reason"), b"a reason"),
        (ZeroDivisionError("oh"), b"ZeroDivisionError: oh"),
    ],
)
def test_failures(any_server: Server, client: Client, function: str, error: Exception, said: bytes) -> None:
    async def fail(job: WorkerJob) -> bytes:
        raise error

    with working(url_of(any_server), {function: fail}) as recorder:
        for _ in range(2):  # an objection of the server to the first report would come before the second job
            with pytest.raises(JobFailed) as caught:
                client.submit(function).wait(DEADLINE_SECONDS)
            assert caught.value.error == said
        assert "refused" not in [name for name, _ in recorder.heard.queue]


def test_a_handler_that_returns_no_bytes_fails_its_job(any_server: Server, client: Client, function: str) -> None:
    async def wrong(job: WorkerJob) -> bytes:
        return "text"  # type: ignore[return-value]

    with working(url_of(any_server), {function: wrong}) as recorder:
        with pytest.raises(JobFailed, match="TypeError"):
            client.submit(function).wait(DEADLINE_SECONDS)
        assert recorder.until("ended").startswith("TypeError")


def test_jobs_run_side_by_side_on_one_connection(any_server: Server, client: Client, function: str) -> None:
    meeting = asyncio.Barrier(3)

    async def meet(job: WorkerJob) -> bytes:
        await meeting.wait()  # passes only when three are here at once
        return job.payload

    with working(url_of(any_server), {function: meet}, slots=3):
        submissions = [client.submit(function, b"%d" % number) for number in range(6)]
        assert [submission.wait(DEADLINE_SECONDS) for submission in submissions] == [b"%d" % n for n in range(6)]


def test_no_more_at_once_than_slots_over_all_servers(function: str) -> None:
    running = 0
    most = 0

    async def count(job: WorkerJob) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return b""

    with running_switchgear() as one, running_gearmand() as two:
        urls = [url_of(one), url_of(two)]
        with working(urls, {function: count}, slots=2), Client(urls[0]) as first, Client(urls[1]) as second:
            submissions = [client.submit(function) for _ in range(10) for client in (first, second)]
            for submission in submissions:
                submission.wait(DEADLINE_SECONDS)
    assert most <= 2


def test_a_server_that_is_not_there_does_not_hold_up_the_others(
    any_server: Server, client: Client, function: str
) -> None:
    async def story() -> None:
        recorder = Recorder()
        urls = [f"gearman://{HOST}:{free_port()}", url_of(any_server)]
        worker = Worker(urls, {function: reverse}, observer=recorder)
        running = asyncio.create_task(worker.run())
        assert "refused" in await recorder.until_async("disconnected")
        submission = await asyncio.to_thread(client.submit, function, b"abc")
        assert await asyncio.to_thread(submission.wait, DEADLINE_SECONDS) == b"cba"
        worker.stop()
        await running

    run(story())


def test_it_stops_after_so_many_jobs(any_server: Server, client: Client, function: str) -> None:
    handles = [client.submit(function, background=True).handle for _ in range(5)]

    async def story() -> None:
        recorder = Recorder()
        await Worker(url_of(any_server), {function: reverse}, 2, jobs_total=3, observer=recorder).run()
        assert [name for name, _ in recorder.heard.queue].count("ended") == 3

    run(story())
    # Nothing is lost in the connection's last moments: when run returns, the server knows.
    assert [client.status(handle).known for handle in handles] == [False] * 3 + [True] * 2


# --- losing the connection ---


@contextmanager
def restarted(server: Server) -> Iterator[None]:
    """The same server once more, on its old port."""
    with subprocess.Popen(server.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: answers_version(server.port), "it is back")
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("start", [running_switchgear, running_gearmand])
def test_it_comes_back_after_the_server_does(start: StartServer, function: str) -> None:
    with start() as server, working(url_of(server), {function: reverse}) as recorder:
        with Client(url_of(server)) as client:
            assert client.submit(function, b"abc").wait(DEADLINE_SECONDS) == b"cba"
        server.kill()
        recorder.until("disconnected")
        with restarted(server), Client(url_of(server)) as client:
            recorder.until("connected")
            assert client.submit(function, b"abc").wait(DEADLINE_SECONDS) == b"cba"


def test_a_lost_connection_cancels_its_jobs_and_frees_their_slots(function: str) -> None:
    cancelled: list[str] = []

    async def first_time_hangs(job: WorkerJob) -> bytes:
        if job.payload == b"hang":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(job.handle)
                raise
        return b"ok"

    with running_switchgear() as server, working(url_of(server), {function: first_time_hangs}) as recorder:
        with Client(url_of(server)) as client:
            handle = client.submit(function, b"hang", background=True).handle
        recorder.until("started")
        server.kill()
        assert recorder.until("dropped") == handle
        assert cancelled == [handle]
        with restarted(server), Client(url_of(server)) as client:
            recorder.until("connected")
            assert client.submit(function).wait(DEADLINE_SECONDS) == b"ok"


def test_a_handler_that_will_not_be_cancelled_reports_to_nobody(function: str) -> None:
    async def stubborn(job: WorkerJob) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return b"too late"
        return b"never"

    with running_switchgear() as server, working(url_of(server), {function: stubborn}) as recorder:
        with Client(url_of(server)) as client:
            handle = client.submit(function, background=True).handle
        recorder.until("started")
        server.kill()
        assert recorder.until("dropped") == handle


def test_pauses_grow_and_differ() -> None:
    longest = [ReconnectBackoff(rng=lambda: 1.0).seconds(attempt) for attempt in range(12)]
    shortest = [ReconnectBackoff(rng=lambda: 0.0).seconds(attempt) for attempt in range(12)]
    assert longest[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert longest[-1] == 30
    assert [long / short for long, short in zip(longest, shortest)] == pytest.approx([2.0] * 12)
    assert ReconnectBackoff().seconds(10_000) <= 30


# --- stopping ---


def test_running_jobs_may_finish(any_server: Server, client: Client, function: str) -> None:
    async def story() -> None:
        recorder = Recorder()
        finish = asyncio.Event()

        async def slow(job: WorkerJob) -> bytes:
            await finish.wait()
            return b"finished"

        worker = Worker(url_of(any_server), {function: slow}, observer=recorder)
        running = asyncio.create_task(worker.run())
        submission = await asyncio.to_thread(client.submit, function)
        left_alone = await asyncio.to_thread(client.submit, function, b"", background=True)
        await recorder.until_async("started")
        worker.stop(DEADLINE_SECONDS)
        finish.set()
        await running
        assert await asyncio.to_thread(submission.wait, DEADLINE_SECONDS) == b"finished"
        status = await asyncio.to_thread(client.status, left_alone.handle)
        assert status.known
        assert not status.running

    run(story())


def test_what_does_not_finish_in_time_goes_back(any_server: Server, client: Client, function: str) -> None:
    async def story() -> None:
        recorder = Recorder()

        async def endless(job: WorkerJob) -> bytes:
            await asyncio.Event().wait()
            return b""

        worker = Worker(url_of(any_server), {function: endless}, observer=recorder)
        running = asyncio.create_task(worker.run())
        submission = await asyncio.to_thread(client.submit, function, b"again")
        await recorder.until_async("started")
        worker.stop(1000)
        worker.stop(0.05)  # a second call shortens the time
        await running
        assert await recorder.until_async("dropped") == submission.handle
        await asyncio.to_thread(finish_by_hand, any_server, function)
        assert await asyncio.to_thread(submission.wait, DEADLINE_SECONDS) == b"again"

    run(story())


def finish_by_hand(server: Server, function: str) -> None:
    with Wire(server.address) as wire:
        wire.send(Kind.CAN_DO, function.encode())

        def grabbed() -> bytes:
            wire.send(Kind.GRAB_JOB)
            return wire.receive_packet().body

        handle, _, payload = eventually(grabbed, "the job is back in its queue").split(b"\0", 2)
        wire.send(Kind.WORK_COMPLETE, handle, payload)
        wire.receive_until_fence()


def test_stopping_an_idle_worker_takes_no_time(any_server: Server, function: str) -> None:
    async def story() -> None:
        recorder = Recorder()
        worker = Worker(url_of(any_server), {function: reverse}, observer=recorder)
        running = asyncio.create_task(worker.run())
        await recorder.until_async("connected")
        worker.stop(1000)
        await running

    run(story())


def test_stopping_a_worker_without_a_server() -> None:
    async def story() -> None:
        recorder = Recorder()
        worker = Worker(f"gearman://{HOST}:{free_port()}", {"f": reverse}, observer=recorder)
        running = asyncio.create_task(worker.run())
        await recorder.until_async("disconnected")
        worker.stop(1000)
        await running

    run(story())


def test_what_a_worker_needs() -> None:
    for urls, functions, slots in (([], {"f": reverse}, 1), ("localhost", {}, 1), ("localhost", {"f": reverse}, 0)):
        with pytest.raises(ValueError, match="needs"):
            Worker(urls, functions, slots)


def test_a_connection_that_is_made_while_the_worker_stops_takes_no_job() -> None:
    async def story() -> None:
        asked: list[bytes] = []
        worker = Worker("localhost", {"f": reverse})
        (connection,) = worker._connections
        worker.stop(1000)
        with socket.socket() as sock:
            connection.connection_made(cast(asyncio.Transport, FakeTransport(sock, asked)))
        await asyncio.sleep(0)
        kinds = [kind for kind, _ in GearmanDecoder(REQUEST, 2**20).feed(b"".join(asked))]
        assert Packet.CAN_DO in kinds
        assert Packet.GRAB_JOB_UNIQ not in kinds

    run(story())


def test_servers_take_turns_for_a_slot() -> None:
    async def story() -> None:
        worker = Worker(["gearman://one", "gearman://two"], {"f": reverse})
        written: list[list[bytes]] = [[], []]
        with socket.socket() as sock:
            for connection, writes in zip(worker._connections, written):
                connection.connection_made(cast(asyncio.Transport, FakeTransport(sock, writes)))
        grabs = request(Packet.GRAB_JOB_UNIQ)

        async def grabbed() -> list[int]:
            for _ in range(5):
                await asyncio.sleep(0)
            return [b"".join(writes).count(grabs) for writes in written]

        assert await grabbed() == [1, 0]
        worker._connections[0].data_received(response(Packet.JOB_ASSIGN_UNIQ, b"H:a:1", b"f", b"", b"abc"))
        assert await grabbed() == [1, 1]
        worker._connections[1].data_received(response(Packet.JOB_ASSIGN_UNIQ, b"H:b:1", b"f", b"", b"abc"))
        assert await grabbed() == [2, 1]

    run(story())


class FakeTransport:
    """Keeps what is written."""

    def __init__(self, sock: socket.socket, written: list[bytes]) -> None:
        self._sock = sock
        self.write = written.append

    def get_extra_info(self, name: str) -> socket.socket:
        return self._sock


# --- slots ---


def test_slots_that_have_seen_the_last_job_stay_taken() -> None:
    slots = Slots(parallel=2, total=3)
    assert slots.acquire()
    assert slots.acquire()
    slots.release(finished=True)
    assert slots.acquire()  # the third job
    slots.release(finished=False)  # there was none
    assert slots.acquire()
    slots.release(finished=True)
    assert not slots.all_finished
    slots.release(finished=True)
    assert slots.all_finished
    assert not slots.acquire()
