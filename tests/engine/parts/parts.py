"""Parts of the engine, put together from the bottom up as far as a test needs them, without `Engine`.

parts = Parts()
job = parts.job(b"mail")
parts.queues.append(job)
assert parts.queues.pop(job.function) is job
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from switchgear.engine.administration import Administration
from switchgear.engine.adopted_runs import AdoptedRuns
from switchgear.engine.attempts import Attempts
from switchgear.engine.deadline_dispatch import DeadlineDispatch
from switchgear.engine.deadlines import Deadline, DeadlineKind, Deadlines
from switchgear.engine.dependencies import Dependencies
from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.foreign_predecessors import ForeignPredecessors
from switchgear.engine.functions import FunctionRegistry
from switchgear.engine.graph_parts import GraphParts
from switchgear.engine.handover import Handover
from switchgear.engine.job_commands import JobCommands
from switchgear.engine.key_distribution import KeyDistribution
from switchgear.engine.limiters import Limiters
from switchgear.engine.lost_starts import LostStarts
from switchgear.engine.one_job_workers import OneJobRules, OneJobWorkers
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.payload_arrivals import PayloadArrivals
from switchgear.engine.predecessor_commands import PredecessorCommands
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.requirements import Requirements
from switchgear.engine.restore import Restore
from switchgear.engine.resumed_starts import ResumedStarts
from switchgear.engine.schedules import ScheduleRunner
from switchgear.engine.sliced_work import SlicedWork
from switchgear.engine.state import EngineSettings, EngineState
from switchgear.engine.stuck import StuckFunctions
from switchgear.engine.submissions import Submissions
from switchgear.engine.submit_options import SubmitOptions
from switchgear.engine.subscriptions import JobSubscriptions
from switchgear.engine.timers import Timers
from switchgear.engine.transitions import Transitions
from switchgear.engine.unique_keys import UniqueKeys
from switchgear.engine.unsuccessful_jobs import UnsuccessfulJobs
from switchgear.engine.wake_policy import PolicyCaller
from switchgear.engine.wakeups import Wakeups
from switchgear.engine.wide_submissions import WideSubmissions
from switchgear.engine.worker_reports import WorkerReports
from switchgear.engine.workers import WorkerRegistry
from switchgear.model import NORMAL, Delivery, Function, Job, Peer, Worker
from switchgear.testing import RecordingPeer
from tests.engine.harness import RecordingObserver


class Parts:
    """Each part is made when it is asked for, with those that it holds."""

    def __init__(self, **settings: Any) -> None:
        self.observer = RecordingObserver()
        self.state = EngineState(EngineSettings(**settings), self.observer)
        self.state.now_us = 1_000_000

    @cached_property
    def deadlines(self) -> Deadlines:
        return Deadlines(self.state.memory)

    @cached_property
    def sliced_work(self) -> SlicedWork:
        return SlicedWork()

    @cached_property
    def packed(self) -> PackedQueues:
        return PackedQueues(self.state)

    @cached_property
    def limiters(self) -> Limiters:
        return Limiters(self.state, self.deadlines, self.requirements, self.sliced_work)

    @cached_property
    def queues(self) -> ReadyQueues:
        return ReadyQueues(self.state, self.packed, self.limiters)

    @cached_property
    def keys(self) -> UniqueKeys:
        return UniqueKeys(self.state, self.deadlines, self.packed)

    @cached_property
    def policy_caller(self) -> PolicyCaller:
        return PolicyCaller(self.state, self.limiters, self.queues)

    @cached_property
    def wakeups(self) -> Wakeups:
        return Wakeups(self.state, self.deadlines, self.limiters, self.queues, self.policy_caller, self.sliced_work)

    @cached_property
    def functions(self) -> FunctionRegistry:
        return FunctionRegistry(self.state, self.queues, self.wakeups)

    @cached_property
    def attempts(self) -> Attempts:
        return Attempts(self.state, self.deadlines, self.limiters, self.keys, self.lost_starts, self.requirements)

    @cached_property
    def lost_starts(self) -> LostStarts:
        return LostStarts(self.state.memory)

    @cached_property
    def timers(self) -> Timers:
        return Timers(self.state, self.deadlines)

    @cached_property
    def dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self.state,
            self.deadlines,
            self.limiters,
            self.queues,
            self.wakeups,
            self.attempts,
            self.policy_caller,
            self.requirements,
        )

    @cached_property
    def dependencies(self) -> Dependencies:
        return Dependencies(self.state, self.deadlines, self.sliced_work, self.packed, self.unsuccessful)

    @cached_property
    def unsuccessful(self) -> UnsuccessfulJobs:
        return UnsuccessfulJobs(self.state.memory)

    @cached_property
    def transitions(self) -> Transitions:
        return Transitions(
            self.state,
            self.deadlines,
            self.sliced_work,
            self.queues,
            self.keys,
            self.attempts,
            self.dispatcher,
            self.dependencies,
            self.requirements,
        )

    @cached_property
    def requirements(self) -> Requirements:
        return Requirements(self.state)

    @cached_property
    def subscriptions(self) -> JobSubscriptions:
        return JobSubscriptions(self.state, self.sliced_work, self.transitions)

    @cached_property
    def stuck(self) -> StuckFunctions:
        return StuckFunctions(self.sliced_work, self.dependencies, self.transitions)

    @cached_property
    def payload_arrivals(self) -> PayloadArrivals:
        return PayloadArrivals(self.state, self.dispatcher, self.transitions)

    @cached_property
    def workers(self) -> WorkerRegistry:
        return WorkerRegistry(
            self.state,
            self.deadlines,
            self.sliced_work,
            self.functions,
            self.wakeups,
            self.attempts,
            self.dispatcher,
            self.transitions,
            self.lost_starts,
            self.requirements,
        )

    @cached_property
    def adopted_runs(self) -> AdoptedRuns:
        return AdoptedRuns(
            self.state,
            self.timers,
            self.limiters,
            self.keys,
            self.attempts,
            self.dispatcher,
            self.transitions,
            self.workers,
            self.requirements,
        )

    @cached_property
    def reports(self) -> WorkerReports:
        return WorkerReports(
            self.state,
            self.limiters,
            self.queues,
            self.attempts,
            self.dispatcher,
            self.transitions,
            self.packed,
            self.lost_starts,
            self.adopted_runs,
        )

    @cached_property
    def resumed_starts(self) -> ResumedStarts:
        return ResumedStarts(self.state, self.limiters, self.queues, self.attempts, self.packed, self.adopted_runs)

    @cached_property
    def commands(self) -> JobCommands:
        return JobCommands(
            self.state,
            self.deadlines,
            self.packed,
            self.queues,
            self.functions,
            self.keys,
            self.attempts,
            self.dispatcher,
            self.dependencies,
            self.transitions,
            self.requirements,
            self.predecessor_commands,
        )

    @cached_property
    def predecessor_commands(self) -> PredecessorCommands:
        return PredecessorCommands(
            self.state,
            self.sliced_work,
            self.queues,
            self.attempts,
            self.dispatcher,
            self.dependencies,
            self.transitions,
        )

    @cached_property
    def submissions(self) -> Submissions:
        return Submissions(
            self.state,
            self.deadlines,
            self.packed,
            self.queues,
            self.functions,
            self.keys,
            self.dispatcher,
            self.dependencies,
            self.transitions,
            self.subscriptions,
            self.requirements,
        )

    @cached_property
    def wide_submissions(self) -> WideSubmissions:
        return WideSubmissions(self.state, self.packed, self.functions, self.dependencies, self.submissions)

    @cached_property
    def graph_parts(self) -> GraphParts:
        return GraphParts(
            self.state,
            self.packed,
            self.unsuccessful,
            self.dependencies,
            self.submissions,
            self.wide_submissions,
            self.commands,
            self.reports,
            self.predecessor_commands,
        )

    @cached_property
    def schedules(self) -> ScheduleRunner:
        return ScheduleRunner(self.state, self.deadlines, self.packed, self.submissions)

    @cached_property
    def administration(self) -> Administration:
        return Administration(self.state, self.sliced_work, self.key_distribution, self.dispatcher)

    @cached_property
    def key_distribution(self) -> KeyDistribution:
        return KeyDistribution(self.limiters, self.queues)

    @cached_property
    def restore(self) -> Restore:
        return Restore(
            self.state,
            self.deadlines,
            self.packed,
            self.queues,
            self.keys,
            self.attempts,
            self.dispatcher,
            self.dependencies,
            self.transitions,
            self.handover,
            self.foreign,
            self.adopted_runs,
        )

    @cached_property
    def foreign(self) -> ForeignPredecessors:
        return ForeignPredecessors(self.state, self.packed, self.dependencies, self.transitions, self.unsuccessful)

    @cached_property
    def handover(self) -> Handover:
        return Handover(
            self.state,
            self.functions,
            self.keys,
            self.lost_starts,
            self.attempts,
            self.dispatcher,
            self.dependencies,
            self.transitions,
            self.workers,
            self.schedules,
            self.foreign,
        )

    @cached_property
    def deadline_dispatch(self) -> DeadlineDispatch:
        return DeadlineDispatch(
            self.state,
            self.deadlines,
            self.sliced_work,
            self.limiters,
            self.keys,
            self.wakeups,
            self.attempts,
            self.dispatcher,
            self.transitions,
            self.workers,
            self.schedules,
            self.timers,
        )

    def one_job_workers(self, peer: Peer, **rules: int) -> OneJobWorkers:
        return OneJobWorkers(
            self.state,
            self.functions,
            self.dispatcher,
            self.workers,
            self.reports,
            peer,
            "test",
            OneJobRules(b"mail", **rules),
        )

    # --- what is moved about ---

    def submit(self, function: bytes = b"mail", *, unique: bytes = b"", **options: Any) -> Job:
        """A job as it is submitted, by the part that does so."""
        wanted = SubmitOptions(**options) if options else None
        return self.submissions.submit(function, unique, b"x", NORMAL, Delivery.HANDLE, None, wanted)

    def registered(self, function: bytes = b"mail", timeout_us: int = 0, identity: object = None) -> Worker:
        """A worker as it is registered, by the part that does so."""
        worker = self.workers.add(RecordingPeer(), "test", b"")
        worker.identity = identity
        self.workers.can_do(worker, self.function(function), timeout_us)
        return worker

    def function(self, name: bytes = b"mail") -> Function:
        return self.functions.named(name)

    def job(self, function: bytes = b"mail", *, unique: bytes = b"", delivery: int = Delivery.HANDLE) -> Job:
        """A new job, which is in the table of jobs and in no queue."""
        state = self.state
        job = Job(state.next_job_id, self.function(function), unique, b"", NORMAL, delivery, state.now_us)
        state.next_job_id += 1
        state.jobs.add(job)
        job.function.total += 1
        if unique:
            job.function.uniques[unique] = job
        state.count_contents(job)
        return job

    def worker(self, function: bytes = b"mail", timeout_us: int = 0) -> Worker:
        worker = Worker(len(self.state.workers) + 1, RecordingPeer(), "test", self.state.now_us)
        self.state.workers[worker.id] = worker
        worker.order.append(self.function(function))
        worker.timeouts_us[self.function(function)] = timeout_us
        worker.has_timeouts = timeout_us > 0
        self.function(function).workers[worker] = None
        return worker

    def due(self, after_us: int) -> list[tuple[DeadlineKind, object]]:
        """What comes due within this time."""
        found: list[tuple[DeadlineKind, object]] = []
        deadline: Deadline | None
        while (deadline := self.deadlines.pop_due(self.state.now_us + after_us)) is not None:
            found.append((deadline[2], deadline[3]))
        return found


def heard(worker: Worker) -> list[tuple[object, ...]]:
    peer = worker.peer
    assert isinstance(peer, RecordingPeer)
    return peer.take_heard()
