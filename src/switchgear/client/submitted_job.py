"""A submitted job as its submitter sees it: news, and an end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from switchgear.errors import ClientError, JobFailed, ServerUnreachable
from switchgear.protocols.gearman.messages import Packet

__all__ = ["WORK_PACKETS", "Submission", "Update", "UpdateKind", "figure_of", "update_of"]


class UpdateKind(StrEnum):
    """What a piece of news is about."""

    DATA = "data"  # part of the result, ahead of its end
    WARNING = "warning"
    STATUS = "status"  # progress: numerator and denominator
    COMPLETE = "complete"  # the end: the result, or the last part of it
    FAIL = "fail"  # the end: no reason was given
    EXCEPTION = "exception"  # the end: the worker gave a reason


_LONGEST_FIGURE: Final = 20  # digits

FINAL_KINDS: Final = frozenset({UpdateKind.COMPLETE, UpdateKind.FAIL, UpdateKind.EXCEPTION})

WORK_PACKETS: Final = {
    Packet.WORK_DATA: UpdateKind.DATA,
    Packet.WORK_WARNING: UpdateKind.WARNING,
    Packet.WORK_STATUS: UpdateKind.STATUS,
    Packet.WORK_COMPLETE: UpdateKind.COMPLETE,
    Packet.WORK_FAIL: UpdateKind.FAIL,
    Packet.WORK_EXCEPTION: UpdateKind.EXCEPTION,
}


@dataclass(frozen=True, slots=True)
class Update:
    """One piece of news about a job."""

    kind: UpdateKind
    data: bytes = b""
    numerator: int = 0
    denominator: int = 0

    @property
    def is_final(self) -> bool:
        """Whether the job has ended with this."""
        return self.kind in FINAL_KINDS


def update_of(kind: int, body: bytes) -> tuple[bytes, Update]:
    """The handle and the news in a WORK_* packet."""
    handle, _, rest = body.partition(b"\0")
    what = WORK_PACKETS[Packet(kind)]
    if what is UpdateKind.STATUS:
        numerator, _, denominator = rest.partition(b"\0")
        return handle, Update(what, b"", figure_of(numerator), figure_of(denominator))
    return handle, Update(what, rest)


def figure_of(text: bytes) -> int:
    """Workers write what they like; what is no number that anybody could count to is no progress."""
    return int(text) if text.isdigit() and len(text) <= _LONGEST_FIGURE else 0


class Submission:
    """A job that was submitted.  For a background job there is the handle, and nothing to wait for."""

    def __init__(self, handle: str, *, background: bool, read_more: Callable[[float | None], None]) -> None:
        self.handle = handle
        self.background = background
        self._read_more = read_more
        self._news: deque[Update] = deque()
        self._parts: list[bytes] = []
        self._end: Update | None = None
        self._lost: ServerUnreachable | None = None

    def __repr__(self) -> str:
        return f"Submission({self.handle!r})"

    def updates(self, timeout_seconds: float | None = None) -> Iterator[Update]:
        """The news as it comes, each once, the last of them final.

        Raises TimeoutError when `timeout_seconds` have passed since the call; asking again goes on where it stopped.
        Raises ServerUnreachable if the connection is lost: the job may then have run or not.
        """
        if self.background:
            raise ClientError(f"{self.handle} is a background job: its result is not sent to its submitter")
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while self._end is None:
            if self._news:
                update = self._news.popleft()
                if update.is_final:
                    self._end = update
                yield update
            elif self._lost is not None:
                raise self._lost
            else:
                self._read_more(deadline)

    def wait(self, timeout_seconds: float | None = None) -> bytes:
        """The whole result; raises JobFailed, or what `updates` raises.

        Parts of the result that somebody took through `updates` are not repeated here.
        """
        for update in self.updates(timeout_seconds):
            if update.kind in (UpdateKind.DATA, UpdateKind.COMPLETE):
                self._parts.append(update.data)
        assert self._end is not None
        if self._end.kind is not UpdateKind.COMPLETE:
            raise failure_of(self.handle, self._end)
        return b"".join(self._parts)

    # --- for the client that feeds it ---

    def hear(self, update: Update) -> None:
        """The server sent this."""
        self._news.append(update)

    def lose(self, error: ServerUnreachable) -> None:
        """No more news will come."""
        self._lost = error


def failure_of(handle: str, end: Update) -> JobFailed:
    """The error for a job that ended like this."""
    reason = end.data.decode(errors="replace").strip() if end.kind is UpdateKind.EXCEPTION else ""
    return JobFailed(f"job {handle} failed" + (f": {reason}" if reason else ""), end.data)
