"""The worker and the client over real sockets, against a broker that knows the document and nothing else."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import zmq

from switchgear.client import pingpong
from switchgear.client.pingpong import CurveKeys, PingPongClient, PingPongWorker
from switchgear.errors import ClientError, ConfigError, JobFailed
from tests.support.threads import working_beside
from tests.support.waiting import DEADLINE_SECONDS

DEADLINE_MS = int(DEADLINE_SECONDS * 1000)

READY = [b"", b"READY"]
PING = [b"", b"PING"]
PONG = [b"", b"PONG"]
LEAVE = [b"", b"", b"LEAVE"]

# As patient as a busy machine needs it, and nothing that is not in the document.
PATIENT: dict[str, Any] = {"broker_timeout_seconds": 1000, "ping_seconds": 0.05, "says_goodbye": False}
IMPATIENT: dict[str, Any] = {"broker_timeout_seconds": 0.2}


class RawRouter:
    """A ROUTER socket and what a test says through it."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: tuple[bytes, bytes] | None = None) -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.set(zmq.LINGER, 0)
        self.socket.set(zmq.ROUTER_HANDOVER, 1)
        if keys is not None:
            self.socket.set(zmq.CURVE_SECRETKEY, keys[1])
            self.socket.set(zmq.CURVE_SERVER, 1)
        self.endpoint = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"

    def receive(self) -> list[bytes]:
        assert self.socket.poll(DEADLINE_MS), "nothing arrived"
        return self.socket.recv_multipart()

    def receive_until(self, frames: list[bytes]) -> bytes:
        """Skip PINGs, which come whenever they like, up to this message; its sender."""
        while True:
            identity, *received = self.receive()
            if received == frames:
                return identity
            assert received == PING, received

    def send(self, *message: bytes) -> None:
        self.socket.send_multipart(message)


@contextmanager
def raw_router(keys: tuple[bytes, bytes] | None = None) -> Iterator[RawRouter]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = RawRouter(context, keys)
    try:
        yield router
    finally:
        router.socket.close()
        context.destroy(0)


@pytest.fixture
def router() -> Iterator[RawRouter]:
    with raw_router() as router:
        yield router


@contextmanager
def working(endpoint: str, work: Callable[[bytes], bytes] = bytes.upper, **options: Any) -> Iterator[PingPongWorker]:
    """A worker in a thread of its own."""
    worker = PingPongWorker(work, endpoint, **{**PATIENT, **options})
    with working_beside(worker):
        yield worker


# --- the worker ---


def test_ready_then_pings(router: RawRouter) -> None:
    with working(router.endpoint, identity=b"me"):
        assert router.receive() == [b"me", *READY]
        for _ in range(3):
            assert router.receive() == [b"me", *PING]
            router.send(b"me", *PONG)


def test_a_job_and_its_result(router: RawRouter) -> None:
    with working(router.endpoint):
        identity = router.receive_until(READY)
        for job, result in [(b"one", b"ONE"), (b"", b""), (b"\0\xff" * 100_000, b"\0\xff" * 100_000)]:
            router.send(identity, b"", job)
            assert router.receive_until([b"", result]) == identity


def test_no_ping_while_working(router: RawRouter) -> None:
    may_end = threading.Event()

    def work(job: bytes) -> bytes:
        may_end.wait(DEADLINE_SECONDS)
        return job.upper()

    with working(router.endpoint, work):
        identity = router.receive_until(READY)
        router.send(identity, b"", b"job")
        while router.socket.poll(300):  # several times the pause between two PINGs
            assert router.receive() == [identity, *PING]  # sent before the job came
        may_end.set()
        assert router.receive() == [identity, b"", b"JOB"]
        assert router.receive() == [identity, *PING]


def test_a_silent_broker_is_connected_to_anew(router: RawRouter, caplog: pytest.LogCaptureFixture) -> None:
    with working(router.endpoint, **IMPATIENT):
        identity = router.receive_until(READY)
        assert router.receive_until(READY) == identity
    assert "no word for too long" in caplog.text


def test_a_worker_that_is_started_before_its_broker_waits_for_it() -> None:
    with raw_router() as router:
        endpoint = router.endpoint
    with working(endpoint):
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        with context, context.socket(zmq.ROUTER) as late:
            late.set(zmq.LINGER, 0)
            late.bind(endpoint)
            assert late.poll(DEADLINE_MS)
            _, *frames = late.recv_multipart()
            assert frames in (READY, PING)


def raising(job: bytes) -> bytes:
    raise ValueError("no such image")


@pytest.mark.parametrize(
    ("work", "logged"),
    [
        (raising, "no such image"),
        (lambda job: "text", "a str cannot be a result"),
        (lambda job: b"READY", "the word READY cannot be a result"),
        (lambda job: b"PING", "the word PING cannot be a result"),
    ],
    ids=["an exception", "text", "READY", "PING"],
)
def test_a_failure_is_logged_and_followed_by_ready_instead_of_a_result(
    router: RawRouter, work: Callable[[bytes], bytes], logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    with working(router.endpoint, work, **IMPATIENT):
        identity = router.receive_until(READY)
        router.send(identity, b"", b"job")
        assert router.receive_until(READY) == identity
        assert logged in caplog.text
        assert caplog.records[0].levelno == logging.ERROR


def test_an_idle_worker_that_is_stopped_says_so_and_waits_for_the_answer(router: RawRouter) -> None:
    with working(router.endpoint, says_goodbye=True) as worker:
        identity = router.receive_until(READY)
        worker.stop()
        router.receive_until(LEAVE)
        router.send(identity, b"", b"a job that crosses it")
        assert router.receive() == [identity, b"", b"A JOB THAT CROSSES IT"]
        router.send(identity, *LEAVE)


def test_a_worker_may_be_stopped_by_its_own_function(router: RawRouter) -> None:
    def work(job: bytes) -> bytes:
        worker.stop()
        return job.upper()

    with working(router.endpoint, work, says_goodbye=True) as worker:
        identity = router.receive_until(READY)
        router.send(identity, b"", b"job")
        router.receive_until(LEAVE)
        assert router.receive() == [identity, b"", b"JOB"]
        router.send(identity, *LEAVE)


@pytest.mark.parametrize("says_goodbye", [False, None], ids=["told not to", "broker without extensions"])
def test_a_worker_that_uses_only_the_words_of_the_document_stops_without_one(
    router: RawRouter, says_goodbye: bool | None
) -> None:
    with working(router.endpoint, says_goodbye=says_goodbye) as worker:
        identity = router.receive_until(READY)
        router.send(identity, *PONG)
        router.send(identity, b"", b"job")
        router.receive_until([b"", b"JOB"])
        worker.stop()
    while router.socket.poll(100):
        assert router.receive() == [identity, *PING]


def test_a_worker_that_was_stopped_before_it_ran_ends_at_once(router: RawRouter) -> None:
    worker = PingPongWorker(bytes.upper, router.endpoint, says_goodbye=False)
    worker.stop()
    worker.run()
    worker.stop()


def test_a_worker_keeps_its_made_up_identity_and_no_other_has_it(router: RawRouter) -> None:
    with working(router.endpoint) as one, working(router.endpoint) as other:
        heard: set[bytes] = set()
        while len(heard) < 2:
            heard.add(router.receive()[0])
        assert heard == {one.identity, other.identity}


@pytest.mark.parametrize("identity", [b"\0abc", b"x" * 256], ids=["zero", "long"])
def test_identities_that_cannot_be(identity: bytes) -> None:
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        PingPongWorker(bytes.upper, identity=identity)


@pytest.mark.parametrize(
    ("url", "words"), [("gearman://x", "brokers are at tcp://"), ("tcp://x:0", "port 0"), ("a b", "not of the form")]
)
def test_addresses_that_cannot_be(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        PingPongWorker(bytes.upper, url)
    with pytest.raises(ConfigError, match=words):
        PingPongClient(url)


def test_an_address_that_zeromq_does_not_take() -> None:
    with pytest.raises(ConfigError, match="cannot connect to pingpong://-x:5563: Invalid argument"):
        PingPongWorker(bytes.upper, "tcp://-x").run()
    with pytest.raises(ConfigError, match="cannot connect to pingpong://-x:5562: Invalid argument"):
        PingPongClient("tcp://-x")


@pytest.mark.parametrize(
    ("url", "worker_endpoint", "client_endpoint"),
    [
        ("tcp://127.0.0.1:7", "tcp://127.0.0.1:7", "tcp://127.0.0.1:7"),
        ("pingpong://head", "tcp://head:5563", "tcp://head:5562"),
        ("[::1]", "tcp://[::1]:5563", "tcp://[::1]:5562"),
    ],
)
def test_clients_and_workers_have_addresses_of_their_own(url: str, worker_endpoint: str, client_endpoint: str) -> None:
    assert PingPongWorker(bytes.upper, url).address.endpoint == worker_endpoint
    with PingPongClient(url) as client:
        assert client.address.endpoint == client_endpoint


# --- the client ---


@contextmanager
def calling(client: PingPongClient, job: bytes) -> Iterator[list[object]]:
    """A call in a thread of its own; its result, or what it raised, is there when the block is left."""
    outcome: list[object] = []

    def call() -> None:
        try:
            outcome.append(client.call(job, DEADLINE_SECONDS))
        except ClientError as error:
            outcome.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield outcome
    finally:
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()


@pytest.mark.parametrize("result", [b"result", b"", b"FAILED", b"x" * 1_000_000])
def test_a_call_and_its_result(router: RawRouter, result: bytes) -> None:
    with PingPongClient(router.endpoint) as client, calling(client, b"job") as outcome:
        identity, tag, delimiter, job = router.receive()
        assert (delimiter, job) == (b"", b"job")
        router.send(identity, tag, b"", result)
    assert outcome == [result]


def test_a_call_that_failed(router: RawRouter) -> None:
    with PingPongClient(router.endpoint) as client, calling(client, b"job") as outcome:
        identity, tag, _, _ = router.receive()
        router.send(identity, tag, b"", b"", b"FAILED", b"no such image")
    (error,) = outcome
    assert isinstance(error, JobFailed)
    assert error.error == b"no such image"
    assert "no such image" in str(error)


@pytest.mark.parametrize("frames", [[], [b""], [b"", b"two", b"frames"], [b"", b"", b"OTHER", b"text"]])
def test_an_answer_that_makes_no_sense(router: RawRouter, frames: list[bytes]) -> None:
    with PingPongClient(router.endpoint) as client, calling(client, b"job") as outcome:
        identity, tag, _, _ = router.receive()
        router.send(identity, tag, *frames)
    (error,) = outcome
    assert type(error) is ClientError


def test_an_answer_to_a_call_that_was_given_up_is_not_taken_for_that_to_another(router: RawRouter) -> None:
    with PingPongClient(router.endpoint) as client:
        with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
            client.call(b"first", 0.05)
        identity, tag, _, _ = router.receive()
        router.send(identity, tag, b"", b"result of first")
        with calling(client, b"second") as outcome:
            _, tag, _, _ = router.receive()
            router.send(identity, tag, b"", b"result of second")
        assert outcome == [b"result of second"]


# --- encrypted ---


@pytest.mark.parametrize("has_keys", [True, False], ids=["own keys", "made-up keys"])
def test_worker_and_client_with_curve(has_keys: bool) -> None:
    server_keys, own_keys = zmq.curve_keypair(), zmq.curve_keypair()
    keys = CurveKeys.of(server_keys[0], own_keys if has_keys else None)
    with raw_router(server_keys) as backend, working(backend.endpoint, keys=keys):
        backend.receive_until(READY)
    with raw_router(server_keys) as frontend, PingPongClient(frontend.endpoint, keys=keys) as client:
        with calling(client, b"job") as outcome:
            identity, tag, _, _ = frontend.receive()
            frontend.send(identity, tag, b"", b"result")
        assert outcome == [b"result"]


# What a broker that encrypts begins with.  ZeroMQ gives up a connection without keys to it, for good.
CURVE_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + b"\x01" + bytes(31)


def refuse(listener: socket.socket) -> None:
    """Accept a connection and wait until its client has given it up."""
    peer, _ = listener.accept()
    with peer:
        peer.settimeout(DEADLINE_SECONDS)
        peer.sendall(CURVE_GREETING)
        while peer.recv(1000):
            pass


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_SECONDS)
        yield listener


def test_a_worker_without_keys_tries_again_and_can_be_stopped(listener: socket.socket) -> None:
    with working(f"tcp://127.0.0.1:{listener.getsockname()[1]}", **IMPATIENT):
        for _ in range(2):
            refuse(listener)


def test_a_call_without_keys_ends_at_its_timeout(listener: socket.socket) -> None:
    with PingPongClient(f"tcp://127.0.0.1:{listener.getsockname()[1]}") as client:
        refuse(listener)
        with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
            client.call(b"job", 0.05)


def test_the_public_names_are_these() -> None:
    assert pingpong.__all__ == [
        "AsyncPingPongWorker",
        "CurveKeys",
        "PingPongClient",
        "PingPongWorker",
        "PingPongWorkerProtocol",
    ]
    assert all(getattr(pingpong, name).__doc__ for name in pingpong.__all__)
