"""`RetryingConnection`: the Redis commands of a worker as flows, which repeat them while Redis cannot be reached.

A flow (`client.flow_runner`) gives steps, and a driver takes them: `BlockingRedisDriver` by blocking, and
`AsyncGearMonkeyWorker` with asyncio.
"""

from __future__ import annotations

import logging
import math
import queue
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from switchgear.backoff import ReconnectBackoff, RetryPauses
from switchgear.client.flow_runner import perform
from switchgear.client.gearmonkey.commands import LOAD_SCRIPT, Command
from switchgear.client.gearmonkey.redis_adapter import RAW, REDIS_ERRORS, BlockingRedis, is_passing, translated
from switchgear.errors import ClientError

__all__ = [
    "BlockingRedisDriver",
    "CommandStep",
    "PauseStep",
    "RetryingConnection",
    "WorkerFlow",
    "WorkerTiming",
    "options_of",
]

log = logging.getLogger("switchgear")


class CommandStep(NamedTuple):
    """A step of a flow: send one Redis command, without a retry."""

    command: Command


class PauseStep(NamedTuple):
    """Wait for a time, or until the worker is stopped."""

    seconds: float


T = TypeVar("T")
WorkerFlow = Generator[Any, Any, T]
"""Gives `CommandStep`, `PauseStep` and, where a worker runs jobs, `WorkStep`; is sent the answer of each."""


@dataclass(frozen=True, slots=True)
class WorkerTiming:
    """Intervals and timeouts of a worker."""

    block_seconds: float = 1  # one blocking pop; the document says 1, and the schedule is checked after it
    count_check_seconds: float = 60.0  # how often the worker sees to it that it is counted
    farewell_seconds: float = 10.0  # for how long a stopping worker retries its last commands
    backoff: ReconnectBackoff = field(default_factory=ReconnectBackoff)  # between attempts to reach Redis


class RetryingConnection:
    """Commands on Redis, as flows."""

    def __init__(self, timing: WorkerTiming) -> None:
        self.stopping = False  # failing commands are repeated no longer than `farewell_seconds`
        self.failures_total = 0  # when it changes, Redis may have been replaced meanwhile
        self._timing = timing
        self._pauses = RetryPauses(timing.backoff)

    def call(self, command: Command) -> WorkerFlow[Any]:
        """Run a command once; raises ClientError."""
        try:
            answer = yield CommandStep(command)
        except ClientError:
            self.failures_total += 1
            raise
        self._pauses.reset()
        return answer

    def call_until_success(self, command: Command) -> WorkerFlow[Any]:
        """Run a command until it works.

        Redis may have done it although no answer came, so it may be done twice.  Raises what will not pass, and what
        has not passed when a stopping worker's farewell is over.
        """
        give_up_at = math.inf
        while True:
            try:
                return (yield from self.call(command))
            except ClientError as error:
                if not is_passing(error):
                    raise
                if self.stopping:
                    give_up_at = min(give_up_at, time.monotonic() + self._timing.farewell_seconds)
                left_seconds = give_up_at - time.monotonic()
                if left_seconds <= 0:
                    raise
                yield from self.pause_after(error, left_seconds)

    def pause_after(self, error: ClientError, most_seconds: float = math.inf) -> WorkerFlow[None]:
        """Pause after a failure; pauses grow with failures in a row."""
        seconds = min(self._pauses.next_seconds(), most_seconds)
        log.warning("GearMonkey worker: %s; next attempt in %.1f s", error, seconds)
        yield PauseStep(seconds)


def options_of(command: Command) -> dict[str, Any]:
    """The options of redis-py for a command.  On a cluster the script goes to every node, and takes none."""
    return {} if command is LOAD_SCRIPT else RAW


class BlockingRedisDriver:
    """Takes the steps of flows by blocking.  `interrupt` may be called from anywhere, a signal handler included."""

    def __init__(self, connection: BlockingRedis) -> None:
        self._redis = connection
        self._interruptions: queue.SimpleQueue[None] = queue.SimpleQueue()  # the one lock a signal handler may touch

    def interrupt(self) -> None:
        """End the pause between two attempts at once, because the worker stops."""
        self._interruptions.put(None)

    def perform(self, flow: WorkerFlow[T]) -> T:
        """Run a flow to its end."""
        return perform(flow, self.take)

    def take(self, step: Any) -> Any:
        """Take one step; raises ClientError."""
        if isinstance(step, PauseStep):
            with suppress(queue.Empty):
                self._interruptions.get(timeout=step.seconds)
            return None
        try:
            return self._redis.execute_command(*step.command, **options_of(step.command))
        except REDIS_ERRORS as error:
            raise translated(error) from error
