"""What a Gearman client asks and how it reads the answers, whether it blocks or not."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypedDict

import msgspec

from switchgear.errors import ClientError, ServerRefused
from switchgear.model import PRIORITY_NAMES
from switchgear.numbers import whole_number
from switchgear.protocols.gearman.codec import request
from switchgear.protocols.gearman.messages import Packet

__all__ = [
    "UNKNOWN_EXTENSION",
    "ExtendedOptions",
    "JobStatus",
    "admin_request",
    "control_answer",
    "control_request",
    "name_of",
    "refusal_in_line",
    "refuse_extensions",
    "status_answer",
    "submission_request",
    "text_of",
]

UNKNOWN_EXTENSION: Final = "UNKNOWN_EXTENSION"  # the code of our own when a server does not know our packets

# By priority and whether it is for the background.
SUBMIT: Final = {
    ("high", False): Packet.SUBMIT_JOB_HIGH,
    ("normal", False): Packet.SUBMIT_JOB,
    ("low", False): Packet.SUBMIT_JOB_LOW,
    ("high", True): Packet.SUBMIT_JOB_HIGH_BG,
    ("normal", True): Packet.SUBMIT_JOB_BG,
    ("low", True): Packet.SUBMIT_JOB_LOW_BG,
}
_LONG_ANSWERS: Final = frozenset({"status", "prioritystatus", "workers", "show"})


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What GET_STATUS tells.  A server that does not know a job may have finished it, or never had it."""

    known: bool
    running: bool
    numerator: int
    denominator: int


class ExtendedOptions(TypedDict, total=False):
    """What only a switchgear server can do for a job.  Of what is not given, it does the usual."""

    key: str  # whose job it is, for limits and fair hand-out
    crashes: int  # how often its worker may be lost; 0: any number
    on_failure: str | list[str]  # if a job of `after` does not succeed: wait, skip, fail or run; for all, or for each
    unique_scope: str  # until when the unique key is its own: unfinished or queued
    unique_policy: str  # if another job has the unique key: join, reject or replace
    unique_seconds: float  # the unique key is its own for so long, even if it ends before
    retention: float  # how many seconds it is remembered after its end


def submission_request(
    function: str | bytes,
    payload: bytes,
    *,
    unique: str | bytes,
    priority: str,
    background: bool,
    at: float | datetime | None,
    expires: float | datetime | None,
    run_timeout_seconds: float,
    attempts: int | None,
    after: Iterable[str],
    name: str,
    wishes: ExtendedOptions,
) -> tuple[bytes, bool]:
    """The packet that submits a job, and whether only our own server knows it."""
    unknown = sorted(wishes.keys() - ExtendedOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"submit() got an unexpected keyword argument {unknown[0]!r}")
    if priority not in PRIORITY_NAMES:
        raise ValueError(f"priority is one of {', '.join(PRIORITY_NAMES)}, not {priority!r}")
    run_at = _epoch_seconds(at)
    options = _without_defaults(
        run_at=run_at,
        expires_at=_epoch_seconds(expires),
        timeout=run_timeout_seconds,
        attempts=attempts,
        after=list(after),
        name=name,
    )
    options |= wishes
    names = (name_of(function, "function"), name_of(unique, "unique"))
    if not options:
        return request(SUBMIT[priority, background], *names, payload), False
    if options.keys() == {"run_at"} and background and priority == "normal":
        # Whole seconds are all this packet can say; a little late is better than early.
        return request(Packet.SUBMIT_JOB_EPOCH, *names, b"%d" % math.ceil(run_at), payload), False
    options |= {"wait": not background, "priority": priority}
    return request(Packet.SUBMIT_JOB_OPTIONS, *names, msgspec.json.encode(options), payload), True


def status_answer(body: bytes, server: object) -> JobStatus:
    """What a STATUS_RES says."""
    fields = body.split(b"\0")
    if len(fields) != 5:
        raise ClientError(f"{server} answered with a status of {len(fields)} fields")
    known, running, numerator, denominator = (whole_number(field) or 0 for field in fields[1:])
    return JobStatus(bool(known), bool(running), numerator, denominator)


def admin_request(line: str) -> tuple[bytes, bool]:
    """A command of the text protocol, and whether its answer has many lines, with a dot for the last."""
    if "\n" in line or "\r" in line:
        raise ValueError("a command of the text protocol is one line")
    words = line.lower().split()
    return line.encode() + b"\r\n", bool(words) and words[0] in _LONG_ANSWERS


def refusal_in_line(line: str) -> ServerRefused | None:
    """The error that an answer of the text protocol tells of, if it does."""
    if not line.startswith("ERR ") or "\t" in line:
        return None
    code, _, text = line.removeprefix("ERR ").partition(" ")
    return ServerRefused(code, text.replace("+", " "))


def control_request(verb: str, arguments: dict[str, Any]) -> bytes:
    """A CONTROL packet; arguments of None are left out."""
    given = {name: value for name, value in arguments.items() if value is not None}
    return request(Packet.CONTROL, name_of(verb, "verb"), msgspec.json.encode(given))


def control_answer(body: bytes, server: object) -> Any:
    """What a CONTROL_RES says."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ClientError(f"{server} answered with something that is not JSON: {error}") from error


def refuse_extensions(kind: int, body: bytes, server: object) -> None:
    """Raise ServerRefused if this is how a server answers to packets of ours that it does not know."""
    if kind == Packet.ERROR and body.startswith(b"INVALID_COMMAND"):
        text = f"{server} is a Gearman server that does not know the extension packets of switchgear"
        raise ServerRefused(UNKNOWN_EXTENSION, text)


def name_of(value: str | bytes, what: str) -> bytes:
    """A name as an argument of a packet."""
    encoded = value.encode(errors="surrogateescape") if isinstance(value, str) else value
    if b"\0" in encoded:
        raise ValueError(f"a {what} cannot contain a NUL byte")
    return encoded


def text_of(value: bytes) -> str:
    """Names as text, so that they come back as the same bytes."""
    return value.decode(errors="surrogateescape")


def _without_defaults(**options: Any) -> dict[str, Any]:
    """What was asked for; zero attempts is something to ask for, while other zeros mean nothing."""
    return {name: value for name, value in options.items() if value or (name == "attempts" and value is not None)}


def _epoch_seconds(moment: float | datetime | None) -> float:
    if isinstance(moment, datetime):
        return moment.timestamp()
    return moment or 0.0
