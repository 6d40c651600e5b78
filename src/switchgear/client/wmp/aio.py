"""`AsyncWmpWorker`: a WMP worker for asyncio, whose jobs are coroutines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

import zmq

from switchgear.client.run_in_background import AsyncRunsBeside
from switchgear.client.signals import on_stop_signals_in_loop
from switchgear.client.wmp.address import DEFAULT_URL
from switchgear.client.wmp.manager_connections import connect
from switchgear.client.wmp.worker_base import DEFAULT_DRAIN_SECONDS, WmpWorkerBase, WmpWorkerObserver
from switchgear.client.wmp.worker_protocol import WmpJob, WmpResult, WmpTiming
from switchgear.client.zeromq_sockets import CurveKeys, SocketSettings

__all__ = ["AsyncJobFunction", "AsyncWmpWorker"]

AsyncJobFunction = Callable[[WmpJob], Awaitable[bytes | None]]
"""Does a job and returns the result; None is an empty one.

What it raises is the reason of a failure.  When nobody wants the result any more, it is cancelled.
"""


class AsyncWmpWorker(AsyncRunsBeside, WmpWorkerBase[AsyncJobFunction]):
    """`WmpWorker` for asyncio: runs coroutines, `slots` of them at a time, in the event loop that it is used in.

    `run` works until it is stopped; as an async context manager, the worker works beside the block.
    """

    def __init__(
        self,
        managers: str | Iterable[str] = DEFAULT_URL,
        roles: Mapping[str, AsyncJobFunction] | None = None,
        slots: int = 1,
        *,
        needs: Mapping[str, int] | None = None,
        headers: Mapping[str, Any] | None = None,
        identity: str | bytes = b"",
        timing: WmpTiming | None = None,
        socket_settings: SocketSettings | None = None,
        keys: CurveKeys | None = None,
        observer: WmpWorkerObserver | None = None,
    ) -> None:
        """The arguments are those of `WmpWorker`.  Raises ConfigError or ValueError."""
        super().__init__(
            managers,
            roles,
            slots,
            needs=needs,
            headers=headers,
            identity=identity,
            timing=timing,
            socket_settings=socket_settings,
            keys=keys,
            observer=observer,
        )
        self._tasks: dict[WmpJob, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()  # there is something to do
        self._loop: asyncio.AbstractEventLoop  # while it runs

    # --- life ---

    async def run(self, *, handle_signals: bool = True, drain_seconds: float = DEFAULT_DRAIN_SECONDS) -> None:
        """Work until `stop` is called, and the jobs in hand are finished or given back.  To be called once.

        In the main thread SIGTERM and SIGINT stop the worker, unless `handle_signals` is false: jobs in hand may finish
        within `drain_seconds`.  At a second signal they are cancelled and given back at once.
        """

        def on_signal(number: int) -> None:
            self.stop(drain_seconds if self._stop_at is None else 0.0)

        context = zmq.Context()
        descriptors: list[int] = []
        loop = self._loop = asyncio.get_running_loop()
        try:
            self._connections = connect(context, self.addresses, self.identity, self._settings, self._keys)
            for connection in self._connections:
                for source in (connection.socket, connection.monitor):
                    descriptors.append(cast(int, source.get(zmq.FD)))
                    loop.add_reader(descriptors[-1], self._changed.set)
            self._protocol.start(time.monotonic())
            with on_stop_signals_in_loop(on_signal, wanted=handle_signals):
                await self._work()
        finally:
            for descriptor in descriptors:
                loop.remove_reader(descriptor)
            await self._cancel_jobs()
            await asyncio.to_thread(self._close, context)  # it may wait until the last words have left

    def stop(self, drain_seconds: float = DEFAULT_DRAIN_SECONDS) -> None:
        """Take no more jobs; `run` returns when those that run have ended, or after `drain_seconds`.

        What still runs then is cancelled, and given back to its manager.  Another call may shorten the time.  To be
        called where the worker's event loop runs.
        """
        self._end_no_later_than(drain_seconds)
        self._changed.set()

    def stop_at_once(self) -> None:
        """Cancel the jobs that run, and give them back."""
        self.stop(0.0)

    def _close(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        for connection in self._connections:
            connection.close()
        context.term()

    async def _cancel_jobs(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- talking ---

    async def _work(self) -> None:
        while True:
            self._changed.clear()
            if self._talk():
                await asyncio.sleep(0)  # others in this event loop have their turn
                continue
            if self._is_over():
                return
            moment = self._next_moment()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if moment is None else max(0.0, moment - time.monotonic())):
                    await self._changed.wait()

    def _talk(self) -> bool:
        """Read and say what can be read and said now; returns whether there was anything.

        ZeroMQ's descriptors tell of news only once, and sending may swallow that.  So it is called until there is
        nothing.
        """
        if self._stop_at is not None:
            self._protocol.stop()
        did_anything = False
        for number, connection in enumerate(self._connections):
            if _has_input(connection.monitor):
                self._read_changes(number, connection)
                did_anything = True
            connection.flush()
            if _has_input(connection.socket):
                self._read_manager(number, connection)
                did_anything = True
        self._protocol.advance(time.monotonic())
        for job, task in self._tasks.items():
            if job.cancelled.is_set():
                task.cancel()
        return self._carry_out() or did_anything

    # --- jobs ---

    def _start(self, job: WmpJob) -> None:
        self._observer.job_started(job)
        task = self._tasks[job] = asyncio.create_task(self._run_job(job))
        # Not at the end of the task's own code, because a task that is cancelled early never runs any of it.
        task.add_done_callback(lambda done: self._on_ended(job, done))

    async def _run_job(self, job: WmpJob) -> None:
        try:
            outcome = self._outcome_of_result(job, await self._function_of(job)(job))
        except Exception as error:
            outcome = self._outcome_of_error(job, error)
        self._report(job, outcome)

    def _on_ended(self, job: WmpJob, task: asyncio.Task[None]) -> None:
        self._tasks.pop(job, None)
        if task.cancelled():
            self._report(job, WmpResult("cancelled"))
        elif task.exception() is not None:  # beyond Exception: asyncio has raised it out of the loop
            self._report(job, WmpResult("returned"))
        self._changed.set()

    def _report(self, job: WmpJob, outcome: WmpResult) -> None:
        self._protocol.finished(job, outcome, time.monotonic())
        self._observer.job_ended(job, outcome)
        self._changed.set()

    def _note_progress(self, job: WmpJob) -> None:
        self._loop.call_soon_threadsafe(self._tell_progress, job)  # it may come from a thread that the job has started

    def _tell_progress(self, job: WmpJob) -> None:
        self._protocol.progress(job, time.monotonic())
        self._changed.set()


def _has_input(source: zmq.Socket[bytes]) -> bool:
    return bool(cast(int, source.get(zmq.EVENTS)) & zmq.POLLIN)
