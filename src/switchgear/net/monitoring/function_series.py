"""`FunctionSeries`: which functions have time series of their own, and the sums of all others.

A monitoring system keeps every name that it has ever seen, so only some hundred functions have names in metrics, and
the others are one function, `other`. A function stays where it was put as long as it is known: if it moved, counters
would seem to have counted everything again. For the same reason the sums keep what forgotten functions have counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchgear.model import BEST_FIRST, Function
from switchgear.model.duration_histogram import DurationHistogram
from switchgear.net.monitoring.metrics_text import label, label_text
from switchgear.net.operations.functions import oldest_ready_seconds

__all__ = ["COUNTERS", "MOST_NAMED_FUNCTIONS", "OTHER", "FunctionSeries", "FunctionSums"]

MOST_NAMED_FUNCTIONS: Final = 500
OTHER: Final = "other"
PER_STEP: Final = 200  # functions that are looked at in one step

COUNTERS: Final = ("submitted", "done", "failed", "cancelled", "expired", "requeued", "dead")


class FunctionSums:
    """The sums of counters and present values of several functions."""

    def __init__(self) -> None:
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.wait_times = DurationHistogram()
        self.run_times = DurationHistogram()
        self.total = self.ready = self.running = self.waiting = self.workers = self.paused = 0
        self.ready_by_priority = [0] * len(BEST_FIRST)
        self.oldest_seconds = 0.0

    def count(self, function: Function) -> None:
        """Add what a function has counted since the server started."""
        for name in COUNTERS:
            self.counters[name] += getattr(function, name)
        self.wait_times.add(function.wait_times)
        self.run_times.add(function.run_times)

    def hold(self, function: Function, now_us: int) -> None:
        """Add the current gauges of a function."""
        self.total += function.total
        self.ready += function.ready
        self.running += function.running
        self.waiting += function.waiting
        self.workers += len(function.workers)
        self.paused += function.paused
        if function.ready:
            for priority in BEST_FIRST:
                self.ready_by_priority[priority] += function.ready_of(priority)
            self.oldest_seconds = max(self.oldest_seconds, oldest_ready_seconds(function, now_us) or 0)

    def add(self, other: FunctionSums) -> None:
        """Add the counters and histograms of another sum."""
        for name in COUNTERS:
            self.counters[name] += other.counters[name]
        self.wait_times.add(other.wait_times)
        self.run_times.add(other.run_times)


class FunctionSeries:
    """Gives the first functions names in metrics, and puts the others together."""

    def __init__(self, most_named: int = MOST_NAMED_FUNCTIONS) -> None:
        self.most_named = most_named
        self.named: dict[Function, str] = {}  # with their labels
        self.others: dict[Function, None] = {}
        self._texts: set[str] = {OTHER}  # that are taken
        self._forgotten = FunctionSums()  # what functions among the others had counted

    def place(self, functions: list[Function]) -> Iterator[None]:
        """Find the place of each new function, and forget those that the server has forgotten."""
        for done, function in enumerate(list(self.named), 1):
            if function.dropped:
                del self.named[function]
                self._texts.discard(label_text(function.name))
            if not done % PER_STEP:
                yield
        for done, function in enumerate(list(self.others), 1):
            if function.dropped:
                del self.others[function]
                self._forgotten.count(function)
            if not done % PER_STEP:
                yield
        for done, function in enumerate(functions, 1):
            if function not in self.named and function not in self.others and not function.dropped:
                self._place(function)
            if not done % PER_STEP:
                yield

    def _place(self, function: Function) -> None:
        text = label_text(function.name)
        if len(self.named) < self.most_named and text not in self._texts:
            self._texts.add(text)
            self.named[function] = label("function", text)
        else:
            self.others[function] = None  # also if another function has the same text

    def sum_others(self, sums: FunctionSums, now_us: int) -> Iterator[None]:
        """Add up the functions without series of their own, also the forgotten ones."""
        sums.add(self._forgotten)
        for done, function in enumerate(list(self.others), 1):
            sums.count(function)
            if not function.dropped:
                sums.hold(function, now_us)
            if not done % 20 or function.limiter is not None:  # which may have very many queues
                yield
