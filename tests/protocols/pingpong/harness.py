"""A broker without a wire: two doors to one function, and time that passes when told."""

from __future__ import annotations

from functools import partial
from typing import Any

from switchgear.engine.engine import EngineSettings
from switchgear.model import SECOND_US, Delivery, Job, Peer
from switchgear.protocols.multipart import Message
from switchgear.protocols.pingpong.broker import ClientsSession, PingPongSetup, WorkersSession
from tests.protocols.message_harness import FakeListener, MessageHarness

EXPIRE_SECONDS = 3
RESEND_SECONDS = 60
BROKER_TIMEOUT_SECONDS = 1

# Words and frames, written down again from the document.
EMPTY = b""
READY = [EMPTY, b"READY"]
PING = [EMPTY, b"PING"]
PONG = [EMPTY, b"PONG"]
LEAVE = [EMPTY, EMPTY, b"LEAVE"]  # this product's own

JOB = [EMPTY, b"job"]
RESULT = [EMPTY, b"result"]


def failed(text: str) -> Message:
    return [EMPTY, EMPTY, b"FAILED", text.encode()]


class Broker:
    """`frontend` is for clients, `backend` for workers."""

    def __init__(
        self,
        *,
        expire_seconds: float = EXPIRE_SECONDS,
        resend_seconds: float = RESEND_SECONDS,
        keeps: bool = False,
        settings: EngineSettings | None = None,
    ) -> None:
        self.harness = MessageHarness(keeps=keeps, settings=settings)
        self.engine = self.harness.engine
        setup = PingPongSetup(
            function=b"pingpong",
            expire_us=round(expire_seconds * SECOND_US),
            resend_us=round(resend_seconds * SECOND_US),
            broker_timeout_us=BROKER_TIMEOUT_SECONDS * SECOND_US,
        )
        self.frontend = self.harness.listener(partial(ClientsSession, setup=setup))
        self.backend = self.harness.listener(partial(WorkersSession, setup=setup))

    def pass_time(self, seconds: float) -> None:
        self.harness.pass_time(seconds)

    def jump(self, seconds: float) -> None:
        """So much time passes without anything being looked at, as when the machine was busy."""
        self.harness.clock.advance(seconds)
        self.harness.turn()

    # --- the two kinds of peers ---

    def worker_says(self, worker: bytes, frames: Message) -> None:
        self.backend.send(worker, *frames)

    def client_asks(self, client: bytes, payload: bytes) -> None:
        self.frontend.send(client, EMPTY, payload)

    def heard_by_worker(self, worker: bytes) -> list[Message]:
        return self.backend.heard(worker)

    def heard_by_client(self, client: bytes) -> list[Message]:
        return self.frontend.heard(client)

    def ready_queue(self) -> list[bytes]:
        """The workers that would be sent jobs, in that order."""
        function = self.engine.functions.get(b"pingpong")
        return [worker.name for worker in function.pushers] if function is not None else []

    def is_at_work(self, worker: bytes) -> bool:
        return any(other.name == worker and other.running for other in self.engine.workers.values())

    def debtors(self) -> list[bytes]:
        """The workers of which it is remembered that they owe a result."""
        assert isinstance(self.backend.session, WorkersSession)
        return list(self.backend.session.workers.owing)

    # --- what others do with the function ---

    def submit(self, payload: bytes, delivery: Delivery = Delivery.HANDLE, watcher: Peer | None = None) -> Job:
        """Somebody who speaks another protocol submits a job."""
        self.engine.advance(self.harness.clock.now_us())
        job = self.engine.submit(b"pingpong", b"", payload, 1, delivery, watcher)
        self.harness.turn()
        return job

    def only_job(self) -> Job:
        (job,) = self.engine.jobs.values()
        return job

    def do(self, action: Any, *arguments: Any) -> None:
        """Somebody else calls the engine."""
        self.engine.advance(self.harness.clock.now_us())
        action(*arguments)
        self.harness.turn()

    @property
    def bad_input(self) -> list[str]:
        return [code for code, _ in self.harness.bad_input]


def lose(listener: FakeListener, peer: bytes) -> None:
    """From now on the peer cannot be reached."""
    listener.socket.gone.add(peer)


def come_back(listener: FakeListener, peer: bytes) -> None:
    listener.socket.gone.discard(peer)


def at_work(broker: Broker, worker: bytes = b"w", payload: bytes = b"job") -> None:
    """This worker was just sent a job of client c."""
    broker.worker_says(worker, READY)
    broker.client_asks(b"c", payload)
    assert broker.heard_by_worker(worker) == [[b"", payload]]


def late(broker: Broker) -> None:
    """The job was taken from worker w, which is still at it."""
    at_work(broker)
    broker.pass_time(60)
    broker.heard_by_worker(b"w")


def claim_twice(broker: Broker, word: list[bytes]) -> None:
    """The worker says that it is idle, and again with its next heartbeat."""
    broker.worker_says(b"w", word)
    broker.pass_time(1)
    broker.worker_says(b"w", word)
