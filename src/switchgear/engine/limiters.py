"""`Limiters`: enforces concurrency and rate limits per function and key, and serves keys round robin.

A function with a `Policy` has a `Limiter`; the others, most of them, do without and pay nothing for it.  A policy may
have, for the function as a whole and for each key (`Job.key`) of it:

  concurrency   This many jobs run at once.  A job counts from the moment it is given to a worker until it leaves
                RUNNING, whatever the reason; one that is cancelled counts no more, although its worker may go on.
  rate          This many starts in a period, as a token bucket: it holds as many tokens as the count, each start takes
                one, and they come back one by one, evenly over the period.  Each attempt is a start, and one that was
                released counts.  After a restart all buckets are full.
  fair          Keys are served round robin.

Key queues.  If keys have limits, or are served round robin, a function has one `KeyQueue` for each key.  Jobs without a
key have a queue of their own, which has no limits.  A key queue is closed while a limit of its key lets no other job
run.  The open ones that have jobs are served round robin, for each priority apart: the best priority comes first, and
among equals the queue that was served longest ago or, if the function is not fair, the one whose first job has the
lowest place, as if there was one queue.  A key queue without ready or running jobs is forgotten once its bucket is
full.

Opening.  A limiter opens by an event: a job stops running, a token comes back (`DeadlineKind.LIMITER`), the policy is
changed.  While a bucket is empty there is always a deadline for its next token.  `Dispatcher.offer_room` offers what
has become free.

Changes.  There may be as many keys as jobs, so nothing is done for all keys at once.  If keys are distinguished from
now on, the running jobs of all workers are counted first, over several turns (`count_running`), and no job gets to the
queue of its key before that.  A change of a policy that has key queues moves no job, and the key queues are reviewed
over several turns (`change`).  A key queue that was not reviewed yet is not served, so no job is assigned that the new
policy forbids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from switchgear.engine.deadlines import DeadlineKind, Deadlines
from switchgear.engine.requirements import Requirements, groups_for, have_ready
from switchgear.engine.sliced_work import SlicedKind, SlicedWork
from switchgear.engine.state import EngineState
from switchgear.engine.token_bucket import converted, has_tokens_at_us, spent, tokens
from switchgear.model import BEST_FIRST, READY, Function, Job, KeyQueue, Limiter, QueueGroup, Worker
from switchgear.model.job import place_of
from switchgear.model.key_queue_order import KeyQueueOrder, KeyQueueTurn
from switchgear.model.long_lists import LONG, promote_new_objects
from switchgear.model.names import NameTable
from switchgear.policy import Policy

__all__ = ["KEY_QUEUE_BYTES", "Closed", "Limiters"]

# The approximate memory of a key queue besides the key.
KEY_QUEUE_BYTES: Final = 1_000
# So many key queues that were reviewed already are passed over in one step.
PASSED_PER_STEP: Final = 16


class Closed(NamedTuple):
    """Why a ready job may not be assigned now."""

    reason: str  # "concurrency", "rate", "key_concurrency" or "key_rate"
    opens_us: int  # for rates: when the next token is there; 0: when another job ends


class Limiters:
    """Counts running jobs and tokens, and decides which key queue is next."""

    def __init__(
        self, state: EngineState, deadlines: Deadlines, requirements: Requirements, sliced_work: SlicedWork
    ) -> None:
        self.long = LONG  # with more key queues than this, lists of them are promoted
        self._sliced_work = sliced_work
        self._state = state
        self._deadlines = deadlines
        self._requirements = requirements

    # --- may a job be assigned ---

    def is_open(self, function: Function) -> bool:
        """Whether the limits of this function allow to assign a job."""
        limiter = function.limiter
        if limiter is None:
            return function.ready > 0
        policy = limiter.policy
        if 0 < policy.concurrency <= function.running:
            return False
        if policy.rate is not None and tokens(limiter.full_at, policy.rate, self._state.now_us) < 1:
            return False
        if limiter.key_queues is None:
            return function.ready > 0
        return have_ready(limiter.groups)

    def is_open_for(self, function: Function, worker: Worker) -> bool:
        """Whether the limits allow to assign a job of this function to this worker, which serves the function."""
        limiter = function.limiter
        if limiter is None or not limiter.requiring:
            return self.is_open(function)
        if not self.is_open(function):
            return False
        return have_ready(groups_for(limiter, worker))

    def room(self, function: Function) -> int:
        """How many ready jobs the function's own limits allow to run. Limits of keys may allow fewer."""
        room = function.ready
        limiter = function.limiter
        if limiter is not None:
            policy = limiter.policy
            if policy.concurrency:
                room = min(room, max(0, policy.concurrency - function.running))
            if policy.rate is not None:
                room = min(room, tokens(limiter.full_at, policy.rate, self._state.now_us))
        return room

    def offers(self, function: Function, priority: int, worker: Worker | None = None) -> bool:
        """Whether a job of this priority may be assigned (to this worker, if one is given), provided that the
        function is open."""
        limiter = function.limiter
        if limiter is None:
            return function.ready_of(priority) > 0
        groups = limiter.groups if worker is None else groups_for(limiter, worker)
        return self.next_group(limiter, priority, groups) is not None

    # --- groups ---

    def next_group(self, limiter: Limiter, priority: int, groups: list[QueueGroup]) -> QueueGroup | None:
        """The group whose first job of this priority is the first of all groups."""
        best: QueueGroup | None = None
        best_turn = 0
        for group in groups:
            turn = self.turn_of(limiter, group, priority)
            if turn is None:
                continue
            if best is None or turn < best_turn:
                best, best_turn = group, turn
        return best

    def turn_of(self, limiter: Limiter, group: QueueGroup, priority: int) -> int | None:
        """A number that is lower the earlier it is the turn of a group's first job of this priority; None: no job."""
        if group.serves_own_queue(priority):
            queue = group.queue.queues[priority]
            return place_of(queue[0]) if queue else None
        first = group.order[priority].first()
        return None if first is None else first.number

    def why_closed(self, job: Job) -> Closed | None:
        """The limit that holds back a ready job; `None` if there is none."""
        function = job.function
        limiter = function.limiter
        if limiter is None or job.state is not READY:
            return None
        policy = limiter.policy
        now_us = self._state.now_us
        if 0 < policy.concurrency <= function.running:
            return Closed("concurrency", 0)
        if policy.rate is not None and not tokens(limiter.full_at, policy.rate, now_us):
            return Closed("rate", has_tokens_at_us(limiter.full_at, policy.rate, 1))
        key_queue = limiter.key_queues.get(job.key) if limiter.key_queues is not None and job.key else None
        if key_queue is None:
            return None
        if 0 < policy.key_concurrency <= key_queue.running:
            return Closed("key_concurrency", 0)
        if policy.key_rate is not None:
            full_at = converted(key_queue.full_at, key_queue.key_rate, policy.key_rate, now_us)
            if not tokens(full_at, policy.key_rate, now_us):
                return Closed("key_rate", has_tokens_at_us(full_at, policy.key_rate, 1))
        return None

    # --- key queues ---

    def key_queue_of(self, limiter: Limiter, group: QueueGroup, key: bytes) -> KeyQueue:
        """The queue of this key in a group, created if missing."""
        key_queues = group.key_queues
        assert key_queues is not None
        key_queue = key_queues.get(key)
        if key_queue is None:
            owner = None if group is limiter else self.key_queue_of(limiter, limiter, key)
            key_queue = key_queues[key] = KeyQueue(group, key, owner)
            key_queue.revision = limiter.revision
            key_queue.key_rate = limiter.policy.key_rate
            self._count_bytes(limiter, KEY_QUEUE_BYTES + len(key))
            if owner is not None:
                if owner.requiring is None:
                    owner.requiring = []
                owner.requiring.append(key_queue)
        return key_queue

    def note_joined(self, limiter: Limiter, key_queue: KeyQueue, priority: int) -> None:
        """Note that a job of this priority was added to the key queue."""
        owner = key_queue.owner
        owner.ready += 1
        if key_queue is not owner:
            key_queue.ready += 1
        key_queue.group.ready[priority] += 1
        limiter.keyed_jobs += 1
        if owner.ready == 1 and owner.key:
            limiter.keys_waiting += 1
        self._list(limiter, key_queue, priority)

    def note_left(self, limiter: Limiter, key_queue: KeyQueue, priority: int) -> None:
        """Note that a job of this priority has left the key queue."""
        owner = key_queue.owner
        owner.ready -= 1
        if key_queue is not owner:
            key_queue.ready -= 1
        key_queue.group.ready[priority] -= 1
        limiter.keyed_jobs -= 1
        if not owner.ready and owner.key:
            limiter.keys_waiting -= 1
        self._list(limiter, key_queue, priority)
        if key_queue is not owner and not key_queue.ready:
            assert owner.requiring is not None
            owner.requiring.remove(key_queue)
            self._drop(limiter, key_queue)

    def _drop(self, limiter: Limiter, key_queue: KeyQueue) -> None:
        """Remove an empty key queue, and its memory from the account."""
        assert key_queue.group.key_queues is not None
        del key_queue.group.key_queues[key_queue.key]
        self._count_bytes(limiter, -KEY_QUEUE_BYTES - len(key_queue.key))

    def _count_bytes(self, limiter: Limiter, more_bytes: int) -> None:
        limiter.key_queue_bytes += more_bytes
        self._state.memory.limiter_bytes += more_bytes

    def note_served(self, limiter: Limiter, key_queue: KeyQueue, priority: int) -> None:
        """Note that the next job of the key queue is taken: with round robin, its key goes to the end."""
        if limiter.policy.fair:
            owner = key_queue.owner
            self._end_turn(limiter, owner, priority)
            for other in owner.requiring or ():
                self._end_turn(limiter, other, priority)

    def _end_turn(self, limiter: Limiter, key_queue: KeyQueue, priority: int) -> None:
        order = key_queue.group.order[priority]
        turn = key_queue.turns[priority]
        if turn is not None and order.has(turn):
            limiter.serial += 1
            order.change(turn, limiter.serial)

    def _list(self, limiter: Limiter, key_queue: KeyQueue, priority: int) -> None:
        """List the key queue as ready for this priority, if it has such jobs, is open and was reviewed."""
        order = key_queue.group.order[priority]
        queue = key_queue.queues[priority]
        owner = key_queue.owner
        turn = key_queue.turns[priority]
        is_listed = turn is not None and order.has(turn)  # not in the order before the last change of the policy
        if not queue or not owner.is_open or owner.revision != limiter.revision:
            if turn is not None and is_listed:
                order.remove(turn)
            key_queue.turns[priority] = None
            return
        is_fair = limiter.policy.fair
        if is_listed and is_fair:
            return
        number = place_of(queue[0])
        if is_fair:
            limiter.serial += 1
            number = limiter.serial
        if turn is None or (not is_listed and turn.position >= 0):
            key_queue.turns[priority] = turn = KeyQueueTurn(key_queue, number)
            order.add(turn)
        elif not is_listed:  # reused: the collector would have to visit a new one for each key
            turn.number = number
            order.add(turn)
        elif turn.number != number:
            order.change(turn, number)

    def next_key_queue(self, group: QueueGroup, priority: int) -> KeyQueue | None:
        """The key queue of a group that is served next for this priority."""
        turn = group.order[priority].first()
        return None if turn is None else turn.key_queue

    def review(self, limiter: Limiter, key_queue: KeyQueue) -> None:
        """Open, close or forget the queues of a key according to its limits; `key_queue` counts for the key."""
        policy = limiter.policy
        is_first_review = key_queue.revision != limiter.revision
        if is_first_review:
            self._convert(limiter, key_queue)
            self._uncheck(key_queue)
            key_queue.revision = limiter.revision
            limiter.unreviewed -= 1
        rate = policy.key_rate if key_queue.key else None
        available = 1 if rate is None else tokens(key_queue.full_at, rate, self._state.now_us)
        is_open = available > 0 and not (key_queue.key and 0 < policy.key_concurrency <= key_queue.running)
        if is_first_review or is_open is not key_queue.is_open:
            key_queue.is_open = is_open
            for queue in (key_queue, *(key_queue.requiring or ())):
                for priority in BEST_FIRST:
                    self._list(limiter, queue, priority)
        is_idle = not (key_queue.ready or key_queue.running)
        if rate is not None and not available:
            self._check_at(key_queue, has_tokens_at_us(key_queue.full_at, rate, 1))
        elif rate is not None and is_idle and available < rate[0]:
            self._check_at(key_queue, has_tokens_at_us(key_queue.full_at, rate, rate[0]))
        elif is_idle:
            self._uncheck(key_queue)
            self._drop(limiter, key_queue)

    # --- counting ---

    def count_start(self, job: Job) -> None:
        """Count the start of a job."""
        limiter = job.function.limiter
        assert limiter is not None
        if limiter.requiring and job.worker is not None:
            self._requirements.begin_use(job.worker, job)
        policy = limiter.policy
        now_us = self._state.now_us
        if policy.rate is not None:
            limiter.full_at = spent(limiter.full_at, policy.rate, now_us)
            self.await_token(limiter)
        if limiter.key_queues is not None:
            key_queue = self.key_queue_of(limiter, limiter, job.key)
            if job.worker is None or job.worker.id not in limiter.uncounted_workers:
                key_queue.running += 1
            if policy.key_rate is not None and job.key:
                self._convert(limiter, key_queue)
                key_queue.full_at = spent(key_queue.full_at, policy.key_rate, now_us)
            self.review(limiter, key_queue)

    def count_run(self, job: Job) -> None:
        """Count a run that goes on at this worker. It was started elsewhere, or earlier, so it takes no token."""
        limiter = job.function.limiter
        assert limiter is not None
        assert job.worker is not None
        if limiter.requiring:
            self._requirements.begin_use(job.worker, job)
        if limiter.key_queues is not None:
            key_queue = self.key_queue_of(limiter, limiter, job.key)
            if job.worker.id not in limiter.uncounted_workers:
                key_queue.running += 1
            self.review(limiter, key_queue)

    def count_end(self, job: Job, worker: Worker) -> None:
        """Count the end of a run. `Dispatcher.offer_room` then offers other jobs."""
        limiter = job.function.limiter
        assert limiter is not None
        limiter.has_room = True
        if worker.uses is not None and self._requirements.end_use(worker, job.id):
            limiter.freed[worker] = None
        if limiter.key_queues is None or worker.id in limiter.uncounted_workers:
            return
        if limiter.uncounted_jobs.pop(job.id, None) is None:
            key_queue = limiter.key_queues[job.key]
            key_queue.running -= 1
            self.review(limiter, key_queue)
            self.end_draining(limiter)

    # --- time ---

    def await_token(self, limiter: Limiter) -> None:
        """Add a deadline for the next token of an empty bucket."""
        rate = limiter.policy.rate
        if rate is not None and not tokens(limiter.full_at, rate, self._state.now_us):
            self._check_at(limiter, has_tokens_at_us(limiter.full_at, rate, 1))

    def _check_at(self, subject: Limiter | KeyQueue, at_us: int) -> None:
        if 0 < subject.check_us <= at_us:
            return  # the rest is handled at the earlier deadline
        self._uncheck(subject)
        subject.check_us = at_us
        self._deadlines.add(at_us, DeadlineKind.LIMITER, subject)

    def _uncheck(self, subject: Limiter | KeyQueue) -> None:
        if subject.check_us:
            subject.check_us = 0
            self._deadlines.note_stale()

    def token_came(self, subject: Limiter | KeyQueue) -> bool:
        """Handle a returned token of a function or one of its keys.

        Returns whether a job may be assigned for it.
        """
        subject.check_us = 0  # this entry of the index is used up, not stale
        limiter = subject.function.limiter
        assert limiter is not None
        if isinstance(subject, KeyQueue):
            self.review(limiter, subject)
            return subject.ready > 0
        self.await_token(limiter)
        return True

    def await_more_tokens(self, subject: Limiter | KeyQueue) -> None:
        """Await further tokens while workers sleep, so that more of them are woken when more jobs may run."""
        policy = subject.function.limiter.policy if subject.function.limiter is not None else Policy()
        rate = policy.rate if isinstance(subject, Limiter) else subject.key_rate
        if rate is not None:
            available = tokens(subject.full_at, rate, self._state.now_us)
            if 0 < available < rate[0]:
                self._check_at(subject, has_tokens_at_us(subject.full_at, rate, available + 1))

    def shift(self, limiter: Limiter, delta_us: int) -> None:
        """Adapt to a wall clock that was set: missing tokens return after the same time as before."""
        policy = limiter.policy
        if policy.rate is not None:
            limiter.full_at += delta_us * policy.rate[0]
        if limiter.check_us:
            limiter.check_us += delta_us
        for key_queue in limiter.key_queues.values() if limiter.key_queues is not None else ():
            if key_queue.key_rate is not None:
                key_queue.full_at += delta_us * key_queue.key_rate[0]
            if key_queue.check_us:
                key_queue.check_us += delta_us

    # --- change of policy ---

    def replace(self, function: Function, policy: Policy) -> None:
        """Replace the policy of a function that does not distinguish keys; running jobs and spent tokens count on.

        If the new one does, `count_running` has to follow.
        """
        old = function.limiter
        if old is not None:
            self._uncheck(old)
        function.limiter = None
        requiring = {} if old is None else old.requiring
        if not policy and not requiring:
            return
        limiter = function.limiter = Limiter(function, policy)
        for requires, old_group in requiring.items():
            group = limiter.requiring[requires] = QueueGroup(function, requires, policy.tells_keys_apart)
            group.unfinished = old_group.unfinished
            group.queue = old_group.queue
            limiter.groups.append(group)
        if old is not None:
            limiter.full_at = converted(old.full_at, old.policy.rate, policy.rate, self._state.now_us)
        self.await_token(limiter)
        if limiter.key_queues is not None and function.running:
            limiter.uncounted_workers = self._state.workers.copy()
            for worker in self._state.departed:
                limiter.uncounted_workers[worker.id] = worker

    def count_running(self, limiter: Limiter) -> Iterator[None]:
        """Count the running jobs of the function in the queues of their keys, of one worker or one job per step.

        Jobs may start and end meanwhile: those of workers that were not looked at yet are not counted before.
        """
        function = limiter.function
        while limiter.is_counting():
            if limiter.uncounted_workers:
                _, worker = limiter.uncounted_workers.popitem()
                running = self._state.departed.get(worker, worker.running)
                for job in running.values():
                    if job.worker is worker and job.function is function:
                        limiter.uncounted_jobs[job.id] = job
                yield
            while limiter.uncounted_jobs:
                _, job = limiter.uncounted_jobs.popitem()
                key_queue = self.key_queue_of(limiter, limiter, job.key)
                key_queue.running += 1
                self.review(limiter, key_queue)
                yield

    def change(self, limiter: Limiter, policy: Policy) -> Iterator[None]:
        """Change the policy of a function that distinguishes keys, and review its key queues, a few per step.

        No job is moved. A key queue is served again when it was reviewed: in the order in which they were to be served
        before, and then those that were closed. If keys are not distinguished any more, the jobs of the key queues are
        served first, in the order of their places, and all others after them (`QueueGroup.is_draining`).
        """
        self._uncheck(limiter)
        limiter.full_at = converted(limiter.full_at, limiter.policy.rate, policy.rate, self._state.now_us)
        limiter.policy = policy
        limiter.revision += 1
        limiter.is_reviewing = True
        limiter.unreviewed = 0 if limiter.key_queues is None else len(limiter.key_queues)
        served_before: list[KeyQueueOrder] = []
        for group in limiter.groups:
            if group.key_queues is None and policy.tells_keys_apart:
                group.key_queues = NameTable()
            group.is_draining = group.key_queues is not None and not policy.tells_keys_apart
            for priority in BEST_FIRST:
                if len(group.order[priority]):
                    served_before.append(group.order[priority])
                    group.order[priority] = KeyQueueOrder()
        if limiter.unreviewed > self.long:
            promote_new_objects()  # the new orders
        self.await_token(limiter)
        return self._review_all(limiter, served_before)

    def _review_all(self, limiter: Limiter, served_before: list[KeyQueueOrder]) -> Iterator[None]:
        """Review every key queue for the present policy. The former order is emptied step by step, because freeing a
        long one takes as long as a turn."""
        revision = limiter.revision
        for order in served_before:
            while (turn := order.first()) is not None:
                order.remove(turn)
                self._review_once(limiter, turn.key_queue.owner, revision)
                yield
        if limiter.revision == revision and limiter.unreviewed and limiter.key_queues is not None:
            passed = 0
            for portion in limiter.key_queues.portions():
                for key_queue in portion:
                    if key_queue.revision != limiter.revision:
                        self._review_once(limiter, key_queue, revision)
                        yield
                    else:
                        passed += 1
                        if passed % PASSED_PER_STEP == 0:
                            yield
                if limiter.revision != revision or not limiter.unreviewed:
                    break
        if limiter.revision == revision:
            limiter.is_reviewing = False
            self.end_draining(limiter)

    def _review_once(self, limiter: Limiter, key_queue: KeyQueue, revision: int) -> None:
        """Review a key queue, unless that was done, it is forgotten, or the policy was changed again."""
        if (
            limiter.revision == revision
            and key_queue.revision != revision
            and limiter.key_queues is not None
            and limiter.key_queues.get(key_queue.key) is key_queue
        ):
            self.review(limiter, key_queue)

    def _convert(self, limiter: Limiter, key_queue: KeyQueue) -> None:
        """Convert the tokens of a key to the present rate."""
        rate = limiter.policy.key_rate
        key_queue.full_at = converted(key_queue.full_at, key_queue.key_rate, rate, self._state.now_us)
        key_queue.key_rate = rate

    def end_draining(self, limiter: Limiter) -> None:
        """Drop the key queues of a function that does not distinguish keys any more, when they have no job left."""
        if not limiter.is_draining or limiter.keyed_jobs or limiter.is_reviewing:
            return
        self._count_bytes(limiter, -limiter.key_queue_bytes)
        for group in limiter.groups:
            if group.key_queues is not None:
                self._sliced_work.start(
                    group.key_queues.discard(), SlicedKind.FREE, group
                )  # without deadlines: no rate
            group.key_queues = None
            group.is_draining = False
        limiter.keys_waiting = 0
        limiter.uncounted_workers = {}
        limiter.uncounted_jobs = {}
        if not limiter.has_room:  # otherwise `Dispatcher.offer_room` follows
            self._requirements.drop_needless(limiter)

    def forget(self, function: Function) -> None:
        """Remove the limiter of a function, which has no jobs."""
        limiter = function.limiter
        if limiter is not None:
            self._uncheck(limiter)
            for group in limiter.groups:
                for key_queue in group.key_queues.values() if group.key_queues is not None else ():
                    self._uncheck(key_queue)
            self._count_bytes(limiter, -limiter.key_queue_bytes)
            function.limiter = None
