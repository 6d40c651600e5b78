"""`TaskStealer`: steals tasks from a dwork server and runs a limited number of them at a time.

It works under a location of its own, which the server takes for one worker: its lease, and its Exit, concern all tasks
of that location.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Generic, TypeVar

from switchgear.client.dwork.aio import AsyncDworkClient
from switchgear.client.dwork.local_run import RunObserver, TaskResult
from switchgear.client.dwork.records import Stolen
from switchgear.errors import ServerRefused, ServerUnreachable

__all__ = ["DworkWorkerObserver", "TaskStealer"]

R = TypeVar("R")
T = TypeVar("T", bound=TaskResult)

WAIT_SECONDS: Final = 2.0  # for one Steal to wait at the server, which then answers whether tasks are left
SIGNS_OF_LIFE: Final = 3  # within one lease
FAREWELL_SECONDS: Final = 0.5  # for a server to take our Exit, which no task depends on


class DworkWorkerObserver(RunObserver[T]):
    """Callbacks for what a worker does, which do nothing unless overridden."""

    def unreachable(self, problem: str) -> None:
        """The server does not answer; the request is sent again."""

    def given_back(self, name: str) -> None:
        """A task was stopped before its end, and goes back to the server."""

    def refused(self, name: str, problem: str) -> None:
        """The server did not take the report that a task has ended."""

    def failure_kept(self, name: str) -> None:
        """The server has no failures, so the failed task stays with our location."""


class TaskStealer(Generic[T]):
    """Works for one server until all tasks are done, or until stopped.  To be run once."""

    def __init__(
        self,
        client: AsyncDworkClient,
        perform: Callable[[str], Awaitable[T]],
        jobs: int = 1,
        *,
        lease_seconds: float = 60.0,
        patience_seconds: float = 300.0,
        waits_for_more: bool = False,
        observer: DworkWorkerObserver[T] | None = None,
    ) -> None:
        """`perform` is given the name of a task; it is done unless its outcome tells of a failure.

        A server that is silent for `patience_seconds` is given up.  If `waits_for_more`, it does not matter that all
        tasks are done: there may be others later.
        """
        self._client = client
        self._perform = perform
        self._jobs = jobs
        self._lease_seconds = lease_seconds
        self._patience_seconds = patience_seconds
        self._waits_for_more = waits_for_more
        self._observer: DworkWorkerObserver[T] = observer or DworkWorkerObserver()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._given_back: list[str] = []
        self._error: BaseException | None = None
        self._probe: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._speaks_more = False
        self._keeps_failures = False
        self._is_silent = False  # the server, since it was last asked

    async def run(self) -> None:
        """Work; raises ServerUnreachable if the server is silent for too long."""
        speaks_more = await self._unless_stopped(self._retry_until_answered(self._client.speaks_more))
        if speaks_more is None:
            return
        self._speaks_more = speaks_more
        pulse = asyncio.create_task(self._send_heartbeats())
        try:
            await self._steal_and_start()
            while self._running:
                await asyncio.wait(self._running.values())
        finally:
            self.abandon()
            asides = [task for task in (pulse, self._probe) if task is not None]
            for task in asides:
                task.cancel()
            await asyncio.gather(*asides, *self._running.values(), return_exceptions=True)
            await self._leave()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Take no more tasks; those that run may finish."""
        self._stopping.set()

    def abandon(self) -> None:
        """Stop those that run, too, and give them back."""
        self._stopping.set()
        for task in self._running.values():
            task.cancel()

    # --- taking ---

    async def _steal_and_start(self) -> None:
        """Steal and start tasks until none is left, or until stopped."""
        wait_seconds = 0.0
        while not self._stopping.is_set():
            if len(self._running) >= self._jobs:
                await self._until_one_ends()
                wait_seconds = 0.0  # perhaps it was the last one
                continue
            began = time.monotonic()
            stolen = await self._unless_stopped(self._steal(wait_seconds))
            if stolen is None:
                return
            for task in stolen:
                self._start(task.name)
            if stolen.all_done and not self._running and not self._waits_for_more:
                return
            if not stolen.tasks and time.monotonic() - began < wait_seconds / 2:  # the server does not wait, so we do
                await self._unless_stopped(asyncio.sleep(wait_seconds))
            wait_seconds = 0.0 if stolen.tasks else WAIT_SECONDS

    async def _steal(self, wait_seconds: float) -> Stolen:
        free = self._jobs - len(self._running)
        if not self._speaks_more:
            return await self._retry_until_answered(lambda: self._client.steal(free))
        lease_seconds = self._lease_seconds
        steal = partial(self._client.steal, free, wait_seconds, lease_seconds=lease_seconds)
        return await self._retry_until_answered(steal, wait_seconds)

    async def _unless_stopped(self, doing: Awaitable[R]) -> R | None:
        """The result of a coroutine, or None if the worker is stopped first."""
        task = asyncio.ensure_future(doing)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for each in (task, stopping):
                each.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)

    async def _until_one_ends(self) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({stopping, *self._running.values()}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()

    # --- running ---

    def _start(self, name: str) -> None:
        if name in self._running:  # given to us again, although we have it: our lease ended, or the server restarted
            return
        task = self._running[name] = asyncio.create_task(self._work(name), name=name)
        # Not at the end of the task's own code, because a task that is cancelled early never runs any of it.
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        name = task.get_name()
        del self._running[name]
        if task.cancelled():
            self._given_back.append(name)
        elif task.exception() is not None:
            self._error = self._error or task.exception()
            self._stopping.set()
        elif not self._running and not self._waits_for_more and self._speaks_more:
            self._probe = asyncio.create_task(self._stop_if_all_done())

    async def _stop_if_all_done(self) -> None:
        """Stop if that was the last task of all; a waiting Steal would tell later."""
        with suppress(ServerUnreachable, ServerRefused):
            if (await self._client.steal(0)).all_done and not self._running:
                self._stopping.set()

    async def _work(self, name: str) -> None:
        self._observer.started(name)
        began = time.monotonic()
        outcome = await self._perform(name)
        seconds = time.monotonic() - began
        failure = outcome.failure
        self._observer.ended(name, outcome, seconds)
        if failure is not None and not self._speaks_more:
            self._keeps_failures = True
            self._observer.failure_kept(name)
            return
        try:
            await self._retry_until_answered(lambda: self._client.complete(name, failure))
        except ServerRefused as error:
            self._observer.refused(name, error.text)

    # --- being known ---

    async def _send_heartbeats(self) -> None:
        while self._speaks_more and self._lease_seconds:
            await asyncio.sleep(self._lease_seconds / SIGNS_OF_LIFE)
            with suppress(ServerUnreachable, ServerRefused):  # the next Steal or report notices it
                await self._client.heartbeat(lease_seconds=self._lease_seconds)

    async def _retry_until_answered(self, ask: Callable[[], Awaitable[R]], extra_seconds: float = 0.0) -> R:
        """Repeat a request until there is an answer; raises ServerUnreachable after `patience_seconds`.

        `extra_seconds` are those that the server may take because it was asked to wait.
        """
        deadline = asyncio.get_running_loop().time() + self._patience_seconds + extra_seconds
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    answer = await ask()
            except TimeoutError:
                self._is_silent = True
                raise self._client.unreachable(self._patience_seconds) from None
            except ServerUnreachable as error:
                self._is_silent = True
                self._observer.unreachable(str(error))
            else:
                self._is_silent = False
                return answer

    # --- leaving ---

    async def _leave(self) -> None:
        """Give back unfinished tasks, and send Exit; failures are ignored."""
        for name in self._given_back:
            self._observer.given_back(name)
        matters = self._given_back and not self._is_silent
        with suppress(ServerUnreachable, ServerRefused, TimeoutError):
            async with asyncio.timeout(None if matters else FAREWELL_SECONDS):
                if self._given_back:
                    await self._client.transfer(self._given_back)
                if not self._keeps_failures:
                    await self._client.exit()
