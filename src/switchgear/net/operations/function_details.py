"""The verbs `times` and `keys`: how long the jobs of a function wait and run, and which of its keys have most jobs."""

from __future__ import annotations

from heapq import nlargest
from typing import Final

from switchgear.json_bytes import plain
from switchgear.model import SECOND_US, Function, KeyQueue
from switchgear.model.duration_histogram import BOUNDS_US, DurationHistogram
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.flows import share_within
from switchgear.net.operations.verb_steps import Steps
from switchgear.verbs.live_answers import DurationFigures, KeysAnswer, TimesAnswer

__all__ = ["FunctionDetailOperations"]

MOST_KEYS_SEEN: Final = 100_000
KEYS_PER_STEP: Final = 500


class FunctionDetailOperations:
    """The verbs `times` and `keys`."""

    def __init__(self, context: OperationsContext) -> None:
        self._engine = context.engine

    def times(self, function: str) -> TimesAnswer:
        found = self._found(function)
        return {
            "function": function,
            "bounds": [bound_us / SECOND_US for bound_us in BOUNDS_US],
            "wait": durations(found.wait_times),
            "run": durations(found.run_times),
        }

    def keys(self, function: str, limit: int) -> Steps:
        limiter = self._found(function).limiter
        queues = limiter.key_queues if limiter is not None else None
        if queues is None:
            answer: KeysAnswer = {"function": function, "keys": [], "count": 0, "complete": True}
            return answer
        count = len(queues)
        seen = 0
        most: list[tuple[int, int, int, KeyQueue]] = []
        for queues_of_step in queues.portions():
            portion = queues_of_step[: MOST_KEYS_SEEN - seen]
            for start in range(0, len(portion), KEYS_PER_STEP):
                yield False
                some = enumerate(portion[start : start + KEYS_PER_STEP], seen + start)
                most = nlargest(limit, most + [(queue.ready, queue.running, -number, queue) for number, queue in some])
            seen += len(portion)
            if seen >= MOST_KEYS_SEEN:
                break
        answer = {
            "function": function,
            "keys": [
                {"key": plain(queue.key), "ready": ready, "running": running}
                for ready, running, _, queue in most
                if ready or running
            ],
            "count": count,
            "complete": count <= MOST_KEYS_SEEN,
        }
        return answer

    def _found(self, function: str) -> Function:
        found = self._engine.functions.get(function.encode())
        if found is None:
            raise LookupError(f"there is no function {function}: it has no jobs, no workers and no settings")
        return found


def durations(times: DurationHistogram) -> DurationFigures:
    """Counts, and within how many seconds half of all and 99 of 100 ended, as far as the ranges tell."""
    counts = times.counts()
    total = sum(counts)
    return {
        "counts": counts,
        "mean_seconds": round(times.sum_us / total / SECOND_US, 6) if total else None,
        "p50_seconds": share_within(counts, 0.5) if total else None,
        "p99_seconds": share_within(counts, 0.99) if total else None,
    }
