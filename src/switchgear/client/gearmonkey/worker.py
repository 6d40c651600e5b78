"""`GearMonkeyWorker`: runs jobs from Redis, one at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import redis

from switchgear.client.failure_reason import reason_of
from switchgear.client.gearmonkey.commands import GearMonkeyFunction, as_bytes
from switchgear.client.gearmonkey.job_source import JobSource, TakenJob
from switchgear.client.gearmonkey.records import ERROR, SUCCESS
from switchgear.client.gearmonkey.redis_adapter import (
    BlockingRedis,
    answer_seconds,
    check_slots,
    concerns_one_key,
    connect,
    is_passing,
)
from switchgear.client.gearmonkey.retrying_connection import RetryingConnection, WorkerTiming
from switchgear.client.signals import interruption, on_stop_signals
from switchgear.errors import ClientError

__all__ = ["GearMonkeyCurrentJob", "GearMonkeyWorker", "Output", "Work"]

log = logging.getLogger("switchgear")

# Redis closes the connection on longer values, unless it is configured otherwise.
LARGEST_OUTPUT_BYTES: Final = 512 * 1024 * 1024

Output = bytes | str | None
"""What a working function may return; nothing is an empty output."""

Work = Callable[[bytes], Output]


class GearMonkeyCurrentJob(NamedTuple):
    """The job that is run now."""

    function: str
    job_id: int


class GearMonkeyWorker:
    """Runs jobs from a Redis, one at a time.

    What to do with an input is given as a function, here or to `accept`, or by overriding `work`.  What it returns is
    the output of a job with status "success"; what it raises, that of one with status "error".

    Redis may be away for a while, at the start or later: it is tried again and again, and what was in hand is reported
    when it is back.  A job that is taken from its queue is in nobody's hand but this worker's: if the process dies, the
    job does not run again.
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
        timing = timing or WorkerTiming()
        self._owned: redis.Redis | None = None
        if isinstance(redis_or_url, str):
            self._redis: BlockingRedis = (owned := connect(redis_or_url))
            self._owned = owned
        else:
            self._redis = redis_or_url
        patience = answer_seconds(self._redis)
        if timing.block_seconds <= 0 or (patience is not None and patience <= timing.block_seconds):
            raise ValueError(
                f"block_seconds is {timing.block_seconds:g}: it has to be above 0, and below the connection's "
                f"socket_timeout, which is {patience}"
            )
        self._work = work
        self._work_of: dict[str, Work] = {}
        self._connection = RetryingConnection(self._redis, timing)
        self._jobs = JobSource(self._connection, timing, now)
        self._current: tuple[GearMonkeyFunction, int] | None = None

    # --- for userspace ---

    def accept(self, fn: str, work: Work | None = None) -> None:
        """Take jobs of this function too, and do them with `work`, if it is given.  May be called from `work`."""
        function = GearMonkeyFunction(fn)
        known = self._jobs.functions
        if all(other.name != fn for other in known):
            check_slots(self._redis, [*known, function])
            self._jobs.add(function)
        if work is not None:
            self._work_of[fn] = work

    def work(self, input: bytes) -> Output:
        """Run a job: return its output, or raise.  To be overridden, unless a function was given."""
        if self._work is None:
            raise NotImplementedError("a worker needs a function to work with, or a work() of its own")
        return self._work(input)

    @property
    def current(self) -> GearMonkeyCurrentJob | None:
        """The job that `work` is called for."""
        return None if self._current is None else GearMonkeyCurrentJob(self._current[0].name, self._current[1])

    def update(self, dividend: int, divisor: int) -> None:
        """Report progress from inside `work`: so many parts of so many.

        What does not get through, because Redis is away, is not told again: the next update is newer.
        """
        if self._current is None:
            raise RuntimeError("update() is for inside of work()")
        if not isinstance(dividend, int) or not isinstance(divisor, int):
            raise TypeError(f"dividend and divisor are integers; got {dividend!r} and {divisor!r}")
        function, job_id = self._current
        try:
            self._connection.call(function.set_progress(job_id, dividend, divisor))
        except ClientError as error:
            if not is_passing(error):
                raise
            log.warning("GearMonkey worker: progress of job %d of %r not told: %s", job_id, function.name, error)

    def run(self, *, handle_signals: bool = True) -> None:
        """Work until `stop` is called, and the job in hand is finished.  To be called once.

        In the main thread SIGTERM and SIGINT stop the worker, unless `handle_signals` is false.  A second one
        interrupts the job in hand, which ends with status "error".  Raises what Redis refuses for good, and what
        `work` raises beyond Exception; the worker is counted out in any case.
        """
        self._check_duties()
        with on_stop_signals(self._on_signal, wanted=handle_signals):
            try:
                while not self._connection.stopping:
                    self._turn()
            finally:
                self._connection.stop()
                self._jobs.sign_off()
                if self._owned is not None:
                    self._owned.close()

    def stop(self) -> None:
        """Take no more jobs, and let `run` return, within a second if there is none in hand.

        May be called from `work`, a signal handler or another thread.
        """
        self._connection.stop()

    # --- a turn ---

    def _check_duties(self) -> None:
        functions = self._jobs.functions
        if not functions:
            raise ValueError("a worker has to accept() a function before it runs")
        overridden = type(self).work is not GearMonkeyWorker.work
        if self._work is None and not overridden and any(each.name not in self._work_of for each in functions):
            raise TypeError("a worker needs a function to work with, or a work() of its own")

    def _turn(self) -> None:
        try:
            taken = self._jobs.take()
        except ClientError as error:
            if not is_passing(error):
                raise
            self._connection.pause_after(error)
            return
        if taken is None:
            return
        try:
            self._do(taken)
        except ClientError as error:
            log.error("GearMonkey worker: job %d of %r is lost: %s", taken.job_id, taken.function.name, error)
            if not is_passing(error) and not concerns_one_key(error):
                raise

    def _do(self, taken: TakenJob) -> None:
        function, job_id = taken
        fields = self._connection.call_until_success(function.read(job_id))
        if not fields:
            log.warning("GearMonkey worker: job %d of %r has no hash any more; skipped", job_id, function.name)
            return
        self._connection.call_until_success(function.publish("start", job_id))
        self._connection.call_until_success(function.set_busy(job_id))
        status, output, interruption = self._outcome(taken, fields.get(b"input", b""))
        try:
            for command in function.finish(job_id, status, output):
                self._connection.call_until_success(command)
        finally:
            if interruption is not None:
                raise interruption

    def _outcome(self, taken: TakenJob, data: bytes) -> tuple[str, bytes, BaseException | None]:
        """The status and output of a job, and the exception to raise after they are reported."""
        work = self._work_of.get(taken.function.name, self.work)
        try:
            try:
                self._current = (taken.function, taken.job_id)
                output = _checked(work(data))
            finally:
                self._current = None  # from here on no signal interrupts
        except Exception as error:
            return ERROR, reason_of(error), None
        except BaseException as interruption:  # the process is to end, but a client may wait for this job
            self._connection.stop()
            return ERROR, reason_of(interruption), interruption
        return SUCCESS, output, None

    def _on_signal(self, number: int) -> None:
        """Only `work` is interrupted: a command that is cut off could take a job from its queue and drop it."""
        if self._connection.stopping and self._current is not None:
            raise interruption(number)
        self.stop()


def _checked(output: Output) -> bytes:
    if output is None:
        return b""
    data = as_bytes(output, "an output")
    if len(data) > LARGEST_OUTPUT_BYTES:
        raise ValueError(f"an output of {len(data)} bytes is more than Redis takes")
    return data
