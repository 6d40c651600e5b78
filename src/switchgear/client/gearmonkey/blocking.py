"""`GearMonkeyClient`: the GearMonkey client that blocks."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, TypeVar

import redis

from switchgear.client.flow_runner import perform
from switchgear.client.gearmonkey import client_commands
from switchgear.client.gearmonkey.client_commands import Flow
from switchgear.client.gearmonkey.commands import NORMAL, Command, GearMonkeyFunction
from switchgear.client.gearmonkey.records import GearMonkeyJob
from switchgear.client.gearmonkey.redis_adapter import (
    RAW,
    REDIS_ERRORS,
    BlockingRedis,
    check_slots,
    connect,
    slice_seconds,
    translated,
)

__all__ = ["GearMonkeyClient"]

T = TypeVar("T")


class GearMonkeyClient:
    """Creates jobs in a Redis, waits for them, and reads their results. Threads may share it, as they may share a
    `redis.Redis`.

    Raises ServerUnreachable when Redis cannot be reached, and ServerRefused when it answers with an error.
    """

    def __init__(self, redis_or_url: BlockingRedis | str) -> None:
        """A URL such as `redis://HOST:PORT/DB`; or a `redis.Redis` or a `redis.cluster.RedisCluster`, which stays
        yours."""
        self._owned: redis.Redis | None = None
        if isinstance(redis_or_url, str):
            self._redis: BlockingRedis = (owned := connect(redis_or_url))
            self._owned = owned
        else:
            self._redis = redis_or_url
        self._slice_seconds = slice_seconds(self._redis)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if it was made from a URL."""
        if self._owned is not None:
            self._owned.close()

    def run(
        self,
        fn: str,
        input: bytes | str = b"",
        prio: str = NORMAL,
        options: int = 0,
        timeout: float = 0,
        scheduled: float | None = None,
    ) -> int:
        """Create a job, and return its id.

        `prio` is "high", "normal", "low" or "scheduled"; only the last one goes with `scheduled`, the UNIX timestamp
        at which the job may start.

        With OPT_ROLLCALL raises NoWorkers, and creates nothing, if no worker is registered.  With OPT_BLOCKING returns
        when the job has ended, well or not, which `get` tells; after `timeout` seconds (0: never) it raises
        JobNotFinished, which has the id.
        """
        function = self._function(fn)
        flow = client_commands.run(
            function, input, prio, options, timeout, scheduled, slice_seconds=self._slice_seconds
        )
        return self._perform(flow)

    def get(self, fn: str, job_id: int) -> GearMonkeyJob:
        """The state of a job now; raises UnknownJob."""
        return self._perform(client_commands.get(self._function(fn), job_id))

    def wait(self, fn: str, job_id: int, timeout: float = 0) -> None:
        """Wait for the end of a job that was created earlier; raises JobNotFinished or UnknownJob."""
        self._perform(client_commands.wait(self._function(fn), job_id, timeout, slice_seconds=self._slice_seconds))

    def _function(self, name: str) -> GearMonkeyFunction:
        function = GearMonkeyFunction(name)
        check_slots(self._redis, [function])
        return function

    def _perform(self, flow: Flow[T]) -> T:
        return perform(flow, self._ask)

    def _ask(self, command: Command) -> Any:
        try:
            return self._redis.execute_command(*command, **RAW)
        except REDIS_ERRORS as error:
            raise translated(error) from error
