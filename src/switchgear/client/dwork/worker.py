"""`DworkWorker` and `AsyncDworkWorker`: run the tasks of a dwork server with a function, around `TaskStealer`."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from switchgear.client.dwork.address import DEFAULT_URL
from switchgear.client.dwork.aio import AsyncDworkClient
from switchgear.client.dwork.task_stealer import DworkWorkerObserver, TaskStealer
from switchgear.client.failure_reason import reason_of
from switchgear.client.in_thread import in_thread
from switchgear.client.run_in_background import AsyncRunsBeside, RunsBeside
from switchgear.client.signals import on_stop_signals_in_loop
from switchgear.client.zeromq_sockets import CurveKeys

__all__ = ["AsyncDworkWorker", "DworkWorker", "FunctionResult"]

DEFAULT_LEASE_SECONDS: Final = 60.0
DEFAULT_PATIENCE_SECONDS: Final = 300.0

W = TypeVar("W")  # the type of the function


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """How the function of a worker has ended for a task: done, unless there is a failure."""

    failure: str | None = None


class DworkWorkerBase(Generic[W]):
    """A worker without a way to call its function."""

    def __init__(
        self,
        work: W,
        url: str = DEFAULT_URL,
        *,
        slots: int = 1,
        location: str = "",
        waits_for_more: bool = False,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
        keys: CurveKeys | None = None,
        observer: DworkWorkerObserver[FunctionResult] | None = None,
    ) -> None:
        """`work` is called with the name of a task, which is done if nothing is raised, `slots` at a time.

        `location` is what the server knows the worker by, by default a name that no other worker has.  The worker ends
        when all tasks are done, unless it `waits_for_more`.  If it is silent for `lease_seconds`, its tasks go to
        others; and a server that is silent for `patience_seconds` is given up.  Raises ConfigError or ValueError.
        """
        if slots < 1:
            raise ValueError("a worker needs a slot")
        self._work = work
        self.location = location or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._client = AsyncDworkClient(url, location=self.location, keys=keys)
        self._slots = slots
        self._lease_seconds = lease_seconds
        self._patience_seconds = patience_seconds
        self._waits_for_more = waits_for_more
        self._observer = observer
        self._stops = 0  # how often it was told to stop; twice means at once
        self._stealer: TaskStealer[FunctionResult] | None = None  # while it runs

    @abstractmethod
    async def _call(self, name: str) -> object:
        """Call the user's function with the name of a task."""

    async def _run(self, handle_signals: bool) -> None:
        async with self._client:
            stealer = self._stealer = TaskStealer(
                self._client,
                self._perform,
                self._slots,
                lease_seconds=self._lease_seconds,
                patience_seconds=self._patience_seconds,
                waits_for_more=self._waits_for_more,
                observer=self._observer,
            )
            self._tell_stealer()  # it may have been stopped before it began
            with on_stop_signals_in_loop(lambda number: self._stop_once_more(), wanted=handle_signals):
                try:
                    await stealer.run()
                finally:
                    self._stealer = None

    def _stop_once_more(self) -> None:
        self._stops += 1
        self._tell_stealer()

    def _tell_stealer(self) -> None:
        if self._stealer is not None:
            if self._stops == 1:
                self._stealer.stop()
            elif self._stops > 1:
                self._stealer.abandon()

    async def _perform(self, name: str) -> FunctionResult:
        try:
            await self._call(name)
        except Exception as error:
            return FunctionResult(reason_of(error).decode(errors="replace"))
        return FunctionResult()


class AsyncDworkWorker(AsyncRunsBeside, DworkWorkerBase[Callable[[str], Awaitable[object]]]):
    """Steals tasks from a dwork server, and runs each with a coroutine function that is given the task's name.

    What the function returns is not sent: tasks of dwork have no results.  What it raises is the reason of a failure.
    `run` works until all tasks are done; as an async context manager, the worker works beside the block.
    """

    async def run(self, *, handle_signals: bool = True) -> None:
        """Work until all tasks are done, or `stop` is called and those in hand are finished.  To be called once.

        In the main thread SIGTERM and SIGINT stop the worker, unless `handle_signals` is false.  A second one cancels
        the tasks in hand, and gives them back.  Raises ServerUnreachable if the server is silent for too long.
        """
        await self._run(handle_signals)

    def stop(self) -> None:
        """Take no more tasks, and let `run` return when those in hand are done; where the event loop runs."""
        self._stops = max(self._stops, 1)
        self._tell_stealer()

    def stop_at_once(self) -> None:
        """Cancel the tasks in hand, and give them back."""
        self._stops = 2
        self._tell_stealer()

    async def _call(self, name: str) -> object:
        return await self._work(name)


class DworkWorker(RunsBeside, DworkWorkerBase[Callable[[str], object]]):
    """Steals tasks from a dwork server, and runs each with a function that is given the task's name.

    What the function returns is not sent: tasks of dwork have no results.  What it raises is the reason of a failure.
    `run` works in the thread that calls, and the function in others; as a context manager, the worker works in a
    thread of its own.
    """

    _loop: asyncio.AbstractEventLoop | None = None  # while it runs

    def run(self, *, handle_signals: bool = True) -> None:
        """Work until all tasks are done, or `stop` is called and those in hand are finished.  To be called once.

        In the main thread SIGTERM and SIGINT stop the worker, unless `handle_signals` is false.  A second one gives the
        tasks in hand back at once; their functions cannot be interrupted, and what they do then counts no more.  Raises
        ServerUnreachable if the server is silent for too long.
        """
        asyncio.run(self._run_in_loop(handle_signals))

    async def _run_in_loop(self, handle_signals: bool) -> None:
        self._loop = asyncio.get_running_loop()
        await self._run(handle_signals)

    def stop(self) -> None:
        """Take no more tasks, and let `run` return when those in hand are done; from any thread."""
        self._stop_at_least(1)

    def stop_at_once(self) -> None:
        """Stop at once, and release the tasks that are running."""
        self._stop_at_least(2)

    def _stop_at_least(self, stops: int) -> None:
        self._stops = max(self._stops, stops)
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._tell_stealer)

    async def _call(self, name: str) -> object:
        return await in_thread(self._work, name)
