"""RQ."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os
from typing import Any

import redis
from rq import Queue
from rq.registry import FinishedJobRegistry

from bench.task_peers.client import PATIENCE_SECONDS
from bench.task_peers.marks import marks_of_this_run

IN_A_PIPELINE = 500  # as many as one enqueue_many gets

marks = marks_of_this_run()


def nothing(number: int) -> int:
    marks.mark(number)
    return number


class Peer:
    """See `client.Library`."""

    def __init__(self) -> None:
        connection = redis.Redis(host="127.0.0.1", port=int(os.environ["BENCH_PORT"]))
        self._queue: Any = Queue(connection=connection)
        self._finished: Any = FinishedJobRegistry(queue=self._queue)

    def submit_many(self, numbers: range) -> Any:
        last = None
        for start in range(0, len(numbers), IN_A_PIPELINE):
            some = [Queue.prepare_data(nothing, args=(number,)) for number in numbers[start : start + IN_A_PIPELINE]]
            last = self._queue.enqueue_many(some)[-1]
        return last

    def call(self, number: int) -> int:
        job = self._queue.enqueue(nothing, number)
        return int(job.latest_result(timeout=int(PATIENCE_SECONDS)).return_value)

    def result(self, submitted: Any) -> int | None:
        return int(submitted.latest_result().return_value)

    def kept(self) -> int | None:
        return int(self._finished.get_job_count(cleanup=False))

    def waiting(self) -> int:
        return int(self._queue.count)
