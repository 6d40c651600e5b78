"""`CrossFunctionEdges`: which functions have jobs that wait for unfinished jobs of other functions.

Most graphs stay within one function and have no entries here. The counts tell in a few steps whether the jobs of a
function can ever become ready: if all of them wait, and all jobs of the functions that they wait for wait too, none
can, because a graph has no cycles.
"""

from __future__ import annotations

from collections.abc import Iterable

from switchgear.model import Function, Job
from switchgear.model.id_table import IdTable

__all__ = ["CrossFunctionEdges"]


class _Predecessor:
    """An unfinished job, and how many jobs of each other function wait for it."""

    __slots__ = ("count", "first", "function", "others")

    def __init__(self, function: Function, first: Function) -> None:
        self.function = function
        self.first = first  # usually the only function with jobs that wait for it; very many jobs have such an entry
        self.count = 1  # how many jobs of that function wait for it; 0: none any more
        self.others: dict[Function, int] | None = None  # the same of other functions

    def waiting_functions(self) -> list[Function]:
        """The functions with jobs that wait for it."""
        functions = [self.first] if self.count else []
        if self.others is not None:
            functions.extend(self.others)
        return functions


class CrossFunctionEdges:
    """Counts of unfinished predecessors whose successors are of other functions."""

    def __init__(self) -> None:
        self._predecessors = IdTable[_Predecessor]()
        # By the waiting function and the function it waits for: the number of unfinished predecessors.
        self._counts: dict[Function, dict[Function, int]] = {}

    def __len__(self) -> int:
        return self._predecessors.count

    def add(self, predecessor: Job, function: Function) -> None:
        """Count one more job of this function that waits for an unfinished job of another."""
        entry = self._predecessors.get(predecessor.id)
        if entry is None:
            self._predecessors[predecessor.id] = _Predecessor(predecessor.function, function)
            is_new = True
        elif entry.first is function:
            is_new = entry.count == 0
            entry.count += 1
        else:
            if entry.others is None:
                entry.others = {}
            count = entry.others.get(function, 0)
            entry.others[function] = count + 1
            is_new = count == 0
        if is_new:
            counts = self._counts.setdefault(function, {})
            counts[predecessor.function] = counts.get(predecessor.function, 0) + 1

    def remove(self, predecessor_id: int, function: Function) -> None:
        """Stop counting one job of this function that waited for that job. Does nothing if both have the same
        function."""
        entry = self._predecessors.get(predecessor_id)
        if entry is None:
            return
        others = entry.others
        if entry.first is function and entry.count:
            entry.count -= 1
            if entry.count:
                return
        elif others is not None and function in others:
            others[function] -= 1
            if others[function]:
                return
            del others[function]
        else:
            return
        self._uncount(function, entry.function)
        if not entry.count and not others:
            self._predecessors.pop(predecessor_id)

    def ended(self, predecessor_id: int) -> None:
        """Remove a job that has ended."""
        entry = self._predecessors.pop(predecessor_id)
        if entry is not None:
            for function in entry.waiting_functions():
                self._uncount(function, entry.function)

    def retried(self, predecessor: Job, waiting: Iterable[Job]) -> None:
        """Add a job that is retried, with the jobs that still wait for it."""
        for job in waiting:
            if job.function is not predecessor.function:
                self.add(predecessor, job.function)

    def waits_for(self, function: Function) -> set[Function]:
        """The function, and all functions that its jobs wait for, directly or indirectly."""
        reached = {function}
        pending = [function]
        while pending:
            for other in self._counts.get(pending.pop(), ()):
                if other not in reached:
                    reached.add(other)
                    pending.append(other)
        return reached

    def clear(self) -> None:
        """Forget everything."""
        self._predecessors.clear()
        self._counts.clear()

    def _uncount(self, function: Function, other: Function) -> None:
        counts = self._counts[function]
        counts[other] -= 1
        if not counts[other]:
            del counts[other]
            if not counts:
                del self._counts[function]
