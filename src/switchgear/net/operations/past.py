"""The verbs `at` and `runs`: the state of the server at an earlier time, and what ran then, from the job log."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from switchgear.errors import StorageError
from switchgear.joblog.runs import LoggedRun
from switchgear.json_bytes import plain
from switchgear.model import SECOND_US
from switchgear.net.monitoring.function_history import FunctionHistory
from switchgear.net.monitoring.series_recorder import OTHER_FUNCTIONS, SeriesRecorder
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.stream import COLUMNS
from switchgear.net.operations.verb_steps import ITEMS_PER_STEP, Steps
from switchgear.protocols.pending_read import awaited
from switchgear.verbs.live_answers import PastAnswer, PastFunction, PastRun, RunsAnswer
from switchgear.verbs.permitted_values import SERIES_METRICS

__all__ = ["PastOperations", "RunRows"]

MOST_RUNS: Final = 500  # in an answer
MOST_ROWS: Final = 5_000  # of the job log that are looked at


class PastOperations:
    """The verbs `at` and `runs`."""

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

    def runs(self, since: float, until: float, limit: int) -> Steps:
        if until <= since:
            raise ValueError("until: that is not after since")
        recorder = self._context.recorder
        rows = RunRows()
        every = 1
        if recorder is not None:
            read = self._context.in_thread(partial(recorder.ran_between, since, until, limit))
            found, every = yield from awaited(read)
            for start in range(0, len(found), ITEMS_PER_STEP):
                yield False
                for run in found[start : start + ITEMS_PER_STEP]:
                    rows.add(run)
        answer: RunsAnswer = {
            "since": since,
            "until": until,
            "stored": recorder is not None,
            "every": every,
            "functions": list(rows.functions),
            "workers": [
                {"name": name, "protocol": protocol, "address": address} for name, protocol, address in rows.workers
            ],
            "columns": list(COLUMNS),
            "rows": rows.rows,
        }
        return answer

    def _running(self, t: float) -> Steps:
        """The jobs that ran at that time, whether the list is complete, and its source."""
        recorder = self._context.recorder
        if recorder is None:
            return [], False, "none"
        try:
            found = yield from awaited(self._context.in_thread(partial(recorder.running_at, t, MOST_ROWS)))
        except StorageError:
            return [], False, "none"
        runs, is_complete = found
        return runs, is_complete, "joblog"


class RunRows:
    """The rows of an answer of `runs`, and the workers and functions that they name."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.functions: dict[str, int] = {}
        self.workers: dict[tuple[str, str, str], int] = {}

    def add(self, run: LoggedRun) -> None:
        for start in run.starts[:-1]:
            self._add(run, (start.worker, start.protocol, start.worker_host), start.started_at, None, "requeued")
        outcome = "running" if run.ended_at is None else run.state
        self._add(run, (run.worker, run.protocol, run.worker_host), run.started_at, run.ended_at, outcome)

    def _add(
        self, run: LoggedRun, worker: tuple[str, str, str], start: float | None, end: float | None, outcome: str
    ) -> None:
        worker_number = self.workers.setdefault(worker, len(self.workers))
        function_number = self.functions.setdefault(run.function, len(self.functions))
        self.rows.append([worker_number, function_number, run.handle, start, end, outcome])


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
