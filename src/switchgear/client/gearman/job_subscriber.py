"""`JobSubscriber`: the progress and the end of one job, for waiters in any thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from switchgear.client.gearman.error_codes import JOB_NOT_FOUND
from switchgear.client.gearman.pending_requests import UNKNOWN
from switchgear.client.gearman.submitted_job import progress_number
from switchgear.client.gearman.subscriptions import COMPLETE, DATA, PROGRESS, STATUS, Subscriber
from switchgear.errors import (
    ClientError,
    JobCancelled,
    JobExpired,
    JobFailed,
    JobLost,
    JobTimedOut,
    JobUnknown,
    PredecessorFailed,
    ServerUnreachable,
    TaskFailed,
)
from switchgear.protocols.gearman.messages import Packet

__all__ = ["JobEnd", "JobSubscriber", "Progress"]

FAIL: Final = int(Packet.WORK_FAIL)
EXCEPTION: Final = int(Packet.WORK_EXCEPTION)
ENDED: Final = int(Packet.JOB_ENDED)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job: parts done, parts in all, and a message."""

    done: int
    total: int
    message: str = ""

    @property
    def fraction(self) -> float:
        """From 0 to 1.

        >>> Progress(3, 4).fraction
        0.75
        """
        return min(1.0, self.done / self.total) if self.total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of a job: its state, cause, result and error."""

    state: str  # done, failed, cancelled, expired; or unknown: there is no such job
    result: bytes = b""
    cause: str = ""  # why it is in this state
    error: bytes = b""  # the reason that the worker has reported

    def failure(self, handle: str) -> ClientError | None:
        """The error to raise, or None if the job is done."""
        if self.state == "done":
            return None
        if self.state == UNKNOWN:
            text = f"there is no job {handle}, or it ended so long ago that it is forgotten"
            return JobUnknown(JOB_NOT_FOUND, text)
        first_line = self.error.decode(errors="replace").strip().partition("\n")[0]
        if self.state == "cancelled":
            reason = first_line if self.cause == "skipped" and first_line else _CANCELLED_BECAUSE.get(self.cause, "")
            return JobCancelled(f"job {handle} was cancelled" + (f": {reason}" if reason else ""), self.error)
        if self.state == "expired":
            return JobExpired(f"job {handle} expired: it was not started in time", self.error)
        if self.cause == "exhausted" and self.error.startswith(TIMED_OUT_TEXT):
            return JobTimedOut(f"job {handle} is dead: it {first_line}", self.error)
        if self.cause == "exhausted":
            last = f"; it last said: {first_line}" if first_line else ""
            return JobLost(f"job {handle} is dead: its attempts were lost or timed out{last}", self.error)
        if self.cause == "doomed":
            why = first_line or "one that it waited for did not succeed"
            return PredecessorFailed(f"job {handle} failed because {why}", self.error)
        if not self.error:
            return TaskFailed(f"job {handle} failed; the worker gave no reason", self.error)
        text = f"job {handle} failed: {first_line}"
        failure: JobFailed = TaskFailed(text, self.error)
        traceback = failure.remote_traceback if isinstance(failure, TaskFailed) else ""
        if traceback:
            failure.add_note(f"The traceback of the worker:\n{traceback.rstrip()}")
        return failure


# With the cause `exhausted` the error is the server's own text, and begins with what became of the last attempt.
TIMED_OUT_TEXT: Final = b"timed out"

_CANCELLED_BECAUSE: Final = {
    "abandoned": "no client waited for it any more",
    "skipped": "one that it waited for did not succeed",
    "replaced": "another with its unique key took its place",
}


class JobSubscriber(Subscriber):
    """Receives the events of one job in the I/O thread, and passes them to waiters and listeners in any thread."""

    def __init__(self) -> None:
        self.future: Future[JobEnd] = Future()
        self.process_id = os.getpid()
        self.progress: Progress | None = None
        self._parts: list[bytes] = []
        self._listeners: list[Callable[[Progress | None], None]] = []
        self._lock = threading.Lock()

    @property
    def is_usable(self) -> bool:
        """Whether the end of the job is known, or may still become known in this process."""
        if self.future.done():
            return self.future.exception() is None or not self.survives_reconnect
        return self.process_id == os.getpid()

    def add_listener(self, listener: Callable[[Progress | None], None]) -> None:
        """Call the listener with the latest progress now, with each later one, and with None at the end.

        Later calls come from the I/O thread.
        """
        with self._lock:
            if self.progress is not None:
                listener(self.progress)
            if not self.future.done():
                self._listeners.append(listener)
                return
        listener(None)

    def remove_listener(self, listener: Callable[[Progress | None], None]) -> None:
        """Call this listener no more."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    # --- in the I/O thread ---

    def on_event(self, kind: int, data: bytes) -> None:
        if kind == COMPLETE:
            self.end(JobEnd("done", b"".join((*self._parts, data)) if self._parts else data, "succeeded"))
        elif kind == PROGRESS:
            self._set_progress(*data.split(b"\0", 2))
        elif kind == STATUS:
            self._set_progress(*data.split(b"\0", 1))
        elif kind == DATA:
            self._parts.append(data)
        elif kind == ENDED:
            state, cause, error = (*data.split(b"\0", 2), b"", b"", b"")[:3]
            self.end(JobEnd(state.decode(errors="replace"), b"", cause.decode(errors="replace"), error))
        elif kind == EXCEPTION:
            self.end(JobEnd("failed", b"", "ended_badly", data))
        elif kind == FAIL:
            self.end(JobEnd("failed", b"", "ended_badly"))

    def _set_progress(self, numerator: bytes, denominator: bytes = b"0", message: bytes = b"") -> None:
        progress = Progress(progress_number(numerator), progress_number(denominator), message.decode(errors="replace"))
        with self._lock:
            self.progress = progress
            listeners = list(self._listeners)
        for listener in listeners:
            listener(progress)

    def restart(self) -> None:
        self._parts = []

    def end(self, end: JobEnd) -> None:
        """Complete the future with the end of the job."""
        if not self.future.done():
            self.future.set_result(end)
            self._notify_end()

    def on_connection_lost(self, error: ServerUnreachable) -> None:
        self.give_up(error)

    def give_up(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self._notify_end()

    def _notify_end(self) -> None:
        with self._lock:
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(None)
