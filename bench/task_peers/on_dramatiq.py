"""Dramatiq on Redis."""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from bench.task_peers.client import PATIENCE_SECONDS
from bench.task_peers.marks import marks_of_this_run

PORT = int(os.environ["BENCH_PORT"])

marks = marks_of_this_run()
broker: Any = RedisBroker(host="127.0.0.1", port=PORT)
# Keys that say what they are, to count them; by default they are hashed.
results: Any = RedisBackend(host="127.0.0.1", port=PORT, namespace="results", use_namespace_prefix_keys=True)
broker.add_middleware(Results(backend=results))
dramatiq.set_broker(broker)


def nothing(number: int) -> int:
    marks.mark(number)
    return number


actor: Any = dramatiq.actor(nothing, store_results=True)


class Peer:
    """See `client.Library`."""

    def __init__(self) -> None:
        self._redis = redis.Redis(host="127.0.0.1", port=PORT)

    def submit_many(self, numbers: range) -> Any:
        # A group enqueues one by one too, after building all messages.
        last = None
        for number in numbers:
            last = actor.send(number)
        return last

    def call(self, number: int) -> int:
        return int(actor.send(number).get_result(block=True, timeout=int(PATIENCE_SECONDS * 1000)))

    def result(self, submitted: Any) -> int | None:
        return int(submitted.get_result())

    def kept(self) -> int | None:
        keys: Any = self._redis.keys("results:*")
        return len(keys)

    def waiting(self) -> int:
        length: Any = self._redis.llen("dramatiq:default")
        return int(length)
