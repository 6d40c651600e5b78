"""Shelves: the middle of a long queue, in which most jobs are not objects but a few numbers and a key in arrays.

A job that only waits, and of which the store has everything, needs its id, its key and its place to be found; an object
for it is ten times as large.  `engine.shelves` says which jobs are put away and when they are taken out again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from switchgear.model.job import KEPT, Job

if TYPE_CHECKING:
    from switchgear.model import Function

__all__ = ["FIRST_REVISION", "Rack", "Shelf"]

FIRST_REVISION: Final = 1  # of a job that was kept once, and has not changed since


class Shelf:
    """Some hundred entries of one queue in their order."""

    __slots__ = ("created_us", "deliveries", "first_id", "function", "ids", "key_ends", "keys", "objects", "priority")

    def __init__(self, function: Function, priority: int) -> None:
        self.function = function
        self.priority = priority
        self.first_id = 0  # no job in these arrays, or on a later shelf, has a lower one
        # Ascending.  At the place of an object that never was plain stands the id before it.
        self.ids = array("q")
        self.created_us = array("q")
        self.deliveries = b""
        self.keys = b""
        self.key_ends = array("I")
        # By their place, jobs that are objects, because they have more to them or because somebody asked for them.
        # None: a ghost that was swept.
        self.objects: dict[int, Job | None] = {}

    def fill(self, ids: list[int], created_us: list[int], deliveries: list[int], uniques: list[bytes]) -> None:
        """Put these jobs here; what is said of objects does not matter, as long as the ids ascend."""
        self.ids = array("q", ids)
        self.created_us = array("q", created_us)
        self.deliveries = bytes(deliveries)
        self.keys = b"".join(uniques)
        self.key_ends = array("I", accumulate(map(len, uniques)))

    def plain_key_bytes(self) -> int:
        """How long the unique keys are together of those that are no objects."""
        size = len(self.keys)
        for place in self.objects:
            size -= len(self.unique_at(place))
        return size

    def unique_at(self, place: int) -> bytes:
        """The unique key of the job at this place."""
        ends = self.key_ends
        return self.keys[ends[place - 1] if place else 0 : ends[place]]

    def job_at(self, place: int) -> Job:
        """A new object for the job at this place.  It is the caller's to see that there is no other."""
        job = Job(
            self.ids[place],
            self.function,
            self.unique_at(place),
            None,
            self.priority,
            self.deliveries[place],
            self.created_us[place],
        )
        job.kept = KEPT
        job.revision = FIRST_REVISION
        return job

    def place_of_id(self, job_id: int) -> int:
        """Where the job is, if it is here and no object; otherwise -1."""
        ids = self.ids
        place = bisect_left(ids, job_id)
        if place == len(ids) or ids[place] != job_id or place in self.objects:
            return -1
        return place

    def place_of_key(self, unique: bytes) -> int:
        """Where the job with this key is, if it is here and no object; otherwise -1."""
        ends = self.key_ends
        start = self.keys.find(unique)
        while start >= 0:
            end = start + len(unique)
            place = bisect_left(ends, end)  # those without a key end where the one before them does
            if ends[place] == end and place not in self.objects and self.unique_at(place) == unique:
                return place
            start = self.keys.find(unique, start + 1)
        return -1


class Rack:
    """What comes after the head of a long queue: shelves, and then the newest jobs."""

    __slots__ = ("entries", "last_id", "shelves", "tail")

    def __init__(self) -> None:
        self.shelves: deque[Shelf] = deque()
        self.tail: deque[Job] = deque()
        self.entries = 0  # on the shelves
        self.last_id = 0  # no job in the arrays has a higher one

    def shelf_for(self, job_id: int) -> Shelf | None:
        """The shelf on which this job is, if it is in this rack."""
        shelves = self.shelves
        if not shelves or not shelves[0].first_id <= job_id <= self.last_id:
            return None
        return shelves[bisect_right(shelves, job_id, key=_first_id) - 1]


def _first_id(shelf: Shelf) -> int:
    return shelf.first_id
