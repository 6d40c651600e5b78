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
        state = self.state = EngineState(settings, observer)
        deadlines = self.deadlines = Deadlines(state.memory)
        timers = self.timers = Timers(state, deadlines)
        sliced_work = self.sliced_work = SlicedWork()
        packed = self.packed_queues = PackedQueues(state)
        requirements = self.requirements = Requirements(state)
        limiters = self.limiters = Limiters(state, deadlines, requirements, sliced_work)
        queues = self.ready_queues = ReadyQueues(state, packed, limiters)
        keys = UniqueKeys(state, deadlines, packed)
        policy_caller = PolicyCaller(state, limiters, queues)
        wakeups = self.wakeups = Wakeups(state, deadlines, limiters, queues, policy_caller, sliced_work)
        functions = self.functions = FunctionRegistry(state, queues, wakeups)
        lost_starts = self.lost_starts = LostStarts(state.memory)
        attempts = self.attempts = Attempts(state, deadlines, limiters, keys, lost_starts, requirements)
        dispatcher = self.dispatcher = Dispatcher(
            state, deadlines, limiters, queues, wakeups, attempts, policy_caller, requirements
        )
        self.unsuccessful_jobs = UnsuccessfulJobs(state.memory)
        dependencies = self.dependencies = Dependencies(state, deadlines, sliced_work, packed, self.unsuccessful_jobs)
        transitions = self.transitions = Transitions(
            state, deadlines, sliced_work, queues, keys, attempts, dispatcher, dependencies, requirements
        )
        self.payload_arrivals = PayloadArrivals(state, dispatcher, transitions)
        self.stuck = StuckFunctions(sliced_work, dependencies, transitions)
        workers = self.workers = WorkerRegistry(
            state,
            deadlines,
            sliced_work,
            functions,
            wakeups,
            attempts,
            dispatcher,
            transitions,
            lost_starts,
            requirements,
        )
        adopted_runs = AdoptedRuns(
            state, timers, limiters, keys, attempts, dispatcher, transitions, workers, requirements
        )
        self.reports = WorkerReports(
            state, limiters, queues, attempts, dispatcher, transitions, packed, lost_starts, adopted_runs
        )
        self.predecessor_commands = PredecessorCommands(
            state, sliced_work, queues, attempts, dispatcher, dependencies, transitions
        )
        self.commands = JobCommands(
            state,
            deadlines,
            packed,
            queues,
            functions,
            keys,
            attempts,
            dispatcher,
            dependencies,
            transitions,
            requirements,
            self.predecessor_commands,
        )
        self.subscriptions = JobSubscriptions(state, sliced_work, transitions)
        self.submissions = Submissions(
            state,
            deadlines,
            packed,
            queues,
            functions,
            keys,
            dispatcher,
            dependencies,
            transitions,
            self.subscriptions,
            requirements,
        )
        wide = self.wide_submissions = WideSubmissions(state, packed, queues, functions, dependencies, self.submissions)
        self.graph_parts = GraphParts(
            state,
            packed,
            self.unsuccessful_jobs,
            dependencies,
            self.submissions,
            wide,
            self.commands,
            self.reports,
            self.predecessor_commands,
        )
        schedules = self.schedules = ScheduleRunner(state, deadlines, packed, self.submissions)
        self.key_distribution = KeyDistribution(limiters, queues)
        self.administration = Administration(state, sliced_work, self.key_distribution, dispatcher)
        foreign = ForeignPredecessors(state, packed, dependencies, transitions, self.unsuccessful_jobs)
        handover = Handover(
            state,
            functions,
            keys,
            lost_starts,
            attempts,
            dispatcher,
            dependencies,
            transitions,
            workers,
            schedules,
            foreign,
        )
        self.restore = Restore(
            state,
            deadlines,
            packed,
            queues,
            keys,
            attempts,
            dispatcher,
            dependencies,
            transitions,
            handover,
            foreign,
            adopted_runs,
        )
        self.deadline_dispatch = DeadlineDispatch(
            state,
            deadlines,
            sliced_work,
            limiters,
            keys,
            wakeups,
            attempts,
            dispatcher,
            transitions,
            workers,
            schedules,
            timers,
        )
