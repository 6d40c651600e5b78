"""Those who follow one job over a connection to a server of ours.

Such a server tells a connection once of a job, however many of its users asked for it to be watched; only a foreground
submission that joins a job adds a copy of all its news.  So here news are for everybody, superfluous copies are
dropped, and whoever comes later is told what was missed.

Followers are held weakly, since a program may throw its job away; what has come of the result is kept in any case,
because it does not come again.
"""

from __future__ import annotations

import weakref

from switchgear.app.job_updates import COMPLETE, DATA, PROGRESS, STATUS
from switchgear.client.client_protocol import FINAL_NEWS, EventHandler

__all__ = ["JobSubscribers"]


class JobSubscribers:
    """The followers of one job."""

    __slots__ = ("_copies", "_heard", "_members", "_parts", "_progress", "_room")

    def __init__(self) -> None:
        self._members: list[weakref.ref[EventHandler]] = []
        self._room = 8  # when there are so many, those who have left are swept out
        self._copies = 0  # how often each piece of news comes
        self._heard = 0  # how many copies of the latest piece have come
        self._parts: list[bytes] | None = None  # of the result
        self._progress: tuple[int, bytes] | None = None  # the latest

    def add(self, follower: EventHandler, *, adds_copy: bool) -> None:
        """Somebody follows the job from now on."""
        if len(self._members) >= self._room:
            self._members = [reference for reference in self._members if reference() is not None]
            self._room = 2 * len(self._members) + 8
        self._members.append(weakref.ref(follower))
        if adds_copy or not self._copies:
            self._copies += 1
        self._heard = 0
        if self._progress is not None:
            follower.hear(*self._progress)

    def members(self) -> list[EventHandler]:
        """Those who are still there."""
        return [follower for reference in self._members if (follower := reference()) is not None]

    def hear(self, kind: int, data: bytes) -> None:
        """A packet about the job."""
        if kind not in FINAL_NEWS and self._is_repetition():
            return
        if kind == DATA:
            if self._parts is None:
                self._parts = []
            self._parts.append(data)
            return
        if kind in (PROGRESS, STATUS):
            self._progress = kind, data
        elif kind == COMPLETE and self._parts:
            data = b"".join((*self._parts, data))
        for follower in self.members():
            follower.hear(kind, data)

    def _is_repetition(self) -> bool:
        self._heard = self._heard % self._copies + 1
        return self._heard != 1
