"""A worker's way to its Redis: commands one after the other, through times in which Redis is away."""

from __future__ import annotations

import logging
import math
import queue
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from switchgear.client.gearmonkey.commands import LOAD_SCRIPT, Command
from switchgear.client.gearmonkey.redis_adapter import RAW, REDIS_ERRORS, BlockingRedis, is_passing, translated
from switchgear.client.worker_connection import ReconnectBackoff
from switchgear.errors import ClientError

__all__ = ["RetryingConnection", "WorkerTiming"]

log = logging.getLogger("switchgear")


@dataclass(frozen=True, slots=True)
class WorkerTiming:
    """How a worker spends its time."""

    block_seconds: float = 1  # one look at the queues; the document says 1, and after it the schedule is looked at
    count_check_seconds: float = 60.0  # how often the worker sees to it that it is counted
    farewell_seconds: float = 10.0  # so long a stopping worker tries to say what it has to, if Redis is away
    backoff: ReconnectBackoff = field(default_factory=ReconnectBackoff)  # between attempts to reach Redis


class RetryingConnection:
    """Gives commands to Redis.  `stop` may be called from anywhere, a signal handler included."""

    def __init__(self, connection: BlockingRedis, timing: WorkerTiming) -> None:
        self.stopping = False
        self.failures_total = 0  # whoever sees it change knows that Redis may have been another one meanwhile
        self._redis = connection
        self._pace = timing
        self._failures = 0  # in a row
        self._nudges: queue.SimpleQueue[None] = queue.SimpleQueue()  # the one lock that a signal handler may touch

    def stop(self) -> None:
        """Insist no longer than the time of a farewell."""
        self.stopping = True
        self._nudges.put(None)

    def call(self, command: Command) -> Any:
        """The answer to a command that is given once; raises one of our errors."""
        # On a cluster the script goes to every node, and redis-py takes no options for such a command.
        options = {} if command is LOAD_SCRIPT else RAW
        try:
            answer = self._redis.execute_command(*command, **options)
        except REDIS_ERRORS as error:
            self.failures_total += 1
            raise translated(error) from error
        self._failures = 0
        return answer

    def insist(self, command: Command) -> Any:
        """The answer to a command that is given until it works.

        Redis may have done it although no answer came, so it may be done twice.  Raises what will not pass, and what
        has not passed when a stopping worker's farewell is over.
        """
        give_up_at = math.inf
        while True:
            try:
                return self.call(command)
            except ClientError as error:
                if not is_passing(error):
                    raise
                if self.stopping:
                    give_up_at = min(give_up_at, time.monotonic() + self._pace.farewell_seconds)
                left_seconds = give_up_at - time.monotonic()
                if left_seconds <= 0:
                    raise
                self.rest(error, left_seconds)

    def rest(self, error: ClientError, most_seconds: float = math.inf) -> None:
        """Leave Redis alone for a while; the longer, the more often in a row it has failed."""
        seconds = min(self._pace.backoff.seconds(self._failures), most_seconds)
        self._failures += 1
        log.warning("GearMonkey worker: %s; next attempt in %.1f s", error, seconds)
        with suppress(queue.Empty):
            self._nudges.get(timeout=seconds)
