"""`PingPongWorkerBase`: what the blocking and the asyncio worker of PING/PONG share: settings and the socket.

The protocol itself is in `worker_protocol`, without I/O.  What it wants done is a flow (`client.flow_runner`) whose
steps are the jobs to run; so the workers differ in how they wait and how they call the function.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import zmq

from switchgear.client.pingpong.address import DEFAULT_WORKERS_URL, SETTINGS, WorkersAddress
from switchgear.client.pingpong.worker_protocol import (
    Action,
    ConnectStep,
    DisconnectStep,
    PingPongWorkerProtocol,
    SendMessage,
    StartWork,
)
from switchgear.client.reachability_log import ReachabilityLog
from switchgear.client.zeromq_sockets import CurveKeys, check_identity, connect, dealer
from switchgear.protocols.pingpong.messages import PING, READY
from switchgear.protocols.zmtp.metadata import EXTENSIONS_PROPERTY

__all__ = ["LAST_WORDS_MS", "PingPongWorkerBase"]

log = logging.getLogger("switchgear.client.pingpong")

LAST_WORDS_MS: Final = 1000  # how long the last result may take to be sent when the worker stops

W = TypeVar("W")  # the type of the function
Flow = Generator[bytes, Any, None]
"""Gives jobs, and is sent the result of each, or thrown what the function has raised."""


class PingPongWorkerBase(Generic[W]):
    """A worker without a way to wait and to call its function."""

    def __init__(
        self,
        work: W,
        url: str = DEFAULT_WORKERS_URL,
        *,
        broker_timeout_seconds: float = 1.0,
        n_timeouts: int = 3,
        ping_seconds: float = 1.0,
        identity: bytes = b"",
        says_goodbye: bool | None = None,
        keys: CurveKeys | None = None,
    ) -> None:
        """`url` is the broker's address for workers, and `keys` are for a broker that encrypts.

        `identity` identifies the worker to the broker: 1 to 255 bytes, the first not zero, no other worker's. The
        default is random, and kept when the worker reconnects, so that the broker recognises it. `says_goodbye` is
        whether the worker sends LEAVE when it stops, a message that is not in the document. The default is to send it
        to a broker that has shown in its handshake that it knows the message.

        Raises ConfigError or ValueError.
        """
        self.address = WorkersAddress.parse(url)
        self.identity = check_identity(identity or f"pingpong-{uuid.uuid4().hex}".encode())
        if keys is not None:
            keys.check(1, "broker")
        self._work = work
        self._keys = keys
        self._protocol = PingPongWorkerProtocol(
            broker_timeout_seconds, n_timeouts, ping_seconds, says_goodbye=bool(says_goodbye)
        )
        self._asks_for_extensions = says_goodbye is None
        self._knows_extensions: bool | None = None  # whether the broker does; None: it has sent nothing yet
        self._stopping = False
        self._stopping_at_once = False
        self._reach = ReachabilityLog(log, self.address)
        self._socket: zmq.Socket[bytes] | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None

    def _begin(self) -> Flow:
        """Connect to the broker."""
        yield from self._perform(self._protocol.start(time.monotonic()))

    @property
    def _is_over(self) -> bool:
        return self._protocol.is_over or self._stopping_at_once

    def _before_waiting(self) -> Flow:
        """Tell the broker, if the worker is to stop."""
        if self._stopping:
            yield from self._perform(self._protocol.leave(time.monotonic()))

    def _after_waiting(self) -> Flow:
        """Handle the messages that have come; a job is run before the next message is read.  Then do what is due."""
        while self._socket is not None and not self._is_over:
            try:
                frames = self._receive(self._socket)
            except zmq.Again:
                break
            self._reach.found()
            yield from self._perform(self._protocol.receive(frames, time.monotonic()))
        yield from self._perform(self._protocol.advance(time.monotonic()))

    def _receive(self, socket: zmq.Socket[bytes]) -> list[bytes]:
        """The next message.  The first one of a connection tells which extensions the broker knows."""
        if not self._asks_for_extensions or self._knows_extensions is not None:
            return socket.recv_multipart(zmq.NOBLOCK)
        frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
        try:
            self._knows_extensions = bool(frames[0].get(EXTENSIONS_PROPERTY))
        except zmq.ZMQError:  # there is no such property
            self._knows_extensions = False
        self._protocol.says_goodbye = self._knows_extensions
        return [frame.bytes for frame in frames]

    def _perform(self, actions: list[Action]) -> Flow:
        todo = deque(actions)
        while todo:
            match todo.popleft():
                case ConnectStep():
                    self._connect()
                case DisconnectStep():
                    self._disconnect(0)
                case SendMessage(frames):
                    assert self._socket is not None
                    # ZeroMQ takes nothing more for a broker that has refused our handshake.  What it does not take is
                    # dropped: such a broker is silent, so the worker soon connects anew and says READY.
                    with suppress(zmq.Again):
                        self._socket.send_multipart(frames, zmq.NOBLOCK)
                case StartWork(job):
                    try:
                        result = yield job
                    except Exception:
                        log.exception("a job of %d bytes failed; the broker assigns it again", len(job))
                        todo.extend(self._protocol.failed(time.monotonic()))
                    else:
                        todo.extend(self._ended(job, result))

    def _ended(self, job: bytes, result: object) -> list[Action]:
        """The actions that report this return value of the function to the broker."""
        if not isinstance(result, bytes) or result in (READY, PING):
            what = "the word " + result.decode() if isinstance(result, bytes) else f"a {type(result).__name__}"
            log.error("a job of %d bytes failed: %s cannot be a result", len(job), what)
            return self._protocol.failed(time.monotonic())
        # The broker answers a result with the next job, if it has one; so LEAVE is sent before the result.
        leave = self._protocol.leave(time.monotonic()) if self._stopping else []
        return [*leave, *self._protocol.finished(result, time.monotonic())]

    def _connect(self) -> None:
        assert self._context is not None
        if self._socket is not None:
            self._reach.lost("no word for too long")
            self._disconnect(0)
        self._knows_extensions = None
        self._socket = dealer(self._context, SETTINGS, self._keys, identity=self.identity)
        connect(self._socket, self.address)

    def _disconnect(self, linger_ms: int) -> None:
        old, self._socket = self._socket, None
        if old is not None:
            old.close(linger_ms)
