"""PING/PONG at a real server: strangers that know only the document, crashes on every side, and other protocols."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import zmq
import zmq.auth

from switchgear.client import Client
from switchgear.client.pingpong import CurveKeys, PingPongClient, PingPongWorker
from switchgear.errors import JobFailed
from tests.client.background import reverse, url_of
from tests.client.background import working as working_gearman
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.threads import working_beside
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Wire
from tests.system.talk import control, events

pytestmark = pytest.mark.system

DEADLINE_MS = int(DEADLINE_SECONDS * 1000)
READY = [b"", b"READY"]
PING = [b"", b"PING"]
PONG = [b"", b"PONG"]


class Broker(NamedTuple):
    """A server, and where its clients and workers connect."""

    server: Server
    clients: str
    workers: str

    def known_workers(self) -> list[dict[str, Any]]:
        with Wire(self.server.address) as wire:
            workers: list[dict[str, Any]] = control(wire, "workers")
        return workers

    def count(self, event: str) -> int:
        return events(self.server).get(event, 0)


@contextmanager
def running_broker(
    *args: str, expire: float = 3, resend: float = 60, ports: tuple[int, int] = (0, 0)
) -> Iterator[Broker]:
    listener = f"pingpong://{HOST}:{ports[0]}?workers={ports[1]}&expire={expire}&resend={resend}"
    with running_switchgear("--listen", listener, *args) as server:
        address = re.search(r"listening on pingpong://\S+?:(\d+)\?workers=(\d+)", server.output())
        assert address is not None, server.output()
        yield Broker(server, f"tcp://{HOST}:{address[1]}", f"tcp://{HOST}:{address[2]}")


class Raw:
    """A plain socket, as a stranger would use it."""

    def __init__(self, kind: int, endpoint: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(kind)
        self.socket.set(zmq.LINGER, 0)
        self.socket.connect(endpoint)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()
        self._context.destroy(0)

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def receive(self) -> list[bytes]:
        assert self.socket.poll(DEADLINE_MS), "nothing arrived"
        return self.socket.recv_multipart()

    def expect_only(self, *messages: list[bytes]) -> None:
        """These, and nothing before a PONG: what the broker sends to one peer arrives in order."""
        for message in messages:
            assert self.receive() == message
        self.send(*PING)
        assert self.receive() == PONG


def dealer(endpoint: str) -> Raw:
    return Raw(zmq.DEALER, endpoint)


@contextmanager
def working(broker: Broker, work: Callable[[bytes], bytes] = bytes.upper, **options: Any) -> Iterator[PingPongWorker]:
    """A worker of the library, in a thread of its own."""
    worker = PingPongWorker(work, broker.workers, **options)
    with working_beside(worker):
        yield worker


# --- strangers, in processes of their own, written from the document and nothing else ---

STRANGE_WORKER = """
    import sys, time, zmq

    frontend = zmq.Context().socket(zmq.DEALER)
    frontend.connect(sys.argv[1])
    frontend.send_multipart([b"", b"READY"])
    last_ping = time.monotonic()
    while True:
        if frontend.poll(50):
            empty, message = frontend.recv_multipart()
            if message == b"HANG":
                print("hanging", flush=True)
                time.sleep(1000)
            elif message != b"PONG":
                frontend.send_multipart([b"", b"done: " + message])
        if time.monotonic() > last_ping + 0.1:
            frontend.send_multipart([b"", b"PING"])
            last_ping = time.monotonic()
"""

STRANGE_CLIENT = """
    import sys, zmq

    requester = zmq.Context().socket(zmq.REQ)
    requester.connect(sys.argv[1])
    for job in sys.argv[2:]:
        requester.send(job.encode())
        print(requester.recv_multipart())
"""


def start(script: str, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@contextmanager
def strange_worker(broker: Broker) -> Iterator[subprocess.Popen[str]]:
    known = len(broker.known_workers())
    process = start(STRANGE_WORKER, broker.workers)
    try:
        eventually(lambda: len(broker.known_workers()) > known, "the worker is known")
        yield process
    finally:
        process.kill()
        process.communicate()


def ask_as_stranger(broker: Broker, *jobs: str) -> list[str]:
    process = start(STRANGE_CLIENT, broker.clients, *jobs)
    output, _ = process.communicate(timeout=DEADLINE_SECONDS)
    return output.splitlines()


def test_a_worker_and_a_client_that_know_only_the_document() -> None:
    with running_broker() as broker, strange_worker(broker):
        answers = ask_as_stranger(broker, "one", "", "three")
        assert answers == ["[b'done: one']", "[b'done: ']", "[b'done: three']"]


def test_strangers_and_the_library_on_either_side() -> None:
    with running_broker() as broker:
        with strange_worker(broker), PingPongClient(broker.clients) as client:
            assert client.call(b"job", DEADLINE_SECONDS) == b"done: job"
        with working(broker):
            assert ask_as_stranger(broker, "job") == ["[b'JOB']"]


def test_a_client_with_several_requests_at_once() -> None:
    with running_broker() as broker, dealer(broker.clients) as client:
        for number in range(100):
            client.send(b"%d" % number, b"", b"job %d" % number)
        with working(broker), working(broker):
            answers = sorted(client.receive() for _ in range(100))
        assert answers == sorted([b"%d" % number, b"", b"JOB %d" % number] for number in range(100))


# --- the race, and results that are late ---


def test_pings_that_cross_a_job() -> None:
    with running_broker() as broker, dealer(broker.clients) as client, dealer(broker.workers) as worker:
        client.send(b"1", b"", b"first")
        client.send(b"2", b"", b"second")
        eventually(lambda: control_total(broker) == 2, "both jobs are there")
        for message in (READY, PING, PING):  # the broker sends a job when it has the first of these
            worker.send(*message)
        worker.expect_only([b"", b"first"], PONG, PONG)
        worker.send(b"", b"result of first")
        assert client.receive() == [b"1", b"", b"result of first"]
        assert worker.receive() == [b"", b"second"]
        worker.send(b"", b"result of second")
        assert client.receive() == [b"2", b"", b"result of second"]


def control_total(broker: Broker) -> int:
    with Wire(broker.server.address) as wire:
        return sum(function["total"] for function in control(wire, "functions"))


def test_a_result_from_a_worker_that_expired_meanwhile_is_used() -> None:
    with running_broker(resend=0.2) as broker, dealer(broker.clients) as client, dealer(broker.workers) as worker:
        worker.send(*READY)
        client.send(b"", b"job")
        assert worker.receive() == [b"", b"job"]
        eventually(lambda: broker.count("job_requeued"), "the job is taken from its worker")
        assert eventually(lambda: not broker.known_workers(), "which is no worker any more")
        worker.send(b"", b"better late than never")
        assert client.receive() == [b"", b"better late than never"]
        worker.send(*PING)
        assert worker.receive() == PONG
        assert len(broker.known_workers()) == 1


# --- workers that die ---


@pytest.mark.parametrize(
    ("way", "expires"), [(signal.SIGKILL, 0), (signal.SIGSTOP, 1)], ids=["its connection is closed", "it is silent"]
)
def test_a_worker_that_dies_while_idle_gets_no_job(way: signal.Signals, expires: int) -> None:
    with running_broker(expire=0.5) as broker, PingPongClient(broker.clients) as client:
        with strange_worker(broker) as process:
            process.send_signal(way)
            eventually(lambda: not broker.known_workers(), "the worker is known to be gone")
            assert broker.count("worker_expired") == expires
            with working(broker):
                assert client.call(b"job", DEADLINE_SECONDS) == b"JOB"
        assert broker.count("job_requeued") == 0


def test_a_worker_that_has_just_died_is_out_of_the_queue_at_once() -> None:
    with running_broker(expire=1000) as broker, PingPongClient(broker.clients) as client:
        with strange_worker(broker) as process:
            process.kill()
            process.wait()
        with working(broker):
            eventually(lambda: len(broker.known_workers()) == 1, "only the living one is in the queue")
            assert client.call(b"job", DEADLINE_SECONDS) == b"JOB"
            assert broker.count("job_requeued") == 0


def test_the_job_of_a_worker_that_dies_while_working_is_sent_again_and_answered_once() -> None:
    with running_broker(resend=0.5) as broker, dealer(broker.clients) as client:
        with strange_worker(broker) as process:
            client.send(b"", b"HANG")
            assert process.stdout is not None
            assert process.stdout.readline() == "hanging\n"
            process.kill()
        with working(broker):
            assert client.receive() == [b"", b"HANG"]  # which is in capitals already
            client.send(b"", b"next")
            assert client.receive() == [b"", b"NEXT"]
        assert broker.count("job_requeued")


def test_a_job_that_kills_its_workers_fails_in_the_end() -> None:
    with running_broker(resend=0.2) as broker, dealer(broker.clients) as client, dealer(broker.workers) as worker:
        client.send(b"", b"job")
        worker.send(*READY)
        while not client.socket.poll(0):
            if worker.socket.poll(20):
                worker.receive()
            worker.send(*PING)  # it is there, and never answers
        assert client.receive() == [b"", b"", b"FAILED", b"timed out in attempt 3, the last one"]


def test_a_job_that_fails_in_the_library_fails_in_the_end() -> None:
    def work(job: bytes) -> bytes:
        raise ValueError("no such image")

    with running_broker("--set", "engine.attempts=1") as broker, working(broker, work):
        with PingPongClient(broker.clients) as client, pytest.raises(JobFailed, match="worker lost in attempt 1"):
            client.call(b"job", DEADLINE_SECONDS)
        eventually(broker.known_workers, "the worker is back")


def test_a_worker_that_fails_and_is_back_at_once_gets_the_job_again() -> None:
    failures = [ValueError("the disk was busy")]

    def work(job: bytes) -> bytes:
        if failures:
            raise failures.pop()
        return job.upper()

    worker_at = {"broker_timeout_seconds": 0.2, "ping_seconds": 0.1}
    with running_broker() as broker, working(broker, work, **worker_at), PingPongClient(broker.clients) as client:
        assert client.call(b"job", DEADLINE_SECONDS) == b"JOB"


def work_once(broker: Broker) -> None:
    """Be a worker for one job."""

    def work(job: bytes) -> bytes:
        worker.stop()
        return job.upper()

    worker = PingPongWorker(work, broker.workers)
    worker.run()


def test_workers_that_are_stopped_under_load_lose_no_job() -> None:
    """With a stock worker the broker would send one more job for its last result, and wait a minute for that."""
    jobs = 300
    with running_broker() as broker, dealer(broker.clients) as client:
        for number in range(jobs):
            client.send(b"%d" % number, b"", b"job %d" % number)
        done = threading.Event()

        def live() -> None:
            while not done.is_set():
                work_once(broker)

        threads = [threading.Thread(target=live) for _ in range(2)]
        for thread in threads:
            thread.start()
        answers = [client.receive() for _ in range(jobs)]
        done.set()
        with working(broker), PingPongClient(broker.clients) as last:  # until nobody is left to wait for a job
            while any(thread.is_alive() for thread in threads):
                last.call(b"", DEADLINE_SECONDS)
        assert sorted(answers) == sorted([b"%d" % number, b"", b"JOB %d" % number] for number in range(jobs))
        assert broker.count("job_requeued") == 0


# --- a broker that dies ---


def test_workers_find_a_broker_that_was_killed_and_restarted(caplog: pytest.LogCaptureFixture) -> None:
    ports = (free_port(), free_port())
    timing: dict[str, Any] = {"broker_timeout_seconds": 0.2, "n_timeouts": 3, "ping_seconds": 0.1}
    with (
        running_broker(ports=ports) as broker,
        working(broker, **timing),
        PingPongClient(broker.clients) as client,
    ):
        assert client.call(b"before", DEADLINE_SECONDS) == b"BEFORE"
        broker.server.kill()
        eventually(lambda: "no word for too long" in caplog.text, "the worker misses the broker")
        with running_broker(ports=ports) as restarted:
            assert client.call(b"after", DEADLINE_SECONDS) == b"AFTER"
            assert len(restarted.known_workers()) == 1


def test_a_broker_that_was_restarted_learns_of_workers_by_their_pings() -> None:
    ports = (free_port(), free_port())
    with running_broker(ports=ports) as broker, dealer(broker.workers) as worker:
        worker.send(*READY)
        worker.expect_only()
        broker.server.kill()
        with running_broker(ports=ports) as restarted, dealer(restarted.clients) as client:
            worker.send(*PING)  # it has noticed nothing; its socket reconnects
            assert worker.receive() == PONG
            client.send(b"", b"job")
            assert worker.receive() == [b"", b"job"]
            worker.send(b"", b"result")
            assert client.receive() == [b"", b"result"]


def test_a_result_for_a_broker_that_is_no_more_is_not_anothers_answer() -> None:
    ports = (free_port(), free_port())
    with running_broker(ports=ports) as broker, dealer(broker.workers) as worker:
        with dealer(broker.clients) as client:
            worker.send(*READY)
            client.send(b"", b"old job")
            assert worker.receive() == [b"", b"old job"]
            broker.server.kill()
        with running_broker(ports=ports) as restarted, dealer(restarted.clients) as client:
            client.send(b"", b"new job")
            worker.send(b"", b"result of old job")
            worker.send(*PING)
            assert worker.receive() == PONG
            assert worker.receive() == [b"", b"new job"]
            worker.send(b"", b"result of new job")
            assert client.receive() == [b"", b"result of new job"]
            assert restarted.count("bad_input") == 1


# --- beside other protocols ---


def test_a_gearman_client_and_a_pingpong_worker() -> None:
    with running_broker() as broker, working(broker), Client(url_of(broker.server)) as client:
        assert client.submit("pingpong", b"job").wait(DEADLINE_SECONDS) == b"JOB"
        (worker,) = broker.known_workers()
        assert (worker["protocol"], worker["functions"]) == ("pingpong", ["pingpong"])
        assert worker["name"].startswith("pingpong-")


def test_a_pingpong_client_and_a_gearman_worker() -> None:
    with (
        running_broker() as broker,
        working_gearman(url_of(broker.server), {"pingpong": reverse}),
        PingPongClient(broker.clients) as client,
    ):
        assert client.call(b"abc", DEADLINE_SECONDS) == b"cba"


def test_with_curve_only_those_who_know_the_servers_key_get_in(tmp_path: Path) -> None:
    zmq.auth.create_certificates(tmp_path, "server")
    keys = CurveKeys.load(tmp_path / "server.key")
    setting = f"zeromq.curve_key_file={tmp_path / 'server.key_secret'}"
    with (
        running_broker("--set", setting) as broker,
        working(broker, keys=keys),
        PingPongClient(broker.clients, keys=keys) as client,
        PingPongClient(broker.clients) as stranger,
    ):
        assert client.call(b"job", DEADLINE_SECONDS) == b"JOB"
        with pytest.raises(TimeoutError):
            stranger.call(b"job", 0.3)


def test_a_worker_of_the_library_tells_our_broker_that_it_leaves() -> None:
    """The broker shows in its handshake that it knows the word, and then sends no job that would be lost."""
    started, may_end = threading.Event(), threading.Event()
    answers: list[bytes] = []

    def work(job: bytes) -> bytes:
        worker.stop()
        started.set()
        may_end.wait(DEADLINE_SECONDS)
        return job.upper()

    def call(job: bytes) -> None:
        with PingPongClient(broker.clients) as client:
            answers.append(client.call(job, DEADLINE_SECONDS))

    def jobs() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = control(wire, "jobs", states=["ready", "running"])["jobs"]
        return listed

    with running_broker() as broker, Wire(broker.server.address) as wire:
        worker = PingPongWorker(work, broker.workers)
        callers = [threading.Thread(target=call, args=(job,)) for job in (b"first", b"second")]
        with working_beside(worker):
            callers[0].start()
            assert started.wait(DEADLINE_SECONDS)
            callers[1].start()
            eventually(lambda: len(jobs()) == 2, "both jobs are there")
            may_end.set()
            callers[0].join(DEADLINE_SECONDS)
        eventually(lambda: not broker.known_workers(), "the worker is gone")
        assert [job["attempts"] for job in jobs()] == [0]
        with working_beside(PingPongWorker(bytes.upper, broker.workers)):
            callers[1].join(DEADLINE_SECONDS)
    assert answers == [b"FIRST", b"SECOND"]
