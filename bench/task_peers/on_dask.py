"""Dask: `distributed`, with a scheduler in place of a broker."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os
from typing import Any

from distributed import Client

from bench.task_peers.client import PATIENCE_SECONDS
from bench.task_peers.marks import marks_of_this_run


def nothing(number: int) -> int:
    marks_of_worker().mark(number)
    return number


def marks_of_worker() -> Any:
    """Opened at the first task: the scheduler imports this module too."""
    global _marks
    if _marks is None:
        _marks = marks_of_this_run()
    return _marks


_marks: Any = None


class Peer:
    """See `client.Library`.  A result is kept for as long as somebody holds its future."""

    def __init__(self) -> None:
        self._client: Any = Client(f"tcp://127.0.0.1:{os.environ['BENCH_PORT']}", set_as_default=False)
        self._futures: list[Any] = []

    def submit_many(self, numbers: range) -> Any:
        self._futures = self._client.map(nothing, numbers, pure=False)
        return self._futures[-1]

    def call(self, number: int) -> int:
        return int(self._client.submit(nothing, number, pure=False).result(timeout=PATIENCE_SECONDS))

    def result(self, submitted: Any) -> int | None:
        return int(submitted.result(timeout=PATIENCE_SECONDS))

    def kept(self) -> int | None:
        return sum(1 for future in self._futures if future.status == "finished")

    def waiting(self) -> int:
        return len(self._futures)
