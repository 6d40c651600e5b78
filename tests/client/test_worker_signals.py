"""Workers that run in the main thread, and signals; and what they log of servers that are not there."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq
import zmq.auth

from switchgear.client.draft import DraftTask, DraftWorker
from switchgear.client.pingpong import PingPongWorker
from switchgear.client.signals import STOP_SIGNALS
from switchgear.client.wmp import WmpJob, WmpTiming, WmpWorker
from switchgear.protocols.pingpong.messages import GOODBYE
from tests.client.test_pingpong import READY, RawRouter, raw_router
from tests.support.servers import HOST, free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wmp_wire import RawManager

PACE = WmpTiming(lease_seconds=0.4, lock_seconds=1.0, retry_first_seconds=30.0)
HINT = "if the server uses CURVE, check the keys"


@pytest.fixture(autouse=True)
def handlers_are_restored() -> Iterator[None]:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    yield
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


@contextmanager
def beside(play: Callable[[], None]) -> Iterator[None]:
    """The other side, in a thread of its own; what goes wrong there fails the test."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            play()
        except BaseException as error:
            errors.append(error)
            os.kill(os.getpid(), signal.SIGTERM)  # so that the worker ends

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()
    assert not errors, errors


# --- PING/PONG ---


@pytest.fixture
def router() -> Iterator[RawRouter]:
    with raw_router() as router:
        yield router


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_lets_a_pingpong_worker_finish_its_job_and_say_goodbye(
    router: RawRouter, number: signal.Signals
) -> None:
    def work(job: bytes) -> bytes:
        signal.raise_signal(number)
        return job.upper()

    def broker() -> None:
        identity = router.receive_until(READY)
        router.send(identity, b"", b"job")
        router.receive_until(GOODBYE)
        assert router.receive() == [identity, b"", b"JOB"]
        router.send(identity, *GOODBYE)

    with beside(broker):
        PingPongWorker(work, router.endpoint, broker_timeout_seconds=DEADLINE_SECONDS, says_goodbye=True).run()


def test_a_signal_ends_a_pingpong_worker_that_is_idle(router: RawRouter) -> None:
    def broker() -> None:
        identity = router.receive_until(READY)
        os.kill(os.getpid(), signal.SIGINT)
        router.receive_until(GOODBYE)
        router.send(identity, *GOODBYE)

    with beside(broker):
        PingPongWorker(bytes.upper, router.endpoint, broker_timeout_seconds=DEADLINE_SECONDS, says_goodbye=True).run()


def test_a_second_signal_ends_a_pingpong_worker_that_waits_for_an_answer_to_its_goodbye(router: RawRouter) -> None:
    def broker() -> None:
        router.receive_until(READY)
        os.kill(os.getpid(), signal.SIGTERM)
        router.receive_until(GOODBYE)
        os.kill(os.getpid(), signal.SIGTERM)

    with beside(broker):
        PingPongWorker(
            bytes.upper, router.endpoint, broker_timeout_seconds=100 * DEADLINE_SECONDS, says_goodbye=True
        ).run()


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)], ids=["TERM", "INT"]
)
def test_a_second_signal_breaks_off_the_job_of_a_pingpong_worker(
    router: RawRouter, number: signal.Signals, error: type[BaseException]
) -> None:
    def work(job: bytes) -> bytes:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(number)
        return b"not reached"

    def broker() -> None:
        router.send(router.receive_until(READY), b"", b"job")

    with beside(broker), pytest.raises(error):
        PingPongWorker(work, router.endpoint).run()


def test_in_another_thread_signals_are_left_alone(router: RawRouter) -> None:
    before = signal.getsignal(signal.SIGTERM)
    worker = PingPongWorker(bytes.upper, router.endpoint, says_goodbye=False)
    thread = threading.Thread(target=worker.run)
    thread.start()
    router.receive_until(READY)
    assert signal.getsignal(signal.SIGTERM) is before
    worker.stop()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()


def test_a_silent_broker_is_logged_once_and_so_is_its_return(
    router: RawRouter, caplog: pytest.LogCaptureFixture
) -> None:
    worker = PingPongWorker(
        bytes.upper, router.endpoint, broker_timeout_seconds=0.05, ping_seconds=0.1, says_goodbye=False
    )

    def broker() -> None:
        identity = b""
        for _ in range(3):
            identity = router.receive_until(READY)
        router.send(identity, b"", b"PONG")
        eventually(lambda: len(caplog.records) == 2, "it has said both")
        worker.stop()

    with beside(broker):
        worker.run()
    gone, back = (record.getMessage() for record in caplog.records[:2])
    assert "no word for too long" in gone
    assert HINT in gone
    assert "reached again" in back


# --- WMP ---


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_lets_a_wmp_worker_finish_its_job(number: signal.Signals) -> None:
    def work(job: WmpJob) -> bytes:
        os.kill(os.getpid(), number)
        return b"finished"

    with RawManager() as manager:

        def manage() -> None:
            manager.give()
            assert manager.hear("DONE").payload == b"finished"

        with beside(manage):
            WmpWorker(manager.url, {"f": work}, timing=PACE).run()


def test_a_second_signal_gives_the_job_of_a_wmp_worker_back() -> None:
    def work(job: WmpJob) -> bytes:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert job.cancelled.wait(DEADLINE_SECONDS)
        return b"nobody wants it"

    with RawManager() as manager:

        def manage() -> None:
            manager.give()
            assert manager.hear("DONE").headers["status"] == "returned"

        with beside(manage):
            WmpWorker(manager.url, {"f": work}, timing=PACE).run(drain_seconds=100 * DEADLINE_SECONDS)


def test_a_manager_that_cannot_be_reached_is_logged_once_and_so_is_its_return(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with WmpWorker(f"wmp://{HOST}:{port}", {"f": lambda job: b""}, timing=PACE):
        eventually(lambda: caplog.records, "it has complained")
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        manager = context.socket(zmq.ROUTER)
        manager.bind(f"tcp://{HOST}:{port}")
        eventually(lambda: len(caplog.records) == 2, "it has found it")
    manager.close(0)
    context.destroy(0)
    gone, back = (record.getMessage() for record in caplog.records[:2])
    assert "cannot be reached" in gone
    assert HINT in gone
    assert "reached again" in back


def test_a_manager_that_encrypts_is_logged_by_a_worker_without_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    zmq.auth.create_certificates(tmp_path, "one")
    secret = zmq.auth.load_certificate(tmp_path / "one.key_secret")[1]
    with RawManager(secret_key=secret or b"") as manager, WmpWorker(manager.url, {"f": lambda job: b""}, timing=PACE):
        eventually(lambda: caplog.records, "it has complained")
    assert HINT in caplog.records[0].getMessage()


# --- the 2005 draft ---


@pytest.fixture
def draft_server() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(DEADLINE_SECONDS)
        yield listener


def draft_url(listener: socket.socket) -> str:
    return f"gearman://{HOST}:{listener.getsockname()[1]}"


class DraftPeer:
    """The server's side of a connection of the draft, from its text alone."""

    def __init__(self, listener: socket.socket) -> None:
        self.connection, _ = listener.accept()
        self.connection.settimeout(DEADLINE_SECONDS)
        self.stream = self.connection.makefile("rb")

    def receive(self) -> tuple[int, bytes]:
        header = self.stream.read(9)
        return header[4], self.stream.read(int.from_bytes(header[5:], "big"))

    def receive_until(self, kind: int) -> bytes:
        while (received := self.receive())[0] != kind:
            if received[0] == 0x06:
                self.send(0x00)
        return received[1]

    def send(self, kind: int, body: bytes = b"") -> None:
        self.connection.sendall(b"\0JOB" + bytes([kind]) + len(body).to_bytes(4, "big") + body)

    def close(self) -> None:
        self.stream.close()
        self.connection.close()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_lets_a_draft_worker_finish_its_task_and_say_goodbye(
    draft_server: socket.socket, number: signal.Signals
) -> None:
    def handler(task: DraftTask) -> bytes:
        signal.raise_signal(number)
        return task.args.upper()

    def server() -> None:
        peer = DraftPeer(draft_server)
        peer.receive_until(0x06)
        peer.send(0x07, b"shout\0quietly")
        assert peer.receive_until(0x0B) == b"\0QUIETLY"
        assert peer.receive() == (0x02, b"")
        peer.close()

    with beside(server):
        DraftWorker(draft_url(draft_server), {"shout": handler}).run()


def test_a_signal_ends_a_draft_worker_that_sleeps(draft_server: socket.socket) -> None:
    def server() -> None:
        peer = DraftPeer(draft_server)
        peer.receive_until(0x03)
        os.kill(os.getpid(), signal.SIGTERM)
        peer.receive_until(0x02)
        peer.close()

    with beside(server):
        DraftWorker(draft_url(draft_server), {"shout": lambda task: b""}).run()


def test_a_second_signal_ends_a_draft_worker_that_waits_for_its_server_to_close(draft_server: socket.socket) -> None:
    peers = []

    def server() -> None:
        peers.append(DraftPeer(draft_server))
        peers[0].receive_until(0x03)
        os.kill(os.getpid(), signal.SIGTERM)
        peers[0].receive_until(0x02)
        os.kill(os.getpid(), signal.SIGTERM)

    with beside(server):
        DraftWorker(draft_url(draft_server), {"shout": lambda task: b""}).run()
    peers[0].close()


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)], ids=["TERM", "INT"]
)
def test_a_second_signal_breaks_off_the_task_of_a_draft_worker(
    draft_server: socket.socket, number: signal.Signals, error: type[BaseException]
) -> None:
    def handler(task: DraftTask) -> bytes:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(number)
        return b"not reached"

    peers = []

    def server() -> None:
        peers.append(DraftPeer(draft_server))
        peers[0].receive_until(0x06)
        peers[0].send(0x07, b"shout\0")

    with beside(server), pytest.raises(error):
        DraftWorker(draft_url(draft_server), {"shout": handler}).run()
    peers[0].close()
