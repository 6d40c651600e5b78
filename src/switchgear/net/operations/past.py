"""The verb `at`: what is known about the state of the server at an earlier time."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from switchgear.errors import StorageError
from switchgear.joblog.runs import LoggedRun
from switchgear.model import SECOND_US
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.values import plain
from switchgear.net.operations.verb_steps import ITEMS_PER_STEP, Steps
from switchgear.net.series import FunctionHistory
from switchgear.net.series_recorder import OTHER_FUNCTIONS, SeriesRecorder
from switchgear.protocols.pending_read import awaited
from switchgear.verbs.live_answers import PastAnswer, PastFunction, PastRun
from switchgear.verbs.table import SERIES_METRICS

__all__ = ["PastOperations"]

MOST_RUNS: Final = 500  # in an answer
MOST_ROWS: Final = 5_000  # of the job log that are looked at


class PastOperations:
    """The verb `at`."""

    def __init__(self, context: OperationsContext, recorder: SeriesRecorder) -> None:
        self._context = context
        self._series = recorder

    def at(self, t: float) -> Steps:
        if t > self._context.engine.now_us / SECOND_US:
            raise ValueError("t: that is in the future")
        totals = self._series.total.values_at(t)
        functions: list[PastFunction] = []
        histories = [*self._series.by_function.items(), (OTHER_FUNCTIONS, self._series.other)]
        for start in range(0, len(histories), ITEMS_PER_STEP):
            yield False
            functions += [
                shown
                for name, history in histories[start : start + ITEMS_PER_STEP]
                if (shown := function_at(name, history, t)) is not None
            ]
        runs, is_complete, source = yield from self._running(t)
        answer: PastAnswer = {
            "t": t,
            "totals": None if totals is None else {"at": totals[0], "step": totals[1], **figures(totals[2])},  # type: ignore[typeddict-item]
            "functions": functions,
            "running": [shown_run(run) for run in runs[:MOST_RUNS]],
            "running_complete": is_complete and len(runs) <= MOST_RUNS,
            "running_from": source,
        }
        return answer

    def _running(self, t: float) -> Steps:
        """What ran at that time, whether that is all, and where it is known from."""
        recorder = self._context.recorder
        if recorder is None:
            return [], False, "none"
        try:
            found = yield from awaited(self._context.in_thread(partial(recorder.running_at, t, MOST_ROWS)))
        except StorageError:
            return [], False, "none"
        runs, is_complete = found
        return runs, is_complete, "joblog"


def figures(values: list[float]) -> dict[str, Any]:
    """The values of a point, by name."""
    return {name: round(value, 3) for name, value in zip(SERIES_METRICS, values, strict=True)}


def function_at(name: bytes, history: FunctionHistory, t: float) -> PastFunction | None:
    """What is known of a function at a time; `None` if nothing is, or if it did nothing."""
    found = history.values_at(t)
    if found is None or not any(found[2]):
        return None
    shown: PastFunction = {"function": plain(name), **figures(found[2])}  # type: ignore[typeddict-item]
    return shown


def shown_run(run: LoggedRun) -> PastRun:
    return {
        "handle": run.handle,
        "function": run.function,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "outcome": run.state,
        "worker": run.protocol,
    }
