"""Huey on Redis."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os
from typing import Any

from huey import RedisHuey

from bench.task_peers.client import PATIENCE_SECONDS
from bench.task_peers.marks import marks_of_this_run

marks = marks_of_this_run()
# Without notify_result a client looks for a result every tenth of a second and rarer, so round trips get it; in bulk
# nobody waits for a single result, and there it would only cost.
huey: Any = RedisHuey(
    "bench",
    host="127.0.0.1",
    port=int(os.environ["BENCH_PORT"]),
    notify_result=os.environ.get("BENCH_NOTIFY") == "yes",
)


def nothing(number: int) -> int:
    marks.mark(number)
    return number


task: Any = huey.task(name="nothing")(nothing)


class Peer:
    """See `client.Library`."""

    def submit_many(self, numbers: range) -> Any:
        last = None
        for number in numbers:
            last = task(number)
        return last

    def call(self, number: int) -> int:
        return int(task(number).get(blocking=True, timeout=PATIENCE_SECONDS))

    def result(self, submitted: Any) -> int | None:
        return int(submitted.get(preserve=True))

    def kept(self) -> int | None:
        return int(huey.storage.result_store_size())

    def waiting(self) -> int:
        return int(huey.storage.queue_size())
