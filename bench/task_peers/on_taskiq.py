"""taskiq on Redis."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import os
from typing import Any

import redis
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

from bench.task_peers.client import PATIENCE_SECONDS
from bench.task_peers.marks import marks_of_this_run

URL = f"redis://127.0.0.1:{os.environ['BENCH_PORT']}/0"
POLL_SECONDS = 0.005  # by default a client looks for a result five times a second

marks = marks_of_this_run()
results: Any = RedisAsyncResultBackend(URL, prefix_str="results")
broker: Any = ListQueueBroker(URL).with_result_backend(results)


async def nothing(number: int) -> int:
    marks.mark(number)
    return number


task: Any = broker.task(task_name="nothing")(nothing)


class Peer:
    """See `client.Library`."""

    def __init__(self) -> None:
        self._redis = redis.Redis.from_url(URL)
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(broker.startup())

    def submit_many(self, numbers: range) -> Any:
        return self._loop.run_until_complete(self._submit(numbers))

    async def _submit(self, numbers: range) -> Any:
        last = None
        for number in numbers:
            last = await task.kiq(number)
        return last

    def call(self, number: int) -> int:
        return self._loop.run_until_complete(self._call(number))

    async def _call(self, number: int) -> int:
        return await self._result(await task.kiq(number))

    async def _result(self, submitted: Any) -> int:
        found = await submitted.wait_result(check_interval=POLL_SECONDS, timeout=PATIENCE_SECONDS)
        return int(found.return_value)

    def result(self, submitted: Any) -> int | None:
        return self._loop.run_until_complete(self._result(submitted))

    def kept(self) -> int | None:
        keys: Any = self._redis.keys("results*")
        return len(keys)

    def waiting(self) -> int:
        length: Any = self._redis.llen("taskiq")
        return int(length)
