"""`FunctionHistory`: figures of functions over time, in bounded memory.

Points.  A sample is taken every ten seconds, and every minute one is made of these.  Counters are what was counted in
the step that ends at the time of the point; the others are the values at that time.

Blocks.  Points are kept in blocks of sixty.  A full block is compressed, and one of a function that did nothing is not
kept at all.  So an idle function takes next to nothing, and a busy one some hundred kilobytes for a week.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator, Sequence
from math import isnan, nan
from typing import Final

from switchgear.verbs.permitted_values import SERIES_METRICS

__all__ = ["COUNTED", "FINE_SECONDS", "MINUTE_SECONDS", "WIDTH", "FunctionHistory", "PointBlocks"]

COUNTED: Final = 3  # so many of the metrics are counters
WIDTH: Final = len(SERIES_METRICS)

FINE_SECONDS: Final = 10
FINE_POINTS: Final = 6 * 3600 // FINE_SECONDS
MINUTE_SECONDS: Final = 60
MINUTE_POINTS: Final = 7 * 24 * 60
BLOCK_POINTS: Final = 60
FLOAT_BYTES: Final = 4
BLOCK_BYTES: Final = BLOCK_POINTS * WIDTH * FLOAT_BYTES

NOTHING: Final = array("f", [nan] * (BLOCK_POINTS * WIDTH))
IDLE: Final = b""  # a block in which every point is zero
IDLE_POINTS: Final = array("f", [0.0] * (BLOCK_POINTS * WIDTH))


class PointBlocks:
    """The points of one function at one step.  The number of a point is its time, divided by the step."""

    def __init__(self, points: int) -> None:
        self.points = points  # how many are kept
        self.first = -1  # the number of the first point ever
        self.held_bytes = 0
        self._full: dict[int, bytes] = {}  # compressed
        self._open = NOTHING
        self._open_number = -1

    def add(self, number: int, values: Sequence[float]) -> None:
        """Record the figures of the point of time with this number, which is not lower than the last one."""
        block = number // BLOCK_POINTS
        if block != self._open_number:
            self._close()
            self._open = NOTHING[:]
            self._open_number = block
            self.held_bytes += BLOCK_BYTES
            self._drop_before((number - self.points) // BLOCK_POINTS)
        if self.first < 0:
            self.first = number
        start = number % BLOCK_POINTS * WIDTH
        self._open[start : start + WIDTH] = array("f", values)

    def _close(self) -> None:
        """Compress the open block."""
        if self._open_number < 0:
            return
        self.held_bytes -= BLOCK_BYTES
        data = IDLE if self._open == IDLE_POINTS else zlib.compress(self._open.tobytes(), 1)
        self._full[self._open_number] = data
        self.held_bytes += len(data)

    def _drop_before(self, block: int) -> None:
        for number in [number for number in self._full if number < block]:
            self.held_bytes -= len(self._full.pop(number))

    def drop_oldest(self) -> None:
        """Drop the oldest full block, to make room."""
        if self._full:
            self.held_bytes -= len(self._full.pop(min(self._full)))

    @property
    def is_idle(self) -> bool:
        """Whether all recorded points are zero."""
        return not any(self._full.values()) and not any(value > 0 for value in self._open)

    def begins_at(self) -> int:
        """The number of the first point that may be kept; -1 if there is none."""
        if self.first < 0:
            return -1
        oldest = min(self._full, default=self._open_number) * BLOCK_POINTS
        return max(self.first, oldest)

    def block(self, block: int) -> array[float]:
        """The values of a block, one point after the other; not a number where nothing was recorded."""
        if block == self._open_number:
            return self._open
        data = self._full.get(block)
        if data is None:
            return NOTHING
        return array("f", zlib.decompress(data)) if data else IDLE_POINTS

    def values_at(self, number: int) -> list[float] | None:
        """The values of one point; `None` if it was not recorded."""
        start = number % BLOCK_POINTS * WIDTH
        values = self.block(number // BLOCK_POINTS)[start : start + WIDTH].tolist()
        return None if isnan(values[0]) else values

    def read(self, first: int, last: int, columns: Sequence[int]) -> Iterator[list[list[float]]]:
        """The values of the points from the first to the last by column, in portions of a block."""
        for block in range(first // BLOCK_POINTS, last // BLOCK_POINTS + 1):
            values = self.block(block)
            start = max(first - block * BLOCK_POINTS, 0)
            end = min(last - block * BLOCK_POINTS, BLOCK_POINTS - 1) + 1
            yield [values[start * WIDTH + column : end * WIDTH : WIDTH].tolist() for column in columns]


class FunctionHistory:
    """The points of one function, or of several together."""

    def __init__(self) -> None:
        self.fine = PointBlocks(FINE_POINTS)
        self.minutes = PointBlocks(MINUTE_POINTS)
        self._minute = -1  # to which the points belong that were added up
        self._counted = [0.0] * COUNTED
        self._last: Sequence[float] = ()

    def add(self, number: int, values: Sequence[float]) -> None:
        """Add the point of ten seconds with this number."""
        minute = -(-number * FINE_SECONDS // MINUTE_SECONDS)  # which ends at or after it
        if minute != self._minute:
            self._end_minute()
            self._minute = minute
        self.fine.add(number, values)
        for column in range(COUNTED):
            self._counted[column] += values[column]
        self._last = values
        if number * FINE_SECONDS % MINUTE_SECONDS == 0:
            self._end_minute()

    def _end_minute(self) -> None:
        if self._last:
            self.minutes.add(self._minute, [*self._counted, *self._last[COUNTED:]])
            self._counted = [0.0] * COUNTED
            self._last = ()

    @property
    def held_bytes(self) -> int:
        """The memory of the points."""
        return self.fine.held_bytes + self.minutes.held_bytes

    @property
    def is_idle(self) -> bool:
        """Whether all recorded points are zero."""
        return self.fine.is_idle and self.minutes.is_idle

    def values_at(self, seconds: float) -> tuple[float, int, list[float]] | None:
        """The last point at or before a time: its time, its step and its values; `None` if there is none."""
        for points, step in ((self.fine, FINE_SECONDS), (self.minutes, MINUTE_SECONDS)):
            number = int(seconds // step)
            values = points.values_at(number)
            if values is not None:
                return float(number * step), step, values
        return None
