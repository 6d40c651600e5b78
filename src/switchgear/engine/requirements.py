"""Requirements: jobs that require tags and resources, and which workers fit them.

A worker may have tags, such as `gpu`, and resources, such as `memory=64G`; a job may require some.  A worker is given
only jobs whose required tags it has, all of them, and for which enough of its resources is free, in whatever way it
gets jobs: pulled, woken for, or pushed.  A worker with tags or resources also takes jobs that require nothing.

Use.  A job uses what it requires of its worker's resources from the moment it is given to the worker until the worker
has it no longer: a job that was cancelled, or done by another, until the worker reports.  So a worker with 64G that
runs a job of 48G is not given a second one.  `Worker.uses` has what each job uses, and `Worker.offer` what is left.

Groups.  The ready jobs of a function that require the same are one `QueueGroup`, and those that require nothing are
the group of its `Limiter`.  A function without unfinished jobs that require something has no other groups, and no
limiter either unless it has limits: it pays nothing.  For a worker the first jobs of all groups that it fits are
compared by priority and place, so a job that no worker fits does not block those behind it.  What that costs depends on
the number of groups and not on the number of jobs.  So a function has at most `MOST_GROUPS`, and a submission that
would make another is refused.  A group exists as long as there are unfinished jobs that require the same, because any
of them may become ready.

Workers.  What a worker offers at the moment is an `Offer`, which it shares with all that offer the same; those that
sleep or have credit are also found by their offers (`Function.offering_sleepers`, `offering_pushers`).  All workers
together say at most `MOST_DESCRIPTIONS` different things of their tags and resources.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from switchgear.engine.state import EngineState
from switchgear.errors import Refused
from switchgear.model import NO_RESOURCES, NO_TAGS, Function, Job, Limiter, Offer, QueueGroup, Worker
from switchgear.policy import Policy
from switchgear.refusals import REFUSED_LIMIT
from switchgear.resources import split_requirements

__all__ = [
    "ELSEWHERE",
    "GROUP_BYTES",
    "MOST_DESCRIPTIONS",
    "MOST_GROUPS",
    "Amounts",
    "Requirements",
    "could_fit",
    "first_fitting",
    "fits",
    "groups_for",
    "have_ready",
    "list_worker",
    "unlist_worker",
]

MOST_GROUPS: Final = 1_000
MOST_DESCRIPTIONS: Final = 256
# The approximate memory of a group.
GROUP_BYTES: Final = 2_000
# The groups that workers fit are remembered for so many offers.
MOST_REMEMBERED: Final = 512
# For so many it costs less to leave out a group than to look at all groups again.
FEW_OFFERS: Final = 8
# An offer that no worker has any more is probably made again soon, so some are kept.
MOST_UNUSED_OFFERS: Final = 64
ELSEWHERE: Final = 0  # in the place of a job's id: what jobs that the engine does not know use of a worker

Amounts = tuple[tuple[bytes, int], ...]  # names and thousandths, sorted
Description = tuple[frozenset[bytes], Amounts]  # tags and resources
WorkersByOffer = dict[Offer, OrderedDict[Worker, None]]


class Requirements:
    """Counts unfinished jobs by what they require, and workers by what they offer."""

    def __init__(self, state: EngineState) -> None:
        self.most_groups = MOST_GROUPS
        self._state = state
        self._descriptions: dict[Description, int] = {}  # how many workers say this of themselves
        self._offers: dict[Description, Offer] = {}  # those that some worker has, and some that one had
        self._unused_offers = 0  # how many no worker has

    # --- jobs ---

    def refuse_group(self, function: Function, requires: bytes) -> None:
        """Raise Refused if a job that requires this would make one group too many."""
        limiter = function.limiter
        if limiter is None or requires in limiter.requiring or len(limiter.requiring) < self.most_groups:
            return
        text = f"jobs of this function have {self.most_groups:,} different requirements already"
        raise Refused(REFUSED_LIMIT, text)

    def join(self, job: Job) -> None:
        """An unfinished job that requires something has entered the tables."""
        function = job.function
        limiter = function.limiter
        if limiter is None:
            limiter = function.limiter = Limiter(function, Policy())
        group = limiter.requiring.get(job.requires)
        if group is None:
            group = QueueGroup(function, job.requires, limiter.policy.tells_keys_apart)
            limiter.requiring[group.requires] = group
            limiter.groups.append(group)
            for offer, fitting in limiter.fitting.items():
                if offer.fits(group):
                    fitting.append(group)
            self._state.memory.limiter_bytes += GROUP_BYTES + len(group.requires)
        group.unfinished += 1

    def leave(self, job: Job) -> None:
        """Stop counting a job that has left the tables and is in no queue."""
        function = job.function
        limiter = function.limiter
        assert limiter is not None
        group = limiter.requiring[job.requires]
        group.unfinished -= 1
        if group.unfinished:
            return
        del limiter.requiring[group.requires]
        limiter.groups.remove(group)
        if len(limiter.fitting) > FEW_OFFERS:
            limiter.fitting.clear()
        for offer, fitting in limiter.fitting.items():
            if offer.fits(group):
                fitting.remove(group)
        self._state.memory.limiter_bytes -= GROUP_BYTES + len(group.requires)
        if not limiter.has_room:  # otherwise `Dispatcher.offer_room` follows
            self.drop_needless(limiter)

    def drop_needless(self, limiter: Limiter) -> None:
        """Let the function have no limiter if it has no limits, no key queues, and no job requires anything."""
        if not limiter.requiring and not limiter.policy and limiter.key_queues is None:
            limiter.function.limiter = None

    # --- what workers have ---

    def refuse_description(self, tags: frozenset[bytes], resources: Mapping[bytes, int]) -> None:
        """Raise Refused if workers say too many different things of themselves."""
        description = _description(tags, resources)
        is_new = bool(tags or resources) and description not in self._descriptions
        if is_new and len(self._descriptions) >= MOST_DESCRIPTIONS:
            text = f"workers have {MOST_DESCRIPTIONS} different sets of tags and resources already"
            raise Refused(REFUSED_LIMIT, text)

    def describe(self, worker: Worker, tags: frozenset[bytes], resources: Mapping[bytes, int]) -> None:
        """The worker has other tags or resources than before."""
        if worker.tags or worker.resources:
            old = _description(worker.tags, worker.resources)
            self._descriptions[old] -= 1
            if not self._descriptions[old]:
                del self._descriptions[old]
        if tags or resources:
            description = _description(tags, resources)
            self._descriptions[description] = self._descriptions.get(description, 0) + 1
        worker.tags = tags
        worker.resources = resources
        worker.uses = None
        free = dict(resources)
        if resources:
            for job in worker.running.values():  # they use what it has, whenever it says so
                if job.has_details and job.requires:
                    self._subtract(worker, free, job.id, split_requirements(job.requires)[1])
        self._use_offer(worker, free)

    def offers(self) -> list[Offer]:
        """The different offers that workers have at the moment."""
        return [offer for offer in self._offers.values() if offer.workers]

    def forget(self, worker: Worker) -> None:
        """Stop counting a worker that is gone."""
        if worker.tags or worker.resources:
            self.describe(worker, NO_TAGS, NO_RESOURCES)

    # --- what jobs use of it ---

    def begin_use(self, worker: Worker, job: Job) -> None:
        """The worker has been given this job, of a function that has a limiter, or has it still although it ended."""
        limiter = job.function.limiter
        if limiter is None or worker.offer is None or not worker.resources or not job.has_details:
            return
        group = limiter.requiring.get(job.requires)
        if group is None or not group.amounts or (worker.uses is not None and job.id in worker.uses):
            return
        free = worker.offer.free.copy()
        self._subtract(worker, free, job.id, group.amounts)
        self._use_offer(worker, free)

    def end_use(self, worker: Worker, job_id: int) -> bool:
        """The worker does not have this job any more; returns whether there is more to offer now."""
        amounts = None if worker.uses is None else worker.uses.pop(job_id, None)
        if amounts is None or worker.offer is None:
            return False
        free = worker.offer.free.copy()
        for name, amount in amounts:
            if name in free:
                free[name] += amount
        self._use_offer(worker, free)
        return True

    def use_elsewhere(self, worker: Worker, amounts: Amounts) -> bool:
        """Jobs of others use this much of the worker; returns whether that has changed."""
        used = () if worker.uses is None else worker.uses.get(ELSEWHERE, ())
        if amounts == used or worker.offer is None:
            return False
        free = worker.offer.free.copy()
        for name, amount in used:
            if name in free:
                free[name] += amount
        if worker.uses is not None:
            worker.uses.pop(ELSEWHERE, None)
        self._subtract(worker, free, ELSEWHERE, amounts)
        self._use_offer(worker, free)
        return True

    def _subtract(self, worker: Worker, free: dict[bytes, int], job_id: int, amounts: Amounts) -> None:
        if not amounts:
            return
        if worker.uses is None:
            worker.uses = {}
        worker.uses[job_id] = amounts
        for name, amount in amounts:
            if name in free:
                free[name] -= amount

    def _use_offer(self, worker: Worker, free: dict[bytes, int]) -> None:
        """Let the worker offer its tags and what is free of its resources, and be found by that."""
        new: Offer | None = None
        if worker.tags or free:
            description = _description(worker.tags, free)
            new = self._offers.get(description)
            if new is None:
                new = self._offers[description] = Offer(worker.tags, free)
                self._unused_offers += 1
        old = worker.offer
        if new is old:
            return
        for function in worker.order:
            unlist_worker(function.offering_sleepers, worker)
            unlist_worker(function.offering_pushers, worker)
        worker.offer = new
        if new is not None:
            if not new.workers:
                self._unused_offers -= 1
            new.workers += 1
            for function in worker.order:
                if worker in function.sleepers:
                    list_worker(function.offering_sleepers, worker)
                if worker in function.pushers:
                    list_worker(function.offering_pushers, worker)
        if old is not None:
            old.workers -= 1
            if not old.workers:
                self._unused_offers += 1
                if self._unused_offers > MOST_UNUSED_OFFERS:
                    self._offers = {key: offer for key, offer in self._offers.items() if offer.workers}
                    self._unused_offers = 0


def _description(tags: frozenset[bytes], resources: Mapping[bytes, int]) -> Description:
    return tags, tuple(sorted(resources.items()))


# --- who fits ---


def fits(worker: Worker, job: Job) -> bool:
    """Whether the worker may be given the job now, as far as what it requires is concerned."""
    if not job.has_details or not job.requires:
        return True
    offer = worker.offer
    return offer is not None and _has(offer.tags, offer.free, job.requires)


def could_fit(worker: Worker, job: Job) -> bool:
    """The same if no other job used the resources of the worker."""
    return not job.requires or _has(worker.tags, worker.resources, job.requires)


def _has(tags: frozenset[bytes], resources: Mapping[bytes, int], requires: bytes) -> bool:
    required, amounts = split_requirements(requires)
    return required <= tags and all(resources.get(name, 0) >= amount for name, amount in amounts)


def groups_for(limiter: Limiter, worker: Worker) -> list[QueueGroup]:
    """The groups whose jobs the worker may be assigned."""
    offer = worker.offer
    if not limiter.requiring or offer is None:
        return limiter.groups[:1]
    groups = limiter.fitting.get(offer)
    if groups is None:
        if len(limiter.fitting) >= MOST_REMEMBERED:
            limiter.fitting.clear()
        groups = limiter.fitting[offer] = [group for group in limiter.groups if offer.fits(group)]
    return groups


def have_ready(groups: list[QueueGroup]) -> bool:
    """Whether the limits of keys allow to assign a job of one of these groups."""
    for group in groups:  # noqa: SIM110  (a generator would take longer than all the rest)
        if group.has_ready():
            return True
    return False


# --- workers by what they offer ---


def list_worker(workers: WorkersByOffer, worker: Worker) -> None:
    """Let a worker that has tags or resources be found by them."""
    offer = worker.offer
    assert offer is not None
    listed = workers.get(offer)
    if listed is None:
        listed = workers[offer] = OrderedDict()
    listed[worker] = None


def unlist_worker(workers: WorkersByOffer, worker: Worker) -> None:
    """The worker is not found by what it offers any more."""
    offer = worker.offer
    if offer is None:
        return
    listed = workers.get(offer)
    if listed is not None:
        listed.pop(worker, None)
        if not listed:
            del workers[offer]


def first_fitting(group: QueueGroup, workers: OrderedDict[Worker, None], offering: WorkersByOffer) -> Worker | None:
    """The worker that is first of those that fit a group.

    For one that requires something it is the first of those with the fewest tags and resources, and of these with the
    least that is free of what the jobs require, so that others stay free for jobs that require more.
    """
    if not group.requires:
        return next(iter(workers)) if workers else None
    best: Offer | None = None
    for offer in offering:
        if offer.fits(group) and (best is None or _is_tighter(offer, best, group)):
            best = offer
    return None if best is None else next(iter(offering[best]))


def _is_tighter(offer: Offer, other: Offer, group: QueueGroup) -> bool:
    count = len(offer.tags) + len(offer.free)
    other_count = len(other.tags) + len(other.free)
    if count != other_count:
        return count < other_count
    for name, _ in group.amounts:
        if offer.free[name] != other.free[name]:
            return offer.free[name] < other.free[name]
    return False
