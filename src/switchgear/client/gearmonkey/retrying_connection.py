"""`RetryingConnection`: runs the Redis commands of a worker, and repeats them while Redis cannot be reached."""

from __future__ import annotations

import logging
import math
import queue
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from switchgear.backoff import ReconnectBackoff, RetryPauses
from switchgear.client.gearmonkey.commands import LOAD_SCRIPT, Command
from switchgear.client.gearmonkey.redis_adapter import RAW, REDIS_ERRORS, BlockingRedis, is_passing, translated
from switchgear.errors import ClientError

__all__ = ["RetryingConnection", "WorkerTiming"]

log = logging.getLogger("switchgear")


@dataclass(frozen=True, slots=True)
class WorkerTiming:
    """Intervals and timeouts of a worker."""

    block_seconds: float = 1  # one blocking pop; the document says 1, and the schedule is checked after it
    count_check_seconds: float = 60.0  # how often the worker sees to it that it is counted
    farewell_seconds: float = 10.0  # for how long a stopping worker retries its last commands
    backoff: ReconnectBackoff = field(default_factory=ReconnectBackoff)  # between attempts to reach Redis


class RetryingConnection:
    """Runs commands on Redis.  `stop` may be called from anywhere, a signal handler included."""

    def __init__(self, connection: BlockingRedis, timing: WorkerTiming) -> None:
        self.stopping = False
        self.failures_total = 0  # when it changes, Redis may have been replaced meanwhile
        self._redis = connection
        self._timing = timing
        self._pauses = RetryPauses(timing.backoff)
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()  # the one lock that a signal handler may touch

    def stop(self) -> None:
        """Repeat failing commands no longer than `farewell_seconds`."""
        self.stopping = True
        self._wakeups.put(None)

    def call(self, command: Command) -> Any:
        """Run a command once; raises ClientError."""
        # On a cluster the script goes to every node, and redis-py takes no options for such a command.
        options = {} if command is LOAD_SCRIPT else RAW
        try:
            answer = self._redis.execute_command(*command, **options)
        except REDIS_ERRORS as error:
            self.failures_total += 1
            raise translated(error) from error
        self._pauses.reset()
        return answer

    def call_until_success(self, command: Command) -> Any:
        """Run a command until it works.

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
                    give_up_at = min(give_up_at, time.monotonic() + self._timing.farewell_seconds)
                left_seconds = give_up_at - time.monotonic()
                if left_seconds <= 0:
                    raise
                self.pause_after(error, left_seconds)

    def pause_after(self, error: ClientError, most_seconds: float = math.inf) -> None:
        """Pause after a failure; pauses grow with failures in a row."""
        seconds = min(self._pauses.next_seconds(), most_seconds)
        log.warning("GearMonkey worker: %s; next attempt in %.1f s", error, seconds)
        with suppress(queue.Empty):
            self._wakeups.get(timeout=seconds)
