"""The server as a worker of other servers: of a real gearmand, of a Switchgear server, and of a WMP manager."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from switchgear import Client, JobFailed, PingPongBroker, PingPongWorker, WmpManager, WmpWorker, Worker
from switchgear.client.gearman.submitted_job import UpdateKind
from switchgear.client.gearman.worker import Handler, WorkerJob
from switchgear.client.wmp import WmpJob
from switchgear.errors import ConfigError, ServerUnreachable
from tests.support.servers import Server, running_gearmand, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

ANY_WMP = "wmp://127.0.0.1:0"
ANY_GEARMAN = "gearman://127.0.0.1:0"
ANY_PINGPONG = "pingpong://127.0.0.1:0?workers=0"

PATIENCE = 3 * DEADLINE_SECONDS


@pytest.fixture(params=["gearmand", "switchgear"])
def upstream(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server whose jobs are forwarded."""
    running = running_gearmand if request.param == "gearmand" else running_switchgear
    with running() as server:
        yield server


@contextmanager
def forwarding(server: Server, options: str = "") -> Iterator[WmpManager]:
    """A server that is a worker of the upstream, and has a listener for each kind of worker."""
    source = f"gearman-worker://127.0.0.1:{server.port}{options}"
    with WmpManager(ANY_WMP, other_addresses=[ANY_GEARMAN, source]) as front:
        yield front


def client_of(server: Server) -> Client:
    return Client(f"gearman://127.0.0.1:{server.port}", timeout_seconds=PATIENCE)


def answers(client: Client) -> bool:
    try:
        return client.echo(b"x") == b"x"
    except ServerUnreachable:
        return False


@contextmanager
def running_program(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def status_of(client: Client, function: str) -> list[str]:
    """Total, running and workers of a function, as the server's own words."""
    rows = [line.split("\t") for line in client.admin("status")]
    return next((row[1:] for row in rows if row[0] == function), [])


@contextmanager
def gearman_worker(url: str, functions: dict[str, Handler]) -> Iterator[None]:
    """An asyncio worker in a thread."""
    loop = asyncio.new_event_loop()
    made: list[Worker] = []

    async def run() -> None:
        made.append(Worker(url, functions, slots=4))
        await made[0].run()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        yield
    finally:
        eventually(lambda: made, "the worker is made")
        loop.call_soon_threadsafe(made[0].stop)
        thread.join(PATIENCE)
        loop.close()


# --- of a Gearman server ---


def test_a_job_of_the_upstream_is_run_by_a_worker_of_another_protocol(upstream: Server) -> None:
    with (
        forwarding(upstream) as front,
        WmpWorker(front.address, {"shout": lambda job: job.payload.upper()}, slots=2),
        client_of(upstream) as client,
    ):
        assert client.submit("shout", b"hello").wait(PATIENCE) == b"HELLO"
        for number in range(50):
            assert client.submit("shout", b"n%d" % number).wait(PATIENCE) == b"N%d" % number


def test_progress_data_warnings_and_the_unique_key_pass_through(upstream: Server) -> None:
    uniques: list[str] = []

    async def work(job: WorkerJob) -> bytes:
        uniques.append(job.unique)
        job.data(b"part ")
        job.warn(b"careful")
        job.progress(1, 2)
        return b"end"

    with (
        forwarding(upstream) as front,
        gearman_worker(front.addresses[1], {"f": work}),
        client_of(upstream) as client,
    ):
        updates = list(client.submit("f", b"", unique="key").updates(PATIENCE))
        told = {(update.kind, update.data, update.numerator, update.denominator) for update in updates}
        assert (UpdateKind.DATA, b"part ", 0, 0) in told
        assert (UpdateKind.WARNING, b"careful", 0, 0) in told
        assert (UpdateKind.STATUS, b"", 1, 2) in told
        assert updates[-1].kind is UpdateKind.COMPLETE
        assert updates[-1].data == b"end"
        assert uniques == ["key"]


def test_a_failure_is_reported_with_its_reason(upstream: Server) -> None:
    def fail(job: WmpJob) -> bytes:
        raise ValueError("no such word")

    with (
        forwarding(upstream) as front,
        WmpWorker(front.address, {"shout": fail}),
        client_of(upstream) as client,
    ):
        with pytest.raises(JobFailed, match="no such word"):
            client.submit("shout", b"").wait(PATIENCE)
        background = client.submit("shout", b"", background=True)
        eventually(lambda: not client.status(background.handle).known, "the background job has failed")


def test_jobs_are_taken_only_if_there_is_an_idle_worker(upstream: Server) -> None:
    started, release = threading.Semaphore(0), threading.Event()

    def hold(job: WmpJob) -> bytes:
        started.release()
        assert release.wait(PATIENCE)
        return b"held"

    with forwarding(upstream) as front, client_of(upstream) as client:
        for _ in range(5):
            client.submit("hold", b"", background=True)
        with WmpWorker(front.address, {"hold": hold}, slots=1):
            assert started.acquire(timeout=PATIENCE)
            # The upstream keeps the others, for any worker that comes to it.
            assert status_of(client, "hold")[:2] == ["5", "1"]
            with client_of(upstream) as other:  # a worker of the upstream itself is not kept waiting
                url = f"gearman://127.0.0.1:{upstream.port}"

                async def at_once(job: WorkerJob) -> bytes:
                    return b""

                with gearman_worker(url, {"hold": at_once}):
                    eventually(lambda: status_of(other, "hold")[:2] == ["1", "1"], "the others are done", PATIENCE)
            release.set()
            eventually(lambda: status_of(client, "hold")[:1] == ["0"], "the last is done", PATIENCE)


def test_a_function_is_offered_while_it_has_workers(upstream: Server) -> None:
    with forwarding(upstream, "?functions=shout,other") as front, client_of(upstream) as client:
        with WmpWorker(front.address, {"shout": lambda job: b"", "private": lambda job: b""}):
            eventually(lambda: status_of(client, "shout")[2:] == ["1"], "shout is offered", PATIENCE)
            assert status_of(client, "private") in ([], ["0", "0", "0"])
        eventually(lambda: status_of(client, "shout")[2:] in (["0"], []), "shout is withdrawn", PATIENCE)


def test_a_worker_that_dies_here_is_not_noticed_there(upstream: Server) -> None:
    calls: list[bytes] = []

    def work(job: WmpJob) -> bytes:
        calls.append(job.payload)
        if len(calls) == 1:
            first.stop(0.0)  # gives the job back
            job.cancelled.wait(PATIENCE)
            return b"too late"
        return b"second"

    with forwarding(upstream) as front, client_of(upstream) as client:
        first = WmpWorker(front.address, {"f": work})
        with first:
            job = client.submit("f", b"x")
            eventually(lambda: calls, "the job runs")
        with WmpWorker(front.address, {"f": work}):
            assert job.wait(PATIENCE) == b"second"


def test_after_a_restart_of_the_upstream_the_forwarding_goes_on() -> None:
    with running_gearmand() as first:
        port = first.port
        with forwarding(first) as front, WmpWorker(front.address, {"shout": lambda job: job.payload.upper()}):
            with client_of(first) as client:
                assert client.submit("shout", b"one").wait(PATIENCE) == b"ONE"
            first.kill()
            with (
                running_program(["/usr/sbin/gearmand", f"--port={port}", "--listen=127.0.0.1", "--log-file=stderr"]),
                Client(f"gearman://127.0.0.1:{port}", timeout_seconds=PATIENCE) as client,
            ):
                eventually(lambda: answers(client), "gearmand is there again")
                assert client.submit("shout", b"two").wait(PATIENCE) == b"TWO"


def test_when_this_server_stops_the_upstream_gives_its_jobs_to_others(upstream: Server) -> None:
    started = threading.Event()

    def hold(job: WmpJob) -> bytes:
        started.set()
        job.cancelled.wait(PATIENCE)
        raise RuntimeError

    with client_of(upstream) as client:
        job = client.submit("f", b"x")
        front = WmpManager(ANY_WMP, other_addresses=[f"gearman-worker://127.0.0.1:{upstream.port}"], drain_seconds=0.05)
        with front, WmpWorker(front.address, {"f": hold}) as worker:
            assert started.wait(PATIENCE)
            front.stop()
            worker.stop_at_once()  # its manager is gone, and takes no report

        async def work(job: WorkerJob) -> bytes:
            return b"by another"

        with gearman_worker(f"gearman://127.0.0.1:{upstream.port}", {"f": work}):
            assert job.wait(PATIENCE) == b"by another"


def test_a_job_in_hand_is_reported_before_this_server_stops(upstream: Server) -> None:
    started, release = threading.Event(), threading.Event()

    def hold(job: WmpJob) -> bytes:
        started.set()
        assert release.wait(PATIENCE)
        return b"in time"

    with client_of(upstream) as client:
        job = client.submit("f", b"x")
        front = WmpManager(
            ANY_WMP, other_addresses=[f"gearman-worker://127.0.0.1:{upstream.port}"], drain_seconds=PATIENCE
        )
        with front, WmpWorker(front.address, {"f": hold}):
            assert started.wait(PATIENCE)
            stopping = threading.Thread(target=front.stop)
            stopping.start()
            release.set()
            stopping.join(PATIENCE)
        assert job.wait(PATIENCE) == b"in time"


def test_many_jobs_are_drained_through_a_few_workers(upstream: Server) -> None:
    done: list[bytes] = []

    async def work(job: WorkerJob) -> bytes:
        done.append(job.payload)
        return b""

    with client_of(upstream) as client:
        for number in range(2000):
            client.submit("f", b"%d" % number, background=True)
        with forwarding(upstream) as front, gearman_worker(front.addresses[1], {"f": work}):
            eventually(lambda: len(done) == 2000, "all jobs are done", 60)
            eventually(lambda: status_of(client, "f")[:1] == ["0"], "and reported", PATIENCE)
    assert len(set(done)) == 2000


def test_a_job_whose_last_worker_has_gone_is_given_back(upstream: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchgear.forwarding.source.GIVE_BACK_SECONDS", 0.3)
    started = threading.Event()

    def hold(job: WmpJob) -> bytes:
        started.set()
        job.cancelled.wait(PATIENCE)
        raise RuntimeError

    async def work(job: WorkerJob) -> bytes:
        return b"by another"

    with forwarding(upstream) as front, client_of(upstream) as client:
        job = client.submit("f", b"x")
        with WmpWorker(front.address, {"f": hold}) as last:
            assert started.wait(PATIENCE)
            last.stop(0.0)
        with gearman_worker(f"gearman://127.0.0.1:{upstream.port}", {"f": work}):
            assert job.wait(PATIENCE) == b"by another"


def test_an_operator_sees_the_source_here_and_the_worker_there() -> None:
    with running_switchgear() as upstream, forwarding(upstream) as front:
        source = front.addresses[2]
        with (
            WmpWorker(front.address, {"f": lambda job: b""}),
            client_of(upstream) as there,
            Client(front.addresses[1], timeout_seconds=PATIENCE) as here,
        ):

            def connections() -> list[int]:
                listeners = here.control("server")["listeners"]
                return [row["connections"] for row in listeners if row["url"] == source]

            eventually(lambda: connections() == [1], "it is connected", PATIENCE)
            names = [row["name"] for row in there.control("workers")]
            assert any(name.startswith("switchgear-forwarding/") for name in names)


def test_an_upstream_that_talks_nonsense_is_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"gearman-worker://127.0.0.1:{listener.getsockname()[1]}"
        with WmpManager(ANY_WMP, other_addresses=[url]) as front, WmpWorker(front.address, {"f": lambda job: b"done"}):
            for nonsense in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0RES\xff\xff\xff\xff\xff\xff\xff\xff", b""):
                listener.settimeout(PATIENCE)
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(nonsense)
                    assert front.submit("f").result(PATIENCE) == b"done"


# --- circles ---


def test_a_server_that_forwards_to_itself_notices_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "switchgear")
    with running_free_port() as port:
        urls = [f"gearman://127.0.0.1:{port}", f"gearman-worker://127.0.0.1:{port}"]
        with (
            WmpManager(ANY_WMP, other_addresses=urls) as front,
            WmpWorker(front.address, {"f": lambda job: b"done"}),
            Client(urls[0], timeout_seconds=PATIENCE) as client,
        ):
            eventually(lambda: "that is this server itself" in caplog.text, "it is noticed")
            assert client.submit("f").wait(PATIENCE) == b"done"
            eventually(lambda: status_of(client, "f") == ["0", "0", "1"], "only the real worker is left")


def test_two_servers_that_forward_to_each_other_share_their_workers() -> None:
    with running_free_port() as first_port, running_free_port() as second_port:
        first_urls = [f"gearman://127.0.0.1:{first_port}", f"gearman-worker://127.0.0.1:{second_port}"]
        second_urls = [f"gearman://127.0.0.1:{second_port}", f"gearman-worker://127.0.0.1:{first_port}"]
        with (
            WmpManager(ANY_WMP, other_addresses=first_urls) as first,
            WmpManager(ANY_WMP, other_addresses=second_urls) as second,
        ):
            stuck = second.submit("nobody", b"")  # without a worker it goes nowhere
            with WmpWorker(first.address, {"f": lambda job: b"at the first"}):
                for _ in range(20):
                    assert second.submit("f").result(PATIENCE) == b"at the first"
                    assert first.submit("f").result(PATIENCE) == b"at the first"
            assert not stuck.is_done


@contextmanager
def running_free_port() -> Iterator[int]:
    from tests.support.servers import free_port

    yield free_port()


# --- of a WMP manager ---


def test_a_job_of_a_manager_is_run_by_a_worker_of_another_protocol() -> None:
    with WmpManager(ANY_WMP) as manager:
        source = manager.address.replace("wmp://", "wmp-worker://") + "?functions=pingpong"
        with (
            PingPongBroker(ANY_PINGPONG, other_addresses=[source]) as front,
            PingPongWorker(bytes.upper, front.workers_address),
        ):
            for word in (b"hello", b"again"):
                assert manager.submit("pingpong", word).result(PATIENCE) == word.upper()


def test_progress_failures_and_cancellations_of_a_managers_jobs() -> None:
    cancelled = threading.Event()

    def work(job: WmpJob) -> bytes:
        if job.payload == b"bad":
            raise ValueError("no such word")
        job.progress(1, 2)
        assert job.cancelled.wait(PATIENCE)
        cancelled.set()
        return b""

    with WmpManager(ANY_WMP) as manager:
        source = manager.address.replace("wmp://", "wmp-worker://")
        with WmpManager(ANY_WMP, other_addresses=[source]) as front, WmpWorker(front.address, {"f": work}):
            with pytest.raises(JobFailed, match="no such word"):
                manager.submit("f", b"bad").result(PATIENCE)
            job = manager.submit("f", b"long")
            eventually(lambda: job.progress is not None, "progress", PATIENCE)
            job.cancel()
            assert cancelled.wait(PATIENCE)


def test_when_this_server_stops_the_manager_gets_its_jobs_back() -> None:
    started = threading.Event()

    def hold(job: WmpJob) -> bytes:
        started.set()
        job.cancelled.wait(PATIENCE)
        raise RuntimeError

    with WmpManager(ANY_WMP) as manager:
        job = manager.submit("f", attempts_limit=1)
        source = manager.address.replace("wmp://", "wmp-worker://")
        front = WmpManager(ANY_WMP, other_addresses=[source], drain_seconds=0.05)
        with front, WmpWorker(front.address, {"f": hold}) as worker:
            assert started.wait(PATIENCE)
            front.stop()
            worker.stop_at_once()  # its manager is gone, and takes no report
        with WmpWorker(manager.address, {"f": lambda job: b"by another"}):
            assert job.result(PATIENCE) == b"by another"


# --- mistakes ---


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("gearman-worker://127.0.0.1:1/path", "nothing follows the port"),
        ("gearman-worker://127.0.0.1:1?slots=0", "slots"),
        ("wmp-worker://127.0.0.1:1?roles=a", "roles"),
        ("wmp-worker://127.0.0.1:1?server_key_file=/nowhere", "no such file"),
        ("wmp-worker://127.0.0.1:1?key_file=/nowhere", "needs server_key_file"),
    ],
)
def test_a_mistake_in_the_url_is_told(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        WmpManager(ANY_WMP, other_addresses=[url]).start()


def test_an_upstream_that_is_away_keeps_nobody_from_working() -> None:
    with running_free_port() as port:
        urls = [f"gearman-worker://127.0.0.1:{port}", f"wmp-worker://127.0.0.1:{port}"]
        with WmpManager(ANY_WMP, other_addresses=urls) as front, WmpWorker(front.address, {"f": lambda job: b"done"}):
            assert front.submit("f").result(PATIENCE) == b"done"
