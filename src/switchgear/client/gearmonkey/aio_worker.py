"""`AsyncGearMonkeyWorker`: runs jobs from Redis as coroutines, one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import redis.asyncio

from switchgear.client.flow_runner import perform_async
from switchgear.client.gearmonkey.redis_adapter import REDIS_ERRORS, AsyncRedis, connect_async, translated
from switchgear.client.gearmonkey.retrying_connection import PauseStep, WorkerTiming, options_of
from switchgear.client.gearmonkey.worker_base import GearMonkeyWorkerBase, Output, WorkEnd, WorkStep
from switchgear.client.run_in_background import AsyncRunsBeside
from switchgear.client.signals import on_stop_signals_in_loop

__all__ = ["AsyncGearMonkeyWorker", "AsyncWork"]

AsyncWork = Callable[[bytes], Awaitable[Output]]


class AsyncGearMonkeyWorker(AsyncRunsBeside, GearMonkeyWorkerBase[AsyncWork]):
    """`GearMonkeyWorker` for asyncio: what to do with an input is a coroutine function.

    The rest is as there.  `run` works until it is stopped; as an async context manager, the worker works beside the
    block.
    """

    def __init__(
        self,
        redis_or_url: AsyncRedis | str,
        work: AsyncWork | None = None,
        *,
        timing: WorkerTiming | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """A URL such as `redis://HOST:PORT/DB`; or a `redis.asyncio.Redis` or `redis.asyncio.cluster.RedisCluster`,
        which stays yours.  `now` tells which scheduled jobs are due."""
        self._owned: redis.asyncio.Redis | None = None
        if isinstance(redis_or_url, str):
            self._redis: AsyncRedis = (owned := connect_async(redis_or_url))
            self._owned = owned
        else:
            self._redis = redis_or_url
        super().__init__(self._redis, work, timing or WorkerTiming(), now)
        self._stopped = asyncio.Event()
        self._job: asyncio.Future[Output] | None = None  # in hand
        self._breaks_off = False  # the job in hand, because the worker stops at once

    async def work(self, input: bytes) -> Output:
        """Run a job: return its output, or raise.  To be overridden, unless a function was given."""
        if self._work is None:
            raise NotImplementedError("a worker needs a function to work with, or a work() of its own")
        return await self._work(input)

    async def update(self, dividend: int, divisor: int) -> None:
        """Report progress from inside `work`: so many parts of so many.

        What does not get through, because Redis is away, is not told again: the next update is newer.
        """
        await perform_async(self._progress(dividend, divisor), self._take)

    async def run(self, *, handle_signals: bool = True) -> None:
        """Work until `stop` is called, and the job in hand is finished.  To be called once.

        In the main thread SIGTERM and SIGINT stop the worker, unless `handle_signals` is false.  A second one cancels
        the job in hand, which ends with status "error".  Raises what Redis refuses for good; the worker is counted out
        in any case.
        """
        self._check_duties(is_overridden=type(self).work is not AsyncGearMonkeyWorker.work)
        with on_stop_signals_in_loop(self._on_signal, wanted=handle_signals):
            try:
                await perform_async(self._life(), self._take)
            finally:
                if self._owned is not None:
                    await self._owned.aclose()

    def stop(self) -> None:
        """Take no more jobs, and let `run` return, within a second if there is none in hand.

        May be called from `work`, or wherever the worker's event loop runs.
        """
        self._connection.stopping = True
        self._stopped.set()

    def stop_at_once(self) -> None:
        """Cancel the job in hand, which ends with status "error"."""
        self.stop()
        if self._job is not None:
            self._breaks_off = True
            self._job.cancel()

    # --- inside ---

    def _on_signal(self, number: int) -> None:
        if self._connection.stopping:
            self.stop_at_once()
        else:
            self.stop()

    async def _take(self, step: Any) -> Any:
        if isinstance(step, WorkStep):
            return await self._call(step)
        if isinstance(step, PauseStep):
            with suppress(TimeoutError):
                async with asyncio.timeout(step.seconds):
                    await self._stopped.wait()
            return None
        try:
            return await self._redis.execute_command(*step.command, **options_of(step.command))
        except REDIS_ERRORS as error:
            raise translated(error) from error

    async def _call(self, step: WorkStep) -> WorkEnd:
        work = self._work_of.get(step.job.function.name, self.work)
        try:
            self._current = step.job
            self._job = asyncio.ensure_future(work(step.data))
            return WorkEnd.of_output(await self._job)
        except asyncio.CancelledError as error:
            if self._breaks_off:
                return WorkEnd.of_error(InterruptedError("the worker was stopped"))
            return WorkEnd.of_error(error)  # the task that runs the worker was cancelled
        except BaseException as error:
            return WorkEnd.of_error(error)
        finally:
            self._current = None
            self._job = None
