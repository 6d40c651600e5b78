"""`GraphGroups`: a graph of very many jobs, collapsed to groups that fit on a screen.

Jobs of one function, with names that differ only in numbers, and equally far from the jobs that wait for nothing, are
one group.  If that gives too many groups, names are ignored, then functions, and then layers are joined.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

__all__ = ["MOST_EDGES", "MOST_GROUPS", "CollapsedGroup", "Collapsing", "GraphGroups", "GraphJob"]

MOST_GROUPS: Final = 300
MOST_EDGES: Final = 2_000
MOST_COUNTED_EDGES: Final = 10_000
MOST_GROUP_EXAMPLES: Final = 3
MOST_LABEL_BYTES: Final = 100

_DIGITS: Final = re.compile(rb"[0-9]+")

GroupKey: TypeAlias = tuple[bytes, bytes, int]


class GraphJob(NamedTuple):
    """The fields of a job that the grouping uses."""

    id: int
    function: bytes
    name: bytes
    state: str
    predecessors: tuple[int, ...]


@dataclass(slots=True)
class CollapsedGroup:
    """A group of similar jobs of a graph, in one layer."""

    number: int
    label: bytes
    function: bytes
    layer: int
    states: Counter[str] = field(default_factory=Counter)
    job_ids: list[int] = field(default_factory=list)  # some of them
    blocked_id: int = 0  # a job that waits, and for none of the others


class NumbersByJob:
    """A number for each job, added in the order of job ids.

    A dictionary of very many jobs stops the server for some milliseconds whenever it grows.
    """

    def __init__(self) -> None:
        self._ids = array("q")
        self._numbers = array("q")

    def add(self, job_id: int, number: int) -> None:
        """Add a job, whose id is higher than all others."""
        self._ids.append(job_id)
        self._numbers.append(number)

    def get(self, job_id: int, default: int) -> int:
        """The number of a job, or the default if it was not added."""
        index = bisect_left(self._ids, job_id)
        return self._numbers[index] if index < len(self._ids) and self._ids[index] == job_id else default


class GraphGroups:
    """The groups of a graph, which is added in the order of the numbers of its jobs."""

    def __init__(self) -> None:
        self.jobs: list[GraphJob] = []
        self.layers = NumbersByJob()
        self._deepest = 0
        # Which groups there would be, up to one more than there may be.
        self._names: set[GroupKey] = set()
        self._functions: set[tuple[bytes, int]] = set()

    def add(self, job: GraphJob) -> None:
        """Add a job; those that it waits for come first, or count as if they were not there."""
        layers = self.layers
        layer = 0
        for predecessor_id in job.predecessors:
            layer = max(layer, layers.get(predecessor_id, -1) + 1)
        layers.add(job.id, layer)
        self.jobs.append(job)
        self._deepest = max(self._deepest, layer)
        if len(self._names) <= MOST_GROUPS:
            self._names.add((job.function, label_of(job.name), layer))
        if len(self._functions) <= MOST_GROUPS:
            self._functions.add((job.function, layer))

    def key_maker(self) -> Callable[[GraphJob], GroupKey]:
        """The finest way to make groups that gives few enough."""
        layers = self.layers
        if len(self._names) <= MOST_GROUPS:
            return lambda job: (job.function, label_of(job.name), layers.get(job.id, 0))
        if len(self._functions) <= MOST_GROUPS:
            return lambda job: (job.function, b"", layers.get(job.id, 0))
        if self._deepest < MOST_GROUPS:
            return lambda job: (b"", b"", layers.get(job.id, 0))
        depth = self._deepest + 1
        return lambda job: (b"", b"", layers.get(job.id, 0) * MOST_GROUPS // depth)

    def group_in(self, make: Callable[[GraphJob], GroupKey], jobs: Sequence[GraphJob], result: Collapsing) -> None:
        """Put some jobs into their groups, and count the edges that lead to them."""
        for job in jobs:
            key = make(job)
            group = result.groups.get(key)
            if group is None:
                function, label, layer = key
                group = result.groups[key] = CollapsedGroup(len(result.groups), label, function, layer)
            result.group_of.add(job.id, group.number)
            group.states[job.state] += 1
            if len(group.job_ids) < MOST_GROUP_EXAMPLES:
                group.job_ids.append(job.id)
            if job.state == "waiting" and not self.layers.get(job.id, 0) and not group.blocked_id:
                group.blocked_id = job.id
            before = {result.group_of.get(other, -1) for other in job.predecessors}
            before.discard(-1)
            for number in before:
                edge = number, group.number
                if edge in result.edges or len(result.edges) < MOST_COUNTED_EDGES:
                    result.edges[edge] += 1
                else:
                    result.has_more_edges = True


class Collapsing:
    """The groups and edges that were found so far."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, CollapsedGroup] = {}
        self.group_of = NumbersByJob()
        self.edges: Counter[tuple[int, int]] = Counter()
        self.has_more_edges = False


def label_of(name: bytes) -> bytes:
    """A name with its numbers replaced."""
    return _DIGITS.sub(b"*", name[:MOST_LABEL_BYTES])
