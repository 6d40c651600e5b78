"""The commands of the GearMonkey document, in one place and in its order.

Names and numbers are fixed there. Keys are encoded here, not by redis-py, so that the encoding of a user's connection
does not change them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import IntFlag
from typing import Final, Literal, cast, get_args

from switchgear import model
from switchgear.protocols.gearmonkey.keys import JOB_SECONDS, LOCK_SECONDS, SCRIPT, SCRIPT_SHA, FunctionKeys

__all__ = [
    "HIGH",
    "JOB_SECONDS",
    "LOAD_SCRIPT",
    "LOCK_SECONDS",
    "LOW",
    "NORMAL",
    "OPT_BLOCKING",
    "OPT_ROLLCALL",
    "SCHEDULED",
    "SCRIPT",
    "SCRIPT_SHA1",
    "Command",
    "CreateOptions",
    "GearMonkeyFunction",
    "Priority",
    "pop",
]

SCRIPT_SHA1: Final = SCRIPT_SHA.decode()

Priority = Literal["high", "normal", "low", "scheduled"]
HIGH: Final = "high"
NORMAL: Final = "normal"
LOW: Final = "low"
SCHEDULED: Final = "scheduled"
_NUMBERS: Final[dict[Priority, int]] = {
    HIGH: model.HIGH,
    NORMAL: model.NORMAL,
    LOW: model.LOW,
    SCHEDULED: model.URGENT,
}

Command = tuple[bytes | str | int | float, ...]

LOAD_SCRIPT: Final[Command] = ("SCRIPT LOAD", SCRIPT)


class CreateOptions(IntFlag):
    """Options of creating a job: roll call, waiting, timeout."""

    BLOCKING = 1  # return when the job is finished
    ROLLCALL = 2  # first see whether there are workers


OPT_BLOCKING: Final = CreateOptions.BLOCKING
OPT_ROLLCALL: Final = CreateOptions.ROLLCALL


class GearMonkeyFunction:
    """A function's keys, and the commands that concern it."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"a function has a name, which is a text that is not empty; got {name!r}")
        self.name = name
        self._keys = FunctionKeys(name.encode())
        self.schedule = self._keys.queues[model.URGENT]
        self.lists = tuple(self._keys.queues[priority] for priority in (model.HIGH, model.NORMAL, model.LOW))

    def __repr__(self) -> str:
        return f"Function({self.name!r})"

    def _job(self, job_id: int) -> bytes:
        return self._keys.job(b"%d" % job_id)

    def _lock(self, job_id: int) -> bytes:
        return self._keys.lock(b"%d" % job_id)

    # --- a client's ---

    def roll_call(self) -> Command:
        return ("GET", self._keys.count)

    def new_id(self) -> Command:
        return ("INCR", self._keys.uid)

    def insert(self, job_id: int, data: bytes) -> Command:
        return ("HMSET", self._job(job_id), "status", "idle", "input", data)

    def publish(self, event: Literal["create", "start", "finish"], job_id: int) -> Command:
        return ("PUBLISH", self._keys.channel, f"{event}:{job_id}")

    def enqueue(self, job_id: int, priority: Priority, scheduled: int | None) -> Command:
        key = self._keys.queues[_NUMBERS[priority]]
        return ("LPUSH", key, job_id) if scheduled is None else ("ZADD", key, scheduled, job_id)

    def await_token(self, job_id: int, seconds: float) -> Command:
        return ("BRPOP", self._lock(job_id), seconds)

    def read(self, job_id: int) -> Command:
        return ("HGETALL", self._job(job_id))

    def read_status(self, job_id: int) -> Command:
        return ("HGET", self._job(job_id), "status")

    # --- a worker's ---

    def count_in(self) -> Command:
        return ("INCR", self._keys.count)

    def count_out(self) -> Command:
        return ("DECR", self._keys.count)

    def take_due(self, now: float) -> Command:
        return ("EVALSHA", SCRIPT_SHA1, 1, self.schedule, int(now))

    def set_busy(self, job_id: int) -> Command:
        return ("HMSET", self._job(job_id), "status", "busy")

    def set_progress(self, job_id: int, dividend: int, divisor: int) -> Command:
        return ("HMSET", self._job(job_id), "status:dividend", dividend, "status:divisor", divisor)

    def finish(self, job_id: int, status: str, output: bytes) -> list[Command]:
        return [
            ("HMSET", self._job(job_id), "status", status, "output", output),
            ("EXPIRE", self._job(job_id), JOB_SECONDS),
            self.publish("finish", job_id),
            ("LPUSH", self._lock(job_id), "OK"),
            ("EXPIRE", self._lock(job_id), LOCK_SECONDS),
        ]


def pop(functions: Iterable[GearMonkeyFunction], seconds: float) -> Command:
    """The command that takes the next job of some functions; jobs of one function by priority."""
    return ("BRPOP", *(key for function in functions for key in function.lists), seconds)


def checked_priority(priority: str, scheduled: float | None) -> tuple[Priority, int | None]:
    """The priority and the whole second at which a job becomes eligible; raises ValueError."""
    if priority not in get_args(Priority):
        raise ValueError(f"priority {priority!r} is none of {', '.join(get_args(Priority))}")
    if (priority == SCHEDULED) != (scheduled is not None):
        raise ValueError(f"prio={SCHEDULED!r} and scheduled=TIMESTAMP go together; got {priority!r} and {scheduled!r}")
    if scheduled is None:
        return cast(Priority, priority), None
    if not 0 <= scheduled < math.inf:  # the workers' script looks from 0 on
        raise ValueError(f"scheduled is a UNIX timestamp in seconds, 0 or more; got {scheduled!r}")
    return SCHEDULED, math.ceil(scheduled)  # a job may be late, but not early


def checked_options(options: int, timeout: float) -> CreateOptions:
    """The options; raises ValueError for bits that mean nothing, and for a timeout of nothing."""
    if options & ~int(OPT_BLOCKING | OPT_ROLLCALL):
        raise ValueError(f"options are OPT_BLOCKING and OPT_ROLLCALL; got {options!r}")
    if not 0 <= timeout < math.inf:
        raise ValueError(f"timeout is a number of seconds, 0 for no end; got {timeout!r}")
    if timeout and not options & OPT_BLOCKING:
        raise ValueError("a timeout is for OPT_BLOCKING only")
    return CreateOptions(options)


def as_bytes(data: bytes | str, what: str) -> bytes:
    """Input or output as it is stored: text is UTF-8."""
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"{what} is bytes or str, not {type(data).__name__}")
