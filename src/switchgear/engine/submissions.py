"""`Submissions`: new jobs, joining or replacing a job with the same unique key, and withdrawing a submission."""

from __future__ import annotations

from typing import Final

from switchgear.engine.deadlines import DeadlineKind, Deadlines
from switchgear.engine.dependencies import ERROR, Dependencies, check_edges, has_policies, without_repetitions
from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.function_placement import is_foreign
from switchgear.engine.functions import FunctionRegistry
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.protocol_flows import SCHEDULE_SOURCE
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.requirements import Requirements
from switchgear.engine.state import EngineState
from switchgear.engine.submit_options import SubmitOptions
from switchgear.engine.subscriptions import JobSubscriptions
from switchgear.engine.transitions import Transitions
from switchgear.engine.unique_keys import UniqueKeys
from switchgear.errors import Refused
from switchgear.model import (
    FINAL_STATES,
    QUEUED_STATES,
    READY,
    SCHEDULED,
    URGENT,
    WAITING,
    Cause,
    Delivery,
    Function,
    Job,
    Peer,
    UniquePolicy,
)
from switchgear.model.job import JOB_BYTES, MOVE_BYTES, SUBSCRIPTION_BYTES
from switchgear.refusals import REFUSED_CONFLICT, REFUSED_FULL, REFUSED_LIMIT, REFUSED_UNIQUE

__all__ = ["QUEUE_IS_FULL", "Submissions"]

# There are some 10^13 ids, and none is given out twice. Peers that reserve ids and then submit no jobs must not use
# them up, however often the server is restarted.
MOST_UNUSED_IDS: Final = 10**10
QUEUE_IS_FULL: Final = "Job queue is full"

NO_OPTIONS: Final = SubmitOptions()
# The options that a job has under the same name.
OPTIONS_OF_JOBS: Final = (
    "run_at_us",
    "expires_us",
    "timeout_us",
    "attempts_limit",
    "reducer",
    "origin",
    "key",
    "crash_limit",
    "retention_us",
    "requires",
    "label",
    "trace",
    "name",
)

SUBMITTED_WAITING: Final = Cause.SUBMITTED_WAITING  # a global is cheaper to look up than a member of an enumeration


class Submissions:
    """Accepts new jobs, joins them to others by their unique keys, and withdraws those that could not be stored."""

    def __init__(
        self,
        state: EngineState,
        deadlines: Deadlines,
        packed: PackedQueues,
        queues: ReadyQueues,
        functions: FunctionRegistry,
        keys: UniqueKeys,
        dispatcher: Dispatcher,
        dependencies: Dependencies,
        transitions: Transitions,
        subscriptions: JobSubscriptions,
        requirements: Requirements,
    ) -> None:
        self._state = state
        self._deadlines = deadlines
        self._packed = packed
        self._queues = queues
        self._functions = functions
        self._keys = keys
        self._dispatcher = dispatcher
        self._dependencies = dependencies
        self._transitions = transitions
        self._subscriptions = subscriptions
        self._requirements = requirements

    def submit(
        self,
        function_name: bytes,
        unique: bytes,
        payload: bytes,
        priority: int,
        delivery: int,
        subscriber: Peer | None,
        options: SubmitOptions | None,
    ) -> Job:
        """Submit a job, or join the job with the same unique key; raises Refused. See `Engine.submit`."""
        state = self._state
        if state.refusal is not None:
            raise Refused(state.refusal.reason, str(state.refusal))
        memory = state.memory
        entry_bytes = JOB_BYTES + len(unique)
        if options is not None:
            entry_bytes += options.held_bytes()
        if subscriber is not None:
            entry_bytes += SUBSCRIPTION_BYTES
        held_bytes = entry_bytes + len(payload)
        if not memory.has_room(held_bytes):
            self._refuse_new_job(function_name, unique, options, held_bytes)
        function = state.functions.get(function_name)
        if function is None:
            function = self._functions.named(function_name)
        replaces = False
        if len(unique):  # compiled, whether bytes are true takes longer to find out
            holder = function.uniques.get(unique)
            if holder is None and function.packed_keys:
                holder = self._packed.holder(function, unique)
            if holder is not None:
                if options is None or options.unique_policy != UniquePolicy.REPLACE:
                    self._join(holder, delivery, subscriber, options)
                    return holder
                self._replace(holder, priority, options)
                replaces = True
        limit = function.limits[priority % URGENT]  # an urgent job counts as one of high priority
        if (limit and function.total >= limit) or (
            state.settings.jobs and self._packed.unfinished_count() >= state.settings.jobs
        ):
            if state.placement is not None and is_foreign(function):
                return state.placement.submit(function, unique, payload, priority, delivery, subscriber, options)
            raise Refused(REFUSED_FULL, QUEUE_IS_FULL)
        job = Job(state.next_job_id, function, unique, payload, priority, delivery, state.now_us)
        if state.speaker is not None:
            job.source = state.speaker.source
        if options is not None:
            if options.job_id:
                job = self._with_reserved_id(job, options)
            self._apply(job, options)
        if job.history is not None:
            entry_bytes += MOVE_BYTES
        job.entry_bytes = entry_bytes
        if replaces:
            job.irrevocable = True  # the job that it replaces is gone
        self._enter_new(job, subscriber)
        return job

    def _enter_new(self, job: Job, subscriber: Peer | None) -> None:
        """Enter a new job into the tables, and offer it if it is ready."""
        state = self._state
        function = job.function
        job_id = job.id
        delivery = job.delivery
        if job_id == state.next_job_id:
            state.next_job_id = job_id + 1
        payload = job.payload
        state.memory.job_bytes += job.entry_bytes + (0 if payload is None else len(payload))
        state.jobs.add(job)
        if len(job.unique):
            function.uniques[job.unique] = job
        function.total += 1
        function.submitted += 1
        if subscriber is not None:
            job.subscribers = [subscriber]
            subscriber.subscriptions[job_id] = job
        if delivery and state.reports_changes:
            state.changed[job] = None
        if job.state is READY:
            self._dispatcher.enqueue(job)
        if delivery and state.is_durable:
            state.promise(job)  # last: the next output to the submitter is the answer
        elif job_id >= state.stored_ids:
            state.concern_speaker()

    def submit_checked(
        self,
        function: Function,
        payload: bytes,
        options: SubmitOptions,
        priority: int,
        delivery: int,
        subscriber: Peer | None,
        is_long: bool,
        reserved_id: int = 0,
        below_id: int = 0,
    ) -> Job:
        """Submit a job of a graph that was accepted as a whole, under the id that was reserved for it if there is one.

        A long graph is submitted over several turns. Nothing that changes meanwhile may stop it half-way: no limit is
        applied, and if the store fails, jobs that are not stored yet are not withdrawn but stored later.
        """
        job = self.new_job(function, b"", payload, priority, delivery, reserved_id, below_id)
        self._apply(job, options)
        self._enter(job, subscriber, is_long)
        return job

    def new_job(
        self,
        function: Function,
        unique: bytes,
        payload: bytes,
        priority: int,
        delivery: int,
        reserved_id: int,
        below_id: int,
    ) -> Job:
        """A job of this engine in no table, under the reserved id if there is one, of those below `below_id`."""
        state = self._state
        job = Job(reserved_id or state.next_job_id, function, unique, payload, priority, delivery, state.now_us)
        job.source = state.source
        if not reserved_id:
            state.next_job_id += 1
        elif state.next_job_id != below_id:
            self._queues.rank_last(job)  # others were submitted after the ids were reserved
        return job

    def job_for_owner(
        self, function: Function, payload: bytes, options: SubmitOptions, priority: int, reserved_id: int = 0
    ) -> Job:
        """A job of a graph of which other engines have parts: it is in no table, and its owner takes it when it is
        stored."""
        state = self._state
        job = Job(reserved_id or state.next_job_id, function, b"", payload, priority, Delivery.HANDLE, state.now_us)
        if not reserved_id:
            state.next_job_id += 1
        job.source = state.source
        job.has_details = True
        if options.details is not None:
            job.details = options.details
            return job
        for name in OPTIONS_OF_JOBS:
            value = getattr(options, name)
            if value != getattr(NO_OPTIONS, name):
                setattr(job, name, value)
        job.predecessors, edges = without_repetitions(options.predecessors, options.edges)
        if edges and has_policies(edges):
            check_edges(edges, job.predecessors)
            job.edges = edges
        if job.predecessors:
            job.state = WAITING
            job.moves = [SUBMITTED_WAITING, state.now_us]
        elif job.run_at_us > state.now_us:
            job.state = SCHEDULED
            job.moves = [Cause.SUBMITTED_EARLY, state.now_us]
        return job

    def submit_linked(self, job: Job, options: SubmitOptions, subscriber: Peer | None, is_long: bool) -> None:
        """Submit a job of very many predecessors after it was linked to all of them; see `WideSubmissions`."""
        options.predecessors = ()
        options.edges = b""
        self._apply(job, options, is_waiting=self._dependencies.end_linking(job))
        self._enter(job, subscriber, is_long)

    def _enter(self, job: Job, subscriber: Peer | None, is_long: bool) -> None:
        """Enter a checked job into the tables."""
        state = self._state
        job.irrevocable = is_long
        state.count_contents(job)
        state.jobs.add(job)
        job.function.total += 1
        job.function.submitted += 1
        if subscriber is not None:
            state.count_more(job, SUBSCRIPTION_BYTES)
            job.subscribers = [subscriber]
            subscriber.subscriptions[job.id] = job
        if job.delivery and state.reports_changes:
            state.changed[job] = None
        if job.state is READY:
            self._dispatcher.enqueue(job)
        if is_long and job.delivery:
            state.concern_speaker()
        elif job.delivery:
            state.promise(job)
        elif job.id >= state.stored_ids:
            state.concern_speaker()

    def borrow(self, job: Job, subscriber: Peer) -> None:
        """Enter a copy of a job of another engine, which this one's workers may run once. It is never stored."""
        job.attempts_limit = 1
        if job.requires:
            self._requirements.join(job)
        self._queues.rank_last(job)
        self._enter(job, subscriber, False)

    def reserve_ids(self, count: int) -> range:
        """Reserve `count` consecutive ids for jobs that may be submitted later; raises Refused."""
        state = self._state
        first_id = state.next_job_id
        if count > 1:
            if state.placement is not None and count > state.placement.ids_left():
                most = max(0, state.placement.ids_left())
                raise Refused(REFUSED_LIMIT, f"there are ids for {most} jobs at this moment, not for {count}")
            if state.unused_ids + count > MOST_UNUSED_IDS:
                raise Refused(REFUSED_LIMIT, f"more than {MOST_UNUSED_IDS} ids would be reserved and not used")
            state.unused_ids += count
        state.next_job_id += count
        if state.next_job_id > state.stored_ids:
            state.concern_speaker()
        return range(first_id, first_id + count)

    def withdraw(self, job: Job, told: set[Peer] | frozenset[Peer]) -> bool:
        """Undo a submission that could not be stored; returns whether that was possible. See `Engine.withdraw`."""
        state = self._state
        if job.state not in QUEUED_STATES or job.kept or job.irrevocable or state.jobs.get(job.id) is not job:
            return False
        subscribers = job.subscribers or []
        if job.id in self._dependencies.successors or len(subscribers) > len(told) or not told.issuperset(subscribers):
            return False
        for subscriber in subscribers:
            subscriber.drop_subscription(job.id)
        job.subscribers = None
        self._transitions.leave_queue(job)
        self._keys.end_hold(job)
        self._transitions.unlist(job)
        job.function.submitted -= 1
        job.withdrawn = True
        state.changed.pop(job, None)
        return True

    # --- refusals ---

    def _refuse_new_job(
        self, function_name: bytes, unique: bytes, options: SubmitOptions | None, more_bytes: int
    ) -> None:
        """Raise Refused because memory is full, unless the submission joins an existing job."""
        function = self._state.functions.get(function_name)
        is_joining = options is None or options.unique_policy != UniquePolicy.REPLACE
        if not (unique and is_joining and function is not None and self._packed.has_holder(function, unique)):
            self._state.refuse_without_memory(more_bytes)

    def _refuse_unreserved(self, job_id: int) -> None:
        is_known = self._state.placement is not None or 0 < job_id < self._state.next_job_id
        if not is_known or self._packed.has_job(job_id):
            raise Refused(REFUSED_CONFLICT, f"the id {job_id} is not reserved")

    def _with_reserved_id(self, job: Job, options: SubmitOptions) -> Job:
        """The new job with the id that was reserved for it."""
        self._refuse_unreserved(options.job_id)
        if options.linked is not None:
            job = options.linked
        else:
            job.id = options.job_id
        self._queues.rank_last(job)  # others may have been submitted meanwhile
        return job

    # --- options ---

    def _apply(self, job: Job, options: SubmitOptions, *, is_waiting: bool = False) -> None:
        """Set the options of a new job, and its first state.  Raises before anything is changed."""
        state = self._state
        if options.requires:
            self._requirements.refuse_group(job.function, options.requires)
        if options.details is not None:
            job.has_details = True
            job.details = options.details
            if options.requires:
                self._requirements.join(job)
            return
        if options.name:
            state.refuse_taken_name(options.name)
        if options.edges:
            check_edges(options.edges, options.predecessors)
        if options.unique_for_us and job.unique:
            self._keys.refuse_more_holds()
        job.has_details = True
        if options.name:
            job.name = options.name
            state.names[options.name] = job
        if options.run_at_us:
            job.run_at_us = options.run_at_us
        if options.expires_us:
            job.expires_us = options.expires_us
            self._deadlines.add(job.expires_us, DeadlineKind.EXPIRY, job)
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
            job.source = SCHEDULE_SOURCE
        if options.key:
            job.key = options.key
        if options.label:
            job.label = options.label
        if options.trace:
            job.trace = options.trace
        if options.crash_limit != -1:
            job.crash_limit = options.crash_limit
        if options.retention_us != -1:
            job.retention_us = options.retention_us
        if job.unique and (options.unique_scope or options.unique_for_us):
            self._keys.set_scope(job, options)
        if options.requires:
            job.requires = options.requires
            self._requirements.join(job)
        if options.linked is not None:
            is_waiting = self._dependencies.end_linking(job)
        elif options.predecessors:
            is_waiting = bool(self._await_predecessors(job, options.predecessors, options.edges))
        if not is_waiting and options.run_at_us > state.now_us:
            job.state = SCHEDULED
            job.moves = [Cause.SUBMITTED_EARLY, state.now_us]
            self._transitions.await_time(job)

    def _await_predecessors(self, job: Job, predecessors: tuple[int, ...], edges: bytes) -> list[int]:
        """Let a new job wait for its predecessors that are not done, and return them."""
        if len(predecessors) > 1 and len(set(predecessors)) < len(predecessors):
            predecessors, edges = without_repetitions(predecessors, edges)
        job.predecessors = predecessors
        if edges and has_policies(edges):
            job.edges = edges
        else:
            edges = b""
        blockers = self._dependencies.blockers_among(predecessors, edges)
        if ERROR in edges:
            self._dependencies.note_earlier_errors(job)
            if not blockers and ERROR in job.edges:
                job.state = WAITING
                job.moves = [SUBMITTED_WAITING, self._state.now_us]
                self._dependencies.wait_to_be_skipped(job)
                return [job.id]
        if blockers:
            job.state = WAITING
            job.moves = [SUBMITTED_WAITING, self._state.now_us]
            self._dependencies.wait_for(job, blockers)
            self._dependencies.rely_on(job, blockers)
        return blockers

    # --- the unique key is taken ---

    def _join(self, job: Job, delivery: int, subscriber: Peer | None, options: SubmitOptions | None) -> None:
        """Join a job that has the submission's unique key."""
        state = self._state
        if options is not None and options.unique_policy == UniquePolicy.REJECT:
            key = job.client_unique.decode("utf-8", "backslashreplace")
            text = f'{{}}, which is {job.state.name.lower()}, has the unique key "{key}"'
            raise Refused(REFUSED_UNIQUE, text, job.id)
        if job.state in FINAL_STATES:
            if job.entry_bytes and job.delivery:  # its end may not be stored yet
                state.concern_speaker()
            return
        if job.id >= state.stored_ids:
            state.concern_speaker()
        if subscriber is not None:
            self._subscriptions.refuse_more()
            self._subscriptions.subscribe(job, subscriber)
        if delivery and not job.delivery:
            # The submitter relies on the job and does not wait for it: from now on the job is durable.
            job.delivery = delivery
            if state.reports_changes:
                state.changed[job] = None
            self._dependencies.rely_on(job, job.predecessors)
        if delivery:
            state.promise(job)

    def _replace(self, job: Job, priority: int, options: SubmitOptions) -> None:
        """End the job that has the submission's unique key, unless the submission would be refused then."""
        state = self._state
        function = job.function
        going = job.state not in FINAL_STATES
        limit = function.limits[priority % URGENT]
        too_many = limit and function.total - going >= limit
        if too_many or (state.settings.jobs and self._packed.unfinished_count() - going >= state.settings.jobs):
            raise Refused(REFUSED_FULL, QUEUE_IS_FULL)
        if options.job_id:
            self._refuse_unreserved(options.job_id)
        if options.name and state.names.get(options.name) not in (None, job):
            raise Refused(REFUSED_CONFLICT, f"there is an unfinished job named {options.name!r}")
        if options.edges:
            check_edges(options.edges, options.predecessors)
        if options.unique_for_us:
            self._keys.refuse_more_holds()
        if options.requires:
            self._requirements.refuse_group(function, options.requires)
        self._keys.end_hold(job)
        if going:
            self._transitions.end(job, Cause.REPLACED)
            return
        self._keys.free(job)
        if state.reports_changes:
            state.note(job)  # otherwise a restart would find two jobs that hold the key
