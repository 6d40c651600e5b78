"""`WaitingJobs`: very many jobs that wait for the same one, in the order in which they began to.

Each is added and removed in constant time, and no addition takes long because a dictionary of all of them grows. They
can be visited over several turns without a copy, while others are added and removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from switchgear.model import Job
from switchgear.model.id_table import IdTable

__all__ = ["WaitingJobs"]

# Places of removed jobs are freed together with all others of their segment, so segments are short.
SEGMENT_BITS: Final = 6
SEGMENT_JOBS: Final = 1 << SEGMENT_BITS


class Segment:
    """Some consecutive places, and how many are not empty."""

    __slots__ = ("count", "jobs")

    def __init__(self) -> None:
        self.jobs: list[Job | None] = []
        self.count = 0


class WaitingJobs:
    """Jobs by their ids and in their order."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._places: Final = IdTable[int]()  # from one on: `IdTable.pop` returns None for a missing id
        self._segments: Final[dict[int, Segment]] = {}
        self._last_place = 0
        for job in jobs:
            self.add(job)

    def __len__(self) -> int:
        return self._places.count

    def has(self, job_id: int) -> bool:
        """Whether the job is among them."""
        return job_id in self._places

    def add(self, job: Job) -> None:
        """Append a job that is not among them."""
        self._last_place += 1
        self._places[job.id] = self._last_place
        number = self._last_place >> SEGMENT_BITS
        segment = self._segments.get(number)
        if segment is None:
            segment = self._segments[number] = Segment()
            segment.jobs.extend([None] * (self._last_place - (number << SEGMENT_BITS)))
        segment.jobs.append(job)
        segment.count += 1

    def remove(self, job_id: int) -> None:
        """Remove a job, if it is among them."""
        place = self._places.pop(job_id)
        if place is None:
            return
        number = place >> SEGMENT_BITS
        segment = self._segments[number]
        segment.jobs[place - (number << SEGMENT_BITS)] = None
        segment.count -= 1
        if not segment.count:
            del self._segments[number]

    def jobs(self) -> Iterator[Job]:
        """All of them, in order. Those that are added meanwhile are not among them, and removed ones may be."""
        last_place = self._last_place
        last_number = last_place >> SEGMENT_BITS
        for number in list(self._segments):
            segment = self._segments.get(number)
            if segment is None:
                continue
            jobs = segment.jobs
            if number == last_number:  # others may be appended
                jobs = jobs[: last_place - (number << SEGMENT_BITS) + 1]
            for job in jobs:
                if job is not None:
                    yield job
