"""Conversations in the draft as text.

The notation is that of the modern protocol's transcripts, with these packets added, their arguments in words:

    worker > worker_connect NAME...
    worker > worker_disconnect | worker_sleep | job_assign_req
    worker < noop
    worker < job_assign_res NAME ARGS
    worker > job_status_announce NUMERATOR DENOMINATOR [SECONDS]
    worker > job_complete_announce CODE DATA
    app > job_create_req NAME DUPKEY TYPE ARGS            TYPE is wait, handle or throw-away
    app < job_create_res [HANDLE]
    app > job_status_req HANDLE                           or job_complete_req
    app < job_status_res NUMERATOR DENOMINATOR SECONDS
    app < job_complete_res ELAPSED CODE DATA
    app < error CODE                                      with whatever text
    app > draft TYPE BODY                                 a packet of that number, the body as it is
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.protocols.gearman import transcript as modern
from tests.protocols.gearman.harness import Talker
from tests.protocols.gearman.transcript import MANNERS, SETTINGS, WORD, Step, Transcript, perform, speak, unquoted
from tests.protocols.gearman_draft.harness import MixedHarness
from tests.support.draft_wire import ErrorCode, Kind, numbers, packet, split_packet

__all__ = ["MANNERS", "Transcript", "load", "play"]

FOLDER = Path(__file__).parent / "transcripts"
TYPES = {"wait": 0, "handle": 1, "throw-away": 2}


@dataclass(frozen=True)
class ErrorStep(Step):
    """An error is heard, of this code."""

    code: int = 0


def load(name: str) -> list[Transcript]:
    """The conversations of one file."""
    return list(parse((FOLDER / f"{name}.txt").read_text()))


def parse(text: str) -> Iterator[Transcript]:
    for part in text.split("\n== ")[1:]:
        title, *lines = part.splitlines()
        transcript = Transcript(title.strip())
        for line in (line.strip() for line in lines):
            if line.startswith("server "):
                transcript.settings.append(line.removeprefix("server "))
            elif line and not line.startswith("#"):
                transcript.steps.append(parse_step(line))
        yield transcript


def parse_step(line: str) -> Step:
    words = WORD.findall(line)
    if len(words) < 3 or words[1] not in "<>" or (words[2] not in Kind.__members__ and words[2] != "draft"):
        return modern.parse_step(line)
    who, verb, name, *rest = words
    if verb == "<" and name == "error":
        return ErrorStep(line, who, "<", code=ErrorCode[rest[0]])
    arguments = [unquoted(word) for word in rest]
    if name == "draft":
        return Step(line, who, verb, packet(int(arguments[0]), b"".join(arguments[1:])))
    return Step(line, who, verb, packet(Kind[name], BODIES.get(name, b"".join)(arguments)))


def create_body(words: list[bytes]) -> bytes:
    name, dupkey, job_type, *args = words
    return name + b"\0" + dupkey + b"\0\0" + bytes([TYPES[job_type.decode()]]) + b"".join(args)


def complete_body(words: list[bytes]) -> bytes:
    elapsed, code, *data = words
    return numbers(int(elapsed)) + bytes([int(code)]) + b"".join(data)


BODIES: dict[str, Callable[[list[bytes]], bytes]] = {
    "worker_connect": b"\0".join,
    "job_create_req": create_body,
    "job_assign_res": lambda words: words[0] + b"\0" + b"".join(words[1:]),
    "job_status_announce": lambda words: numbers(*(int(word) for word in words)),
    "job_status_res": lambda words: numbers(*(int(word) for word in words)),
    "job_complete_announce": lambda words: bytes([int(words[0])]) + b"".join(words[1:]),
    "job_complete_res": complete_body,
}


def play(transcript: Transcript, manner: str) -> MixedHarness:
    """Play it against a new harness; raises AssertionError where it is not as written."""
    settings: dict[str, Any] = {}
    for name in transcript.settings:
        settings.update(SETTINGS[name]())
    harness = MixedHarness(**settings)
    ahead: dict[str, int] = {}
    for index, step in enumerate(transcript.steps):
        try:
            if step.verb == ">":
                speak(harness, transcript.steps, index, manner, ahead)
            elif isinstance(step, ErrorStep):
                hear_error(harness.talker(step.who), step)
            else:
                perform(harness, step)
        except AssertionError as error:
            raise AssertionError(f"{transcript.title} ({manner}): {step.line}\n{error}") from error
    for name, talker in harness.talkers.items():
        assert not talker.wire.written, f"{transcript.title} ({manner}): {name} also heard {talker.wire.written!r}"
    return harness


def hear_error(talker: Talker, step: ErrorStep) -> None:
    whole = split_packet(talker.wire.written)
    assert whole is not None, f"heard nothing whole: {talker.wire.written!r}"
    heard, talker.wire.written = whole
    assert heard.kind == Kind.error, f"heard {heard!r}"
    assert heard.body[:1] == bytes([step.code]), f"heard {heard!r}"
    assert heard.body[1:].decode("ascii"), "an error without words"
