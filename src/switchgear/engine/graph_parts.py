"""`GraphParts`: holds the parts that graph submissions use, and decides which requests wait for a long graph."""

from __future__ import annotations

from collections.abc import Sequence

from switchgear.engine.dependencies import Dependencies
from switchgear.engine.job_commands import JobCommands
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.predecessor_commands import PredecessorCommands
from switchgear.engine.state import EngineState
from switchgear.engine.submissions import Submissions
from switchgear.engine.unsuccessful_jobs import UnsuccessfulJobs
from switchgear.engine.wide_submissions import WideSubmissions
from switchgear.engine.worker_reports import WorkerReports

__all__ = ["GraphParts"]


class GraphParts:
    """The parts of the engine that graph submissions use, and whether a long graph is being submitted."""

    def __init__(
        self,
        state: EngineState,
        packed: PackedQueues,
        unsuccessful: UnsuccessfulJobs,
        dependencies: Dependencies,
        submissions: Submissions,
        wide_submissions: WideSubmissions,
        commands: JobCommands,
        reports: WorkerReports,
        predecessor_commands: PredecessorCommands,
    ) -> None:
        self.state = state
        self.packed = packed
        self.unsuccessful = unsuccessful
        self.dependencies = dependencies
        self.submissions = submissions
        self.wide_submissions = wide_submissions
        self.commands = commands
        self.reports = reports
        self.predecessor_commands = predecessor_commands
        self.under_way = False  # a long graph is being submitted

    def must_wait(self, name: bytes, predecessor_names: Sequence[bytes]) -> bool:
        """Whether a short graph with such a job has to wait for the long graph: it names a job that is about to be
        submitted, or adds predecessors to an existing one."""
        if not self.under_way:
            return False
        state = self.state
        if state.is_name_reserved(name) or (predecessor_names and name in state.names):
            return True
        for predecessor in predecessor_names:  # noqa: SIM110  (a generator would take longer than all the rest)
            if state.is_name_reserved(predecessor):
                return True
        return False
