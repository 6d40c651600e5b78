"""This library, on its own server."""

from __future__ import annotations

import os
from typing import Any

from bench.task_peers.client import PATIENCE_SECONDS
from bench.task_peers.marks import marks_of_this_run
from switchgear import App

IS_ASYNC = os.environ.get("BENCH_ASYNC") == "yes"

marks = marks_of_this_run()
app = App(f"gearman://127.0.0.1:{os.environ['BENCH_PORT']}")


def nothing(number: int) -> int:
    marks.mark(number)
    return number


async def nothing_async(number: int) -> int:
    marks.mark(number)
    return number


task: Any = app.task(name="nothing")(nothing_async if IS_ASYNC else nothing)


class Peer:
    """See `client.Library`."""

    def submit_many(self, numbers: range) -> Any:
        return task.submit_many(numbers)[-1]

    def call(self, number: int) -> int:
        return int(task.submit(number).result(PATIENCE_SECONDS))

    def result(self, submitted: Any) -> int | None:
        return int(submitted.result(PATIENCE_SECONDS))

    def kept(self) -> int | None:
        return sum(row.done for row in app.functions() if row.name == task.name)

    def waiting(self) -> int:
        return sum(row.ready for row in app.functions() if row.name == task.name)
