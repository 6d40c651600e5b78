"""`Engine`: the scheduling engine's interface; commands and the time go in, events come out.

The engine is pure: it does no I/O, reads no clock, draws no random numbers and writes no log. The owner tells it the
time with `advance`, gives commands by calling methods, and gets results in three ways: by return values, by calls on
the peers concerned (`model.Peer`), and by the list of changed jobs that have to be stored (`take_changes`). The same
commands at the same times give the same results, which makes the deterministic simulation
(`switchgear.testing.simulation`) possible.

The engine is composed of parts, each of which does one thing and holds the parts it needs; ARCHITECTURE.md has them in
a table.  They share an `EngineState`.  Code outside `switchgear.engine` calls `Engine`.

No operation does work that grows with the number of jobs queued, except those that concern many jobs (a cascading
cancel, a new policy of a function, a restart).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

from switchgear.engine.adopted_runs import AdoptedRuns
from switchgear.engine.engine_parts import EngineParts
from switchgear.engine.explain import ExplainParts, Reason, explain
from switchgear.engine.foreign_predecessors import ForeignPredecessors
from switchgear.engine.function_placement import FunctionPlacement, is_foreign
from switchgear.engine.graph_submission import NONE_RESERVED, GraphSubmission, refuse_if_full
from switchgear.engine.handover import HandedOver
from switchgear.engine.job_template import JobTemplate
from switchgear.engine.one_job_workers import OneJobRules, OneJobWorkers
from switchgear.engine.protocol_flows import Flows
from switchgear.engine.restore import Restoring
from switchgear.engine.state import ALL_IDS, EngineSettings, Observer
from switchgear.engine.submissions import QUEUE_IS_FULL
from switchgear.engine.submit_options import SubmitOptions
from switchgear.engine.wake_policy import WakePolicy
from switchgear.errors import Refused
from switchgear.memory import FOR_WORKERS, MemoryAccount
from switchgear.model import (
    SECOND_US,
    Cause,
    Function,
    Job,
    JobState,
    JobTable,
    Peer,
    PlainJob,
    Schedule,
    Timer,
    Worker,
)
from switchgear.model.names import NameTable
from switchgear.policy import Policy
from switchgear.refusals import REFUSED_FULL
from switchgear.states import LateReport

__all__ = ["Engine", "EngineSettings", "GraphSubmission", "JobTemplate", "Observer", "OneJobRules", "SubmitOptions"]


class Engine:
    """All jobs of a server, and the operations on them."""

    def __init__(self, settings: EngineSettings | None = None, observer: Observer | None = None) -> None:
        parts = self._parts = EngineParts(settings, observer)  # for the parts that are needed seldom
        self._state = parts.state
        self.deadlines = parts.deadlines
        self._timers = parts.timers
        self.sliced_work = parts.sliced_work
        self.packed_queues = parts.packed_queues
        self.requirements = parts.requirements
        self.limiters = parts.limiters
        self.ready_queues = parts.ready_queues
        self._wakeups = parts.wakeups
        self._functions = parts.functions
        self.lost_starts = parts.lost_starts
        self._attempts = parts.attempts
        self.dispatcher = parts.dispatcher
        self.unsuccessful_jobs = parts.unsuccessful_jobs
        self.dependencies = parts.dependencies
        self.transitions = parts.transitions
        self.payload_arrivals = parts.payload_arrivals
        self._workers = parts.workers
        self._reports = parts.reports
        self._commands = parts.commands
        self.predecessor_commands = parts.predecessor_commands
        self._subscriptions = parts.subscriptions
        self._submissions = parts.submissions
        self._graph_parts = parts.graph_parts
        self._schedules = parts.schedules
        self.administration = parts.administration
        self.deadline_dispatch = parts.deadline_dispatch

    # --- state ---

    @property
    def now_us(self) -> int:
        """The time of the last `advance`."""
        return self._state.now_us

    @now_us.setter
    def now_us(self, now_us: int) -> None:
        self._state.now_us = now_us

    @property
    def settings(self) -> EngineSettings:
        """The settings that an operator has chosen."""
        return self._state.settings

    @property
    def observer(self) -> Observer:
        """Receives events that an operator may want to know."""
        return self._state.observer

    @observer.setter
    def observer(self, observer: Observer) -> None:
        self._state.observer = observer

    @property
    def jobs(self) -> JobTable:
        """Unfinished jobs that are not packed, by id."""
        return self._state.jobs

    @property
    def names(self) -> NameTable[Job]:
        """The unfinished jobs that have a name, by it."""
        return self._state.names

    @property
    def functions(self) -> dict[bytes, Function]:
        """The functions that are not forgotten, by name."""
        return self._state.functions

    @property
    def dropped_counts(self) -> list[int]:
        """The sums of `Function.counts` of functions that were forgotten."""
        return self._state.dropped_counts

    @property
    def flows(self) -> Flows:
        """Which protocols jobs come by, and which run them."""
        return self._state.flows

    @property
    def workers(self) -> dict[int, Worker]:
        """The workers that are registered, by id."""
        return self._state.workers

    @property
    def schedules(self) -> dict[bytes, Schedule]:
        """The schedules, paused ones included, by name."""
        return self._state.schedules

    @property
    def memory(self) -> MemoryAccount:
        """The account of the memory that is held for peers."""
        return self._state.memory

    @property
    def changed(self) -> dict[Job, None]:
        """Jobs that changed since `take_changes`; without `reports_changes` only those that finished."""
        return self._state.changed

    @property
    def changed_functions(self) -> list[Function]:
        """Functions whose settings changed since `take_changes`."""
        return self._state.changed_functions

    @property
    def changed_schedules(self) -> dict[bytes, Schedule]:
        """Schedules that changed since `take_changed_schedules`."""
        return self._state.changed_schedules

    @property
    def global_subscribers(self) -> list[Peer]:
        """Peers that are told of every job's start and end."""
        return self._state.global_subscribers

    @property
    def pending_failures(self) -> deque[Job]:
        """Failed jobs whose successors are still to be processed, and jobs that must end because of a failure."""
        return self.transitions.pending_failures

    @property
    def next_job_id(self) -> int:
        """The id of the next job."""
        return self._state.next_job_id

    @next_job_id.setter
    def next_job_id(self, next_job_id: int) -> None:
        self._state.next_job_id = next_job_id

    @property
    def ids_end(self) -> int:
        """No job has this id or a higher one."""
        return self._state.ids_end

    @property
    def refusal(self) -> Refused | None:
        """Why no submission is accepted, or `None`."""
        return self._state.refusal

    @refusal.setter
    def refusal(self, refusal: Refused | None) -> None:
        self._state.refusal = refusal

    @property
    def placement(self) -> FunctionPlacement | None:
        """Knows which functions other engines have; `None` if there are no others."""
        return self._state.placement

    @placement.setter
    def placement(self, placement: FunctionPlacement | None) -> None:
        self._state.placement = placement

    @property
    def foreign_predecessors(self) -> ForeignPredecessors:
        """Jobs of other engines that jobs of this one wait for."""
        return self._parts.restore.foreign

    @property
    def handing_out(self) -> bool:
        """Whether jobs are started at all."""
        return self._state.handing_out

    @property
    def reports_changes(self) -> bool:
        """Whether changes of unfinished jobs are reported, so that the owner can store them."""
        return self._state.reports_changes

    @reports_changes.setter
    def reports_changes(self, reports_changes: bool) -> None:
        self._state.reports_changes = reports_changes

    @property
    def notes_starts(self) -> bool:
        """With `reports_changes`: whether starts of jobs that are not stored are reported too."""
        return self._state.notes_starts

    @notes_starts.setter
    def notes_starts(self, notes_starts: bool) -> None:
        self._state.notes_starts = notes_starts

    @property
    def is_durable(self) -> bool:
        """Whether the owner has a store that survives it: peers then wait until the changes that concern them are
        stored."""
        return self._state.is_durable

    @is_durable.setter
    def is_durable(self, is_durable: bool) -> None:
        self._state.is_durable = is_durable

    @property
    def speaker(self) -> Peer | None:
        """The peer whose command is being carried out; set by the owner or the peer."""
        return self._state.speaker

    @speaker.setter
    def speaker(self, speaker: Peer | None) -> None:
        self._state.speaker = speaker

    @property
    def wake_policy(self) -> WakePolicy | None:
        """Chooses the workers that should have a job; None: the one that waits longest."""
        return self._wakeups.policy_caller.policy

    @wake_policy.setter
    def wake_policy(self, policy: WakePolicy | None) -> None:
        self._wakeups.policy_caller.use_policy(policy)

    @property
    def changes_expected(self) -> int:
        """How often a change was made that is likely to bring another one at once: a sleeping worker was woken for a
        job, or a quick job was assigned together with its submission."""
        return self._wakeups.count + self._state.quick_starts

    def use_settings(self, settings: EngineSettings) -> None:
        """Change the settings. A limit that was set for one function stays."""
        self._state.apply_settings(settings)

    def take_changes(self) -> tuple[list[Job], list[Function]]:
        """The jobs and functions that changed since the last call and have to be stored."""
        return self._state.take_changes()

    def take_changed_schedules(self) -> list[Schedule]:
        """The schedules that changed since the last call; they must be stored together with the jobs of
        `take_changes`."""
        return self._state.take_changed_schedules()

    @property
    def wanted_payloads(self) -> list[Job]:
        """Jobs that come next and whose payloads are not in memory; see `take_wanted_payloads`."""
        return self._state.wanted_payloads

    def take_wanted_payloads(self) -> list[Job]:
        """The jobs whose payloads became wanted since the last call.

        The owner reads them and reports to `payload_arrivals`. A job that is no longer ready is among them too, if it
        was wanted before: the owner then offers the jobs behind it.
        """
        return self._state.take_wanted_payloads()

    # --- batches of changes, and the peers that they concern ---

    @property
    def batch(self) -> int:
        """The number of the batch of changes that is being collected."""
        return self._state.batch

    @property
    def stored_batch(self) -> int:
        """All batches up to this one are stored.  A peer whose `unstored_batch` is greater has to wait."""
        return self._state.stored_batch

    def close_batch(self) -> int:
        """Close the batch that the owner begins to store; later changes are in the next batch. Returns the batch's
        number."""
        state = self._state
        state.batch += 1
        state.batch_ids = state.next_job_id
        return state.batch - 1

    def await_submissions(self) -> None:
        """Note that what is submitted next is submitted again after a crash, until it is stored: a worker gets such a
        job when the submission and the start are stored, so that the start counts."""
        self._state.batch_ids = ALL_IDS

    def batch_is_stored(self, batch: int) -> None:
        """Note that all changes up to this batch are stored: peers need not wait for them any more."""
        self._state.stored_batch = batch

    def ids_are_stored(self, below: int) -> None:
        """No id below this one will be given out again after a restart."""
        self._state.stored_ids = below

    def promise(self, job: Job) -> None:
        """Note that the speaker relies on an unfinished job as if it had submitted it; if the job is not stored yet,
        the speaker waits."""
        if job.delivery:
            self._state.promise(job)

    def promise_report(self, copy: Job) -> None:
        """Note that the speaker has reported on a borrowed copy: the owner stores that before the next answer."""
        self._state.promise(copy)

    def drop_contents(self, job: Job) -> None:
        """Free the payload, the result and the texts of a job that has ended; see `EngineState.drop_contents`."""
        self._state.drop_contents(job)

    def count_more(self, job: Job, more_bytes: int) -> None:
        """Count this many more (or fewer) bytes for the job besides its contents, until it ends."""
        self._state.count_more(job, more_bytes)

    # --- time ---

    def advance(self, now_us: int) -> None:
        """Set the time, and handle all deadlines up to it."""
        self.deadline_dispatch.advance(now_us)

    def time_stood_still(self, now_us: int) -> None:
        """The process has stood still until now: call this before `advance`.

        Leases and time limits that have ended since the last `advance` are put off by a second, because messages of the
        workers may have arrived that were not read.
        """
        self.deadline_dispatch.time_stood_still(now_us)

    @property
    def next_deadline_us(self) -> int | None:
        """When `advance` next has something to do; `None` if it never has."""
        return self.deadline_dispatch.next_deadline_us

    @property
    def earliest_deadline_us(self) -> int:
        """The same for owners that ask in every turn; NEVER_US: there is nothing to do."""
        return self.deadline_dispatch.earliest_us

    def clock_moved(self, delta_us: int) -> None:
        """Adapt to a wall clock that was set forward (or back) by this much; time spans in progress keep their
        length."""
        self.deadline_dispatch.clock_moved(delta_us)

    def set_timer(self, peer: Peer, at_us: int) -> Timer:
        """Call `Peer.timer_fired` at this time; raises Refused if there is no memory for another timer."""
        return self._timers.set(peer, at_us)

    def cancel_timer(self, timer: Timer) -> None:
        """Cancel a timer. Does nothing if the timer has fired."""
        self._timers.cancel(timer)

    # --- submitting ---

    def submit(
        self,
        function_name: bytes,
        unique: bytes,
        payload: bytes,
        priority: int,
        delivery: int,
        subscriber: Peer | None = None,
        options: SubmitOptions | None = None,
    ) -> Job:
        """Submit a job, or join the job with the same unique key; raises Refused.

        The submission's `UniquePolicy` decides what happens if a job has the key. If that job has ended and still holds
        its key, it is returned in its final state, and no peer is told of its end again: the caller has to check.
        """
        return self._submissions.submit(function_name, unique, payload, priority, delivery, subscriber, options)

    def submit_wide(
        self,
        function_name: bytes,
        unique: bytes,
        payload: bytes,
        priority: int,
        delivery: int,
        subscriber: Peer | None,
        options: SubmitOptions,
    ) -> Generator[bool, None, Job]:
        """The same for a job of very many predecessors, none named twice: in slices, with False after each."""
        return self._parts.wide_submissions.submit(
            function_name, unique, payload, priority, delivery, subscriber, options
        )

    def borrow(self, job: Job, subscriber: Peer) -> None:
        """Enter a copy of a job of a foreign function for the workers here; see `switchgear.engine.function_placement`.

        The subscriber is told how it ends. It has one attempt, and is never stored.
        """
        self._submissions.borrow(job, subscriber)

    def new_graph(
        self, *, joins: bool = False, is_long: bool = False, reserved: range = NONE_RESERVED
    ) -> GraphSubmission:
        """A new graph: jobs to be submitted together with their edges, all or none; see `GraphSubmission`.

        A short graph is described and submitted in one turn. A long one is begun, described, checked, applied and ended
        over as many turns as that takes. With `reserved` its jobs get these ids, which are those of `reserve_ids`.
        """
        return GraphSubmission(self._graph_parts, joins=joins, is_long=is_long, reserved=reserved)

    def function_for_graph(self, name: bytes) -> Function:
        """The function of this name for jobs of a graph; raises Refused. If the function is divided, a shard of it."""
        function = self.function_named(name)
        placement = self._state.placement
        if placement is not None and is_foreign(function):
            return placement.function_for_graph(function)
        return function

    def refuse_if_full(self, wanted: Sequence[tuple[bytes, int, int]]) -> None:
        """Raise Refused if functions may not have so many more jobs: function, priority and number."""
        state = self._state
        most = state.settings.jobs
        if most and self.packed_queues.unfinished_count() + sum(count for _, _, count in wanted) > most:
            raise Refused(REFUSED_FULL, QUEUE_IS_FULL)
        refuse_if_full((self.function_named(name), priority, count) for name, priority, count in wanted)

    def submit_graph(self, graph: GraphSubmission) -> list[Job]:
        """Submit a short graph at once: check it as a whole, which may raise Refused, and apply it.

        Returns the new jobs, sorted so that each follows its predecessors.
        """
        for _ in graph.check():
            pass
        for _ in graph.apply():
            pass
        return graph.submitted

    @property
    def has_unsuccessful_names(self) -> bool:
        """Whether a graph that joins existing jobs may concern unsuccessful ones; see `GraphSubmission`."""
        return self.unsuccessful_jobs.has_names or not self.unsuccessful_jobs.is_complete

    def must_wait_for_graph(self, name: bytes, predecessor_names: Sequence[bytes]) -> bool:
        """Whether a short graph with a job of this name has to wait for the long graph in progress."""
        return self._graph_parts.must_wait(name, predecessor_names)

    @property
    def is_graph_under_way(self) -> bool:
        """Whether a long graph is being submitted, so that others must not change the predecessors of existing jobs."""
        return self._graph_parts.under_way

    def reserve_id(self) -> int:
        """Reserve an id for a job that may be submitted later."""
        return self._submissions.reserve_ids(1).start

    def reserve_ids(self, count: int) -> range:
        """Reserve `count` consecutive ids for the jobs of a graph."""
        return self._submissions.reserve_ids(count)

    def source_of(self, protocol: str) -> int:
        """The number of a protocol by which jobs are submitted, for `Peer.source`."""
        return self._state.flows.source(protocol)

    def withdraw(self, job: Job, told: set[Peer] | frozenset[Peer] = frozenset()) -> bool:
        """Undo a submission that could not be stored, as if it had never been made.

        This is not possible once a worker has the job, while a peer is subscribed to it that will not be `told` (and
        may have submitted it too, without a promise), or while another job waits for it; so of several the newest
        should be undone first. Nor is it possible if the submission has undone something else, which cannot be
        restored. When its submitters are told, the caller has to drop its contents.
        """
        is_withdrawn = self._submissions.withdraw(job, told)
        if is_withdrawn and job.schedule:
            self._schedules.take_back_tick(job)
        return is_withdrawn

    def refuse_subscription(self) -> None:
        """Raise Refused if there is no memory for one more subscription to a job."""
        self._subscriptions.refuse_more()

    def subscribe(self, job: Job, subscriber: Peer) -> None:
        """Subscribe this peer to the job."""
        self._subscriptions.subscribe(job, subscriber)

    def unsubscribe(self, subscriber: Peer) -> None:
        """Remove all subscriptions and timers of a peer that is gone.

        A job that only this peer waited for is cancelled, unless it is running.
        """
        self._timers.cancel_all(subscriber)
        self._subscriptions.unsubscribe(subscriber)

    def unsubscribe_from(self, subscriber: Peer, job_ids: Iterable[int]) -> None:
        """Remove subscriptions to some jobs: the requests for which the peer had subscribed are gone."""
        self._subscriptions.unsubscribe_from(subscriber, job_ids)

    # --- jobs ---

    def job(self, job_id: int) -> Job | None:
        """The unfinished job with this id, or `None`."""
        return self.packed_queues.job(job_id)

    def look_at(self, job_id: int) -> Job | None:
        """The unfinished job with this id, or a copy of it for reading, or `None`."""
        return self.packed_queues.look_at(job_id)

    def function_to_wait_for(self, job_id: int) -> bytes | None:
        """The function of a job that another is to wait for; `None` if that would tell nothing about it: it succeeded,
        or its error is not known any more."""
        job = self.packed_queues.look_at(job_id)
        return job.function.name if job is not None else self.transitions.recent_causes.function_of(job_id)

    def has_job(self, job_id: int) -> bool:
        """Whether there is an unfinished job of this id."""
        return self.packed_queues.has_job(job_id)

    def state_of(self, job_id: int) -> JobState | None:
        """The state of the unfinished job with this id, or `None`."""
        return self.packed_queues.state_of(job_id)

    def job_count(self) -> int:
        """How many unfinished jobs there are."""
        return self.packed_queues.unfinished_count()

    def take_retention_ends(self, now_us: int) -> bool:
        """Whether a short retention of a finished job has ended since the last call."""
        ends = self._state.retention_ends
        over = [second for second in ends if second * SECOND_US <= now_us]
        ends.difference_update(over)
        return bool(over)

    def running_jobs(self) -> int:
        """The number of running jobs."""
        return sum(function.running for function in self._state.functions.values())

    def look_at_holder(self, function: Function, unique: bytes) -> Job | None:
        """The job that has this unique key, or a copy of it for reading, or None."""
        return self.packed_queues.look_at_holder(function, unique)

    def has_holder(self, function: Function, unique: bytes) -> bool:
        """Whether some job has this unique key."""
        return self.packed_queues.has_holder(function, unique)

    def unfinished_jobs(self, from_id: int = 0) -> Iterator[Job]:
        """Every unfinished job by id, from one id on; packed ones as copies. The engine must not be called
        meanwhile."""
        return self.packed_queues.unfinished_jobs(from_id)

    def newest_first(
        self, before_id: int = 0, function: Function | None = None, with_packed: bool = True
    ) -> Iterator[Job]:
        """Unfinished jobs, the newest first, optionally from below an id; packed ones as copies.

        Of packed ones only those of `function`, or none: they are ready, and have no options.  The engine must not be
        called meanwhile.
        """
        return self.packed_queues.newest_first(before_id, function, with_packed)

    def next_ready_ids(self, function: Function, priority: int, most: int) -> list[int]:
        """The ids of up to `most` ready jobs of a priority that come next."""
        return self.ready_queues.next_ids(function, priority, most)

    def ready_jobs(self, function: Function) -> Iterator[Job]:
        """All ready jobs of the function, about in the order of its queues; packed ones as copies.

        The engine must not be called meanwhile.
        """
        return self.ready_queues.ready_jobs(function)

    def successors(self, job_id: int, most: int) -> list[Job]:
        """Up to `most` of the unfinished jobs that wait for this one, in the order in which they began to wait."""
        return self.dependencies.some_waiting_for(job_id, most)

    def is_stuck(self, function: Function) -> bool:
        """Whether the function has unfinished jobs and all of them wait for unsuccessful jobs.

        None of them becomes ready unless such a job is retried, or more is submitted.  Takes a few steps, however many
        jobs there are.
        """
        return self._parts.stuck.is_stuck(function)

    def named(self, name: bytes) -> Job | None:
        """The unfinished job of this name, or None."""
        return self._state.names.get(name)

    def explain(self, job: Job, name: Callable[[int], str] = "job {}".format) -> list[Reason]:
        """Why the job is in its state; `name` returns the text form of a job id."""
        parts = ExplainParts(self._state, self.limiters, self.dependencies, self.packed_queues, self._parts.stuck)
        return explain(parts, job, name)

    def pack(self, functions: Iterable[Function]) -> int:
        """Pack plain jobs of these functions, whose jobs were stored.

        Returns how many bytes of counted payloads were freed.
        """
        return self.ready_queues.pack(functions)

    def cancel(self, job: Job, *, cascade: bool = False) -> list[Job]:
        """Cancel an unfinished job, and with `cascade` all that wait for it; returns the cancelled jobs."""
        return [ended for ended in self._commands.cancel_in_steps(job, cascade=cascade) if ended is not None]

    def cancel_in_steps(self, job: Job, *, cascade: bool = False) -> Iterator[Job | None]:
        """Like `cancel`, in steps: yields each job that was ended, and None after other parts of the work.

        Other commands may come between the steps.  A job that begins to wait for a cancelled one meanwhile is not
        cancelled, as if it had come later.
        """
        return self._commands.cancel_in_steps(job, cascade=cascade)

    def add_predecessors(
        self, job: Job, job_ids: tuple[int, ...], edges: bytes = b"", *, is_checked: bool = False
    ) -> None:
        """Add predecessors to an unfinished job; raises CycleRefused if it would wait for itself.

        With `is_checked` the caller has excluded cycles; the search takes long if very many jobs wait for the job.
        `edges` has an EdgePolicy for each. A predecessor that the job already has keeps its policy.
        """
        self.predecessor_commands.add(job, job_ids, edges, is_checked=is_checked)

    def add_predecessors_in_steps(self, job: Job, job_ids: tuple[int, ...], edges: bytes = b"") -> Iterator[None]:
        """Like `add_predecessors`, in steps: all are added in the last one, or none. Other commands may come
        between."""
        return self.predecessor_commands.add_in_steps(job, job_ids, edges, is_checked=False)

    def relies_on_many(self, job_ids: tuple[int, ...]) -> bool:
        """Whether a durable job that waits for these has to be submitted by `submit_wide`, because very many foreground
        jobs become durable with it."""
        return self.dependencies.relies_on_many(job_ids)

    def rely_in_steps(self, job_ids: tuple[int, ...]) -> Iterator[None]:
        """Make these jobs durable, and those that they wait for, before a durable job begins to wait for them."""
        return self.dependencies.rely_in_steps(job_ids)

    def search_cycle(self, job: Job, job_ids: tuple[int, ...]) -> Iterator[None]:
        """See in steps whether the job may wait for these too; raises CycleRefused if it would wait for itself.

        If `add_predecessors` is called with these before anything else is done, it need not check them again.
        """
        return self.predecessor_commands.search_cycle(job, job_ids)

    def let_successors_wait(self, job: Job, job_ids: tuple[int, ...]) -> Iterator[bool]:
        """Let each job that waits for this unfinished one wait for others too, under the policy that it has for this
        one; raises CycleRefused. Yields after each step whether it was the last one of a job."""
        return self.predecessor_commands.let_successors_wait(job, job_ids)

    def let_waiting_wait(self, job_id: int, job_ids: tuple[int, ...]) -> Iterator[bool]:
        """The same for a job that may be another engine's."""
        return self.predecessor_commands.let_waiting_wait(job_id, job_ids)

    def complete_without_run(self, job: Job, result: bytes = b"") -> None:
        """Complete a job that does not run with a result, without running it; raises Refused."""
        self._commands.complete_without_run(job, result)

    def change(self, job: Job, *, priority: int = -1, run_at_us: int = -1) -> Job:
        """Change the priority or the run-at time of a job that waits; raises Refused. Returns the job.

        A job whose time has come runs as soon as it can. A ready job whose priority changes goes to the end of the
        queue of its new priority.
        """
        return self._commands.change(job, priority, run_at_us)

    def retry(self, job: Job, more_predecessors: tuple[int, ...] = ()) -> None:
        """Run an unsuccessful job again, with all its attempts; raises Refused.

        If its predecessors are still not done, it waits again; predecessors can be added.
        """
        self._commands.retry(job, more_predecessors)

    def retry_in_steps(self, job: Job, more_predecessors: tuple[int, ...] = ()) -> Iterator[None]:
        """Like `retry`, in steps: everything is changed in the last one, or nothing. Other commands may come
        between."""
        return self._commands.retry_in_steps(job, more_predecessors)

    # --- workers ---

    def add_worker(
        self,
        peer: Peer,
        protocol: str,
        name: bytes = b"",
        *,
        identity: object = None,
        may_miss_wakeups: bool = False,
    ) -> Worker:
        """Register a worker without functions.

        Its late reports are recognised by its `identity` (`report_late`). A wakeup that it may have missed is repeated.
        """
        worker = self._workers.add(peer, protocol, name)
        worker.identity = identity
        worker.may_miss_wakeups = may_miss_wakeups
        return worker

    def new_one_job_workers(self, peer: Peer, protocol: str, rules: OneJobRules) -> OneJobWorkers:
        """Workers of a peer that are pushed one job at a time, and whose reports do not name it."""
        return OneJobWorkers(
            self._state, self._functions, self.dispatcher, self._workers, self._reports, peer, protocol, rules
        )

    def refuse_registrations(self, count: int, quarters: int = FOR_WORKERS) -> None:
        """Raise Refused if there is no memory for a worker that registers for this many functions.

        Workers of protocols in which one connection can have any number of workers may fill fewer quarters of the
        memory.
        """
        self._workers.refuse_registrations(count, quarters)

    def has_room_for_worker(self, count: int, quarters: int) -> bool:
        """Whether there is memory for a worker that registers for this many functions."""
        return self._workers.has_room(count, quarters)

    def can_do(self, worker: Worker, function: Function, timeout_us: int = 0, priorities: tuple[int, ...] = ()) -> None:
        """Register a worker for a function; each job may run for `timeout_us` (0: no limit).

        With `priorities`, the worker is assigned only jobs of these priorities, and woken only for them.
        """
        self._workers.can_do(worker, function, timeout_us, priorities)

    def cannot_do(self, worker: Worker, function: Function) -> None:
        """Deregister a worker from a function. A job that it is running stays with it."""
        self._workers.cannot_do(worker, function)

    def describe_worker(
        self, worker: Worker, tags: frozenset[bytes] | None = None, resources: Mapping[bytes, int] | None = None
    ) -> None:
        """The worker has these tags and resources, in thousandths, and those of its listener; None: as before.

        Raises Refused.  A worker is given only jobs whose required tags it has, and for which enough of its resources
        is free.  Jobs that it is running stay with it.
        """
        self._workers.describe(worker, tags, resources)

    def use_elsewhere(self, worker: Worker, amounts: tuple[tuple[bytes, int], ...]) -> None:
        """Jobs that this engine does not know use this much of the worker's resources, sorted by name.

        A negative amount is that of jobs that this engine has given to the worker, and another one runs.
        """
        self._workers.use_elsewhere(worker, amounts)

    def forget_functions(self, worker: Worker) -> None:
        """Deregister a worker from all functions."""
        self._workers.forget_functions(worker)

    def remove_worker(self, worker: Worker, cause: Cause = Cause.WORKER_LOST) -> None:
        """Deregister a worker; its jobs are requeued."""
        self._workers.remove(worker, cause)

    def renew_lease(self, worker: Worker, lease_us: int) -> None:
        """Renew a worker's lease: it must be renewed again within `lease_us`."""
        self._workers.renew_lease(worker, lease_us)

    def suspend_lease(self, worker: Worker) -> None:
        """Suspend a worker's lease until it is renewed."""
        self._workers.suspend_lease(worker)

    def take(self, worker: Worker) -> Job | None:
        """Take a job for this worker, or return `None`."""
        return self.dispatcher.take(worker)

    def awaits_payload(self, worker: Worker) -> bool:
        """Whether this worker would be assigned a job now if the job's payload were in memory."""
        return self.dispatcher.awaits_payload(worker)

    def take_of(self, worker: Worker, function: Function, priority: int) -> Job | None:
        """Take a job of this function and priority for this worker, or return `None`."""
        job = self.dispatcher.take_of(worker, function, priority)
        placement = self._state.placement
        if job is None and placement is not None and is_foreign(function):
            for shard in placement.shards_here(function):
                job = self.dispatcher.take_of(worker, shard, priority)
                if job is not None:
                    break
        return job

    def sleep(self, worker: Worker) -> bool:
        """Let the worker sleep until it is woken; False if there is a job already, so it should ask at once."""
        return self._wakeups.sleep(worker)

    def end_own_limits(self, worker: Worker) -> None:
        """End the time limits that the worker has set for the jobs it holds; those of submitters stay."""
        self._attempts.end_own_limits(worker)

    def stop_sleeping(self, worker: Worker) -> None:
        """Wake the worker on its own request: it will ask, or sleep again."""
        self._wakeups.rouse(worker)

    def grant(self, worker: Worker, credit: int) -> None:
        """Grant credit: the worker takes up to `credit` more jobs without asking for each."""
        self.dispatcher.grant(worker, credit)

    def grant_until(self, worker: Worker, until_us: int) -> int:
        """Grant credit for one job until a given time.

        Returns the number of the ticket that `Peer.wait_timed_out` will name, or 0 if a job was assigned at once.
        Several tickets of a worker are served in the order in which they were given.
        """
        return self._workers.grant_until(worker, until_us)

    def cancel_ticket(self, worker: Worker, ticket: int) -> None:
        """End the wait of this ticket."""
        self._workers.cancel_ticket(worker, ticket)

    def withdraw_credit(self, worker: Worker) -> None:
        """Take back all unused credit of the worker."""
        self.dispatcher.withdraw_credit(worker)

    def take_back_credit(self, worker: Worker, credit: int) -> int:
        """Take back this much unused credit of the worker, or all there is; returns how much that was.

        For credit without tickets. A peer may call this while it handles an assignment.
        """
        return self.dispatcher.take_back_credit(worker, credit)

    def resume_attempt(self, worker: Worker, job_id: int, attempt: int, start_number: int = 0) -> Job | None:
        """Give a job back to a worker that lost its connection and still runs this attempt (`Job.attempts`).

        Returns None if another attempt has begun, or the job may not run any more.
        """
        return self._reports.resumed_starts.resume(worker, job_id, attempt, start_number)

    @property
    def adopted_runs(self) -> AdoptedRuns:
        """Runs that were begun under another engine, which had their functions before."""
        return self._parts.restore.adopted_runs

    def start_must_be_kept(self, job: Job) -> bool:
        """Whether a worker may be sent this durable job only when its start is stored; see `Attempts`."""
        return self._attempts.start_must_be_kept(job)

    def start_is_kept(self, job: Job) -> None:
        """Handle a stored start: the worker is sent the job now, if it still has it, and its time limit begins."""
        self._attempts.start_is_kept(job)

    # --- reports of workers: each returns the job, or None if the worker does not have it --- `start_number` is the
    # start that the report is about (`Job.start_number`), or 0 if the protocol cannot name it.

    def complete(self, worker: Worker, job_id: int, result: bytes, start_number: int = 0) -> Job | None:
        """The worker reports success: end the job as done; `None` if the worker does not hold that start of it."""
        return self._reports.complete(worker, job_id, result, start_number)

    def report_late(self, job_id: int, identity: object, start_number: int, result: bytes | None) -> LateReport:
        """Handle a report on a job that was taken from its worker; `result` is None unless it reports success.

        Workers are recognised by their identity (`Worker.identity`). The first result counts; see `WorkerReports.late`.
        """
        return self._reports.late(job_id, identity, start_number, result)

    def last_to_lose(self, job_id: int, identity: object) -> int:
        """The id of the worker with this identity that lost the job last, or 0."""
        return self.lost_starts.loser(job_id, identity)

    def has_lost(self, job_id: int, identity: object, start_number: int) -> bool:
        """Whether a start of a job was taken from the worker with this identity."""
        return self.lost_starts.is_known(job_id, identity, start_number)

    def set_message(self, job: Job, message: bytes) -> None:
        """Note what the worker says about its job, for people; it is stored with the next change of the job."""
        self._reports.set_message(job, message)

    def complete_unowned(self, job: Job, result: bytes = b"", message: bytes = b"") -> bool:
        """Complete a job on the report of a peer that does not, or no longer, have it. The first result counts.

        A worker that has the job is told to stop. Returns False, and changes nothing, if the job may not run yet or has
        ended.
        """
        return self._reports.complete_unowned(job, result, message)

    def fail(
        self,
        worker: Worker,
        job_id: int,
        code: int = 1,
        error: bytes | None = None,
        result: bytes = b"",
        start_number: int = 0,
    ) -> Job | None:
        """End a job as failed, without a retry."""
        return self._reports.fail(worker, job_id, code, error, result, start_number)

    def retry_later(
        self,
        worker: Worker,
        job_id: int,
        delay_us: int,
        error: bytes | None = None,
        attempts_limit: int = -1,
        start_number: int = 0,
    ) -> Job | None:
        """Retry a failed job after a pause, if it has attempts left.

        The worker may set the limit of attempts, if the submitter did not.
        """
        return self._reports.retry_later(worker, job_id, delay_us, error, attempts_limit, start_number)

    def release(self, worker: Worker, job_id: int, start_number: int = 0) -> Job | None:
        """Return a job to its queue; the attempt does not count."""
        return self._reports.release(worker, job_id, start_number)

    def lose(self, worker: Worker, job_id: int, start_number: int = 0) -> Job | None:
        """Return a job to its queue: the worker to which this one had passed it on is gone."""
        return self._reports.lost(worker, job_id, start_number)

    def could_not_be_sent(self, worker: Worker, job_id: int, lost: bytes = b"") -> Job | None:
        """Take back a job that could not be sent because its payload cannot be read.

        It goes back to its queue, or fails if `lost` says that the payload is lost.
        """
        return self._reports.could_not_be_sent(worker, job_id, lost)

    def progress(
        self,
        worker: Worker,
        job_id: int,
        numerator: int,
        denominator: int,
        time_left_s: int = -1,
        text: bytes = b"",
        message: bytes = b"",
        start_number: int = 0,
    ) -> Job | None:
        """Set the progress of a job; `message` tells people what the worker is doing."""
        return self._reports.progress(worker, job_id, numerator, denominator, time_left_s, text, message, start_number)

    def renew_run(self, worker: Worker, job_id: int, span_us: int = 0, start_number: int = 0) -> Job | None:
        """Restart the time limit that the worker has set for the job.

        The limit is `span_us`, or the one of the worker's registration if it still serves the function. A limit of the
        submitter does not move.
        """
        return self._reports.renew_run(worker, job_id, span_us, start_number)

    def data(self, worker: Worker, job_id: int, data: bytes, start_number: int = 0) -> Job | None:
        """Add a part of the result, ahead of the end."""
        return self._reports.data(worker, job_id, data, start_number)

    def warning(self, worker: Worker, job_id: int, data: bytes, start_number: int = 0) -> Job | None:
        """Append text to the warnings of a running job, and tell its subscribers."""
        return self._reports.warning(worker, job_id, data, start_number)

    # --- schedules ---

    def set_schedule(self, wanted: Schedule) -> Schedule:
        """Create or change a schedule, and return it; raises ValueError or Refused.

        An existing schedule of that name takes over the given fields; only a different timetable moves its next tick.
        It stays paused if it is, because an operator has paused it.
        """
        return self._schedules.set(wanted)

    def give_schedule(self, known: Schedule, wanted: Schedule) -> None:
        """Change a schedule and forget it, because its new function is another engine's. Raises ValueError."""
        self._schedules.give(known, wanted)

    def remove_schedule(self, schedule: Schedule) -> None:
        """Delete a schedule; the jobs that it has made stay."""
        self._schedules.remove(schedule)

    def pause_schedule(self, schedule: Schedule) -> None:
        """Make no jobs at ticks until the schedule is resumed."""
        self._schedules.pause(schedule)

    def resume_schedule(self, schedule: Schedule) -> None:
        """Resume a schedule with its next tick."""
        self._schedules.resume(schedule)

    def run_schedule_now(self, schedule: Schedule) -> Job:
        """Make a job at once, paused or not; its ticks do not change. Raises Refused."""
        return self._schedules.run_now(schedule)

    # --- administration ---

    def function_named(self, name: bytes) -> Function:
        """The function with that name, created if it is new; raises Refused if there are too many."""
        return self._functions.named(name)

    def drop_function(self, function: Function) -> bool:
        """Forget a function with its settings, unless it is in use; returns whether it was forgotten."""
        return self._functions.drop(function)

    def pause(self, function: Function) -> None:
        """Assign no jobs of this function until it is resumed."""
        self.administration.pause(function)

    def resume(self, function: Function) -> None:
        """Assign jobs of this function again."""
        self.administration.resume(function)

    def set_limits(self, function: Function, high: int, normal: int, low: int) -> None:
        """Accept submissions only while the function has fewer unfinished jobs than this; 0: no limit."""
        self.administration.set_limits(function, high, normal, low)

    def set_policy(self, function: Function, policy: Policy) -> None:
        """Set the limits of a function. The time this takes grows with the number of its ready and running jobs.

        Setting the same policy again changes nothing. Jobs that run beyond a lower limit continue.
        """
        self.administration.set_policy(function, policy)

    def stop_handing_out(self) -> None:
        """Let running jobs finish, and start no others."""
        self.administration.stop_handing_out()

    def start_handing_out(self) -> None:
        """Let jobs start again after `stop_handing_out`."""
        self.administration.start_handing_out()

    def drain(self) -> None:
        """Let running jobs finish; start and accept no others."""
        self.administration.drain()

    # --- start and end ---

    def restore(
        self,
        jobs: list[Job],
        unsuccessful: dict[int, JobState],
        next_job_id: int,
        schedules: Sequence[Schedule] = (),
        held: Sequence[Job] = (),
        plain: Iterable[Sequence[PlainJob]] = (),
        unsuccessful_names: dict[int, bytes] | None = None,
        *,
        has_all_unsuccessful: bool = True,
    ) -> None:
        """Restore the contents of a store; the engine must know the time.

        `jobs` are unfinished jobs by id; `plain` are the other unfinished ones, plain ready jobs, in portions and by id
        too; `held` are finished jobs that may still hold their unique key. `unsuccessful` are jobs that ended without
        success, with their names if they have any; the store may have older ones, unless `has_all_unsuccessful`.
        """
        restoring = self.restore_in_portions(
            jobs,
            unsuccessful,
            next_job_id,
            schedules,
            held,
            unsuccessful_names,
            has_all_unsuccessful=has_all_unsuccessful,
        )
        portions = iter(plain)
        portion: Sequence[PlainJob] | None = None
        try:
            while True:
                portion = next(portions, None) if restoring.send(portion) else None
        except StopIteration:
            return

    def restore_in_portions(
        self,
        jobs: list[Job],
        unsuccessful: dict[int, JobState],
        next_job_id: int,
        schedules: Sequence[Schedule] = (),
        held: Sequence[Job] = (),
        unsuccessful_names: dict[int, bytes] | None = None,
        *,
        has_all_unsuccessful: bool = True,
        claimable_us: int = 0,
    ) -> Restoring:
        """The same for an owner that has to wait for the plain jobs, and has other things to do meanwhile.

        With `claimable_us`, running jobs stay as they are until so long after the last step, and the workers that have
        them may claim them (`resume_attempt`); see `switchgear.engine.adopted_runs`.
        """
        self.unsuccessful_jobs.restore(unsuccessful, unsuccessful_names or {}, is_complete=has_all_unsuccessful)
        yield from self._parts.restore.restore(jobs, next_job_id, held, claimable_us)
        self._schedules.restore(schedules)
        self.deadline_dispatch.advance(self._state.now_us)  # deadlines that passed while the server was down

    def hand_over(
        self, functions: Iterable[Function], handed_over: HandedOver, schedules: Iterable[Schedule] = ()
    ) -> Iterator[None]:
        """The steps that remove functions with their jobs, which another engine is going to have. See `Handover`."""
        return self._parts.restore.handover.hand_over(functions, handed_over, schedules)

    def shutdown(self) -> None:
        """Drop every job, because the owner will not call again.

        A job and the tables that it is in refer to each other, and the garbage collector does not visit compiled jobs.
        """
        state = self._state
        for function in state.functions.values():
            function.uniques.clear()
        self.ready_queues.clear()
        self.sliced_work.clear()
        state.departed.clear()
        self.transitions.clear()
        for worker in state.workers.values():
            worker.running.clear()
            worker.uses = None
        for peer in {subscriber for job in state.jobs.values() for subscriber in job.subscribers or ()}:
            peer.subscriptions.clear()
            peer.ended_subscriptions = None
        state.jobs = JobTable()
        state.names.clear()
        state.changed.clear()
        self.deadlines.clear()
        self.dependencies.clear()
        memory = state.memory
        memory.job_bytes = memory.key_bytes = memory.limiter_bytes = 0
        memory.registration_bytes = memory.schedule_bytes = 0
