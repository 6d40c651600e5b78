"""A job that a client submitted: its updates, its result, and its end.

`SubmissionState` collects them without I/O; `Submission` waits for them by blocking.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from switchgear.client.gearman.subscriptions import Subscriber
from switchgear.errors import ClientError, JobFailed, ServerUnreachable
from switchgear.protocols.gearman.messages import Packet

__all__ = ["Submission", "SubmissionState", "Update", "UpdateKind", "progress_number"]


class UpdateKind(StrEnum):
    """The kinds of updates."""

    DATA = "data"  # part of the result, ahead of its end
    WARNING = "warning"
    STATUS = "status"  # progress: numerator and denominator
    COMPLETE = "complete"  # the end: the result, or the last part of it
    FAIL = "fail"  # the end: no reason was given
    EXCEPTION = "exception"  # the end: the worker gave a reason


_LONGEST_NUMBER: Final = 20  # digits

_FINAL_KINDS: Final = frozenset({UpdateKind.COMPLETE, UpdateKind.FAIL, UpdateKind.EXCEPTION})

_UPDATE_KINDS: Final[dict[int, UpdateKind]] = {
    Packet.WORK_DATA: UpdateKind.DATA,
    Packet.WORK_WARNING: UpdateKind.WARNING,
    Packet.WORK_STATUS: UpdateKind.STATUS,
    Packet.WORK_COMPLETE: UpdateKind.COMPLETE,
    Packet.WORK_FAIL: UpdateKind.FAIL,
    Packet.WORK_EXCEPTION: UpdateKind.EXCEPTION,
}


@dataclass(frozen=True, slots=True)
class Update:
    """An update of a submitted job: progress, data, a warning, or its end."""

    kind: UpdateKind
    data: bytes = b""
    numerator: int = 0
    denominator: int = 0

    @property
    def is_final(self) -> bool:
        """Whether the job has ended with this."""
        return self.kind in _FINAL_KINDS


def progress_number(text: bytes) -> int:
    """A number of a progress report; 0 if it is not a number, since workers may write anything there."""
    return int(text) if text.isdigit() and len(text) <= _LONGEST_NUMBER else 0


class SubmissionState(Subscriber):
    """The updates of a submitted job that were received and not taken yet."""

    def __init__(self, handle: str = "", *, background: bool) -> None:
        self.handle = handle
        self.background = background
        self._updates: deque[Update] = deque()
        self._parts: list[bytes] = []
        self._end: Update | None = None
        self._lost: ServerUnreachable | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.handle!r})"

    def on_event(self, kind: int, data: bytes) -> None:
        update_kind = _UPDATE_KINDS.get(kind)
        if update_kind is UpdateKind.STATUS:
            numerator, _, denominator = data.partition(b"\0")
            self._updates.append(
                Update(update_kind, b"", progress_number(numerator), progress_number(denominator)),
            )
        elif update_kind is not None:
            self._updates.append(Update(update_kind, data))
        elif kind == Packet.JOB_ENDED:  # our extension: state, cause and error of a job without success
            error = b"".join(data.split(b"\0", 2)[2:])
            self._updates.append(Update(UpdateKind.EXCEPTION, error) if error else Update(UpdateKind.FAIL))

    def on_connection_lost(self, error: ServerUnreachable) -> None:
        self._lost = error

    def _check_foreground(self) -> None:
        if self.background:
            raise ClientError(f"{self.handle} is a background job: its result is not sent to its submitter")

    def _take_update(self) -> Update | None:
        """The next update, or None if it has not come yet; raises ServerUnreachable if it will not come."""
        if not self._updates:
            if self._lost is not None:
                raise self._lost
            return None
        update = self._updates.popleft()
        if update.is_final:
            self._end = update
        return update

    def _keep_part(self, update: Update) -> None:
        if update.kind in (UpdateKind.DATA, UpdateKind.COMPLETE):
            self._parts.append(update.data)

    def _result(self) -> bytes:
        """The whole result after the end; raises JobFailed."""
        assert self._end is not None
        if self._end.kind is UpdateKind.COMPLETE:
            return b"".join(self._parts)
        has_reason = self._end.kind is UpdateKind.EXCEPTION
        reason = self._end.data.decode(errors="replace").strip() if has_reason else ""
        raise JobFailed(f"job {self.handle} failed" + (f": {reason}" if reason else ""), self._end.data)


class Submission(SubmissionState):
    """A job that was submitted.  A background job has a handle, and nothing to wait for."""

    def __init__(self, handle: str = "", *, background: bool, read_more: Callable[[float | None], None]) -> None:
        super().__init__(handle, background=background)
        self._read_more = read_more

    def updates(self, timeout_seconds: float | None = None) -> Iterator[Update]:
        """The updates as they come, each once, the last of them final.

        Raises TimeoutError when `timeout_seconds` have passed since the call; another call continues there.
        Raises ServerUnreachable if the connection is lost: the job may then have run or not.
        """
        self._check_foreground()
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while self._end is None:
            update = self._take_update()
            if update is None:
                self._read_more(deadline)
            else:
                yield update

    def wait(self, timeout_seconds: float | None = None) -> bytes:
        """The whole result; raises JobFailed, or what `updates` raises.

        Parts of the result that were taken through `updates` are not repeated here.
        """
        for update in self.updates(timeout_seconds):
            self._keep_part(update)
        return self._result()
