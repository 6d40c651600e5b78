"""The scheduling engine: commands and the time go in, news come out.

It is pure.  It opens nothing, reads no clock, draws no lots and writes no log; it only moves jobs about.  The owner
tells it the time with `advance`, gives commands by calling methods, and hears back in three ways: by what a method
returns, by calls on the peers concerned (`model.Peer`), and by the list of changed jobs that have to be kept
(`take_changes`).  The same commands at the same times give the same results, which is what makes the deterministic
simulation (`switchgear.testing.simulation`) possible.

No operation does work that grows with the number of jobs queued, except those that are about many jobs by nature (a
cascading cancel, a restart).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from switchgear.engine.backlog import UNITS_PER_TURN
from switchgear.engine.core import (
    FUNCTION_BYTES,
    REFUSED_CONFLICT,
    REFUSED_DRAINING,
    REFUSED_FULL,
    REFUSED_UNIQUE,
    EngineSettings,
    Observer,
)
from switchgear.engine.deadlines import LEAST_STALE_FOR_REBUILD, Deadline, Deadlines, Kind
from switchgear.engine.graph import Graph, check_edges, has_policies, without_repetitions
from switchgear.engine.lines import forget_ghosts
from switchgear.engine.options import SubmitOptions
from switchgear.engine.restoring import Restoring
from switchgear.engine.shelves import Storeroom
from switchgear.engine.wishes import QUEUE_IS_FULL
from switchgear.errors import Refused
from switchgear.model import (
    BEST_FIRST,
    FINAL_STATES,
    NORMAL,
    QUEUED_STATES,
    READY,
    RUNNING,
    SCHEDULED,
    URGENT,
    WAITING,
    Cause,
    Delivery,
    Function,
    Gate,
    Job,
    JobTable,
    Lane,
    Peer,
    Schedule,
    UniquePolicy,
    Worker,
)
from switchgear.model.job import JOB_BYTES, MOVE_BYTES, WATCH_BYTES

__all__ = ["Engine", "EngineSettings", "Observer", "SubmitOptions"]

# Functions looked at to find one that is not in use: a fraction of a millisecond.
MOST_LOOKED_AT: Final = 256

SUBMITTED_WAITING: Final = Cause.SUBMITTED_WAITING  # a global is cheaper to look up than a member of an enumeration


class Engine(Restoring):
    """All jobs of a server, and what may happen to them."""

    # A million jobs may be due at one moment.  So many deadlines are met in a turn, the earliest first.
    deadlines_per_turn: int = UNITS_PER_TURN

    # --- time ---

    def advance(self, now_us: int) -> None:
        """It is now this late: let everything happen that was to happen by itself until now."""
        if now_us > self.now_us:
            self.now_us = now_us
        self.backlog.begin_turn()
        next_us = self.deadlines.next_us
        if next_us is not None and next_us <= self.now_us:
            self._meet_deadlines()
        elif self.deadlines.stale >= LEAST_STALE_FOR_REBUILD:
            self.deadlines.forget_stale(self._is_live)

    @property
    def next_deadline_us(self) -> int | None:
        """When `advance` next has something to do, or None."""
        return self.deadlines.next_us if not self.backlog else self.now_us

    def clock_moved(self, delta_us: int) -> None:
        """The wall clock was set forward (or back) by this much; spans that are being measured do not change."""
        before_us = self.now_us
        self.advance(before_us)
        while (next_us := self.deadlines.next_us) is not None and next_us <= before_us:
            self._meet_deadlines()  # what was due by the old time has happened
        self.now_us += delta_us
        for worker in self.workers.values():
            if worker.lease_until_us:
                worker.lease_until_us += delta_us
            if worker.lease_check_us:
                worker.lease_check_us += delta_us
            for times_us in (worker.tickets or {}, worker.alarms or {}):
                for number in times_us:
                    times_us[number] += delta_us
            for job in worker.running.values():
                if job.worker is not worker:
                    continue
                if job.run_until_us:
                    job.run_until_us += delta_us
                if before_us >= job.expires_us > self.now_us:
                    self.deadlines.add(job.expires_us, Kind.EXPIRY, job)  # it was met, and lies ahead again
        for function in self.functions.values():
            if function.taken_us:
                function.taken_us += delta_us
            if function.gate is not None:
                self._shift_gate(function.gate, delta_us)
        self.deadlines.shift_spans(delta_us)
        self._reset_schedules()

    def _meet_deadlines(self) -> None:
        self._is_meeting = True
        try:
            for _ in range(self.deadlines_per_turn):
                deadline = self.deadlines.pop_due(self.now_us)
                if deadline is None:
                    break
                if self._is_live(deadline):
                    self._meet_deadline(deadline)
                else:
                    self.deadlines.stale = max(0, self.deadlines.stale - 1)
        finally:  # or one defect would leave jobs lying for ever
            self._is_meeting = False
            self._disappoint_others_later()
        if self._to_offer:
            self._offer_all()
        self.deadlines.forget_stale(self._is_live)

    def _meet_deadline(self, deadline: Deadline) -> None:
        at_us, _, kind, subject, token = deadline
        if isinstance(subject, Job):
            self._meet_job_deadline(subject, kind, at_us)
        elif isinstance(subject, Worker):
            if kind is Kind.LEASE:
                self._meet_lease(subject)
            else:
                self._end_patience(subject, token)
        elif isinstance(subject, Schedule):
            self._meet_tick(subject)
        elif isinstance(subject, Gate | Lane):
            self._meet_gate(subject)
        else:
            self._look_after(subject)

    def _is_live(self, deadline: Deadline) -> bool:
        """Whether an entry of the heap still means something."""
        at_us, _, kind, subject, token = deadline
        if isinstance(subject, Job):
            if kind is Kind.RUN_LIMIT:
                return subject.run_limit == token
            if kind is Kind.KEY_HELD:
                return self._is_held(subject, at_us)
            if kind is Kind.DOOM:
                return True  # it is due, and looks for itself
            if subject.withdrawn:
                return False
            if kind is Kind.DUE:
                is_same_wait = subject.run_at_us == at_us and len(subject.moves or ()) == token
                return subject.state is SCHEDULED and is_same_wait
            return subject.state not in FINAL_STATES and subject.expires_us == at_us
        if isinstance(subject, Worker):
            if kind is Kind.LEASE:
                return subject.lease_check_us == at_us
            return token in (subject.tickets or ()) or token in (subject.alarms or ())
        if isinstance(subject, Schedule):
            return subject.wake_us == at_us
        if isinstance(subject, Gate | Lane):
            return subject.check_us == at_us
        return subject.watched

    def _meet_job_deadline(self, job: Job, kind: Kind, at_us: int) -> None:
        if kind is Kind.DUE:
            if self._is_too_late(job):
                self._expire(job)
            else:
                self._make_ready(job, Cause.DUE)
        elif kind is Kind.EXPIRY:
            if job.state is not RUNNING:  # one that runs may finish
                self._leave_queue(job)
                self._expire(job)
        elif kind is Kind.KEY_HELD:
            self._meet_end_of_hold(job)
        elif kind is Kind.DOOM:
            if self.backlog.failed and self.backlog.failed[0] is job:
                self._disappoint_some()
            else:
                self._meet_doom(job)
        elif job.run_until_us > at_us:  # renewed meanwhile; should that end have passed too, it is next
            self.deadlines.add(job.run_until_us, Kind.RUN_LIMIT, job, job.run_limit)
        elif job.unsent:
            job.run_limit = 0  # this entry is used up; another follows when the job is sent
        else:
            worker = job.worker
            job.run_limit = 0  # this entry is used up, not stale
            self._leave_worker(job)
            if worker is not None:
                worker.peer.revoke(worker, job, Cause.TIMED_OUT)
            self._requeue(job, Cause.TIMED_OUT, self._enqueue_again)

    def _meet_lease(self, worker: Worker) -> None:
        checked_us, worker.lease_check_us = worker.lease_check_us, 0  # this entry is used up, not stale
        if worker.lease_until_us > checked_us:  # renewed meanwhile; should that end have passed too, it is next
            worker.lease_check_us = worker.lease_until_us
            self.deadlines.add(worker.lease_until_us, Kind.LEASE, worker)
            return
        self.remove_worker(worker)
        worker.peer.expired(worker)
        self.observer.worker_expired(worker)

    # --- submitting ---

    def submit(
        self,
        function_name: bytes,
        unique: bytes,
        payload: bytes,
        priority: int,
        delivery: int,
        watcher: Peer | None = None,
        options: SubmitOptions | None = None,
    ) -> Job:
        """Take a job, or join the one that has the same unique key; raises Refused.

        What happens if a job has the key is the submission's own choice (`UniquePolicy`).  If that job has ended and
        holds its key, it is returned as it is, in a final state, and nobody is told of its end once more: the caller
        has to look.
        """
        if self.refusal is not None:
            raise Refused(self.refusal.reason, str(self.refusal))
        memory = self.memory
        entry_bytes = JOB_BYTES + len(unique)
        if options is not None:
            entry_bytes += options.held_bytes()
        if watcher is not None:
            entry_bytes += WATCH_BYTES
        if not memory.has_room(entry_bytes + len(payload)):
            self._refuse_new_job(function_name, unique, options, entry_bytes + len(payload))
        function = self.functions.get(function_name)
        if function is None:
            function = self.function_named(function_name)
        if unique:
            twin = function.uniques.get(unique)
            if twin is None and function.shelved_keys:
                twin = self.holder(function, unique)
            if twin is not None:
                if options is None or options.unique_policy != UniquePolicy.REPLACE:
                    self._join(twin, delivery, watcher, options)
                    return twin
                self._replace(twin, priority, options)
        limit = function.limits[priority % URGENT]  # an urgent job counts as one of high priority
        if (limit and function.total >= limit) or (self.settings.jobs and self.job_count() >= self.settings.jobs):
            raise Refused(REFUSED_FULL, QUEUE_IS_FULL)
        job_id = self.next_job_id
        job = Job(job_id, function, unique, payload, priority, delivery, self.now_us)
        if options is not None:
            if options.job_id:
                job_id = self._use_reserved_id(job, options.job_id)
            self._apply(job, options)
        if job_id == self.next_job_id:
            self.next_job_id = job_id + 1
        if job.history is not None:
            entry_bytes += MOVE_BYTES
        job.entry_bytes = entry_bytes
        memory.job_bytes += entry_bytes + len(payload)
        self.jobs.add(job)
        if unique:
            function.uniques[unique] = job
            if twin is not None:
                job.irrevocable = True  # the one that it replaces is gone
        function.total += 1
        function.submitted += 1
        if watcher is not None:
            job.watchers = [watcher]
            watcher.watching[job_id] = job
        if delivery and self.keeps:
            self._note(job)
        if job.state is READY:
            self._enqueue(job)
        return job

    def _refuse_new_job(
        self, function_name: bytes, unique: bytes, options: SubmitOptions | None, more_bytes: int
    ) -> None:
        """There is no memory for another job: raise Refused, unless the submission joins one that there is."""
        function = self.functions.get(function_name)
        is_joining = options is None or options.unique_policy != UniquePolicy.REPLACE
        if not (unique and is_joining and function is not None and self.has_holder(function, unique)):
            self._refuse_without_memory(more_bytes)

    def submit_checked(self, function: Function, payload: bytes, options: SubmitOptions) -> Job:
        """Take a job of a batch that was found acceptable as a whole, and whose names are reserved.

        The batch is submitted over several turns.  Nothing that changes meanwhile may stop it half-way: no limit is
        looked at, and should the store fail, what it has not kept yet is not withdrawn but kept later.
        """
        job = Job(self.next_job_id, function, b"", payload, NORMAL, Delivery.HANDLE, self.now_us)
        self._apply(job, options)
        job.irrevocable = True
        self.next_job_id += 1
        self._count_contents(job)
        self.jobs.add(job)
        function.total += 1
        function.submitted += 1
        self._count_contents(job)
        if self.keeps:
            self._note(job)
        if job.state is READY:
            self._enqueue(job)
        return job

    def reserve_id(self) -> int:
        """The id of a job that may be submitted later."""
        self.next_job_id += 1
        return self.next_job_id - 1

    def _use_reserved_id(self, job: Job, job_id: int) -> int:
        self._refuse_unreserved(job_id)
        job.id = job_id
        self._rank_last(job)  # others may have been submitted since
        return job_id

    def _apply(self, job: Job, options: SubmitOptions) -> None:
        """Set the rarer properties of a new job, and its first state.  Raises before anything is changed."""
        if options.details is not None:
            job.special = True
            job.details = options.details
            return
        if options.name and (options.name in self.names or self.backlog.is_reserved(options.name)):
            raise Refused(REFUSED_CONFLICT, f"there is an unfinished job named {options.name!r}")
        if options.edges:
            check_edges(options.edges, options.predecessors)
        if options.unique_hold_us and job.unique:
            self._refuse_more_holds()
        job.special = True
        if options.name:
            job.name = options.name
            self.names[options.name] = job
        if options.run_at_us:
            job.run_at_us = options.run_at_us
        if options.expires_us:
            job.expires_us = options.expires_us
            self.deadlines.add(job.expires_us, Kind.EXPIRY, job)
        if options.timeout_us:
            job.timeout_us = options.timeout_us
        if options.attempts_limit != -1:
            job.attempts_limit = options.attempts_limit
        if options.reducer:
            job.reducer = options.reducer
        if options.origin:
            job.origin = options.origin
        if options.schedule:
            job.schedule = options.schedule
        if options.key:
            job.key = options.key
        if options.losses_limit != -1:
            job.losses_limit = options.losses_limit
        if options.retention_us != -1:
            job.retention_us = options.retention_us
        if job.unique and (options.unique_scope or options.unique_hold_us):
            self._settle_key(job, options)
        blockers = None
        if options.predecessors:
            blockers = self._await_predecessors(job, options.predecessors, options.edges)
        if not blockers and options.run_at_us > self.now_us:
            job.state = SCHEDULED
            job.moves = [Cause.SUBMITTED_EARLY, self.now_us]
            self._await_time(job)

    def _await_predecessors(self, job: Job, predecessors: tuple[int, ...], edges: bytes) -> list[int]:
        """Let a new job wait for those of its predecessors that are not done, and return them."""
        if len(predecessors) > 1 and len(set(predecessors)) < len(predecessors):
            predecessors, edges = without_repetitions(predecessors, edges)
        job.predecessors = predecessors
        if edges and has_policies(edges):
            job.edges = edges
        else:
            edges = b""
        blockers = self._blockers_among(predecessors, edges)
        if blockers:
            job.state = WAITING
            job.moves = [SUBMITTED_WAITING, self.now_us]
            self.graph.add(job, blockers)
            if edges:
                self._foresee_doom(job)
            self._rely_on(job, blockers)
        return blockers

    def _join(self, job: Job, delivery: int, watcher: Peer | None, options: SubmitOptions | None) -> None:
        """A second submission of a job that has its key."""
        if options is not None and options.unique_policy == UniquePolicy.REJECT:
            key = job.shown_unique.decode("utf-8", "backslashreplace")
            text = f'{{}}, which is {job.state.name.lower()}, has the unique key "{key}"'
            raise Refused(REFUSED_UNIQUE, text, job.id)
        if job.state in FINAL_STATES:
            return
        if watcher is not None:
            self.refuse_watch()
            self.watch(job, watcher)
        if delivery and not job.delivery:
            # Somebody leaves who relies on it: from now on it is worth keeping.
            job.delivery = delivery
            if self.keeps:
                self._note(job)
            self._rely_on(job, job.predecessors)

    def withdraw(self, job: Job, told: set[Peer] | frozenset[Peer] = frozenset()) -> bool:
        """Undo a submission that the store could not keep, as if it had never been made.

        Not possible once a worker has the job, while somebody watches it who will not be `told` (and has perhaps
        submitted it too, but was not promised that it is kept), or while another job waits for it; so of several the
        newest should be undone first.  Nor if something else was undone for it, which cannot be brought back.
        When those who asked for it are told, the caller has to drop its contents.
        """
        if job.state not in QUEUED_STATES or job.kept or job.irrevocable or self.jobs.get(job.id) is not job:
            return False
        watchers = job.watchers or []
        if job.id in self.graph.successors or len(watchers) > len(told) or not told.issuperset(watchers):
            return False
        for watcher in watchers:
            watcher.watching.pop(job.id, None)
        job.watchers = None
        self._leave_queue(job)
        self._end_hold(job)
        self._unlist(job)
        job.function.submitted -= 1
        job.withdrawn = True
        self.changed.pop(job, None)
        if job.schedule:
            self._take_back_tick(job)
        return True

    # --- watching ---

    def refuse_watch(self) -> None:
        """Raise Refused if there is no memory to remember that one more peer watches a job."""
        self._refuse_without_memory(WATCH_BYTES)

    def watch(self, job: Job, watcher: Peer) -> None:
        """Let this peer hear of the job."""
        if job.watchers is None:
            job.watchers = []
        job.watchers.append(watcher)
        watcher.watching[job.id] = job
        self.hold_for(job, WATCH_BYTES)

    def unwatch(self, watcher: Peer) -> None:
        """This peer is gone.  A job that was only for it is cancelled, unless it is running already."""
        if watcher.watching:
            watched, watcher.watching = watcher.watching, {}
            self.backlog.start(self._abandon(watcher, watched))

    def unwatch_jobs(self, watcher: Peer, job_ids: Iterable[int]) -> None:
        """The same for some of the jobs that this peer watches: those for whom it did so are gone."""
        watched: dict[int, Job] = {}
        for job_id in job_ids:
            job = watcher.watching.pop(job_id, None)
            if job is not None:
                watched[job_id] = job
        if watched:
            self.backlog.start(self._abandon(watcher, watched))

    def _abandon(self, watcher: Peer, watched: dict[int, Job]) -> Iterator[None]:
        """The jobs that a peer watched which is gone lose it, one at a time."""
        for job in watched.values():
            if watcher.watching.get(job.id) is job:
                continue  # it has come back, and watches this one again
            if job.watchers is not None:
                before = len(job.watchers)
                job.watchers = [other for other in job.watchers if other is not watcher] or None
                self.hold_for(job, WATCH_BYTES * (len(job.watchers or ()) - before))
            if job.delivery == Delivery.WAIT and job.watchers is None and job.state in QUEUED_STATES:
                self._leave_queue(job)
                self._finish(job, Cause.ABANDONED)
            yield

    # --- operators ---

    def drain(self) -> None:
        """Finish what runs; start and take nothing more."""
        self.refusal = Refused(REFUSED_DRAINING, "server is shutting down")
        self.stop_handing_out()

    def drop_function(self, function: Function) -> bool:
        """Forget a function that nobody uses.  One with an order of its own is somebody's, who may come back to it, and
        in one a job that ended may still hold its unique key."""
        if function.total or function.workers or function.released_first or function.uniques:
            return False
        if self.functions.get(function.name) is not function:
            return False
        self._drop(function)
        self._note_function(function)
        return True

    def _drop(self, function: Function) -> None:
        del self.functions[function.name]
        self.memory.registration_bytes -= FUNCTION_BYTES + len(function.name)
        function.dropped = True
        self._unpack_all(function)
        for line in function.lines():
            for queue in line.queues:
                for job in queue:
                    forget_ghosts(job)  # it may be retried, in a new function of this name
            line.queues = [deque() for _ in BEST_FIRST]  # or they would keep each other alive; see `let_go`
            line.ghosts = [0 for _ in BEST_FIRST]
        self._forget_gate(function)
        if function.watched:
            function.watched = False
            self.deadlines.stale += 1

    def _forget_unused_function(self) -> bool:
        """Forget a function that nobody uses and for which nothing is set, about the oldest, to make room for another.

        Those that are looked at and are in use go to the end, so that whoever asks next is not told of the same ones.
        """
        functions = self.functions
        for _ in range(min(MOST_LOOKED_AT, len(functions))):
            name = next(iter(functions))
            function = functions[name]
            if self._is_unused(function):
                self._drop(function)
                return True
            functions[name] = functions.pop(name)
        return False

    def _is_unused(self, function: Function) -> bool:
        """Whether nobody would notice if this function was made anew."""
        if function.total or function.workers or function.uniques or function.released_first:
            return False
        if function.gate is not None or function.paused or function.named_us >= self.now_us:  # who named it is at it
            return False
        return function.limits == [self.settings.jobs_per_function] * 3

    def let_go(self) -> None:
        """Forget every job, because nobody will ask again.

        A job and the tables that it is in refer to each other, and once jobs are compiled the garbage collector does
        not look into them.
        """
        for function in self.functions.values():
            function.uniques.clear()
            function.queues = [deque() for _ in BEST_FIRST]
            function.racks = [None for _ in BEST_FIRST]
            function.has_racks = False
            function.shelved_keys = []
            function.gate = None
        self.storeroom = Storeroom()
        self.backlog.clear()
        for worker in self.workers.values():
            worker.running.clear()
        for peer in {watcher for job in self.jobs.values() for watcher in job.watchers or ()}:
            peer.watching.clear()
        self.jobs = JobTable()
        self.names.clear()
        self.changed.clear()
        self.deadlines = Deadlines(self.memory)
        self.graph = Graph()
        memory = self.memory
        memory.job_bytes = memory.key_bytes = memory.limiter_bytes = 0
        memory.registration_bytes = memory.schedule_bytes = 0

    def running_jobs(self) -> int:
        return sum(function.running for function in self.functions.values())
