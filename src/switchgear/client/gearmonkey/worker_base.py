"""`GearMonkeyWorkerBase`: what the blocking and the asyncio worker of GearMonkey share: the life of a worker as a flow.

The flow gives Redis commands, pauses, and the jobs to run (`WorkStep`); the two workers differ in how they take these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from switchgear.client.failure_reason import reason_of
from switchgear.client.gearmonkey.commands import GearMonkeyFunction, as_bytes
from switchgear.client.gearmonkey.job_source import JobSource, TakenJob
from switchgear.client.gearmonkey.records import ERROR, SUCCESS
from switchgear.client.gearmonkey.redis_adapter import answer_seconds, check_slots, concerns_one_key, is_passing
from switchgear.client.gearmonkey.retrying_connection import RetryingConnection, WorkerFlow, WorkerTiming
from switchgear.errors import ClientError

__all__ = ["GearMonkeyCurrentJob", "GearMonkeyWorkerBase", "Output", "WorkStep", "checked_output"]

log = logging.getLogger("switchgear")

# Redis closes the connection on longer values, unless it is configured otherwise.
LARGEST_OUTPUT_BYTES: Final = 512 * 1024 * 1024

Output = bytes | str | None
"""The return value of a working function; None is an empty output."""


class GearMonkeyCurrentJob(NamedTuple):
    """The job that is run now."""

    function: str
    job_id: int


class WorkStep(NamedTuple):
    """Run a job with this input; the answer is a `WorkEnd`."""

    job: TakenJob
    data: bytes


class WorkEnd(NamedTuple):
    """How a job ended, and what is to be raised after that was reported."""

    status: str
    output: bytes
    interruption: BaseException | None = None

    @classmethod
    def of_error(cls, error: BaseException) -> WorkEnd:
        """A job whose function has raised this."""
        return cls(ERROR, reason_of(error), None if isinstance(error, Exception) else error)

    @classmethod
    def of_output(cls, output: object) -> WorkEnd:
        """A job whose function has returned this."""
        try:
            return cls(SUCCESS, checked_output(output))
        except (TypeError, ValueError) as error:
            return cls.of_error(error)


W = TypeVar("W")  # the type of the functions that do jobs


class GearMonkeyWorkerBase(Generic[W]):
    """A worker without a way to talk to Redis and to run jobs."""

    def __init__(self, redis: object, work: W | None, timing: WorkerTiming, now: Callable[[], float]) -> None:
        patience = answer_seconds(redis)
        if timing.block_seconds <= 0 or (patience is not None and patience <= timing.block_seconds):
            raise ValueError(
                f"block_seconds is {timing.block_seconds:g}: it has to be above 0, and below the connection's "
                f"socket_timeout, which is {patience}"
            )
        self._redis_given = redis
        self._work = work
        self._work_of: dict[str, W] = {}
        self._connection = RetryingConnection(timing)
        self._jobs = JobSource(self._connection, timing, now)
        self._current: TakenJob | None = None

    # --- for userspace ---

    def accept(self, fn: str, work: W | None = None) -> None:
        """Take jobs of this function too, and do them with `work`, if it is given.  May be called from `work`."""
        function = GearMonkeyFunction(fn)
        known = self._jobs.functions
        if all(other.name != fn for other in known):
            check_slots(self._redis_given, [*known, function])
            self._jobs.add(function)
        if work is not None:
            self._work_of[fn] = work

    @property
    def current(self) -> GearMonkeyCurrentJob | None:
        """The job that `work` is called for."""
        return (
            None if self._current is None else GearMonkeyCurrentJob(self._current.function.name, self._current.job_id)
        )

    # --- the life of a worker ---

    def _life(self) -> WorkerFlow[None]:
        """Work until stopped; the worker is counted out in any case."""
        try:
            while not self._connection.stopping:
                yield from self._turn()
        finally:
            self._connection.stopping = True
            yield from self._jobs.sign_off()

    def _check_duties(self, *, is_overridden: bool) -> None:
        functions = self._jobs.functions
        if not functions:
            raise ValueError("a worker has to accept() a function before it runs")
        if self._work is None and not is_overridden and any(each.name not in self._work_of for each in functions):
            raise TypeError("a worker needs a function to work with, or a work() of its own")

    def _turn(self) -> WorkerFlow[None]:
        try:
            taken = yield from self._jobs.take()
        except ClientError as error:
            if not is_passing(error):
                raise
            yield from self._connection.pause_after(error)
            return
        if taken is None:
            return
        try:
            yield from self._do(taken)
        except ClientError as error:
            log.error("GearMonkey worker: job %d of %r is lost: %s", taken.job_id, taken.function.name, error)
            if not is_passing(error) and not concerns_one_key(error):
                raise

    def _do(self, taken: TakenJob) -> WorkerFlow[None]:
        function, job_id = taken
        fields = yield from self._connection.call_until_success(function.read(job_id))
        if not fields:
            log.warning("GearMonkey worker: job %d of %r has no hash any more; skipped", job_id, function.name)
            return
        yield from self._connection.call_until_success(function.publish("start", job_id))
        yield from self._connection.call_until_success(function.set_busy(job_id))
        end: WorkEnd = yield WorkStep(taken, fields.get(b"input", b""))
        if end.interruption is not None:  # the process is to end, but a client may wait for this job
            self._connection.stopping = True
        try:
            for command in function.finish(job_id, end.status, end.output):
                yield from self._connection.call_until_success(command)
        finally:
            if end.interruption is not None:
                raise end.interruption

    def _progress(self, dividend: int, divisor: int) -> WorkerFlow[None]:
        """Report progress of the job in hand.  What does not get through is not told again: the next one is newer."""
        if self._current is None:
            raise RuntimeError("update() is for inside of work()")
        if not isinstance(dividend, int) or not isinstance(divisor, int):
            raise TypeError(f"dividend and divisor are integers; got {dividend!r} and {divisor!r}")
        function, job_id = self._current
        try:
            yield from self._connection.call(function.set_progress(job_id, dividend, divisor))
        except ClientError as error:
            if not is_passing(error):
                raise
            log.warning("GearMonkey worker: progress of job %d of %r not reported: %s", job_id, function.name, error)


def checked_output(output: Any) -> bytes:
    """The output as it is stored; raises TypeError or ValueError."""
    if output is None:
        return b""
    data = as_bytes(output, "an output")
    if len(data) > LARGEST_OUTPUT_BYTES:
        raise ValueError(f"an output of {len(data)} bytes is more than Redis takes")
    return data
