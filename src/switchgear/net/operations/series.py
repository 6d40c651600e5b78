"""The verb `series`: figures of functions over time."""

from __future__ import annotations

from math import isnan
from typing import Final

from switchgear.json_bytes import plain
from switchgear.model import SECOND_US
from switchgear.net.monitoring.function_history import (
    COUNTED,
    FINE_POINTS,
    FINE_SECONDS,
    MINUTE_POINTS,
    MINUTE_SECONDS,
    FunctionHistory,
)
from switchgear.net.monitoring.series_recorder import OTHER_FUNCTIONS, SeriesRecorder
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import Steps
from switchgear.verbs.live_answers import SeriesAnswer
from switchgear.verbs.permitted_values import SERIES_METRICS

__all__ = ["SeriesOperations"]

HOUR_SECONDS: Final = 3600
STEPS: Final = (FINE_SECONDS, MINUTE_SECONDS, 600, HOUR_SECONDS)
MOST_POINTS: Final = 2_200  # in one answer; more would take too long to encode


class SeriesOperations:
    """The verb `series`."""

    def __init__(self, context: OperationsContext, recorder: SeriesRecorder) -> None:
        self._context = context
        self._recorder = recorder

    def series(
        self,
        function: str | None,
        metrics: list[str] | None,
        since: float | None,
        until: float | None,
        step: int,
        names: bool,
    ) -> Steps:
        yield False
        now = self._context.engine.now_us / SECOND_US
        until = min(until if until is not None else now, now)
        since = since if since is not None else max(0.0, until - HOUR_SECONDS)
        if since > until:
            raise ValueError("since: it is after the end")
        history = self._history(function)
        # Nothing older is kept, and a range without an end would be walked through in vain.
        since = max(since, now - (MINUTE_POINTS + 1) * MINUTE_SECONDS)
        step = self._step(step, since, until, now)
        chosen = [name for name in SERIES_METRICS if metrics is None or name in metrics]
        first, last = -int(-since // step), int(until // step)
        points = yield from read_points(history, first, last, step, [SERIES_METRICS.index(name) for name in chosen])
        base = FINE_SECONDS if step == FINE_SECONDS else MINUTE_SECONDS
        begins = (history.fine if base == FINE_SECONDS else history.minutes).begins_at()
        answer: SeriesAnswer = {
            "function": function,
            "step": step,
            "since": since,
            "until": until,
            "begins_at": None if begins < 0 else float(begins * base),
            "times": [float(number * step) for number in range(first, last + 1)],
            "values": dict(zip(chosen, points, strict=True)),
            "functions": [plain(name) for name in self._recorder.by_function] if names else [],
        }
        return answer

    def _history(self, function: str | None) -> FunctionHistory:
        if function is None:
            return self._recorder.total
        name = function.encode()
        history = self._recorder.other if name == OTHER_FUNCTIONS else self._recorder.by_function.get(name)
        if history is None:
            raise LookupError(f"there are no series of {function}: it has done nothing, or is one of the others")
        return history

    def _step(self, step: int, since: float, until: float, now: float) -> int:
        """The step that was asked for, or the smallest that is kept for so long and gives few points."""
        if step:
            if step not in STEPS:
                raise ValueError(f"step: expected one of {', '.join(map(str, STEPS))}, or 0")
            if (until - since) / step > MOST_POINTS:
                raise ValueError(f"step: these would be more than {MOST_POINTS} points; take a longer step")
            return step
        for step in STEPS:
            is_kept = step > FINE_SECONDS or now - since <= FINE_POINTS * FINE_SECONDS
            if is_kept and (until - since) / step <= MOST_POINTS:
                return step
        return STEPS[-1]


def read_points(history: FunctionHistory, first: int, last: int, step: int, columns: list[int]) -> Steps:
    """The points with these numbers by column: those of a longer step are made of those of minutes."""
    base = FINE_SECONDS if step == FINE_SECONDS else MINUTE_SECONDS
    blocks = history.fine if base == FINE_SECONDS else history.minutes
    factor = step // base
    read: list[list[float]] = [[] for _ in columns]
    for portion in blocks.read((first - 1) * factor + 1, last * factor, columns):
        for values, more in zip(read, portion, strict=True):
            values += more
        yield False
    result: list[list[float | None]] = []
    for column, values in zip(columns, read, strict=True):
        if factor == 1:
            result.append([shown(value) for value in values])
        else:
            groups = [values[start : start + factor] for start in range(0, len(values), factor)]
            result.append([shown(joined(group, is_counter=column < COUNTED)) for group in groups])
        yield False
    return result


def joined(values: list[float], *, is_counter: bool) -> float:
    """One point made of several: counters are added up, of others the last counts."""
    known = [value for value in values if not isnan(value)]
    if not known:
        return values[0]
    return sum(known) if is_counter else known[-1]


def shown(value: float) -> float | None:
    """A value for JSON: `None` if nothing was recorded."""
    if isnan(value):
        return None
    return int(value) if value.is_integer() else round(value, 3)
