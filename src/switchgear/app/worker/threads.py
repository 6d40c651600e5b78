"""Jobs in threads."""

from __future__ import annotations

import threading
from contextvars import copy_context
from queue import SimpleQueue
from typing import Final

from switchgear.app.running import Fail, Stopped, error_text, run
from switchgear.app.worker.executor import Attempt, Executor

__all__ = ["ThreadExecutor"]

_END: Final = None
NO_THREAD: Final = "no thread could be started"
NO_THREAD_SECONDS: Final = 1.0  # before the job is handed back


class ThreadExecutor(Executor):
    """A thread for each slot, started when it is first needed and used again and again.

    A thread cannot be stopped from outside: a job that is cancelled or has timed out keeps its slot until its function
    looks at `current_job().cancelled` or returns.
    """

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self._queue: SimpleQueue[Attempt | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy: set[Attempt] = set()

    def start(self, attempt: Attempt) -> None:
        self._busy.add(attempt)
        if len(self._busy) > len(self._threads) and not self._start_thread() and not self._threads:
            self._busy.discard(attempt)
            # Later, since the server may well send it again at once.
            self.loop.call_later(NO_THREAD_SECONDS, self._end_from_thread, attempt, Stopped(NO_THREAD))
            return
        self._queue.put(attempt)

    def _start_thread(self) -> bool:
        name = f"switchgear-job-{len(self._threads) + 1}"
        # Daemons, since a function that does not return must not keep the process from its end.
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # that may pass; till then the threads that there are do all the work
            self.superior.note(f"{NO_THREAD}: {error}")
            return False
        self._threads.append(thread)
        return True

    def cancel(self, attempt: Attempt, *, hard: bool) -> None:
        if attempt.job.cancel_reason == "timed_out":
            limit = f"{attempt.assignment.timeout_seconds:g} s"
            self.superior.note(
                f"{attempt.handle} ({attempt.assignment.function}) has run for more than {limit}; a thread"
                " cannot be stopped, so its slot stays taken until the function returns"
                ' (run_in="process" can be stopped)'
            )

    async def close(self) -> bool:
        for _ in self._threads:
            self._queue.put(_END)
        return not self._busy

    def _work(self) -> None:
        while (current := self._queue.get()) is not _END:
            try:
                # In a context of its own, so that what one job sets the next does not see.
                outcome = copy_context().run(run, current.task, current.assignment, current.job)
            except BaseException as error:  # a defect of ours, which must not cost a slot
                outcome = Fail(error_text(error))
            self._busy.discard(current)
            self._end_from_thread(current, outcome)
            del current, outcome  # an idle thread holds on to nothing
