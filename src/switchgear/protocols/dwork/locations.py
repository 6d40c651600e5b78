"""Workers, as a dwork server knows them: by the location that they give in every request.

A location is known from its first request on, and an engine's worker while it works.  Several programs may use one
location; to the server they are one worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from mypy_extensions import mypyc_attr

from switchgear.engine.core import REFUSED_LIMIT
from switchgear.errors import Refused
from switchgear.model import Job, Worker
from switchgear.protocols.base import Message

__all__ = ["Location", "Locations"]

# Strangers can make up any number of locations.  Beyond this many, one that holds nothing makes room for a new one.
MOST_LOCATIONS = 100_000
LOOKED_AT_FOR_ROOM: Final = 10

# Jobs that a worker has no more are forgotten when they are the majority, and so many.
LEAST_TO_FORGET: Final = 64


class Location:
    """One worker, and what it waits for."""

    def __init__(self, name: bytes, lease_us: int) -> None:
        self.name = name
        self.lease_us = lease_us  # 0: no sign of life is expected
        self.listed = False  # has had a task, or reported on one: an Exit will find it
        self.worker: Worker | None = None
        self.blocked: dict[int, Message] = {}  # Steals that wait for a task: the ticket, and whom to answer
        self.unnamed: dict[bytes, deque[int]] = {}  # jobs that were not created by name, by what they are called here
        self._unnamed_count = 0  # of ids in it, some of jobs that the worker has no more

    def holds_nothing(self) -> bool:
        return self.worker is None or not (self.worker.running or self.blocked)

    def hold_unnamed(self, task_name: bytes, job: Job) -> None:
        """The worker got a job that is called by its payload."""
        running = self.worker.running if self.worker is not None else {}
        if self._unnamed_count >= 2 * len(running) + LEAST_TO_FORGET:
            held = {name: deque(job_id for job_id in ids if job_id in running) for name, ids in self.unnamed.items()}
            self.unnamed = {name: ids for name, ids in held.items() if ids}
            self._unnamed_count = sum(map(len, self.unnamed.values()))
        self.unnamed.setdefault(task_name, deque()).append(job.id)
        self._unnamed_count += 1

    def unnamed_job(self, task_name: bytes) -> Job | None:
        """The job called so that the worker has had longest."""
        running = self.worker.running if self.worker is not None else {}
        ids = self.unnamed.get(task_name)
        while ids:
            job = running.get(ids[0])
            if job is not None and job.worker is self.worker:
                return job
            ids.popleft()
            self._unnamed_count -= 1
        self.unnamed.pop(task_name, None)
        return None


@mypyc_attr(allow_interpreted_subclasses=True)
class Locations:
    """All of them, those that came first at the front."""

    def __init__(self) -> None:
        self._by_name: dict[bytes, Location] = {}

    def __iter__(self) -> Iterator[Location]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: bytes) -> Location | None:
        return self._by_name.get(name)

    def add(self, name: bytes, lease_us: int) -> Location:
        location = self._by_name[name] = Location(name, lease_us)
        return location

    def remove(self, location: Location) -> None:
        del self._by_name[location.name]

    def superfluous(self, *, is_full: bool = False) -> Location | None:
        """One that has to go before another can come, because there are very many or memory `is_full`.

        Raises Refused if none of those that we look at may go.
        """
        if len(self._by_name) < MOST_LOCATIONS and not is_full:
            return None
        if not self._by_name:
            return None
        for _ in range(LOOKED_AT_FOR_ROOM):
            location = next(iter(self))
            if location.holds_nothing():
                return location
            del self._by_name[location.name]
            self._by_name[location.name] = location
        raise Refused(REFUSED_LIMIT, f"there are {len(self._by_name)} workers already")
