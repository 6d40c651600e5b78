"""arq on Redis."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import os
from typing import Any, ClassVar

from arq import create_pool
from arq.connections import RedisSettings

from bench.task_peers.client import PATIENCE_SECONDS
from bench.task_peers.marks import marks_of_this_run

# By default both look twice a second: a worker for jobs, a client for a result.
POLL_SECONDS = 0.005

marks = marks_of_this_run()
settings: Any = RedisSettings(host="127.0.0.1", port=int(os.environ["BENCH_PORT"]))


async def nothing(context: Any, number: int) -> int:
    marks.mark(number)
    return number


class WorkerSettings:
    functions: ClassVar[list[Any]] = [nothing]
    redis_settings = settings
    max_jobs = 100
    poll_delay = POLL_SECONDS


class Peer:
    """See `client.Library`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pool: Any = self._loop.run_until_complete(create_pool(settings))

    def submit_many(self, numbers: range) -> Any:
        return self._loop.run_until_complete(self._submit(numbers))

    async def _submit(self, numbers: range) -> Any:
        last = None
        for number in numbers:
            last = await self._pool.enqueue_job("nothing", number)
        return last

    def call(self, number: int) -> int:
        return int(self._loop.run_until_complete(self._call(number)))

    async def _call(self, number: int) -> Any:
        job = await self._pool.enqueue_job("nothing", number)
        return await job.result(timeout=PATIENCE_SECONDS, poll_delay=POLL_SECONDS)

    def result(self, submitted: Any) -> int | None:
        return int(self._loop.run_until_complete(submitted.result(timeout=PATIENCE_SECONDS, poll_delay=POLL_SECONDS)))

    def kept(self) -> int | None:
        return len(self._loop.run_until_complete(self._pool.keys("arq:result:*")))

    def waiting(self) -> int:
        return int(self._loop.run_until_complete(self._pool.zcard("arq:queue")))
