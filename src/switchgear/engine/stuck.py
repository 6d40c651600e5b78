"""`StuckFunctions`: finds functions whose unfinished jobs all wait for jobs that did not succeed."""

from __future__ import annotations

from switchgear.engine.dependencies import Dependencies
from switchgear.engine.sliced_work import SlicedWork
from switchgear.engine.transitions import Transitions
from switchgear.model import Function

__all__ = ["StuckFunctions"]


class StuckFunctions:
    """Finds functions whose jobs all wait for unsuccessful jobs."""

    def __init__(self, sliced_work: SlicedWork, dependencies: Dependencies, transitions: Transitions) -> None:
        self._sliced_work = sliced_work
        self._dependencies = dependencies
        self._transitions = transitions

    def is_stuck(self, function: Function) -> bool:
        """Whether the function has unfinished jobs, and none of them will become ready unless an operator or a
        submitter acts.

        All of them wait, and so do all jobs of other functions that they wait for. If one of those other functions has
        a job that can run, the answer is no, even if no job waits for that one.
        """
        if not function.total or function.total != function.waiting:
            return False
        if len(self._sliced_work) or self._transitions.pending_failures:
            return False  # successors of failed jobs are still to be processed in this turn or the next
        if self._dependencies.foreign:
            return False  # what they wait for may be done by another engine
        for other in self._dependencies.cross_function_edges.waits_for(function):
            if other.total != other.waiting:
                return False
        return True
