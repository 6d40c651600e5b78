"""Gates: how many jobs of a function, or of one key of it, may run, how often one may start, and whose turn it is.

A function with a `Policy` has a `Gate`; the others, most of them, do without and pay nothing for it.  What may be asked
for, for the function as a whole and for each key (`Job.key`) of it:

  concurrency   so many jobs run at once.  A job counts from the moment it is given to a worker until it leaves RUNNING,
                whatever the reason; one that is cancelled counts no more, although its worker may still be at it.
  rate          so many starts in a period, as a token bucket: it holds as many tokens as the count, each start takes
                one, and they come back one by one, evenly over the period.  Each attempt is a start, and one that is
                handed back was one.  After a restart all buckets are full.
  fair          keys are served in turn.

Lanes.  If keys have limits, or are served in turn, the ready jobs of a function stand in one line for each key, a
`Lane`.  Jobs without a key have a lane of their own, which has no limits.  A lane is closed while a limit of its key
does not let another job run.  The open ones that have jobs take turns, for each priority apart: the best priority
comes first, and among equals the lane that was served longest ago or, if the function is not fair, the one whose first
job has the lowest place, as if there were no lanes.  A lane in which nobody waits or runs is forgotten, once its bucket
is full.

Buckets.  A bucket is one number, the moment at which it will be full again.  To be exact it is counted in microseconds
times the count of its rate: a token then takes a whole number, the period, to come back.

Opening.  A gate opens by an event: a job leaves it, a token comes back (`Kind.GATE`), the policy is changed.  While a
bucket is empty there is always a deadline for its next token.  Whoever lets a job leave calls `_offer_room` when the
job has come to where it belongs, so that somebody else gets what has become free.  While deadlines are met that waits
until all are: a job that might run now may have expired an hour ago.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from switchgear.engine.core import EngineSettings, Observer
from switchgear.engine.deadlines import Kind
from switchgear.engine.lines import first_of, forget_ghosts, place_of
from switchgear.engine.shelves import Shelves
from switchgear.model import BEST_FIRST, NOBODY, READY, Function, Gate, Job, Lane
from switchgear.policy import Policy, Rate

__all__ = ["LANE_BYTES", "Closed", "Gates"]

# Rebuilding a small heap is not worth the trouble.
LEAST_STALE_HEADS: Final = 256
# What a lane takes in memory beside its key, about.
LANE_BYTES: Final = 1_000


class Closed(NamedTuple):
    """Why a ready job may not be handed out now."""

    reason: str  # "concurrency", "rate", "key_concurrency" or "key_rate"
    opens_us: int  # for rates: when the next token comes; 0: when another job ends


# --- buckets ---


def tokens(full_at: int, rate: Rate, now_us: int) -> int:
    """How many starts the bucket is good for now."""
    count, period_us = rate
    missing = full_at - now_us * count
    return count if missing <= 0 else max(0, count - 1 - (missing - 1) // period_us)


def spent(full_at: int, rate: Rate, now_us: int) -> int:
    """The bucket, when a token is taken out of it."""
    return max(full_at, now_us * rate[0]) + rate[1]


def has_tokens_at_us(full_at: int, rate: Rate, number: int) -> int:
    """When there are so many tokens."""
    count, period_us = rate
    return -(((count - number) * period_us - full_at) // count)


def converted(full_at: int, old: Rate | None, new: Rate | None, now_us: int) -> int:
    """The bucket with its tokens, as far as they fit, for another rate."""
    if old is None or new is None:
        return 0
    if old == new:
        return full_at
    count, period_us = new
    missing = count - min(count, tokens(full_at, old, now_us))
    return now_us * count + missing * period_us if missing else 0


class Gates(Shelves):
    """The part of the engine that keeps account of limits and lanes."""

    def __init__(self, settings: EngineSettings | None = None, observer: Observer | None = None) -> None:
        super().__init__(settings, observer)
        self._is_meeting = False  # several deadlines have perhaps come at once, and not all of them were met yet
        self._to_offer: dict[Function, int] = {}  # meanwhile: for how many more jobs than before there is room

    # --- asking ---

    def _is_open(self, function: Function) -> bool:
        """Whether a job of this function may be handed out as far as its gate is concerned."""
        gate = function.gate
        if gate is None:
            return function.ready > 0
        policy = gate.policy
        if 0 < policy.concurrency <= function.running:
            return False
        if policy.rate is not None and tokens(gate.full_at, policy.rate, self.now_us) < 1:
            return False
        return function.ready > 0 if gate.lanes is None else any(gate.turns)

    def _room(self, function: Function) -> int:
        """How many of its ready jobs the function's own limits let run now.  Those of the keys may let run fewer."""
        room = function.ready
        gate = function.gate
        if gate is not None:
            policy = gate.policy
            if policy.concurrency:
                room = min(room, max(0, policy.concurrency - function.running))
            if policy.rate is not None:
                room = min(room, tokens(gate.full_at, policy.rate, self.now_us))
        return room

    def _offers(self, function: Function, priority: int) -> bool:
        """Whether a job of this priority may be handed out, if the gate is open."""
        gate = function.gate
        if gate is None or gate.lanes is None:
            return function.ready_of(priority) > 0
        return bool(gate.turns[priority])

    def why_closed(self, job: Job) -> Closed | None:
        """What keeps a ready job from being handed out; None: no limit does."""
        function = job.function
        gate = function.gate
        if gate is None or job.state is not READY:
            return None
        policy = gate.policy
        if 0 < policy.concurrency <= function.running:
            return Closed("concurrency", 0)
        if policy.rate is not None and not tokens(gate.full_at, policy.rate, self.now_us):
            return Closed("rate", has_tokens_at_us(gate.full_at, policy.rate, 1))
        lane = gate.lanes.get(job.key) if gate.lanes is not None and job.key else None
        if lane is None:
            return None
        if 0 < policy.key_concurrency <= lane.running:
            return Closed("key_concurrency", 0)
        if policy.key_rate is not None and not tokens(lane.full_at, policy.key_rate, self.now_us):
            return Closed("key_rate", has_tokens_at_us(lane.full_at, policy.key_rate, 1))
        return None

    # --- lanes ---

    def lane_of(self, function: Function, lanes: dict[bytes, Lane], key: bytes) -> Lane:
        """The lane of this key, made if there is none."""
        lane = lanes.get(key)
        if lane is None:
            lane = lanes[key] = Lane(function, key)
            self.memory.limiter_bytes += LANE_BYTES + len(key)
        return lane

    def _join_lane(self, gate: Gate, lane: Lane, job: Job, *, ahead: bool) -> None:
        """A job stands in line, at the end or ahead of all others."""
        priority = job.priority
        if lane.queues[priority] is NOBODY:
            lane.queues[priority] = deque((job,))
        elif ahead:
            lane.queues[priority].appendleft(job)
        else:
            lane.queues[priority].append(job)
        lane.ready += 1
        gate.ready[priority] += 1
        if lane.ready == 1 and lane.key:
            gate.keys_waiting += 1
        self._seat(gate, lane, priority)

    def _left_lane(self, gate: Gate, lane: Lane, priority: int) -> None:
        """A job stands in line no more."""
        lane.ready -= 1
        gate.ready[priority] -= 1
        if not lane.ready:
            if lane.key:
                gate.keys_waiting -= 1
            clear(lane)  # of ghosts
        elif not lane.queues[priority]:
            lane.queues[priority] = NOBODY
        self._seat(gate, lane, priority)

    def _seat(self, gate: Gate, lane: Lane, priority: int) -> None:
        """See to it that the lane has its turn with its jobs of this priority, if it has any and is open."""
        turns = gate.turns[priority]
        job = first_of(lane, priority) if lane.is_open else None
        if job is None:
            turns.pop(lane, None)
        elif gate.policy.fair:
            turns.setdefault(lane, 0)
        else:
            place = place_of(job)
            if turns.get(lane) != place:
                turns[lane] = place
                gate.serial += 1
                heads = gate.heads[priority]
                heappush(heads, (place, gate.serial, lane))
                if len(heads) > 2 * len(turns) + LEAST_STALE_HEADS:
                    heads[:] = [head for head in heads if turns.get(head[2]) == head[0]]
                    heapify(heads)

    def _next_lane(self, gate: Gate, priority: int) -> Lane | None:
        """Whose turn it is."""
        turns = gate.turns[priority]
        if not turns:
            return None
        if gate.policy.fair:
            return next(iter(turns))
        heads = gate.heads[priority]
        while True:
            place, _, lane = heads[0]
            if turns.get(lane) == place:
                return lane
            heappop(heads)

    def _first_in_lanes(self, gate: Gate, priorities: tuple[int, ...]) -> Job | None:
        """The job that is next."""
        for priority in priorities:
            lane = self._next_lane(gate, priority)
            if lane is not None:
                return first_of(lane, priority)
        return None

    def _pop_from_lanes(self, gate: Gate, priorities: tuple[int, ...]) -> Job | None:
        """Take the job that is next out of its lane."""
        for priority in priorities:
            lane = self._next_lane(gate, priority)
            if lane is not None:
                job = lane.queues[priority].popleft()  # no ghost: the lane was seated for its first job
                if gate.policy.fair:
                    gate.turns[priority].move_to_end(lane)
                self._left_lane(gate, lane, priority)
                return job
        return None

    def _review(self, gate: Gate, lane: Lane) -> None:
        """What the limits of its key mean for the lane now."""
        policy = gate.policy
        rate = policy.key_rate if lane.key else None
        available = 1 if rate is None else tokens(lane.full_at, rate, self.now_us)
        is_open = available > 0 and not (lane.key and 0 < policy.key_concurrency <= lane.running)
        if is_open is not lane.is_open:
            lane.is_open = is_open
            for priority in BEST_FIRST:
                self._seat(gate, lane, priority)
        is_idle = not (lane.ready or lane.running)
        if rate is not None and not available:
            self._check_at(lane, has_tokens_at_us(lane.full_at, rate, 1))
        elif rate is not None and is_idle and available < rate[0]:
            self._check_at(lane, has_tokens_at_us(lane.full_at, rate, rate[0]))
        elif is_idle and gate.lanes is not None:
            self._uncheck(lane)
            del gate.lanes[lane.key]
            self.memory.limiter_bytes -= LANE_BYTES + len(lane.key)

    # --- counting ---

    def _count_start(self, job: Job) -> None:
        """The job was given to a worker."""
        gate = job.function.gate
        assert gate is not None
        policy = gate.policy
        now_us = self.now_us
        if policy.rate is not None:
            gate.full_at = spent(gate.full_at, policy.rate, now_us)
            self._await_token(gate)
        if gate.lanes is not None:
            lane = self.lane_of(job.function, gate.lanes, job.key)
            lane.running += 1
            if policy.key_rate is not None and job.key:
                lane.full_at = spent(lane.full_at, policy.key_rate, now_us)
            self._review(gate, lane)

    def _count_end(self, job: Job) -> None:
        """The job is not its worker's any more.  What has become free is offered by `_offer_room`."""
        gate = job.function.gate
        assert gate is not None
        gate.has_room = True
        if gate.lanes is not None:
            lane = gate.lanes[job.key]
            lane.running -= 1
            self._review(gate, lane)

    # --- time ---

    def _await_token(self, gate: Gate) -> None:
        """An empty bucket is looked at when it is not any more."""
        rate = gate.policy.rate
        if rate is not None and not tokens(gate.full_at, rate, self.now_us):
            self._check_at(gate, has_tokens_at_us(gate.full_at, rate, 1))

    def _check_at(self, subject: Gate | Lane, at_us: int) -> None:
        if 0 < subject.check_us <= at_us:
            return  # what is still to be done then is seen when the earlier moment comes
        self._uncheck(subject)
        subject.check_us = at_us
        self.deadlines.add(at_us, Kind.GATE, subject)

    def _uncheck(self, subject: Gate | Lane) -> None:
        if subject.check_us:
            subject.check_us = 0
            self.deadlines.stale += 1

    def _await_more_tokens(self, subject: Gate | Lane) -> None:
        """Somebody sleeps, and more jobs than those for whom others were woken may run when more tokens come."""
        policy = subject.function.gate.policy if subject.function.gate is not None else Policy()
        rate = policy.rate if isinstance(subject, Gate) else policy.key_rate
        if rate is not None:
            available = tokens(subject.full_at, rate, self.now_us)
            if 0 < available < rate[0]:
                self._check_at(subject, has_tokens_at_us(subject.full_at, rate, available + 1))

    def _shift_gate(self, gate: Gate, delta_us: int) -> None:
        """The clock was set: what a bucket lacks, it still lacks for as long."""
        policy = gate.policy
        if policy.rate is not None:
            gate.full_at += delta_us * policy.rate[0]
        if gate.check_us:
            gate.check_us += delta_us
        for lane in (gate.lanes or {}).values():
            if policy.key_rate is not None:
                lane.full_at += delta_us * policy.key_rate[0]
            if lane.check_us:
                lane.check_us += delta_us

    # --- another policy ---

    def _use_policy(self, function: Function, policy: Policy) -> None:
        """Go on with other limits.  Who waits keeps his place, who runs counts, and what was spent is spent."""
        old = function.gate
        ready = self._take_out(function)
        self._forget_gate(function)
        gate = function.gate = Gate(function, policy) if policy else None
        if gate is not None:
            old_policy = old.policy if old is not None else Policy()
            if old is not None:
                gate.full_at = converted(old.full_at, old_policy.rate, policy.rate, self.now_us)
            self._await_token(gate)
            if gate.lanes is not None:
                for key, old_lane in (old.lanes or {} if old is not None else {}).items():
                    lane = self.lane_of(function, gate.lanes, key)
                    lane.full_at = converted(old_lane.full_at, old_policy.key_rate, policy.key_rate, self.now_us)
                for key in self._running_keys(function):
                    self.lane_of(function, gate.lanes, key).running += 1
        for job in ready:
            if gate is None or gate.lanes is None:
                function.queues[job.priority].append(job)
            else:
                self._join_lane(gate, self.lane_of(function, gate.lanes, job.key), job, ahead=False)
        if gate is not None:
            for lane in list((gate.lanes or {}).values()):
                self._review(gate, lane)

    def _take_out(self, function: Function) -> list[Job]:
        """The ready jobs of a function in their order, and no ghosts, out of all their queues."""
        ready: dict[Job, None] = {}
        self._unpack_all(function)
        for line in function.lines():
            for priority, queue in enumerate(line.queues):
                for job in queue:
                    forget_ghosts(job)
                    if job.state is READY and self.jobs.get(job.id) is job:
                        ready[job] = None
                line.queues[priority] = deque()
                line.ghosts[priority] = 0
        return sorted(ready, key=place_of)

    def _running_keys(self, function: Function) -> list[bytes]:
        """The key of each job of the function that runs."""
        return [
            job.key
            for worker in self.workers.values()
            for job in worker.running.values()
            if job.worker is worker and job.function is function
        ]

    def _forget_gate(self, function: Function) -> None:
        gate = function.gate
        if gate is not None:
            self._uncheck(gate)
            for lane in (gate.lanes or {}).values():
                self._uncheck(lane)
                self.memory.limiter_bytes -= LANE_BYTES + len(lane.key)
            function.gate = None


def clear(lane: Lane) -> None:
    """Forget the ghosts of a lane in which nobody waits."""
    for priority, queue in enumerate(lane.queues):
        for job in queue:
            forget_ghosts(job)
        lane.queues[priority] = NOBODY
        lane.ghosts[priority] = 0
