"""`ReadyQueue`: ready jobs by priority, of a function or of one of its keys."""

from __future__ import annotations

from collections import deque
from typing import Final

from switchgear.model.job import Job
from switchgear.model.segments import SegmentedQueue

__all__ = ["NOT_SEGMENTED", "NO_JOBS", "ReadyQueue"]

# Shared by all key queues without jobs: an empty deque takes as much memory as the entries of sixty jobs.
NO_JOBS: Final[deque[Job]] = deque(maxlen=0)
# Shared by all ready queues in which no priority is long; never changed.
NOT_SEGMENTED: Final[list[SegmentedQueue | None]] = [None, None, None, None]


class ReadyQueue:
    """Ready jobs by priority: those of a function, or of one key of it.  `engine.ready_queues` has the operations."""

    __slots__ = ("is_segmented", "queues", "segmented")

    def __init__(self) -> None:
        # By priority, the first jobs. Empty only if there are no others.
        self.queues: list[deque[Job]] = [deque(), deque(), deque(), deque()]
        # By priority, the jobs behind these, if the queue is long.
        self.segmented: list[SegmentedQueue | None] = NOT_SEGMENTED
        self.is_segmented = False  # some of them are not None

    def ready_of(self, priority: int) -> int:
        """How many jobs of this priority wait for a worker."""
        rest = self.segmented[priority]
        if rest is None:
            return len(self.queues[priority])
        return len(self.queues[priority]) + rest.entries + len(rest.tail)
