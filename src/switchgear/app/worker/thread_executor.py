"""`ThreadExecutor`: runs jobs in threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Final

from switchgear.app.job_execution import error_text, run
from switchgear.app.worker.executor import Attempt, Executor
from switchgear.client.gearman.assigned_job import Fail, Outcome, Stopped

__all__ = ["ThreadExecutor"]

NO_THREAD: Final = "no thread could be started"
NO_THREAD_SECONDS: Final = 1.0  # before the job is released
BUNCH: Final = 32  # ends that are passed to the owner together, if more jobs are waiting
WATCH_SECONDS: Final = 0.001  # between checks of jobs that wait for a thread
MOST_WATCH_SECONDS: Final = 0.05  # while all threads are busy for long
# If more jobs wait than this many times those started since the last check, more threads are woken.
BRISK: Final = 8
LONG_SECONDS: Final = 0.01  # for an attempt to wait that should have been started at once
STUCK_SECONDS: Final = 0.03  # for any attempt to wait


class ThreadExecutor(Executor):
    """A thread for each slot, started when it is first needed and used again and again.

    Waking a thread takes longer than a small job.  So a very short job is left to a thread that is awake, and the ends
    of such jobs are passed to the owner together.  While jobs wait, a timer checks every millisecond whether threads
    take them: if not, the other threads are woken too, and the owner is told how long the jobs have been waiting.

    A thread cannot be stopped from outside: a job that is cancelled or has timed out keeps its slot until its function
    reads `current_job().cancelled` or returns.
    """

    takes_ahead = True

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self._waiting: deque[Attempt] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()  # wakes one thread: True to work, False to end
        self._threads: list[threading.Thread] = []
        self._busy: set[Attempt] = set()
        self._awake = 0  # threads that work, or were woken to; with the lock
        self._lock = threading.Lock()
        self._is_waking = False  # `_wake_first` will be called
        self._is_watching = False  # `_watch` will be called
        self._tells_soon = False  # within a millisecond, and will see to ends
        self._pause_seconds = WATCH_SECONDS
        self._begun: deque[Attempt] = deque()  # since the last check
        self._unseen = 0  # attempts that no check has found started; belongs to the I/O thread
        self._told_at = 0.0  # when the owner was last told that an attempt is held for too long

    def start(self, attempt: Attempt) -> None:
        if not self._threads and not self._start_thread():
            # Later, since the server may well send it again at once.
            self.loop.call_later(NO_THREAD_SECONDS, self._end_from_thread, attempt, Stopped(NO_THREAD))
            return
        self._busy.add(attempt)
        self._waiting.append(attempt)
        self._unseen += 1
        if not attempt.is_quick:
            self._wake_thread()
        elif not self._awake and not self._is_waking:
            self._is_waking = True
            self.loop.call_soon(self._wake_first)  # when all have come that come together
        if not self._is_watching:
            self._is_watching = True
            self._watch_after(WATCH_SECONDS)

    def waiting(self) -> list[Attempt]:
        return list(self._waiting)

    def withdraw(self, attempt: Attempt) -> bool:
        try:
            self._waiting.remove(attempt)
        except ValueError:
            return False
        self._unseen -= 1
        self._busy.discard(attempt)
        return True

    def cancel(self, attempt: Attempt, *, hard: bool) -> None:
        if self.withdraw(attempt):
            self.loop.call_soon(self.owner.attempts_ended, [(attempt, Stopped(attempt.job.cancel_reason))])
        elif attempt.job.cancel_reason == "timed_out":
            limit = f"{attempt.assignment.timeout_seconds:g} s"
            self.owner.note(
                f"{attempt.handle} ({attempt.assignment.function}) has run for more than {limit}; a thread"
                " cannot be stopped, so its slot stays taken until the function returns"
                ' (run_in="process" can be stopped)'
            )

    async def close(self) -> bool:
        for _ in self._threads:
            self._bell.put(False)
        return not self._busy

    # --- threads ---

    def _start_thread(self) -> bool:
        name = f"switchgear-job-{len(self._threads) + 1}"
        # Daemons, since a function that does not return must not keep the process from its end.
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # that may pass; till then the threads that there are do all the work
            self.owner.note(f"{NO_THREAD}: {error}")
            return False
        self._threads.append(thread)
        return True

    def _wake_thread(self) -> bool:
        with self._lock:
            if self._awake >= self.slots:
                return False
            all_awake = self._awake >= len(self._threads)
            self._awake += 1
        if all_awake and not self._start_thread():
            with self._lock:
                self._awake -= 1
            return False
        self._bell.put(True)
        return True

    def _wake_first(self) -> None:
        self._is_waking = False
        if self._waiting and not self._awake:
            self._wake_thread()

    def _watch_after(self, pause_seconds: float) -> None:
        self._pause_seconds = pause_seconds
        self._tells_soon = pause_seconds == WATCH_SECONDS
        self.loop.call_later(pause_seconds, self._watch)

    def _watch(self) -> None:
        """Tell the owner of started attempts, of ends that have not woken it, and of attempts that wait for long."""
        self._tells_soon = False  # first: from now on each thread reports its ends
        pause_seconds = MOST_WATCH_SECONDS  # if the code below raises, the timer continues all the same
        try:
            begun: list[Attempt] = []
            while self._begun:
                begun.append(self._begun.popleft())
            self._unseen -= len(begun)
            if begun:
                self.owner.attempts_begun(begun)
            self._ends.look()
            pause_seconds = self._check_waiting(len(begun))
        finally:
            self._is_watching = self._unseen > 0
            if self._is_watching:
                self._watch_after(pause_seconds)

    def _check_waiting(self, lately: int) -> float:
        """Check how long attempts wait; `lately` were started since the last check.  Returns the pause until the
        next."""
        if len(self._waiting) > BRISK * lately:
            for _ in range(len(self._waiting)):
                if not self._wake_thread():
                    break
        now = time.monotonic()
        waited_seconds = now - self._oldest(now)
        if waited_seconds > STUCK_SECONDS:
            if now - self._told_at > STUCK_SECONDS:
                self._told_at = now
                self.owner.held_too_long()
        elif waited_seconds > LONG_SECONDS:
            self.owner.waiting_long()
        if lately or self._awake < self.slots:
            return WATCH_SECONDS
        pause_seconds = min(2 * self._pause_seconds, MOST_WATCH_SECONDS)
        if waited_seconds > STUCK_SECONDS:
            return pause_seconds
        return min(pause_seconds, max(STUCK_SECONDS - waited_seconds, WATCH_SECONDS))

    def _oldest(self, now: float) -> float:
        """When the longest waiting attempt came; `now` if none waits."""
        try:
            return self._waiting[0].started
        except IndexError:
            return now

    # --- in a thread ---

    def _work(self) -> None:
        while self._bell.get():
            while (current := self._next()) is not None:
                current.started = time.monotonic()
                self._begun.append(current)
                try:
                    # In its own context, so that the next job does not see what this one sets.
                    outcome = copy_context().run(run, current.task, current.assignment, current.job)
                except BaseException as error:  # a defect of ours, which must not cost a slot
                    outcome = Fail(error_text(error))
                current.took_seconds = time.monotonic() - current.started
                self._busy.discard(current)
                self._tell(current, outcome)
                del current, outcome  # an idle thread holds on to nothing

    def _next(self) -> Attempt | None:
        """The next attempt to run; None if there is none, and then this thread counts as asleep."""
        while True:
            try:
                return self._waiting.popleft()
            except IndexError:
                with self._lock:
                    self._awake -= 1
                    if not self._waiting:
                        return None
                    self._awake += 1  # one has come in between

    def _tell(self, attempt: Attempt, outcome: Outcome) -> None:
        """Tell the owner of an end: at once, or at the next check if this thread has more to do."""
        self._ends.put_quietly((attempt, outcome))
        if not self._waiting or not self._tells_soon or len(self._ends) >= BUNCH:
            with suppress(RuntimeError):  # the worker has stopped without waiting for this attempt
                self._ends.call()
