"""`EngineParts`: constructs the parts of the engine, from the bottom up, each with those that it needs."""

from __future__ import annotations

from switchgear.engine.administration import Administration
from switchgear.engine.adopted_runs import AdoptedRuns
from switchgear.engine.attempts import Attempts
from switchgear.engine.deadline_dispatch import DeadlineDispatch
from switchgear.engine.deadlines import Deadlines
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
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.payload_arrivals import PayloadArrivals
from switchgear.engine.predecessor_commands import PredecessorCommands
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.requirements import Requirements
from switchgear.engine.restore import Restore
from switchgear.engine.schedules import ScheduleRunner
from switchgear.engine.sliced_work import SlicedWork
from switchgear.engine.state import EngineSettings, EngineState, Observer
from switchgear.engine.stuck import StuckFunctions
from switchgear.engine.submissions import Submissions
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

__all__ = ["EngineParts"]


class EngineParts:
    """All parts of an engine. ARCHITECTURE.md has them in a table, in the same order."""

    def __init__(self, settings: EngineSettings | None, observer: Observer | None) -> None:
        self.state = EngineState(settings, observer)
        self._construct_queues()
        self._construct_dispatch()
        self._construct_job_life()
        self._construct_workers()
        self._construct_submissions()
        self._construct_administration()

    def _construct_queues(self) -> None:
        """Times, and the queues of ready jobs."""
        state = self.state
        self.deadlines = Deadlines(state.memory)
        self.timers = Timers(state, self.deadlines)
        self.sliced_work = SlicedWork()
        self.packed_queues = PackedQueues(state)
        self.requirements = Requirements(state)
        self.limiters = Limiters(state, self.deadlines, self.requirements, self.sliced_work)
        self.ready_queues = ReadyQueues(state, self.packed_queues, self.limiters)
        self.key_distribution = KeyDistribution(self.limiters, self.ready_queues)
        self.unique_keys = UniqueKeys(state, self.deadlines, self.packed_queues)

    def _construct_dispatch(self) -> None:
        """How ready jobs get to workers."""
        state, deadlines, limiters, queues = self.state, self.deadlines, self.limiters, self.ready_queues
        requirements = self.requirements
        policy_caller = PolicyCaller(state, limiters, queues)
        self.wakeups = Wakeups(state, deadlines, limiters, queues, policy_caller, self.sliced_work)
        self.functions = FunctionRegistry(state, queues, self.wakeups)
        self.lost_starts = LostStarts(state.memory)
        self.attempts = Attempts(state, deadlines, limiters, self.unique_keys, self.lost_starts, requirements)
        self.dispatcher = Dispatcher(
            state, deadlines, limiters, queues, self.wakeups, self.attempts, policy_caller, requirements
        )

    def _construct_job_life(self) -> None:
        """What becomes of jobs: what they wait for, and how they end."""
        state, deadlines, sliced_work, dispatcher = self.state, self.deadlines, self.sliced_work, self.dispatcher
        self.unsuccessful_jobs = UnsuccessfulJobs(state.memory)
        self.dependencies = Dependencies(state, deadlines, sliced_work, self.packed_queues, self.unsuccessful_jobs)
        self.transitions = Transitions(
            state,
            deadlines,
            sliced_work,
            self.ready_queues,
            self.unique_keys,
            self.attempts,
            dispatcher,
            self.dependencies,
            self.requirements,
        )
        self.stuck = StuckFunctions(sliced_work, self.dependencies, self.transitions)
        self.payload_arrivals = PayloadArrivals(state, dispatcher, self.transitions)
        self.subscriptions = JobSubscriptions(state, sliced_work, self.transitions)

    def _construct_workers(self) -> None:
        """Workers, and what they report."""
        state, limiters, attempts, dispatcher = self.state, self.limiters, self.attempts, self.dispatcher
        transitions, lost_starts, requirements = self.transitions, self.lost_starts, self.requirements
        self.workers = WorkerRegistry(
            state,
            self.deadlines,
            self.sliced_work,
            self.functions,
            self.wakeups,
            attempts,
            dispatcher,
            transitions,
            lost_starts,
            requirements,
        )
        self.adopted_runs = AdoptedRuns(
            state,
            self.timers,
            limiters,
            self.unique_keys,
            attempts,
            dispatcher,
            transitions,
            self.workers,
            requirements,
        )
        self.reports = WorkerReports(
            state,
            limiters,
            self.ready_queues,
            attempts,
            dispatcher,
            transitions,
            self.packed_queues,
            lost_starts,
            self.adopted_runs,
        )

    def _construct_submissions(self) -> None:
        """New jobs, and commands about jobs."""
        state, deadlines, packed, queues = self.state, self.deadlines, self.packed_queues, self.ready_queues
        dependencies, transitions = self.dependencies, self.transitions
        self.predecessor_commands = PredecessorCommands(
            state, self.sliced_work, queues, self.attempts, self.dispatcher, dependencies, transitions
        )
        self.commands = JobCommands(
            state,
            deadlines,
            packed,
            queues,
            self.functions,
            self.unique_keys,
            self.attempts,
            self.dispatcher,
            dependencies,
            transitions,
            self.requirements,
            self.predecessor_commands,
        )
        self.submissions = Submissions(
            state,
            deadlines,
            packed,
            queues,
            self.functions,
            self.unique_keys,
            self.dispatcher,
            dependencies,
            transitions,
            self.subscriptions,
            self.requirements,
        )
        self.wide_submissions = WideSubmissions(state, packed, self.functions, dependencies, self.submissions)
        self.graph_parts = GraphParts(
            state,
            packed,
            self.unsuccessful_jobs,
            dependencies,
            self.submissions,
            self.wide_submissions,
            self.commands,
            self.reports,
            self.predecessor_commands,
        )
        self.schedules = ScheduleRunner(state, deadlines, packed, self.submissions)

    def _construct_administration(self) -> None:
        """What operators set, what a restart restores, what other engines take over, and what the time brings."""
        state, deadlines, packed, keys = self.state, self.deadlines, self.packed_queues, self.unique_keys
        attempts, dispatcher, dependencies = self.attempts, self.dispatcher, self.dependencies
        transitions = self.transitions
        self.administration = Administration(state, self.sliced_work, self.key_distribution, dispatcher)
        foreign = ForeignPredecessors(state, packed, dependencies, transitions, self.unsuccessful_jobs)
        handover = Handover(
            state,
            self.functions,
            keys,
            self.lost_starts,
            attempts,
            dispatcher,
            dependencies,
            transitions,
            self.workers,
            self.schedules,
            foreign,
        )
        self.restore = Restore(
            state,
            deadlines,
            packed,
            self.ready_queues,
            keys,
            attempts,
            dispatcher,
            dependencies,
            transitions,
            handover,
            foreign,
            self.adopted_runs,
        )
        self.deadline_dispatch = DeadlineDispatch(
            state,
            deadlines,
            self.sliced_work,
            self.limiters,
            keys,
            self.wakeups,
            attempts,
            dispatcher,
            transitions,
            self.workers,
            self.schedules,
            self.timers,
        )
