"""Celery on Redis."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os
from typing import Any

import redis
from celery import Celery

from bench.task_peers.client import PATIENCE_SECONDS
from bench.task_peers.marks import marks_of_this_run

URL = f"redis://127.0.0.1:{os.environ['BENCH_PORT']}/0"
KEEPS_RESULTS = os.environ.get("BENCH_RESULTS", "yes") == "yes"

marks = marks_of_this_run()
app: Any = Celery("bench", broker=URL, backend=URL)
# The guide's chapter on optimizing wants many tasks reserved at once when they are short.  Gossip and the like are off
# on the worker's command line.
app.conf.update(
    worker_prefetch_multiplier=64,
    task_ignore_result=not KEEPS_RESULTS,
    task_acks_late=os.environ.get("BENCH_ACKS_LATE") == "yes",
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


def nothing(number: int) -> int:
    marks.mark(number)
    return number


task: Any = app.task(name="nothing")(nothing)


class Peer:
    """See `client.Library`."""

    def __init__(self) -> None:
        self._redis = redis.Redis.from_url(URL)

    def submit_many(self, numbers: range) -> Any:
        # A group would do the same in its own loop, and build signatures first.
        last = None
        with app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                last = task.apply_async((number,), producer=producer)
        return last

    def call(self, number: int) -> int:
        return int(task.apply_async((number,), ignore_result=False).get(timeout=PATIENCE_SECONDS))

    def result(self, submitted: Any) -> int | None:
        return int(submitted.get(timeout=PATIENCE_SECONDS)) if KEEPS_RESULTS else None

    def kept(self) -> int | None:
        if not KEEPS_RESULTS:
            return None
        keys: Any = self._redis.keys("celery-task-meta-*")
        return len(keys)

    def waiting(self) -> int:
        length: Any = self._redis.llen("celery")
        return int(length)
