"""`PingPongWorker`: a PING/PONG worker that blocks, with one function and one job at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import zmq

from switchgear.client.flow_runner import perform
from switchgear.client.pingpong.address import DEFAULT_WORKERS_URL
from switchgear.client.pingpong.worker_base import LAST_WORDS_MS, PingPongWorkerBase
from switchgear.client.run_in_background import RunsBeside
from switchgear.client.signals import interruption, on_stop_signals
from switchgear.client.waker import Waker
from switchgear.client.zeromq_sockets import CurveKeys

__all__ = ["PingPongWorker"]


class PingPongWorker(RunsBeside, PingPongWorkerBase[Callable[[bytes], bytes]]):
    """Runs the jobs of one broker with a function from bytes to bytes.

    An exception of that function, or a result that is not bytes or is the word READY or PING, is a failure.  The
    protocol cannot say so: the worker logs it, and reconnects without an answer, so that the broker gives the job to
    somebody else until its attempts are spent.

    While the function runs nobody speaks or listens.  `run` works in the thread that calls; as a context manager, the
    worker works in a thread of its own.
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
        super().__init__(
            work,
            url,
            broker_timeout_seconds=broker_timeout_seconds,
            n_timeouts=n_timeouts,
            ping_seconds=ping_seconds,
            identity=identity,
            says_goodbye=says_goodbye,
            keys=keys,
        )
        self._is_working = False  # in the function
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
                perform(self._begin(), self._call)
                while not self._is_over:
                    perform(self._before_waiting(), self._call)
                    self._wait(waker)
                    perform(self._after_waiting(), self._call)
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

    def _call(self, job: bytes) -> bytes:
        try:
            self._is_working = True
            return self._work(job)
        finally:
            self._is_working = False  # from here on no signal interrupts
