"""`GearMonkeyWorker`: runs jobs from Redis, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis

from switchgear.client.flow_runner import perform
from switchgear.client.gearmonkey.redis_adapter import BlockingRedis, connect
from switchgear.client.gearmonkey.retrying_connection import BlockingRedisDriver, WorkerTiming
from switchgear.client.gearmonkey.worker_base import (
    GearMonkeyCurrentJob,
    GearMonkeyWorkerBase,
    Output,
    WorkEnd,
    WorkStep,
)
from switchgear.client.run_in_background import RunsBeside
from switchgear.client.signals import interruption, on_stop_signals

__all__ = ["GearMonkeyCurrentJob", "GearMonkeyWorker", "Output", "Work"]

Work = Callable[[bytes], Output]


class GearMonkeyWorker(RunsBeside, GearMonkeyWorkerBase[Work]):
    """Runs jobs from a Redis, one at a time.

    The work is a function, passed here or to `accept`, or an overridden `work`. Its return value is the output of a job
    with status "success"; its exception, that of a job with status "error".

    Redis may be unreachable for a while, at the start or later: the worker retries, and reports the current job when
    Redis is back. Only this worker has a job that it took from its queue: if the process dies, the job does not run
    again.
    """

    def __init__(
        self,
        redis_or_url: BlockingRedis | str,
        work: Work | None = None,
        *,
        timing: WorkerTiming | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """A URL such as `redis://HOST:PORT/DB`; or a `redis.Redis` or `redis.cluster.RedisCluster`, which stays yours.

        `now` tells which scheduled jobs are due.
        """
        self._owned: redis.Redis | None = None
        if isinstance(redis_or_url, str):
            client: BlockingRedis = (owned := connect(redis_or_url))
            self._owned = owned
        else:
            client = redis_or_url
        self._driver = BlockingRedisDriver(client)
        super().__init__(client, work, timing or WorkerTiming(), now)

    def work(self, input: bytes) -> Output:
        """Run a job: return its output, or raise.  To be overridden, unless a function was given."""
        if self._work is None:
            raise NotImplementedError("a worker needs a function to work with, or a work() of its own")
        return self._work(input)

    def update(self, dividend: int, divisor: int) -> None:
        """Report progress from inside `work`: parts done, and parts in all.

        An update that is lost, because Redis is unreachable, is not repeated: the next update is newer.
        """
        self._driver.perform(self._progress(dividend, divisor))

    def run(self, *, handle_signals: bool = True) -> None:
        """Work until `stop` is called, and the current job is finished. Call this only once.

        In the main thread SIGTERM and SIGINT stop the worker, unless `handle_signals` is false. A second one interrupts
        the current job, which ends with status "error". Raises permanent errors of Redis, and exceptions of `work` that
        are not an Exception; the worker is deregistered in any case.
        """
        self._check_duties(is_overridden=type(self).work is not GearMonkeyWorker.work)
        with on_stop_signals(self._on_signal, wanted=handle_signals):
            try:
                perform(self._life(), self._take)
            finally:
                if self._owned is not None:
                    self._owned.close()

    def stop(self) -> None:
        """Take no more jobs, and let `run` return, within a second if there is none in hand.

        May be called from `work`, a signal handler or another thread.
        """
        self._connection.stopping = True
        self._driver.interrupt()

    # --- inside ---

    def _take(self, step: Any) -> Any:
        return self._call(step) if isinstance(step, WorkStep) else self._driver.take(step)

    def _call(self, step: WorkStep) -> WorkEnd:
        work = self._work_of.get(step.job.function.name, self.work)
        try:
            try:
                self._current = step.job
                output = work(step.data)
            finally:
                self._current = None  # from here on no signal interrupts
        except BaseException as error:
            return WorkEnd.of_error(error)
        return WorkEnd.of_output(output)

    def _on_signal(self, number: int) -> None:
        """Only `work` is interrupted: a command that is cut off could take a job from its queue and drop it."""
        if self._connection.stopping and self._current is not None:
            raise interruption(number)
        self.stop()
