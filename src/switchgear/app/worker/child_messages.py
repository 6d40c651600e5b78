"""Messages between a worker and its child processes: msgpack in frames, over a socket pair."""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from switchgear.client.gearman.assigned_job import AssignedJob, Complete, Fail, Outcome, RetryLater, Stopped

__all__ = [
    "CancelJob",
    "ChildProgress",
    "ChildReady",
    "Frame",
    "FrameReader",
    "JobEnded",
    "StartJob",
    "encode",
    "ended",
    "outcome_of",
    "start",
]

_LENGTH: Final = Struct(">I")


class ChildReady(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """From a child: the app is imported, and jobs can be started."""


class StartJob(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Message to a child process: run this job."""

    attempt: int  # a number that distinguishes attempts of the same job
    assignment: AssignedJob
    measures_memory: bool = False  # report `resident_bytes` at its end


class CancelJob(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Message to a child process: cancel the job."""

    attempt: int
    reason: str


class ChildProgress(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """From a child: the progress of its job."""

    attempt: int
    done: int
    total: int
    message: str


class JobEnded(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """From a child: the job has ended with one of the four outcomes."""

    attempt: int
    how: str
    data: bytes = b""
    text: str = ""
    delay_seconds: float = 0.0
    attempts_limit: int = 0
    resident_bytes: int = 0  # of the child after the job; 0: not measured


Frame = ChildReady | StartJob | CancelJob | ChildProgress | JobEnded

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """A message as bytes: its length, then msgpack."""
    body = _ENCODER.encode(frame)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Splits a byte stream into messages."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The messages that are complete with these bytes."""
        self._held += data
        frames: list[Frame] = []
        while len(self._held) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._held)[0]
            if len(self._held) < end:
                break
            frames.append(_DECODER.decode(bytes(self._held[_LENGTH.size : end])))
            del self._held[:end]
        return frames


def start(attempt: int, assignment: AssignedJob, *, measures_memory: bool = False) -> StartJob:
    """The message that starts a job.  Its unique key, which may have bytes that are not UTF-8, is made readable."""
    unique = assignment.unique.encode(errors="surrogateescape").decode(errors="replace")
    return StartJob(attempt, msgspec.structs.replace(assignment, unique=unique), measures_memory)


def ended(attempt: int, outcome: Outcome, resident_bytes: int = 0) -> JobEnded:
    """The message with which a child process reports an outcome."""
    if isinstance(outcome, Complete):
        return JobEnded(attempt, "complete", data=outcome.result, resident_bytes=resident_bytes)
    if isinstance(outcome, RetryLater):
        delay_seconds, limit = outcome.delay_seconds, outcome.attempts_limit
        return JobEnded(attempt, "retry", b"", outcome.error, delay_seconds, limit, resident_bytes)
    if isinstance(outcome, Stopped):
        return JobEnded(attempt, "stopped", text=outcome.reason, resident_bytes=resident_bytes)
    return JobEnded(attempt, "fail", text=outcome.error, resident_bytes=resident_bytes)


def outcome_of(frame: JobEnded) -> Outcome:
    """The outcome in a message of a child process."""
    if frame.how == "complete":
        return Complete(frame.data)
    if frame.how == "retry":
        return RetryLater(frame.delay_seconds, frame.text, frame.attempts_limit)
    if frame.how == "stopped":
        return Stopped(frame.text)
    return Fail(frame.text)
