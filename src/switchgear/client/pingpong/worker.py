"""`PingPongWorker`: a PING/PONG worker that blocks, with one function and one job at a time."""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import Final

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
from switchgear.client.signals import interruption, on_stop_signals
from switchgear.client.waker import Waker
from switchgear.client.zeromq_sockets import CurveKeys, check_identity, connect, dealer
from switchgear.protocols.pingpong.messages import PING, READY

__all__ = ["PingPongWorker"]

log = logging.getLogger("switchgear.client.pingpong")

LAST_WORDS_MS: Final = 1000  # so long the last result may take to leave when the worker stops


class PingPongWorker:
    """Runs the jobs of one broker with a function from bytes to bytes.

    An exception of that function, or a result that is not bytes or is the word READY or PING, is a failure.  The
    protocol cannot say so: the worker logs it, and reconnects without an answer, so that the broker gives the job to
    somebody else until its attempts are spent.

    While the function runs nobody speaks or listens.
    """

    def __init__(
        self,
        work: Callable[[bytes], bytes],
        url: str = DEFAULT_WORKERS_URL,
        *,
        broker_timeout_seconds: float = 1.0,
        n_timeouts: int = 3,
        ping_seconds: float = 1.0,
        identity: bytes = b"",
        says_goodbye: bool = True,
        keys: CurveKeys | None = None,
    ) -> None:
        """`url` is the broker's address for workers, and `keys` are for a broker that encrypts.

        `identity` is what the broker knows the worker by: 1 to 255 bytes, the first not zero, no other worker's.
        The default is made up, and kept when the worker reconnects, so that the broker knows it again.  With
        `says_goodbye` it tells the broker when it stops, with a word that only our broker knows.

        Raises ConfigError or ValueError.
        """
        self.address = WorkersAddress.parse(url)
        self.identity = check_identity(identity or f"pingpong-{uuid.uuid4().hex}".encode())
        if keys is not None:
            keys.check(1, "broker")
        self._work = work
        self._keys = keys
        self._protocol = PingPongWorkerProtocol(
            broker_timeout_seconds, n_timeouts, ping_seconds, says_goodbye=says_goodbye
        )
        self._stopping = False
        self._stopping_at_once = False
        self._is_working = False  # in the function
        self._reach = ReachabilityLog(log, self.address)
        self._socket: zmq.Socket[bytes] | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._waker: Waker | None = None  # while it runs

    def run(self, *, handle_signals: bool = True) -> None:
        """Work until `stop` is called, and the job in hand, or on its way, is done.  To be called once.

        In the main thread SIGTERM and SIGINT stop the worker, unless `handle_signals` is false.  A second one breaks
        off the job in hand, which the broker then has done again.
        """
        self._context = zmq.Context()
        waker = self._waker = Waker()
        try:
            with on_stop_signals(self._on_signal, wanted=handle_signals), waker.by_signals():
                self._perform(self._protocol.start(time.monotonic()))
                while not (self._protocol.is_over or self._stopping_at_once):
                    if self._stopping:
                        self._perform(self._protocol.leave(time.monotonic()))
                    self._wait(waker)
                    self._read()
                    self._perform(self._protocol.advance(time.monotonic()))
        finally:
            self._disconnect(LAST_WORDS_MS)
            self._context.term()
            waker.close()

    def stop(self) -> None:
        """Take no more jobs, and let `run` return; from the function, a signal handler, or another thread."""
        self._stopping = True
        if self._waker is not None:
            self._waker()

    # --- inside ---

    def _on_signal(self, number: int) -> None:
        """Interrupt the function, but never a message to the broker."""
        self._stopping_at_once = self._stopping
        if self._stopping_at_once and self._is_working:
            raise interruption(number)
        self.stop()

    def _wait(self, waker: Waker) -> None:
        """Wait until a message arrives, something is due, or the worker is stopped."""
        poller = zmq.Poller()
        poller.register(waker, zmq.POLLIN)
        if self._socket is not None:
            poller.register(self._socket, zmq.POLLIN)
        deadline = self._protocol.next_deadline
        if deadline is None:
            return
        poller.poll(max(0, math.ceil((deadline - time.monotonic()) * 1000)))
        waker.clear()

    def _read(self) -> None:
        """Handle the messages that have come; a job is run before the next message is read."""
        while self._socket is not None and not (self._protocol.is_over or self._stopping_at_once):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._reach.found()
            self._perform(self._protocol.receive(frames, time.monotonic()))

    def _perform(self, actions: list[Action]) -> None:
        todo = deque(actions)
        while todo:
            match todo.popleft():
                case ConnectStep():
                    self._connect()
                case DisconnectStep():
                    self._disconnect(0)
                case SendMessage(frames):
                    assert self._socket is not None
                    self._socket.send_multipart(frames)
                case StartWork(job):
                    todo.extend(self._do(job))

    def _do(self, job: bytes) -> list[Action]:
        try:
            try:
                self._is_working = True
                result = self._work(job)
            finally:
                self._is_working = False  # from here on no signal interrupts
        except Exception:
            log.exception("a job of %d bytes failed; the broker will have it done again", len(job))
            return self._protocol.failed(time.monotonic())
        if not isinstance(result, bytes) or result in (READY, PING):
            what = "the word " + result.decode() if isinstance(result, bytes) else f"a {type(result).__name__}"
            log.error("a job of %d bytes failed: %s cannot be a result", len(job), what)
            return self._protocol.failed(time.monotonic())
        # The broker answers a result with the next job, if it has one; so the goodbye is sent before the result.
        leave = self._protocol.leave(time.monotonic()) if self._stopping else []
        return [*leave, *self._protocol.finished(result, time.monotonic())]

    def _connect(self) -> None:
        assert self._context is not None
        if self._socket is not None:
            self._reach.lost("no word for too long")
            self._disconnect(0)
        self._socket = dealer(self._context, SETTINGS, self._keys, identity=self.identity)
        connect(self._socket, self.address)

    def _disconnect(self, linger_ms: int) -> None:
        old, self._socket = self._socket, None
        if old is not None:
            old.close(linger_ms)
