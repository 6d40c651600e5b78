"""`LostStarts`: remembers workers whose jobs were taken from them, so that their late reports are understood.

A worker whose connection or lease was lost, or that took too long, may still finish the job. If it reports success, and
no other worker was faster, its result counts. Any other report changes nothing, because the job is tried again; and no
late report counts for another start of the job, not even a start by the same worker.

A late report is matched to its worker by `Worker.identity`, which its protocol sets. A worker without an identity
cannot report late: for its protocol, the connection is the worker.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from switchgear.memory import MemoryAccount
from switchgear.model import Job, Worker

__all__ = ["LOST_START_BYTES", "LostStarts"]

# The oldest of this many has very likely been abandoned.
MOST_LOST_STARTS: Final = 100_000
# The approximate memory of one entry.
LOST_START_BYTES: Final = 350


class LostStarts:
    """Remembers the starts that workers have lost, the oldest first."""

    def __init__(self, memory: MemoryAccount) -> None:
        self.most = MOST_LOST_STARTS
        self._memory = memory
        # By job and identity: the number of the start, and the number of the worker.
        self._starts: OrderedDict[tuple[int, object], tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._starts)

    def remember(self, worker: Worker, job: Job) -> None:
        """Remember that a job was taken from its worker."""
        identity = worker.identity
        if identity is None:
            return
        key = (job.id, identity)
        if self._starts.pop(key, None) is None:
            self._memory.registration_bytes += LOST_START_BYTES
        self._starts[key] = (job.start_number, worker.id)
        if len(self._starts) > self.most:
            self._starts.popitem(last=False)
            self._memory.registration_bytes -= LOST_START_BYTES

    def is_known(self, job_id: int, identity: object, start_number: int) -> bool:
        """Whether this worker has lost the job; `start_number` is 0 if its reports do not name the start."""
        lost = self._starts.get((job_id, identity))
        return lost is not None and start_number <= lost[0]

    def loser(self, job_id: int, identity: object) -> int:
        """The id of the worker with this identity that lost the job last, or 0."""
        lost = self._starts.get((job_id, identity))
        return lost[1] if lost is not None else 0

    def forget(self, job_id: int, identity: object) -> None:
        """Forget an entry: the worker has reported."""
        if self._starts.pop((job_id, identity), None) is not None:
            self._memory.registration_bytes -= LOST_START_BYTES
