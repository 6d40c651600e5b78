"""Lock lists (`lock:FN:ID`): a client that waits for the end of its job pops from one.

Here the end of the job itself pushes the token, so that any worker can run the job. As with a list, only one waiting
client gets it, and it expires after ten seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from switchgear.model import SECOND_US

if TYPE_CHECKING:
    from switchgear.protocols.gearmonkey.session import GearMonkeySession

__all__ = ["LOCK_US", "LockLists"]

LOCK_US: Final = 10 * SECOND_US


class Ended:
    """The lock list of a job that has ended: it holds `OK` until it is popped or expires."""

    __slots__ = ("function", "is_taken", "until_us")

    def __init__(self, function: bytes, until_us: int) -> None:
        self.function = function
        self.until_us = until_us  # when its lock expires
        self.is_taken = False  # its lock was popped


class LockLists:
    """The clients that wait for each job, and the locks that can be popped."""

    def __init__(self) -> None:
        self.waiting: dict[int, list[GearMonkeySession]] = {}  # by job, including jobs that are not pushed yet
        self._ended: OrderedDict[int, Ended] = OrderedDict()  # the job that ended first comes first

    def job_ended(self, job_id: int, function: bytes, ended_us: int) -> Ended:
        """Make the lock of this job available."""
        self._forget_old(ended_us)
        until_us = ended_us + LOCK_US
        ended = self._ended.get(job_id)
        if ended is None or ended.until_us != until_us:  # an end that is not known yet
            ended = self._ended[job_id] = Ended(function, until_us)
            self._ended.move_to_end(job_id)
        return ended

    def find(self, job_id: int, function: bytes, now_us: int) -> Ended | None:
        """A job that ended less than ten seconds ago."""
        ended = self._ended.get(job_id)
        return ended if ended is not None and ended.function == function and now_us < ended.until_us else None

    def wait(self, session: GearMonkeySession, job_id: int) -> None:
        self.waiting.setdefault(job_id, []).append(session)

    def stop_waiting(self, session: GearMonkeySession, job_id: int) -> None:
        sessions = self.waiting.get(job_id)
        if sessions is not None and session in sessions:
            sessions.remove(session)
            if not sessions:
                del self.waiting[job_id]

    def _forget_old(self, now_us: int) -> None:
        while self._ended:
            job_id = next(iter(self._ended))
            if self._ended[job_id].until_us > now_us:
                return
            del self._ended[job_id]
