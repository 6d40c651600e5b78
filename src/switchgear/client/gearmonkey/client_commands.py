"""The flows of a GearMonkey client: Redis commands out, answers in, for either driver.

A flow gives commands and is given their answers, or one of our errors is thrown into it; so the client that blocks
and the one for asyncio share all that matters.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import repeat
from typing import Any, TypeVar

from switchgear.client.gearmonkey.commands import (
    NORMAL,
    OPT_BLOCKING,
    OPT_ROLLCALL,
    Command,
    GearMonkeyFunction,
    as_bytes,
    checked_options,
    checked_priority,
)
from switchgear.client.gearmonkey.errors import JobNotFinished, LostWhileWaiting, NoWorkers, UnknownJob
from switchgear.client.gearmonkey.records import FINISHED, GearMonkeyJob, integer
from switchgear.errors import ServerRefused, ServerUnreachable

__all__ = ["Flow", "get", "run", "wait"]

T = TypeVar("T")
Flow = Generator[Command, Any, T]

_SHORTEST_WAIT_SECONDS = 0.01  # Redis may take a shorter one for 0, which means for ever


def run(
    function: GearMonkeyFunction,
    data: bytes | str,
    prio: str = NORMAL,
    options: int = 0,
    timeout: float = 0,
    scheduled: float | None = None,
    *,
    slice_seconds: float,
) -> Flow[int]:
    """Create a job, and wait for its end if asked to."""
    encoded = as_bytes(data, "input")
    priority, second = checked_priority(prio, scheduled)
    chosen = checked_options(options, timeout)
    if chosen & OPT_ROLLCALL:
        yield from _call_roll(function)
    job_id = integer((yield function.new_id()))
    if job_id is None:
        raise ServerRefused("NO_ID", f"the server gave no id for a job of {function.name!r}; it is not created")
    yield function.insert(job_id, encoded)
    yield function.publish("create", job_id)
    yield function.enqueue(job_id, priority, second)
    if chosen & OPT_BLOCKING:
        yield from _wait_for_token(function, job_id, timeout, slice_seconds)
    return job_id


def wait(function: GearMonkeyFunction, job_id: int, timeout: float = 0, *, slice_seconds: float) -> Flow[None]:
    """Wait for the end of a job that was created earlier, and may have ended by now."""
    checked_options(OPT_BLOCKING, timeout)
    if not (yield from _is_finished(function, job_id)):
        yield from _wait_for_token(function, job_id, timeout, slice_seconds)


def get(function: GearMonkeyFunction, job_id: int) -> Flow[GearMonkeyJob]:
    """The whole hash of a job."""
    raw = yield function.read(job_id)
    if not raw:
        raise _unknown(function, job_id)
    return GearMonkeyJob.of(function.name, job_id, raw)


def _call_roll(function: GearMonkeyFunction) -> Flow[None]:
    answer = yield function.roll_call()
    workers = integer(answer)
    if workers is None or workers < 1:
        raise NoWorkers(f"no worker is registered for {function.name!r} (the count is {answer!r})")


def _wait_for_token(function: GearMonkeyFunction, job_id: int, timeout: float, slice_seconds: float) -> Flow[None]:
    """Wait for the token that a worker pushes at the end of a job, in slices of time.

    It lies there for ten seconds only, and only one of several who wait gets it; so after each slice the hash has
    the last word.
    """
    try:
        for seconds in _slices(timeout, slice_seconds):
            if (yield function.await_token(job_id, seconds)) or (yield from _is_finished(function, job_id)):
                return
    except ServerUnreachable as error:
        raise LostWhileWaiting(f"job {job_id} of {function.name!r} was created, then: {error}", job_id) from error
    raise JobNotFinished(f"job {job_id} of {function.name!r} was not finished within {timeout:g} s", job_id)


def _slices(timeout: float, longest: float) -> Iterator[float]:
    """A timeout split into the times of single commands; endless for 0."""
    if not timeout:
        yield from repeat(longest)
    timeout = max(timeout, _SHORTEST_WAIT_SECONDS)
    while timeout >= _SHORTEST_WAIT_SECONDS:
        yield min(timeout, longest)
        timeout -= longest


def _is_finished(function: GearMonkeyFunction, job_id: int) -> Flow[bool]:
    status = yield function.read_status(job_id)
    if status is None:
        raise _unknown(function, job_id)
    return status.decode(errors="replace") in FINISHED


def _unknown(function: GearMonkeyFunction, job_id: int) -> UnknownJob:
    return UnknownJob(f"Redis knows no job {job_id} of {function.name!r}")
