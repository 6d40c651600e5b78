"""Connections that are cut, servers that go away, processes that fork."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from switchgear import App, Job, JobGroup, JobUnknown, ServerUnreachable, Task
from switchgear.app.embedded_location import EmbeddedLocation
from switchgear.app.server_locations import FixedLocation, ServerLocation
from switchgear.app.thread_transport import ThreadTransport
from switchgear.client.address import ServerAddress
from tests.app.harness import hand_worker, url_of
from tests.support.proxy import Proxy, cuttable
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind

pytestmark = pytest.mark.system

WAIT = DEADLINE_SECONDS


@pytest.fixture
def network(live_server: Server) -> Iterator[Proxy]:
    with cuttable(live_server.port) as proxy:
        yield proxy


@pytest.fixture
def distant(network: Proxy) -> Iterator[App]:
    """An app on the other side of the network."""
    with App(network.url) as app:
        yield app


def adder(app: App, name: str, durable: bool | None = None) -> Task[[int], int]:
    def add(a: int, /) -> int:
        return a + 1

    return app.task(name=name, durable=durable)(add)


@pytest.fixture
def other_thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


# --- what a cut does ---


def test_the_result_of_a_durable_job_survives_a_cut(
    distant: App,
    network: Proxy,
    live_server: Server,
    other_thread: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    add = adder(distant, "survivor")
    job = add.submit(1)
    result = other_thread.submit(job.result, WAIT)
    network.cut()
    network.wait_connections(2)
    with hand_worker(live_server, add) as worker:
        worker.complete(worker.grab()[0], b"42")
    assert result.result(WAIT) == 42
    assert "; the app subscribes to 1 job again when it reconnects" in caplog.text


def test_a_job_that_ended_during_the_cut_is_heard_of(
    distant: App, network: Proxy, live_server: Server, other_thread: ThreadPoolExecutor
) -> None:
    add = adder(distant, "meanwhile")
    jobs = [add.submit(number) for number in range(3)]
    results = [other_thread.submit(job.result, WAIT) for job in jobs]
    network.go_away()
    with hand_worker(live_server, add) as worker:
        for _ in jobs:
            worker.complete(worker.grab()[0], b"42")
        assert worker.has_nothing_to_do()
    network.come_back()
    assert [result.result(WAIT) for result in results] == [42, 42, 42]


def test_progress_goes_on_after_a_cut(distant: App, network: Proxy, live_server: Server) -> None:
    add = adder(distant, "progress")
    job = add.submit(1)
    with hand_worker(live_server, add) as worker:
        handle, _ = worker.grab()
        updates = iter(job.updates())
        worker.wire.send(Kind.WORK_STATUS, handle, b"1", b"3")
        assert next(updates).done == 1
        network.cut()
        worker.wire.send(Kind.WORK_STATUS, handle, b"2", b"3")
        eventually(lambda: next(updates).done == 2, "the progress is told again")
        worker.complete(handle, b"7")
    assert job.result(WAIT) == 7


def test_a_submission_that_was_not_answered_fails_and_is_not_repeated(
    distant: App, network: Proxy, live_server: Server, other_thread: ThreadPoolExecutor
) -> None:
    add = adder(distant, "unanswered")
    add.submit(1)
    network.hold_answers()
    submission = other_thread.submit(add.submit, 2)
    with App(url_of(live_server)) as near:
        eventually(lambda: len(list(near.jobs(task="unanswered"))) == 2, "the server has it")
        network.cut()
        network.release_answers()
        with pytest.raises(ServerUnreachable, match="the job may have been taken or not"):
            submission.result(WAIT)
        add.submit(3)
        assert len(list(near.jobs(task="unanswered"))) == 3
        near.cancel_all(task="unanswered")


def test_a_question_that_changes_nothing_is_asked_again(
    distant: App, network: Proxy, other_thread: ThreadPoolExecutor
) -> None:
    assert distant.server().version
    network.hold_answers()
    question = other_thread.submit(distant.server)
    transport = distant.transport
    assert isinstance(transport, ThreadTransport)
    io_thread = transport._io_thread
    assert io_thread is not None
    stream = io_thread._connections[0]._stream
    assert stream is not None
    eventually(lambda: stream.protocol.unanswered, "it is asked")
    network.cut()
    network.release_answers()
    assert question.result(WAIT).version


def test_a_job_that_is_not_durable_is_lost_in_a_cut(distant: App, network: Proxy, live_server: Server) -> None:
    add = adder(distant, "foreground", durable=False)
    job = add.submit(1)
    network.cut()
    with pytest.raises(ServerUnreachable):
        job.result(WAIT)
    with App(url_of(live_server)) as near, pytest.raises(JobUnknown):  # nothing is kept of it
        near.job(job.handle).result(WAIT)


def test_after_a_cut_everything_goes_on(distant: App, network: Proxy, live_server: Server) -> None:
    add = adder(distant, "goes on")
    for _ in range(3):
        job = add.submit(1)
        network.cut()
        eventually(lambda: _is_connected_anew(distant), "the line is up again")
        with hand_worker(live_server, add) as worker:
            worker.complete(worker.grab()[0], b"5")
        assert job.result(WAIT) == 5


def _is_connected_anew(app: App) -> bool:
    return app.server().version != ""


# --- servers that are away ---


def test_a_server_that_is_not_there(other_thread: ThreadPoolExecutor) -> None:
    with App(f"gearman://{HOST}:{free_port()}", connect_seconds=0.2) as app:
        add = adder(app, "nowhere")
        with pytest.raises(ServerUnreachable, match=r"cannot connect to gearman://127\.0\.0\.1:.*: Connection refused"):
            add.submit(1)
        with pytest.raises(ServerUnreachable):
            asyncio.run(add.submit_async(1))
        with pytest.raises(ServerUnreachable):
            add.submit_many(range(10))


def test_a_submission_waits_for_a_server_that_comes(live_server: Server, other_thread: ThreadPoolExecutor) -> None:
    with cuttable(live_server.port) as network, App(network.url) as app:
        network.go_away()
        submission = other_thread.submit(adder(app, "patient").submit, 1)
        network.come_back()
        assert submission.result(WAIT).cancel()


class SlowPlace(ServerLocation):
    """A server that has to be started first, which takes longer than anybody waits for one that is away."""

    def __init__(self, url: str, start_seconds: float) -> None:
        self._url = url
        self.start_seconds = start_seconds

    def address(self) -> ServerAddress:
        threading.Event().wait(0.5)
        return ServerAddress.parse(self._url)

    @property
    def url(self) -> str:
        return self._url


@pytest.mark.parametrize("start_seconds", [WAIT, 0.0], ids=["being started", "away"])
def test_the_start_of_a_server_is_waited_for_and_its_absence_is_not(live_server: Server, start_seconds: float) -> None:
    with App(url_of(live_server), connect_seconds=0.01) as app:
        app.locations[:] = [SlowPlace(url_of(live_server), start_seconds)]
        if start_seconds:
            assert app.server().version
        else:
            with pytest.raises(ServerUnreachable, match="did not answer in time"):
                app.server()


def test_the_server_of_a_directory_may_take_its_time_to_start() -> None:
    assert EmbeddedLocation().start_seconds > 30 > FixedLocation("gearman://a").start_seconds


def test_a_server_that_speaks_something_else(other_thread: ThreadPoolExecutor) -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"\0BAD" + bytes(20))

        answering = threading.Thread(target=answer, daemon=True)
        answering.start()
        with App(f"gearman://{HOST}:{port}", connect_seconds=0.2) as app, pytest.raises(ServerUnreachable) as caught:
            app.server()
        assert "does not speak Gearman" in str(caught.value)
        listener.shutdown(socket.SHUT_RDWR)


def test_the_first_place_that_can_be_reached(live_server: Server) -> None:
    away = f"gearman://{HOST}:{free_port()}"
    with App([away, url_of(live_server)]) as app:
        add = adder(app, "second choice")
        job = add.submit(1)
        with hand_worker(live_server, add) as worker:
            worker.complete(worker.grab()[0], b"3")
        assert job.result(WAIT) == 3


def test_jobs_of_one_place_are_waited_for_while_another_takes_over(live_server: Server) -> None:
    named = ("--set", "gearman.handle_prefix=H:second")  # two servers of one host would give the same handles
    with running_switchgear(*named) as second, cuttable(live_server.port) as network:
        with App([network.url, url_of(second)]) as app:
            add = adder(app, "two places")
            first_job = add.submit(1)
            network.go_away()
            second_job = eventually(lambda: _submitted(add), "the second takes jobs")
            assert second_job is not None
            with hand_worker(second, add) as worker:
                worker.complete(worker.grab()[0], b"2")
            assert second_job.result(WAIT) == 2
            with hand_worker(live_server, add) as worker:
                worker.complete(worker.grab()[0], b"1")
            with pytest.raises(TimeoutError):
                first_job.result(0.01)
            network.come_back()
            assert first_job.result(WAIT) == 1
        with App([network.url, url_of(second)]) as app:  # whoever does not know asks both
            assert [app.job(job.handle).result(WAIT) for job in (first_job, second_job)] == [1, 2]
            assert app.job(second_job.handle).status().state == "done"
            with pytest.raises(JobUnknown):
                app.job("H:nowhere:1").status()
            with pytest.raises(JobUnknown):
                app.job("H:nowhere:1").result()
            handles = [second_job.handle, "H:nowhere:1", first_job.handle, first_job.handle]
            jobs: JobGroup[int] = JobGroup(app, None, handles)
            assert jobs.counts() == {"done": 3, "unknown": 1}
        away = f"gearman://{HOST}:{free_port()}"
        with App([away, url_of(second)], connect_seconds=0.2) as app:
            assert JobGroup[int](app, None, handles).counts() == {"done": 1, "unknown": 3}


def _submitted(add: Task[[int], int]) -> Job[int] | None:
    try:
        return add.submit(1)
    except ServerUnreachable:
        return None


def test_a_server_that_is_restarted_still_has_the_job(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    with running_switchgear(store=store) as first, cuttable(first.port) as network, App(network.url) as app:
        add = adder(app, "restarted")
        job = add.submit(1)
        first.kill()
        with running_switchgear(store=store) as second:
            network.target = second.port
            with hand_worker(second, add) as worker:
                worker.complete(worker.grab()[0], b"9")
            assert job.result(WAIT) == 9


# --- closing ---


def test_who_waits_is_told_when_the_app_is_closed(live_server: Server, other_thread: ThreadPoolExecutor) -> None:
    app = App(url_of(live_server))
    job = adder(app, "closed").submit(1)
    waiting: Future[int] = other_thread.submit(job.result)
    eventually(lambda: waiting.running(), "somebody waits")
    app.close()
    with pytest.raises(ServerUnreachable, match="the app was closed"):
        waiting.result(WAIT)
    app.close()  # once more does no harm
    assert job.cancel()
    app.close()


def test_no_thread_is_left(live_server: Server) -> None:
    before = set(threading.enumerate())  # other tests may have left apps that were not closed
    with App(url_of(live_server)) as app:
        app.server()
        assert [thread.name for thread in set(threading.enumerate()) - before] == ["switchgear-line"]
    assert set(threading.enumerate()) <= before


# --- forks ---


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_a_line_of_its_own(app: App, live_server: Server) -> None:
    add = adder(app, "forked")
    jobs = [add.submit(1)]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            own = add.submit(2)
            os.write(writer, f"{own.handle} {jobs[0].result(WAIT)}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with hand_worker(live_server, add) as worker:
        for _ in range(2):
            handle, _ = worker.grab()
            worker.complete(handle, b"5")
        with os.fdopen(reader) as answers:
            handle_text, result = answers.read().split()
        os.waitpid(child, 0)
        assert result == "5"  # the child heard of a job that its parent had submitted
        assert jobs[0].result(WAIT) == 5  # and so did the parent
        assert app.job(handle_text).result(WAIT) == 5
