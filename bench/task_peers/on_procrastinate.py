"""Procrastinate on PostgreSQL.  It keeps no results, so a round trip ends when the job is marked as succeeded."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import procrastinate

from bench.task_peers.client import PATIENCE_SECONDS
from bench.task_peers.marks import marks_of_this_run

CONNECTION = {"conninfo": f"host=127.0.0.1 port={os.environ['BENCH_PORT']} user=switchgear dbname=postgres"}
IN_A_BATCH = 500
POLL_SECONDS = 0.001

marks = marks_of_this_run()
app: Any = procrastinate.App(connector=procrastinate.PsycopgConnector(**CONNECTION))


async def nothing(number: int) -> int:
    marks.mark(number)
    return number


task: Any = app.task(name="nothing")(nothing)


class Peer:
    """See `client.Library`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(app.open_async())

    def submit_many(self, numbers: range) -> Any:
        return self._loop.run_until_complete(self._submit(numbers))

    async def _submit(self, numbers: range) -> Any:
        last = None
        for start in range(0, len(numbers), IN_A_BATCH):
            some = [{"number": number} for number in numbers[start : start + IN_A_BATCH]]
            last = (await task.batch_defer_async(*some))[-1]
        return last

    def call(self, number: int) -> int:
        return self._loop.run_until_complete(self._call(number))

    async def _call(self, number: int) -> int:
        job_id = await task.defer_async(number=number)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (await app.job_manager.get_job_status_async(job_id)).value != "succeeded":
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job_id} has not succeeded")
            await asyncio.sleep(POLL_SECONDS)
        return number

    def result(self, submitted: Any) -> int | None:
        return None

    def kept(self) -> int | None:
        return None

    def waiting(self) -> int:
        queues = self._loop.run_until_complete(app.job_manager.list_queues_async())
        return sum(queue["todo"] for queue in queues)
