"""What a worker and its child processes say to each other: msgpack in frames, over a pair of sockets."""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from switchgear.app.job_execution import AssignedJob, Complete, Fail, Outcome, RetryLater, Stopped

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
]

_LENGTH: Final = Struct(">I")


class ChildReady(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """From a child: it has imported the app."""


class StartJob(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """To a child: run this job."""

    attempt: int  # tells it from earlier ones of the same job
    assignment: AssignedJob


class CancelJob(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """To a child: the job is not wanted any more."""

    attempt: int
    reason: str


class ChildProgress(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """From a child."""

    attempt: int
    done: int
    total: int
    message: str


class JobEnded(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """From a child: the job has ended in one of the four ways."""

    attempt: int
    how: str
    data: bytes = b""
    text: str = ""
    delay_seconds: float = 0.0
    attempts_limit: int = 0


Frame = ChildReady | StartJob | CancelJob | ChildProgress | JobEnded

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """A frame as bytes, its length first."""
    body = _ENCODER.encode(frame)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a stream into frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now."""
        self._held += data
        frames: list[Frame] = []
        while len(self._held) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._held)[0]
            if len(self._held) < end:
                break
            frames.append(_DECODER.decode(bytes(self._held[_LENGTH.size : end])))
            del self._held[:end]
        return frames


def ended(attempt: int, outcome: Outcome) -> JobEnded:
    """The frame that tells of an outcome."""
    if isinstance(outcome, Complete):
        return JobEnded(attempt, "complete", data=outcome.result)
    if isinstance(outcome, RetryLater):
        return JobEnded(attempt, "retry", b"", outcome.error, outcome.delay_seconds, outcome.attempts_limit)
    if isinstance(outcome, Stopped):
        return JobEnded(attempt, "stopped", text=outcome.reason)
    return JobEnded(attempt, "fail", text=outcome.error)


def outcome_of(frame: JobEnded) -> Outcome:
    """The outcome that a frame tells of."""
    if frame.how == "complete":
        return Complete(frame.data)
    if frame.how == "retry":
        return RetryLater(frame.delay_seconds, frame.text, frame.attempts_limit)
    if frame.how == "stopped":
        return Stopped(frame.text)
    return Fail(frame.text)
