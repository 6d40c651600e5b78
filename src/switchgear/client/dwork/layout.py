"""Layout of a task graph in columns, each task to the right of its predecessors.

The usual steps for layered graphs.  A task's column is the length of the longest way to it.  An edge over several
columns is cut into short ones by bends.  The order within the columns is improved by going through them to and fro and
sorting each by where its neighbours in the last one are, as long as that lessens crossings.  Then everything is moved
towards its neighbours as far as the order allows, so that chains become straight.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

__all__ = ["Layout", "lay_out"]

SWEEPS: Final = 12
ALIGNMENTS: Final = 8
BEND_ROWS: Final = 0.4  # a line needs less room than a box

# A task by its id, or a bend of an edge by a number below zero, so that both can stand in a column.
Place = int


@dataclass(slots=True)
class Layout:
    """The column and row of each task.  Rows are fractions; within a column, tasks are at least one apart."""

    columns: list[list[Place]]
    rows: dict[Place, float] = field(default_factory=dict)
    edges: dict[tuple[int, int], list[Place]] = field(default_factory=dict)  # each with its bends between both ends
    column_of: dict[Place, int] = field(default_factory=dict)

    @property
    def height(self) -> float:
        """The height of the drawing in rows."""
        return max(self.rows.values(), default=0.0) + 1


def lay_out(order: Sequence[int], before: Mapping[int, Sequence[int]]) -> Layout:
    """Lay out all tasks; `order` has each after those `before` it."""
    layout = _columns(order, before)
    left, right = _neighbours(layout)
    _reduce_crossings(layout, left, right)
    _assign_rows(layout, left, right)
    return layout


def _columns(order: Sequence[int], before: Mapping[int, Sequence[int]]) -> Layout:
    column_of: dict[Place, int] = {}
    for task in order:
        column_of[task] = max((column_of[other] + 1 for other in before[task] if other in column_of), default=0)
    layout = Layout([[] for _ in range(max(column_of.values(), default=-1) + 1)], column_of=column_of)
    for task in order:
        layout.columns[column_of[task]].append(task)
    next_bend = -1
    for task in order:
        for other in before[task]:
            bends: list[Place] = []
            for column in range(column_of[other] + 1, column_of[task]):
                bends.append(next_bend)
                layout.columns[column].append(next_bend)
                column_of[next_bend] = column
                next_bend -= 1
            layout.edges[other, task] = [other, *bends, task]
    return layout


Neighbours = dict[Place, list[Place]]


def _neighbours(layout: Layout) -> tuple[Neighbours, Neighbours]:
    """For each place its neighbours by an edge in the columns to the left and to the right."""
    left: Neighbours = {place: [] for column in layout.columns for place in column}
    right: Neighbours = {place: [] for place in left}
    for way in layout.edges.values():
        for one, other in pairwise(way):
            if layout.column_of[one] + 1 == layout.column_of[other]:  # not so in a circle
                right[one].append(other)
                left[other].append(one)
    return left, right


# --- order within the columns ---


def _reduce_crossings(layout: Layout, left: Neighbours, right: Neighbours) -> None:
    best = [list(column) for column in layout.columns]
    fewest = _crossings(best, right)
    columns = layout.columns
    for sweep in range(SWEEPS):
        if not fewest:
            break
        forwards = sweep % 2 == 0
        numbers = range(1, len(columns)) if forwards else range(len(columns) - 2, -1, -1)
        for number in numbers:
            _sort_by_neighbours(
                columns[number], columns[number - 1 if forwards else number + 1], left if forwards else right
            )
        crossings = _crossings(columns, right)
        if crossings < fewest:
            fewest = crossings
            best = [list(column) for column in columns]
    layout.columns = best


def _sort_by_neighbours(column: list[Place], other: list[Place], neighbours: Neighbours) -> None:
    """Sort a column by the mean row of each place's neighbours; places without neighbours stay about where they
    were."""
    position = {place: number for number, place in enumerate(other)}
    scale = len(other) / max(1, len(column))
    wish = {
        place: _mean([position[each] for each in neighbours[place]], number * scale)
        for number, place in enumerate(column)
    }
    column.sort(key=lambda place: wish[place])


def _crossings(columns: list[list[Place]], right: Neighbours) -> int:
    """How many pairs of edges cross."""
    crossings = 0
    for column, following in pairwise(columns):
        position = {place: number for number, place in enumerate(following)}
        seen: list[int] = []  # where the edges from above end, sorted
        for place in column:
            ends = sorted(position[other] for other in right[place])
            crossings += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return crossings


# --- rows ---


def _assign_rows(layout: Layout, left: Neighbours, right: Neighbours) -> None:
    rows = layout.rows
    tallest = max((_offsets(column)[-1] for column in layout.columns), default=0.0)
    for column in layout.columns:
        offsets = _offsets(column)
        for place, offset in zip(column, offsets, strict=True):
            rows[place] = offset + (tallest - offsets[-1]) / 2
    for turn in range(ALIGNMENTS):
        forwards = turn % 2 == 0
        for column in layout.columns if forwards else reversed(layout.columns):
            neighbours = left if forwards else right
            wanted_rows = [_mean([rows[other] for other in neighbours[place]], rows[place]) for place in column]
            for place, row in zip(column, _spread(wanted_rows, _offsets(column)), strict=True):
                rows[place] = row
    top = min(rows.values(), default=0.0)
    for place in rows:
        rows[place] -= top


def _offsets(column: list[Place]) -> list[float]:
    """The least distance of each place from the first one of its column."""
    offsets = [0.0]
    for one, other in pairwise(column):
        offsets.append(offsets[-1] + (_height(one) + _height(other)) / 2)
    return offsets[: len(column)]


def _height(place: Place) -> float:
    return 1.0 if place > 0 else BEND_ROWS


def _spread(wanted_rows: list[float], offsets: list[float]) -> list[float]:
    """Rows in this order and far enough apart, as near to the wanted rows as possible.

    Without their offsets, the rows must only not decrease; neighbours whose wanted rows decrease share their mean.
    """
    blocks: list[tuple[float, int]] = []  # mean of the wanted rows, and of how many
    for wanted, offset in zip(wanted_rows, offsets, strict=True):
        mean, size = wanted - offset, 1
        while blocks and blocks[-1][0] > mean:
            other_mean, other_size = blocks.pop()
            mean = (mean * size + other_mean * other_size) / (size + other_size)
            size += other_size
        blocks.append((mean, size))
    flat = [mean for mean, size in blocks for _ in range(size)]
    return [mean + offset for mean, offset in zip(flat, offsets, strict=True)]


def _mean(values: Iterable[float], default: float) -> float:
    values = list(values)
    return sum(values) / len(values) if values else default
