"""What runs jobs: the contract of threads, coroutines and processes, and one attempt of a job."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from switchgear.app.job_execution import AssignedJob, Outcome
from switchgear.app.worker.mailbox import Mailbox

if TYPE_CHECKING:
    from switchgear.app.task import Task

__all__ = ["Attempt", "Executor", "ExecutorOwner"]

PROGRESS_PAUSE_SECONDS: Final = 0.05  # between reports of one job's progress


class Attempt:
    """One attempt of a job in this worker.  Belongs to the I/O thread, except where it says otherwise."""

    def __init__(self, assignment: AssignedJob, task: Task[Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        self.assignment = assignment
        self.task = task
        self.job = assignment.context(self.progress)
        self.is_quick = False  # will be over in no time, by what is known of its task
        self.is_announced = False  # people have been told that it is started
        self.started = time.monotonic()  # until it is begun: when it came
        self.took_seconds: float | None = None  # once it has ended, if the executor says so
        self.watch: asyncio.TimerHandle | None = None  # over the time limit
        self.send_progress: Callable[[Attempt, int, int, str], None] | None = None  # while somebody wants to hear of it
        self._loop = loop
        self._latest: tuple[int, int, str] | None = None
        self._is_called = False  # it will be sent
        self._sent_at = 0.0

    @property
    def handle(self) -> str:
        return self.assignment.handle

    @property
    def seconds(self) -> float:
        """How long it has been running, or has run."""
        return time.monotonic() - self.started if self.took_seconds is None else self.took_seconds

    def progress(self, done: int, total: int, message: str) -> None:
        """From any thread.  What has not been sent yet is overtaken, so that a busy loop does not flood the server."""
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
        """Send what was not sent yet."""
        self._is_called = False  # first, so that nothing is left behind unsent
        latest, self._latest = self._latest, None
        if latest is not None and self.send_progress is not None:
            self._sent_at = time.monotonic()
            self.send_progress(self, *latest)


class ExecutorOwner(ABC):
    """Whom an executor tells what becomes of attempts.  All of it in the I/O thread."""

    @abstractmethod
    def attempts_ended(self, ends: Sequence[tuple[Attempt, Outcome]]) -> None:
        """The tasks have returned or raised."""

    @abstractmethod
    def attempt_lost(self, attempt: Attempt, problem: str) -> None:
        """What ran the task has died of it."""

    @abstractmethod
    def attempts_begun(self, attempts: Sequence[Attempt]) -> None:
        """Their tasks have been called, and may have ended by now; told by executors that take attempts ahead."""

    @abstractmethod
    def waiting_long(self) -> None:
        """An attempt waits for longer than those should that are held for a moment."""

    @abstractmethod
    def waiting_in_vain(self) -> None:
        """An attempt has waited for so long that others should have it."""

    @abstractmethod
    def readiness_changed(self) -> None:
        """Look at `ready` again."""

    @abstractmethod
    def note(self, text: str) -> None:
        """People should know this."""


class Executor(ABC):
    """Runs jobs.  Its methods are called in the I/O thread, and none of them waits."""

    takes_ahead = False  # may be given more attempts than it has slots

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.superior: ExecutorOwner
        self.loop: asyncio.AbstractEventLoop
        self._ends: Mailbox[tuple[Attempt, Outcome]]

    @property
    def ready(self) -> bool:
        """Whether jobs can be started now."""
        return True

    def open(self, superior: ExecutorOwner, loop: asyncio.AbstractEventLoop) -> None:
        """Get ready."""
        self.superior = superior
        self.loop = loop
        self._ends = Mailbox(loop, superior.attempts_ended)

    @abstractmethod
    def start(self, attempt: Attempt) -> None:
        """Run this, and tell the superior when it has ended."""

    def waiting(self) -> list[Attempt]:
        """Those that have not been begun."""
        return []

    def withdraw(self, attempt: Attempt) -> bool:
        """Forget one that has not been begun; False if it has."""
        return False

    @abstractmethod
    def cancel(self, attempt: Attempt, *, hard: bool) -> None:
        """End this attempt, whose job knows already that it is not wanted; `hard`: at once, if that is possible."""

    @abstractmethod
    async def close(self) -> bool:
        """Give up everything.  True if nothing is left behind that still runs."""

    def _end_from_thread(self, attempt: Attempt, outcome: Outcome) -> None:
        """For other threads: tell the superior."""
        try:
            self._ends.put((attempt, outcome))
        except RuntimeError:
            pass  # the worker has stopped without waiting for this attempt
