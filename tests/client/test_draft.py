"""Applications and workers of the draft against real servers, blocking and with asyncio."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

import switchgear.client.draft
from switchgear.client.draft import (
    AsyncDraftClient,
    AsyncDraftWorker,
    DraftClient,
    DraftResult,
    DraftTask,
    DraftTiming,
    DraftWorker,
    JobType,
)
from switchgear.errors import ServerRefused, ServerUnreachable
from tests.client.draft_faces import (
    ASYNC_HANDLE,
    ASYNC_THROW_AWAY,
    KINDS,
    SYNC_WAIT,
    Face,
    Kind,
    client_of,
    reverse,
    url_of,
    working,
)
from tests.support import draft_wire
from tests.support.draft_wire import DraftWire
from tests.support.servers import Server, free_port, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def client(kind: Kind, switchgear: Server) -> Iterator[Face]:
    with client_of(kind, switchgear) as face:
        yield face


# --- applications and workers ---


def test_a_job_that_is_waited_for(kind: Kind, client: Face, switchgear: Server, function: str) -> None:
    record = client.submit(function, b"abc", job_type=SYNC_WAIT)

    def handler(task: DraftTask) -> bytes:
        task.progress(1, 2, 60)
        task.progress(2, 2)
        return task.args[::-1]

    with working(kind, [switchgear], {function: handler}):
        assert list(client.statuses(record, DEADLINE_SECONDS)) == [(1, 2, 60), (2, 2, None)]
        assert client.wait(record) == (0, b"cba")
    assert record.elapsed_seconds >= 1
    assert client.unfinished == []


def test_a_job_that_is_asked_for(kind: Kind, client: Face, switchgear: Server, function: str) -> None:
    record = client.submit(function, b"abc")
    assert client.complete(record) is None
    assert client.status(record) == (0, 0, None)
    assert client.unfinished == [record]
    half, go_on = threading.Event(), threading.Event()

    def handler(task: DraftTask) -> tuple[int, bytes]:
        task.progress(1, 2, 60)
        half.set()
        assert go_on.wait(DEADLINE_SECONDS)
        return 3, b"broken"

    with working(kind, [switchgear], {function: handler}):
        assert half.wait(DEADLINE_SECONDS)
        eventually(lambda: client.status(record) == (1, 2, 60), "the announcement arrives")
        assert client.complete(record) is None
        go_on.set()
        assert client.wait(record, DEADLINE_SECONDS, poll_seconds=0.01) == DraftResult(3, b"broken")
    assert client.status(record) == (1, 2, None)
    assert client.unfinished == []


def test_a_job_that_is_thrown_away(kind: Kind, client: Face, switchgear: Server, function: str) -> None:
    assert client.submit(function, b"abc", job_type=ASYNC_THROW_AWAY).handle == ""
    with working(kind, [switchgear], {function: reverse}) as recorder:
        assert recorder.until("started") == b"abc"
        assert recorder.until("ended") == 0


def test_duplicate_keys(kind: Kind, client: Face, switchgear: Server, function: str) -> None:
    with client_of(kind, switchgear) as other:
        records = [
            (face, face.submit(function, args, dupkey="2030-01-01", job_type=job_type))
            for face, args, job_type in (
                (client, b"1", SYNC_WAIT),
                (other, b"2", SYNC_WAIT),
                (other, b"3", ASYNC_HANDLE),
            )
        ]
        with working(kind, [switchgear], {function: reverse}):
            assert [face.wait(record, DEADLINE_SECONDS) for face, record in records] == [(0, b"1")] * 3


def test_a_sleeping_worker_is_woken(kind: Kind, client: Face, switchgear: Server, function: str) -> None:
    timing = DraftTiming(sleep_threshold_seconds=0.0, sleep_seconds=3600.0)
    with working(kind, [switchgear], {function: reverse}, timing) as recorder:
        for args in (b"ab", b"cd"):
            recorder.until("sleeping")
            record = client.submit(function, args, job_type=SYNC_WAIT)
            assert client.wait(record, DEADLINE_SECONDS) == (0, args[::-1])
            assert recorder.until("woken") == switchgear.port


def test_a_worker_gets_up_by_itself(kind: Kind, switchgear: Server, function: str) -> None:
    timing = DraftTiming(sleep_threshold_seconds=0.0, sleep_seconds=0.01)
    with working(kind, [switchgear], {function: reverse}, timing) as recorder:
        for _ in range(20):
            while recorder.until("woken") is not None:
                pass  # by its first connection
    while not recorder.heard.empty():
        assert recorder.heard.get()[0] not in ("refused", "disconnected")


def test_a_failing_handler(kind: Kind, client: Face, switchgear: Server, function: str) -> None:
    def handler(task: DraftTask) -> bytes:
        raise RuntimeError("out of paper")

    with working(kind, [switchgear], {function: handler}):
        for _ in range(2):
            record = client.submit(function, job_type=SYNC_WAIT)
            assert client.wait(record, DEADLINE_SECONDS) == (1, b"RuntimeError: out of paper")


def test_many_jobs_of_all_sizes(kind: Kind, client: Face, switchgear: Server, function: str) -> None:
    sizes = [0, 1, 100, 65_536, 3_000_000]
    records = [client.submit(function, b"x" * size, job_type=SYNC_WAIT) for size in sizes]
    with working(kind, [switchgear], {function: reverse}):
        assert [len(client.wait(record, DEADLINE_SECONDS).data) for record in records] == sizes


def test_what_was_said_before_goodbye_is_done(kind: Kind, client: Face, switchgear: Server, function: str) -> None:
    """The worker has stopped when the job's end is known: nothing is lost on the way."""
    records = [client.submit(function, b"%d" % n) for n in range(5)]
    with working(kind, [switchgear], {function: reverse}, DraftTiming(tasks_total=5)) as recorder:
        for _ in records:
            recorder.until("ended")
    assert [client.complete(record) for record in records] == [(0, b"%d" % n) for n in range(5)]


def test_errors_of_the_server(client: Face) -> None:
    with pytest.raises(ServerRefused, match="TOO_LARGE"):
        client.submit("n" * 10_000)
    record = client.submit("errors", job_type=ASYNC_HANDLE)
    record.handle = "H:elsewhere:1"
    with pytest.raises(ServerRefused, match="UNKNOWN_HANDLE"):
        client.complete(record)
    with pytest.raises(TimeoutError):
        client.wait(client.submit("errors", job_type=SYNC_WAIT), 0.01)


# --- servers that come and go ---


def test_nobody_listens(kind: Kind) -> None:
    dead = Server((), free_port(), None, None)  # type: ignore[arg-type]
    with client_of(kind, dead) as client, pytest.raises(ServerUnreachable, match="Connection refused"):
        client.submit("f")


def test_a_server_that_is_lost(kind: Kind) -> None:
    with running_switchgear() as first, running_switchgear() as second, client_of(kind, first, second) as client:
        records = [client.submit("f", b"%d" % n, job_type=JobType(n % 2)) for n in range(20)]
        lost = [record for record in records if record.server.port == first.port]
        assert 0 < len(lost) < 20
        first.kill()
        for record in lost:
            with pytest.raises(ServerUnreachable):
                client.wait(record, DEADLINE_SECONDS)
        recreated = client.recreate_unfinished()
        assert [old for old, _ in recreated] == lost
        assert {new.server.port for _, new in recreated} == {second.port}
        with working(kind, [second], {"f": reverse}):
            while client.unfinished:
                record = client.unfinished[0]
                assert client.wait(record, DEADLINE_SECONDS) == (0, record.args[::-1])


def test_a_worker_whose_server_is_lost_serves_the_others(kind: Kind) -> None:
    with (
        running_switchgear() as first,
        running_switchgear() as second,
        working(kind, [first, second], {"f": reverse}) as recorder,
        client_of(kind, second) as client,
    ):
        recorder.until("sleeping")
        first.kill()
        assert recorder.until("disconnected") == first.port
        record = client.submit("f", b"ab", job_type=SYNC_WAIT)
        assert client.wait(record, DEADLINE_SECONDS) == (0, b"ba")


def test_a_task_is_dropped_when_its_server_is_lost(kind: Kind) -> None:
    killed = threading.Event()

    def handler(task: DraftTask) -> bytes:
        if task.args == b"doomed":
            assert killed.wait(DEADLINE_SECONDS)
        return b"done"

    with (
        running_switchgear() as first,
        running_switchgear() as second,
        working(kind, [first, second], {"f": handler}) as recorder,
    ):
        with client_of(kind, first) as client:
            client.submit("f", b"doomed", job_type=ASYNC_THROW_AWAY)
        assert recorder.until("started") == b"doomed"
        first.kill()
        killed.set()
        assert recorder.until("dropped") == b"doomed"
        with client_of(kind, second) as client:
            record = client.submit("f", b"fine", job_type=SYNC_WAIT)
            assert client.wait(record, DEADLINE_SECONDS) == (0, b"done")


def test_an_asynchronous_handler_is_cancelled_when_its_server_is_lost() -> None:
    async def test(server: Server) -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def handler(task: DraftTask) -> bytes:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return b""

        worker = AsyncDraftWorker(url_of(server), {"f": handler})
        running = asyncio.create_task(worker.run())
        async with AsyncDraftClient(url_of(server)) as client:
            await client.submit("f", job_type=ASYNC_THROW_AWAY)
            await started.wait()
            server.kill()
            await cancelled.wait()
        worker.stop()
        await running

    with running_switchgear() as server:
        asyncio.run(asyncio.wait_for(test(server), DEADLINE_SECONDS))


def test_a_cancelled_worker_leaves_its_task_to_others(switchgear: Server, function: str) -> None:
    async def test() -> None:
        started = asyncio.Event()

        async def handler(task: DraftTask) -> bytes:
            started.set()
            await asyncio.Event().wait()
            return b""

        async with AsyncDraftClient(url_of(switchgear)) as client:
            record = await client.submit(function, b"x")
            running = asyncio.create_task(AsyncDraftWorker(url_of(switchgear), {function: handler}).run())
            await started.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert await client.complete(record) is None
            with working("blocking", [switchgear], {function: reverse}):
                assert await client.wait(record, DEADLINE_SECONDS, poll_seconds=0.01) == (0, b"x")

    asyncio.run(asyncio.wait_for(test(), DEADLINE_SECONDS))


def test_tasks_of_one_event_loop_share_a_client(switchgear: Server, function: str) -> None:
    async def one(client: AsyncDraftClient, n: int) -> DraftResult:
        job_type = SYNC_WAIT if n % 2 else ASYNC_HANDLE
        record = await client.submit(function, b"%d" % n, job_type=job_type)
        return await client.wait(record, DEADLINE_SECONDS, poll_seconds=0.01)

    async def test() -> list[DraftResult]:
        async with AsyncDraftClient(url_of(switchgear)) as client:
            return await asyncio.gather(*(one(client, n) for n in range(40)))

    with working("asyncio", [switchgear], {function: reverse}):
        assert asyncio.run(test()) == [(0, (b"%d" % n)[::-1]) for n in range(40)]


# --- a server that the test plays itself ---


class Hurried:
    """A server that calls a sleeping worker in the very moment in which that asks by itself."""

    def __init__(self, listener: socket.socket) -> None:
        self.wire = DraftWire.over(listener.accept()[0])

    def serve(self, tasks: int) -> None:
        given = 0
        asleep = False
        while (heard := self.wire.receive()) is not None:
            if heard.kind == draft_wire.Kind.worker_sleep:
                asleep = True
            elif heard.kind == draft_wire.Kind.job_assign_req:
                call = draft_wire.packet(draft_wire.Kind.noop) if asleep else b""
                asleep = False
                given += 1
                task = draft_wire.packet(draft_wire.Kind.job_assign_res, b"f\0%d" % given)
                nothing = draft_wire.packet(draft_wire.Kind.noop)
                self.wire.send(call, task if given % 2 and given < 2 * tasks else nothing)
            elif heard.kind == draft_wire.Kind.job_status_req:
                self.wire.send(draft_wire.packet(draft_wire.Kind.error, b"\3no such job"))
            elif heard.kind == draft_wire.Kind.worker_disconnect:
                self.wire.close()
                return


def test_a_call_that_crosses_a_question_loses_no_task(kind: Kind) -> None:
    timing = DraftTiming(sleep_threshold_seconds=0.0, sleep_seconds=0.005)
    with draft_wire.listening() as listener:
        server = Server((), listener.getsockname()[1], None, None)  # type: ignore[arg-type]
        serving = threading.Thread(target=lambda: Hurried(listener).serve(5))
        serving.start()
        with working(kind, [server], {"f": reverse}, timing) as recorder:
            for _ in range(5):
                recorder.until("ended")
        serving.join(DEADLINE_SECONDS)
    heard = [recorder.heard.get()[0] for _ in range(recorder.heard.qsize())]
    assert not {"refused", "disconnected", "dropped"} & set(heard)


# --- what users see ---


def test_the_public_names_are_documented() -> None:
    names = switchgear.client.draft.__all__
    assert names == sorted(names)
    for name in names:
        if not name.endswith("Handler"):
            assert getattr(switchgear.client.draft, name).__doc__


def test_mistakes_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="needs a server"):
        DraftClient([])
    with pytest.raises(ValueError, match="needs a server and a name"):
        DraftWorker("gearman://host", {})
    with pytest.raises(ValueError, match="needs a server and a name"):
        AsyncDraftWorker([], {"f": lambda task: asyncio.sleep(0, b"")})


@pytest.mark.parametrize("face", [(DraftClient, AsyncDraftClient), (DraftWorker, AsyncDraftWorker)])
def test_both_kinds_have_the_same_methods(face: tuple[type, type]) -> None:
    blocking, asynchronous = ({name for name in dir(kind) if not name.startswith("_")} for kind in face)
    assert blocking == asynchronous
