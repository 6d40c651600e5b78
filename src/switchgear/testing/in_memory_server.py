"""`in_memory`: tests of an app without a server process, a worker process, sockets or sleeping.

with in_memory(app) as server:
        assert add.submit(1, 2).result() == 3

The app uses the real engine, the real protocol and real serialisation; only sockets, threads and the clock are missing.
In the mode "at_once", all ready jobs have run when a call of the app returns. In the mode "step", jobs are run by
`run_one`, `run_all` and `run_until_idle`. Time stands still until `advance` is called.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from switchgear.engine.deadlines import Deadline, DeadlineKind
from switchgear.model import SCHEDULED, SECOND_US, Job, KeyQueue, Limiter
from switchgear.testing.clock import FakeClock
from switchgear.testing.in_memory_hub import InMemoryHub
from switchgear.testing.in_memory_transport import InMemoryTransport, WouldWaitForever
from switchgear.testing.in_memory_worker import InMemoryWorker

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.server_answers import JobInfo
    from switchgear.app.task import Task
    from switchgear.client.gearman.assigned_job import AssignedJob

__all__ = ["InMemoryServer", "Mode", "Submitted", "WouldWaitForever", "in_memory"]

Mode: TypeAlias = Literal["at_once", "step"]

# The maximum depth of tasks that submit tasks, which run before the submission returns.
_DEEPEST: Final = 30
_MOST_RUNS: Final = 100_000  # in one call
_DAY_SECONDS: Final = 86_400.0

_ours: ContextVar[frozenset[str]] = ContextVar("switchgear_in_memory_ours", default=frozenset())


@dataclass(frozen=True)
class Submitted:
    """A job as it was submitted."""

    task: str
    arguments: Mapping[str, Any]  # by name, decoded from the payload; empty for tasks that this app does not have
    handle: str
    priority: str
    run_at: float  # seconds since the epoch, 0: at once


def in_memory(
    app: App, mode: Mode = "at_once", *, raise_errors: bool = False, start: float | None = None
) -> InMemoryServer:
    """A server in memory that the app uses for the length of a block, `with` or `async with`.

    With `raise_errors`, the exception that `result` raises for a failed job has the exception of the task as its
    `__cause__`, with its real traceback. `start` is the initial time in seconds since the epoch; by default now.
    """
    return InMemoryServer(app, mode, raise_errors=raise_errors, start=start)


class InMemoryServer:
    """The server, its clock and its only worker.  For one thread at a time."""

    def __init__(
        self, app: App, mode: Mode = "at_once", *, raise_errors: bool = False, start: float | None = None
    ) -> None:
        if mode not in ("at_once", "step"):
            raise ValueError(f'the mode is "at_once" or "step", not {mode!r}')
        self.app = app
        self.mode: Mode = mode
        self.clock = FakeClock(round((time.time() if start is None else start) * SECOND_US))
        self._raise_errors = raise_errors
        self._hub = InMemoryHub(self.clock)
        self._transport: InMemoryTransport
        self._worker: InMemoryWorker
        self._running: set[str] = set()  # handles
        self._too_deep: RecursionError | None = None
        self._progress: asyncio.Event | None = None  # set when something has happened, for waiting coroutines
        self._restore: tuple[Any, ...] | None = None

    # --- context manager ---

    def __enter__(self) -> Self:
        if self._restore is not None:
            raise RuntimeError("this server is in use already")
        self._worker = InMemoryWorker(self.app, self._hub)
        self._transport = InMemoryTransport(self._hub, self._work, self._work_async, self._wait_for_others)
        self._transport.before_submit = self._check_depth
        if self._raise_errors:
            self._transport.original_error = self._worker.errors.get
        self._restore = self.app.use_transport(self._transport, self.now)
        self.app.hooks.start_process()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._restore is not None
        self.app.use_transport(*self._restore)
        self._restore = None
        self._transport.close()
        self._worker.leave()
        self.app.hooks.stop_process()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.app.hooks.close_loop()
        self.__exit__(kind, error, trace)

    # --- running jobs ---

    def run_one(self) -> bool:
        """Run the next ready job, to its end or its next retry; False if there is none."""
        assignment = self._take()
        if assignment is None:
            return False
        self._begin(assignment)
        token = _ours.set(_ours.get() | {assignment.handle})
        try:
            self._worker.work(assignment)
        finally:
            _ours.reset(token)
            self._end(assignment)
        return True

    async def run_one_async(self) -> bool:
        """Like `run_one`, in the running event loop, where coroutine functions run too."""
        assignment = self._take()
        if assignment is None:
            return False
        self._begin(assignment)
        token = _ours.set(_ours.get() | {assignment.handle})
        try:
            if self.app.tasks[assignment.function].is_async:
                await self._worker.work_async(assignment)
            else:
                self._worker.work(assignment)
        finally:
            _ours.reset(token)
            self._end(assignment)
        return True

    def run_all(self) -> int:
        """Run all ready jobs, and those that become ready by that; returns the number of runs.

        No time passes: retries and scheduled jobs wait.
        """
        count = 0
        while self.run_one():
            count = self._one_more(count)
        return count

    async def run_all_async(self) -> int:
        """Like `run_all`, in the running event loop."""
        count = 0
        while await self.run_one_async():
            count = self._one_more(count)
        return count

    def run_until_idle(self, within_seconds: float = _DAY_SECONDS) -> int:
        """Run all jobs, and advance the time to whatever is due next, until no job is left that could ever run.

        Due are delays, retries, and starts held back by a rate. Ticks of schedules are not waited for, since they never
        end; nor is anything that is due later than `within_seconds`.
        """
        count = self.run_all()
        end_us = self.clock.now_us() + round(within_seconds * SECOND_US)
        while (due_us := self._next_due_us()) is not None and due_us <= end_us:
            self._pass_time_to(due_us)
            count += self.run_all()
        return count

    # --- time ---

    def now(self) -> float:
        """The server's time, in seconds since the epoch."""
        return self.clock.now_us() / SECOND_US

    def advance(self, seconds: float) -> None:
        """Advance the time: everything that is due meanwhile happens, each at its time.

        In the mode "at_once" jobs that become ready are run; a run takes no time.
        """
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds} s")
        end_us = self.clock.now_us() + round(seconds * SECOND_US)
        while (due_us := self._hub.next_deadline_us) is not None and due_us <= end_us:
            self._pass_time_to(due_us)
            self._work()
        self._pass_time_to(end_us)
        self._work()

    async def advance_async(self, seconds: float) -> None:
        """Like `advance`, in the running event loop."""
        end_us = self.clock.now_us() + round(seconds * SECOND_US)
        while (due_us := self._hub.next_deadline_us) is not None and due_us <= end_us:
            self._pass_time_to(due_us)
            await self._work_async()
        self._pass_time_to(end_us)
        await self._work_async()

    # --- inspection ---

    def jobs(self, task: Task[Any, Any] | str | None = None, *states: str) -> list[JobInfo]:
        """The jobs of a task, or of all tasks, in these states, or in any state; the oldest first."""
        return list(self.app.jobs(task=task, states=states, limit=None))[::-1]

    def submitted(self, task: Task[Any, Any] | str | None = None) -> list[Submitted]:
        """The submissions of the app to a task, or to all, in order; including those that joined an earlier job."""
        wanted = getattr(task, "name", task)
        return [
            self._as_submitted(request.function.decode(), request, handle)
            for request, handle in self._transport.submitted
            if wanted is None or request.function.decode() == wanted
        ]

    def assert_submitted(
        self, task: Task[Any, Any] | str, *, with_: Mapping[str, Any] | None = None, times: int | None = None
    ) -> list[Submitted]:
        """Raise AssertionError unless the task was submitted: with these arguments, of those given, and so many times.

        Without `times`, once or more often.  Returns the submissions that match.
        """
        all_of_task = self.submitted(task)
        wanted = with_ or {}
        found = [
            each
            for each in all_of_task
            if all(name in each.arguments and each.arguments[name] == value for name, value in wanted.items())
        ]
        if found if times is None else len(found) == times:
            return found
        name = getattr(task, "name", task)
        with_text = f" with {dict(wanted)}" if wanted else ""
        expected = "" if times is None else f" {times} times, but {len(found)}"
        others = "".join(f"\n  {dict(each.arguments)}" for each in all_of_task)
        shown = f"; its submissions:{others}" if others else "; it was not submitted at all"
        raise AssertionError(f"{name} was not submitted{with_text}{expected}{shown}")

    def assert_not_submitted(self, task: Task[Any, Any] | str, *, with_: Mapping[str, Any] | None = None) -> None:
        """Raise AssertionError if the task was submitted, with these arguments if some are given."""
        self.assert_submitted(task, with_=with_, times=0)

    def explain(self, job: Any) -> str:
        """Why a job is in its state."""
        return self._transport.explain(getattr(job, "handle", job))

    # --- internals ---

    def _as_submitted(self, name: str, request: Any, handle: str) -> Submitted:
        arguments: dict[str, Any] = {}
        task = self.app.tasks.get(name)
        if task is not None:
            references = task.arguments.references(request.payload)
            args, kwargs = task.arguments.decode(request.payload, dict.fromkeys(references))
            arguments = dict(task.arguments.bind(args, kwargs))
        return Submitted(name, arguments, handle, request.priority, request.run_at)

    def _check_depth(self) -> None:
        """Raise if tasks submit each other without end: in the mode "at_once" they would run inside each other
        without end."""
        if self.mode == "at_once" and len(_ours.get()) >= _DEEPEST:
            self._too_deep = RecursionError(
                f"{_DEEPEST} tasks are running inside each other, each submitted by the one before; if that is intended"
                ', in_memory(app, "step") runs them one after the other'
            )
            raise self._too_deep

    def _complain_of_depth(self) -> None:
        """Raise the error of `_check_depth` in the test itself, because the tasks in between may not have looked at
        the result of their submissions."""
        if self._too_deep is not None and not _ours.get():
            too_deep, self._too_deep = self._too_deep, None
            raise too_deep

    def _one_more(self, count: int) -> int:
        if count == _MOST_RUNS:
            raise RuntimeError(f"after {count} runs there is still more to run: do tasks submit themselves again?")
        return count + 1

    def _take(self) -> AssignedJob | None:
        assignment = self._worker.take()
        self._transport.pump()
        return assignment

    def _begin(self, assignment: AssignedJob) -> None:
        self._running.add(assignment.handle)

    def _end(self, assignment: AssignedJob) -> None:
        self._running.discard(assignment.handle)
        self._transport.pump()
        if self._progress is not None:
            self._progress.set()

    def _work(self) -> None:
        """Run what can run while a caller waits."""
        if self.mode == "at_once":
            self.run_all()
            self._complain_of_depth()

    async def _work_async(self) -> None:
        if self.mode == "at_once":
            await self.run_all_async()
            self._complain_of_depth()

    async def _wait_for_others(self) -> bool:
        """Wait until something has happened in another coroutine; False if nothing runs there."""
        if not self._running - _ours.get():
            return False
        if self._progress is None or self._progress.is_set():
            self._progress = asyncio.Event()
        await self._progress.wait()
        await self._work_async()
        return True

    def _pass_time_to(self, moment_us: int) -> None:
        self.clock.advance(max(0, moment_us - self.clock.now_us()) / SECOND_US)
        self._hub.turn()
        self._transport.pump()

    def _next_due_us(self) -> int | None:
        """When a job may next become ready."""
        now_us = self.clock.now_us()
        due = [deadline[0] for deadline in self._hub.engine.deadlines if self._lets_run(deadline)]
        return min((at_us for at_us in due if at_us > now_us), default=None)

    def _lets_run(self, deadline: Deadline) -> bool:
        at_us, _, kind, subject, _ = deadline
        if isinstance(subject, Job):
            if kind is DeadlineKind.DUE:
                return subject.state is SCHEDULED and subject.run_at_us == at_us
            # Its end, whatever it is, may let other jobs run.
            return (
                kind is DeadlineKind.EXPIRY
                and subject.expires_us == at_us
                and subject.id in self._hub.engine.dependencies.successors
            )
        if isinstance(subject, Limiter):
            is_needed = subject.check_us == at_us and subject.function.ready > 0
        elif isinstance(subject, KeyQueue):
            is_needed = subject.check_us == at_us and subject.ready > 0
        else:
            return False
        return is_needed and not subject.function.paused and subject.function.name.decode() in self.app.tasks
