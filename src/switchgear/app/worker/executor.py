"""`Executor`: the interface of executors (threads, an event loop, processes), and `Attempt`, one run of a job."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from switchgear.app.job_execution import current_job_of
from switchgear.app.worker.mailbox import Mailbox
from switchgear.client.gearman.assigned_job import AssignedJob, Outcome

if TYPE_CHECKING:
    from switchgear.app.task import Task

__all__ = ["Attempt", "Executor", "ExecutorOwner"]

PROGRESS_PAUSE_SECONDS: Final = 0.05  # between reports of one job's progress


class Attempt:
    """One attempt of a job in this worker.  Belongs to the I/O thread, except where it says otherwise."""

    def __init__(self, assignment: AssignedJob, task: Task[Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        self.assignment = assignment
        self.task = task
        self.job = current_job_of(assignment, self.progress)
        self.is_quick = False  # takes very little time, by what is known of its task
        self.is_announced = False  # the observer has been told that it is started
        self.started = time.monotonic()  # until it is begun: when it came
        self.took_seconds: float | None = None  # set at the end, if the executor measures it
        self.watch: asyncio.TimerHandle | None = None  # over the time limit
        # None: the job was taken from this worker
        self.send_progress: Callable[[Attempt, int, int, str], None] | None = None
        self._loop = loop
        self._latest: tuple[int, int, str] | None = None
        self._is_called = False  # it will be sent
        self._sent_at = 0.0

    @property
    def handle(self) -> str:
        return self.assignment.handle

    @property
    def seconds(self) -> float:
        """How long the attempt has been running, or has run."""
        return time.monotonic() - self.started if self.took_seconds is None else self.took_seconds

    def progress(self, done: int, total: int, message: str) -> None:
        """Report progress, from any thread.  A later report replaces an unsent one, so that the server is not
        flooded."""
        self._latest = (done, total, message)
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the worker has stopped without waiting for this attempt
                self._loop.call_soon_threadsafe(self._send_in_time)

    def _send_in_time(self) -> None:
        wait_seconds = self._sent_at + PROGRESS_PAUSE_SECONDS - time.monotonic()
        if wait_seconds > 0:
            self._loop.call_later(wait_seconds, self.flush_progress)
        else:
            self.flush_progress()

    def flush_progress(self) -> None:
        """Send progress that was not sent yet."""
        self._is_called = False  # first, so that nothing is left behind unsent
        latest, self._latest = self._latest, None
        if latest is not None and self.send_progress is not None:
            self._sent_at = time.monotonic()
            self.send_progress(self, *latest)


class ExecutorOwner(ABC):
    """Receives the events of an executor, in the I/O thread."""

    @abstractmethod
    def attempts_ended(self, ends: Sequence[tuple[Attempt, Outcome]]) -> None:
        """Called when the tasks of these attempts have returned or raised."""

    @abstractmethod
    def attempt_lost(self, attempt: Attempt, problem: str) -> None:
        """The process that ran the task has died."""

    @abstractmethod
    def attempts_begun(self, attempts: Sequence[Attempt]) -> None:
        """The tasks have been called, and may have ended by now; only from executors that take attempts ahead."""

    @abstractmethod
    def waiting_long(self) -> None:
        """A held attempt has waited for longer than it should."""

    @abstractmethod
    def held_too_long(self) -> None:
        """Handle a prefetched attempt that has waited so long that other workers should have it."""

    @abstractmethod
    def readiness_changed(self) -> None:
        """Called when the property `ready` has changed."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Pass a message on to the observer."""


class Executor(ABC):
    """Runs jobs.  Its methods are called in the I/O thread, and none of them waits."""

    takes_ahead = False  # may be given more attempts than it has slots

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.owner: ExecutorOwner
        self.loop: asyncio.AbstractEventLoop
        self._ends: Mailbox[tuple[Attempt, Outcome]]

    @property
    def ready(self) -> bool:
        """Whether jobs can be started now."""
        return True

    @property
    def resting(self) -> bool:
        """Whether no job can be started until the executor is woken."""
        return False

    def open(self, owner: ExecutorOwner, loop: asyncio.AbstractEventLoop) -> None:
        """Prepare for attempts, whose events go to this owner."""
        self.owner = owner
        self.loop = loop
        self._ends = Mailbox(loop, owner.attempts_ended)

    @abstractmethod
    def start(self, attempt: Attempt) -> None:
        """Run an attempt, and tell the owner when it has ended."""

    def waiting(self) -> list[Attempt]:
        """The attempts that have not been started."""
        return []

    def withdraw(self, attempt: Attempt) -> bool:
        """Drop an attempt that has not been started; False if it has."""
        return False

    @abstractmethod
    def cancel(self, attempt: Attempt, *, hard: bool) -> None:
        """Stop an attempt whose job is marked as cancelled already; `hard`: at once, if that is possible."""

    @abstractmethod
    async def close(self) -> bool:
        """Stop everything; returns whether nothing is left running."""

    def _end_from_thread(self, attempt: Attempt, outcome: Outcome) -> None:
        """Tell the owner of an end, from any thread."""
        try:
            self._ends.put((attempt, outcome))
        except RuntimeError:
            pass  # the worker has stopped without waiting for this attempt
