"""`AsyncPingPongWorker`: a PING/PONG worker for asyncio, with one coroutine function and one job at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

import zmq

from switchgear.client.flow_runner import perform_async
from switchgear.client.pingpong.address import DEFAULT_WORKERS_URL
from switchgear.client.pingpong.worker_base import LAST_WORDS_MS, PingPongWorkerBase
from switchgear.client.run_in_background import AsyncRunsBeside
from switchgear.client.signals import on_stop_signals_in_loop
from switchgear.client.zeromq_sockets import CurveKeys

__all__ = ["AsyncPingPongWorker"]


class AsyncPingPongWorker(AsyncRunsBeside, PingPongWorkerBase[Callable[[bytes], Awaitable[bytes]]]):
    """`PingPongWorker` for asyncio: runs the jobs of one broker with a coroutine function from bytes to bytes.

    Failures are as there.  While the coroutine runs, others in the event loop go on, but the broker is not spoken or
    listened to.  `run` works until it is stopped; as an async context manager, the worker works beside the block.
    """

    def __init__(
        self,
        work: Callable[[bytes], Awaitable[bytes]],
        url: str = DEFAULT_WORKERS_URL,
        *,
        broker_timeout_seconds: float = 1.0,
        n_timeouts: int = 3,
        ping_seconds: float = 1.0,
        identity: bytes = b"",
        says_goodbye: bool | None = None,
        keys: CurveKeys | None = None,
    ) -> None:
        """The arguments are those of `PingPongWorker`.  Raises ConfigError or ValueError."""
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
        self._changed = asyncio.Event()  # there is something to do
        self._job: asyncio.Future[bytes] | None = None  # in hand

    async def run(self, *, handle_signals: bool = True) -> None:
        """Work until `stop` is called, and the job in hand, or on its way, is done.  To be called once.

        In the main thread SIGTERM and SIGINT stop the worker, unless `handle_signals` is false.  A second one cancels
        the job in hand, which the broker then has done again.
        """
        self._context = zmq.Context()
        try:
            with on_stop_signals_in_loop(self._on_signal, wanted=handle_signals):
                await perform_async(self._begin(), self._call)
                while not self._is_over:
                    self._changed.clear()
                    await perform_async(self._before_waiting(), self._call)
                    await self._wait()
                    await perform_async(self._after_waiting(), self._call)
        finally:
            await asyncio.to_thread(self._close)  # it may wait until the last words have left

    def stop(self) -> None:
        """Take no more jobs, and let `run` return when the job in hand is done; where the event loop runs."""
        self._stopping = True
        self._changed.set()

    def stop_at_once(self) -> None:
        """Cancel the job in hand, which the broker then has done again."""
        self.stop()
        self._stopping_at_once = True
        if self._job is not None:
            self._job.cancel()

    # --- inside ---

    def _on_signal(self, number: int) -> None:
        if self._stopping:
            self.stop_at_once()
        else:
            self.stop()

    def _close(self) -> None:
        self._disconnect(LAST_WORDS_MS)
        assert self._context is not None
        self._context.term()

    async def _wait(self) -> None:
        """Wait until a message arrives, something is due, or the worker is stopped."""
        deadline = self._protocol.next_deadline
        socket = self._socket
        if deadline is None:
            return
        loop = asyncio.get_running_loop()
        descriptor = None if socket is None else cast(int, socket.get(zmq.FD))
        try:
            if socket is not None and descriptor is not None:
                loop.add_reader(descriptor, self._changed.set)
                # After that: the descriptor tells of a message only once, which may have been before.
                if cast(int, socket.get(zmq.EVENTS)) & zmq.POLLIN:
                    return
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self._changed.wait()
        finally:
            if descriptor is not None:
                loop.remove_reader(descriptor)

    async def _call(self, job: bytes) -> bytes:
        self._job = asyncio.ensure_future(self._work(job))
        try:
            return await self._job
        except asyncio.CancelledError:
            if not self._stopping_at_once:
                raise
            raise RuntimeError("cancelled, because the worker stops at once") from None
        finally:
            self._job = None
