"""`SeriesRecorder`: records the time series of all functions, one sample every ten seconds.

Some hundred functions have series of their own; what the others do is recorded together, as `other`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from switchgear.model import SECOND_US, Function
from switchgear.net.monitoring.function_history import COUNTED, FINE_SECONDS, WIDTH, FunctionHistory
from switchgear.net.operations.functions import function_portions, oldest_ready_us

if TYPE_CHECKING:
    from switchgear.net.operations.context import OperationsContext
    from switchgear.net.operations.flows import FlowOperations
    from switchgear.net.operations.overview import OverviewOperations
    from switchgear.net.operations.verb_steps import Steps

__all__ = ["MOST_RECORDED_FUNCTIONS", "OTHER_FUNCTIONS", "SeriesRecorder"]

MOST_RECORDED_FUNCTIONS: Final = 500
OTHER_FUNCTIONS: Final = b"other"  # under this name; a function of that name is one of them
FUNCTIONS_PER_STEP: Final = 100
HISTORY_BYTES: Final = 1_000  # the approximate memory of a history without points
MOST_SERIES_BYTES: Final = 64 * 1024 * 1024
SERIES_SHARE: Final = 16  # of the limit of memory, if that is less
ZEROS: Final = (0.0,) * WIDTH


class SeriesRecorder:
    """Records the time series of one server, every ten seconds."""

    def __init__(self, context: OperationsContext, overview: OverviewOperations, flows: FlowOperations) -> None:
        self.total = FunctionHistory()
        self.other = FunctionHistory()
        self.by_function: dict[bytes, FunctionHistory] = {}
        self._context = context
        self._engine = context.engine
        self._overview = overview
        self._flows = flows
        self._number = -1  # of the last sample
        self._is_running = False
        self._counts: dict[Function, tuple[int, ...]] = {}  # at the last sample
        self._total_counts: Sequence[int] | None = None
        self._held_bytes = 0
        self._may_forget = True  # not known to be in vain in this sample

    def look_after(self) -> None:
        """Called once a second: take a sample if it is time."""
        number = self._context.hub.clock.now_us() // (FINE_SECONDS * SECOND_US)
        if number != self._number and not self._is_running:
            self._number = number
            self._is_running = True
            self._context.hub.work_off(self._sample(number))

    def _sample(self, number: int) -> Steps:
        try:
            yield False  # the rest runs in a turn, with the time of the turn
            totals = yield from self._overview.totals()
            self._overview.note(totals)
            self._flows.note()
            yield from self._sample_functions(number)
            before = self._total_counts
            counted = (
                [0] * COUNTED
                if before is None
                else [max(0, count - earlier) for count, earlier in zip(totals.counts[:COUNTED], before, strict=True)]
            )
            self._total_counts = totals.counts[:COUNTED]
            oldest = 0.0 if totals.oldest_us is None else (totals.now_us - totals.oldest_us) / SECOND_US
            values = (*counted, totals.ready, totals.running, oldest, len(self._context.workers()))
            self.total.add(number, values)
            yield from self._make_room()
        finally:
            self._is_running = False

    def _sample_functions(self, number: int) -> Steps:
        now_us = self._engine.now_us
        functions = self._context.functions()
        counts: dict[Function, tuple[int, ...]] = {}
        other = list(ZEROS)
        self._may_forget = True
        sampled: set[bytes] = set()
        for portion in function_portions(functions, FUNCTIONS_PER_STEP):
            yield False
            for function in portion:
                counts[function] = present = function.counts()[:COUNTED]
                values = self._values(function, present, now_us)
                history = self._history(function.name, values)
                if history is None:
                    add_up(other, values)
                else:
                    history.add(number, values)
                    sampled.add(function.name)
        for name in self.by_function.keys() - sampled:  # the server has forgotten them
            self.by_function[name].add(number, ZEROS)
        self._counts = counts
        self.other.add(number, other)

    def _values(self, function: Function, counts: tuple[int, ...], now_us: int) -> tuple[float, ...]:
        before = self._counts.get(function)
        if before is None:
            # All of a function is new, unless the series are.
            before = (0,) * COUNTED if self._total_counts is not None else counts
        created_us = oldest_ready_us(function)
        return (
            *(count - earlier for count, earlier in zip(counts, before, strict=True)),
            function.ready,
            function.running,
            0.0 if created_us is None else (now_us - created_us) / SECOND_US,
            len(function.workers),
        )

    def _history(self, name: bytes, values: Sequence[float]) -> FunctionHistory | None:
        """The history of a function; `None` if it is one of the others, or has never done anything."""
        history = self.by_function.get(name)
        if history is not None or not any(values) or name == OTHER_FUNCTIONS:
            return history
        if len(self.by_function) < MOST_RECORDED_FUNCTIONS or (self._may_forget and self._forget_idle()):
            history = self.by_function[name] = FunctionHistory()
        return history

    def _forget_idle(self) -> bool:
        """Forget the series of one function that the server has forgotten, and of which nothing but zeros is left."""
        for name, history in self.by_function.items():
            if name not in self._engine.functions and history.is_idle:
                del self.by_function[name]
                return True
        self._may_forget = False
        return False

    def _make_room(self) -> Steps:
        """Count the memory, and drop the oldest points while there are too many."""
        memory = self._engine.memory
        most_bytes = MOST_SERIES_BYTES
        if memory.limit_bytes:
            most_bytes = min(most_bytes, memory.limit_bytes // SERIES_SHARE)
        histories = [self.total, self.other, *self.by_function.values()]
        held_bytes = sum(history.held_bytes + HISTORY_BYTES for history in histories)
        while held_bytes > most_bytes:
            yield False
            before = held_bytes
            for history in histories:
                history.minutes.drop_oldest()
                history.fine.drop_oldest()
            held_bytes = sum(history.held_bytes + HISTORY_BYTES for history in histories)
            if held_bytes == before:
                break
        memory.series_bytes += held_bytes - self._held_bytes
        self._held_bytes = held_bytes


def add_up(sums: list[float], values: Sequence[float]) -> None:
    """Add values to those of others; of the oldest wait the longest counts."""
    for column, value in enumerate(values):
        sums[column] = max(sums[column], value) if column == WIDTH - 2 else sums[column] + value
