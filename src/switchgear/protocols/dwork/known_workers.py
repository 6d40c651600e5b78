"""`KnownWorkers`: the workers of a dwork listener, by the location in their requests.

A worker is known from its first request on. It is registered in the engine from its first Steal on, also if it only
polls, and stays registered for its lease. A worker that has no task and has closed all its connections stays registered
for some seconds, because it may open a new connection for each request. Several programs may use one location; to the
server they are one worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from mypy_extensions import mypyc_attr

from switchgear.errors import Refused
from switchgear.model import Job, Timer, Worker
from switchgear.protocols.multipart import Message
from switchgear.refusals import REFUSED_LIMIT

__all__ = ["KnownWorker", "KnownWorkers"]

# Peers can invent any number of locations. Beyond this many, one without tasks makes room for a new one.
MOST_LOCATIONS = 100_000
LOOKED_AT_FOR_ROOM: Final = 10

# Ids of jobs that a worker no longer has are dropped when they are the majority, and at least this many.
LEAST_TO_FORGET: Final = 64


class KnownWorker:
    """One worker, and its waiting Steals."""

    def __init__(self, name: bytes, lease_us: int) -> None:
        self.name = name
        self.lease_us = lease_us  # 0: no sign of life is expected
        self.listed = False  # has had a task, or reported on one: Exit is accepted
        self.worker: Worker | None = None
        self.tags: frozenset[bytes] | None = None  # stated in a Steal; None: not stated
        self.resources: dict[bytes, int] | None = None  # likewise, in thousandths
        self.identities: set[bytes] = set()  # routing ids of the open connections that it has used
        self.leaving: Timer | None = None  # it is deregistered when this fires
        self.blocked: dict[int, Message] = {}  # waiting Steals: by ticket, the envelope of the answer
        self.unnamed: dict[bytes, deque[int]] = {}  # jobs that were not created by name, by the name used here
        self._unnamed_count = 0  # number of ids in it, including jobs that the worker no longer has

    def holds_nothing(self) -> bool:
        return self.worker is None or not (self.worker.running or self.blocked)

    def hold_unnamed(self, task_name: bytes, job: Job) -> None:
        """Note that the worker got a job that is named by its payload."""
        running = self.worker.running if self.worker is not None else {}
        if self._unnamed_count >= 2 * len(running) + LEAST_TO_FORGET:
            held = {name: deque(job_id for job_id in ids if job_id in running) for name, ids in self.unnamed.items()}
            self.unnamed = {name: ids for name, ids in held.items() if ids}
            self._unnamed_count = sum(map(len, self.unnamed.values()))
        self.unnamed.setdefault(task_name, deque()).append(job.id)
        self._unnamed_count += 1

    def unnamed_job(self, task_name: bytes) -> Job | None:
        """The job with this name that the worker has had longest."""
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
class KnownWorkers:
    """All known workers, the oldest first."""

    def __init__(self) -> None:
        self._by_name: dict[bytes, KnownWorker] = {}

    def __iter__(self) -> Iterator[KnownWorker]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: bytes) -> KnownWorker | None:
        return self._by_name.get(name)

    def add(self, name: bytes, lease_us: int) -> KnownWorker:
        known = self._by_name[name] = KnownWorker(name, lease_us)
        return known

    def remove(self, known: KnownWorker) -> None:
        del self._by_name[known.name]

    def superfluous(self, *, is_full: bool = False) -> KnownWorker | None:
        """A worker to be forgotten before another can be added, because there are very many or memory `is_full`.

        Raises Refused if none of the examined ones can be forgotten.
        """
        if len(self._by_name) < MOST_LOCATIONS and not is_full:
            return None
        if not self._by_name:
            return None
        for _ in range(LOOKED_AT_FOR_ROOM):
            known = next(iter(self))
            if known.holds_nothing():
                return known
            del self._by_name[known.name]
            self._by_name[known.name] = known
        raise Refused(REFUSED_LIMIT, f"there are {len(self._by_name)} workers already")
