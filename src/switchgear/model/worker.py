"""`Worker`: a registered worker; `Offer`: the tags and free resources that it has for a job."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from switchgear.model.flow import Flow
from switchgear.model.peer import Peer

if TYPE_CHECKING:
    from switchgear.model.function import Function
    from switchgear.model.job import Job
    from switchgear.model.limiter import QueueGroup

__all__ = ["NO_RESOURCES", "NO_TAGS", "Offer", "Worker"]

NO_FLOWS: Final = [Flow()]
NO_HEADERS: Final[Mapping[str, Any]] = {}
NO_TAGS: Final[frozenset[bytes]] = frozenset()
NO_RESOURCES: Final[Mapping[bytes, int]] = {}


class Offer:
    """What a worker has to offer to a job at the moment: its tags, and how much of its resources is free.

    Workers that offer the same share one; see engine.requirements.
    """

    __slots__ = ("free", "tags", "workers")

    def __init__(self, tags: frozenset[bytes], free: dict[bytes, int]) -> None:
        self.tags = tags
        self.free = free  # thousandths; below 0 if the worker says that it has less than its jobs use
        self.workers = 0  # how many have this offer

    def fits(self, group: QueueGroup) -> bool:
        """Whether a worker with this offer may be given a job of a group."""
        if not group.tags <= self.tags:
            return False
        for name, amount in group.amounts:  # noqa: SIM110  (a generator would take longer than all the rest)
            if self.free.get(name, 0) < amount:
                return False
        return True


class Worker:
    """A registered worker: its functions, its running jobs, and how it asks for jobs."""

    tickets: OrderedDict[int, int] | None = None  # credits with a time limit: the number of the ticket, and its end
    # The priorities that the worker takes, by function, if not all; None: it takes all everywhere.
    priorities: dict[Function, tuple[int, ...]] | None = None
    may_miss_wakeups: bool = False  # a wakeup may be lost in transit, and is repeated until the worker asks
    identity: object = None  # identifies its late reports; see engine.lost_starts
    resources: Mapping[bytes, int] = NO_RESOURCES  # how much it has of what, in thousandths; see engine.requirements
    uses: dict[int, tuple[tuple[bytes, int], ...]] | None = None  # how much of it its jobs use, by their ids
    offer: Offer | None = None  # what follows from tags, resources and uses; None: it has neither tags nor resources
    stands_for: int = 1  # how many workers of another server this one is
    woken_job: Job | None = None  # the job for which a wake policy has chosen it
    status: bytes | None = None  # what it says of itself, as JSON; None: it cannot be controlled from the server
    answered_control: int = 0  # the number of the request to which the status is the answer

    def __init__(self, worker_id: int, peer: Peer, protocol: str, since_us: int) -> None:
        self.id = worker_id
        self.peer = peer
        self.protocol = protocol
        self.name = b""
        self.headers = NO_HEADERS  # sent by the worker, for a wake policy
        self.tags = NO_TAGS  # it takes jobs that require these; see engine.requirements
        self.since_us = since_us
        self.alive = True
        self.order: list[Function] = []  # the order of assignment; see engine.dispatcher
        self.timeouts_us: dict[Function, int] = {}  # time limit of a run by function, 0 for none
        self.has_timeouts = False  # some of them are not 0
        self.holds_limited = False  # a job was started with such a limit since `Engine.end_own_limits`
        self.running: dict[int, Job] = {}
        self.asleep = False
        self.woken_for: Function | None = None  # the function of the last wakeup
        self.credits = 0  # how many more jobs may be pushed to it
        self.lease_until_us = 0  # 0: the connection itself is the sign of life
        self.lease_check_us = 0  # when the engine checks the lease; 0: never
        self.flows = NO_FLOWS  # counters by the protocol of the submitter; see engine.flows

    def __repr__(self) -> str:
        return f"Worker({self.id}, {self.protocol})"
