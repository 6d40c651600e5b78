"""Conversations as text, and playing them.

    == title of the conversation            starts one
    # a remark
    server exceptions                       a setting of the server, before anything else: see `SETTINGS`
    client > SUBMIT_JOB resize key data     client sends a packet; "quoted words" may have Python's escapes, "" is empty
    client > type 43 x                      a packet of that number
    client > response ECHO_REQ x            a packet with the magic of the server's own
    client > "status\\n"                     bytes as they are
    client < JOB_CREATED H:t:1              client has been sent this packet; a last * stands for any text
    client < "OK\\r\\n"                       client has been sent these bytes
    client < closed                         the server has hung up, and said nothing more
    client leaves                           and is gone
    client stops sending                    but still listens
    pass 5                                  so many seconds pass

What is heard must have been heard by then, and in the end nobody must have heard anything else.  Each conversation is
played whole (what one says in one go is one piece), byte by byte, and with a tail: each piece takes along the next one
of the same connection but for its last byte.
"""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from switchgear.engine.engine import EngineSettings
from switchgear.verbs.access import AccessRules
from tests.protocols.gearman.harness import Harness, Talker
from tests.support.wire import REQ, RES, Kind, Packet, split_message

FOLDER = Path(__file__).parent / "transcripts"
EXTENSIONS = (
    "SUBMIT_JOB_OPTIONS",
    "CONTROL",
    "CONTROL_RES",
    "WATCH",
    "WATCH_RES",
    "JOB_ENDED",
    "WORK_PROGRESS",
    "CREDIT",
    "JOB_PUSH",
    "REVOKE",
    "RETRY_LATER",
    "HAND_BACK",
    "WORKER_TAGS",
    "WORKER_RESOURCES",
    "JOB_PUSH_TRACED",
    "WORKER_CONTROL",
    "WORKER_STATUS",
    "RESUME_JOB",
    "RESUME_RES",
)
KINDS = {
    **{kind.name: int(kind) for kind in Kind},
    **{name: 1000 + place for place, name in enumerate(EXTENSIONS)},
    "AUTHENTICATE": 1020,
    "AUTHENTICATED": 1021,
    "GRAPH_BEGIN": 1030,
    "GRAPH_IDS": 1031,
    "GRAPH_PART": 1032,
    "GRAPH_COMMIT": 1033,
    "GRAPH_CREATED": 1034,
}
SETTINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "exceptions": lambda: {"exceptions": True},
    "one attempt": lambda: {"settings": EngineSettings(attempts=1)},
    "two functions": lambda: {"settings": EngineSettings(functions=2)},
    "two jobs": lambda: {"settings": EngineSettings(jobs=2)},
    "wakes all": lambda: {"settings": EngineSettings(wakeups=0)},
    "by registration": lambda: {"settings": EngineSettings(function_order="registration")},
    "never shuts down": lambda: {"access": AccessRules(shutdown="never")},
}
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')


@dataclass(frozen=True)
class Step:
    """One line of a conversation."""

    line: str
    who: str
    verb: str  # > < leaves stops pass
    data: bytes = b""  # what is sent, or the body that is heard
    kind: int = -1  # of the packet that is heard; -1: bytes
    any_text: bool = False
    seconds: float = 0.0


@dataclass
class Transcript:
    title: str
    settings: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def __str__(self) -> str:
        return self.title


def load(name: str) -> list[Transcript]:
    """The conversations of one file."""
    return list(parse((FOLDER / f"{name}.txt").read_text()))


def parse(text: str) -> Iterator[Transcript]:
    transcript: Transcript | None = None
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("=="):
            if transcript is not None:
                yield transcript
            transcript = Transcript(line.removeprefix("==").strip())
            continue
        assert transcript is not None, f"before the first title: {line}"
        if line.startswith("server "):
            transcript.settings.append(line.removeprefix("server "))
        else:
            transcript.steps.append(parse_step(line))
    if transcript is not None:
        yield transcript


def parse_step(line: str) -> Step:
    words = WORD.findall(line)
    if words[0] == "pass":
        return Step(line, "", "pass", seconds=float(words[1]))
    who, verb, *rest = words
    if verb == ">":
        return Step(line, who, ">", sent(rest))
    if verb == "<":
        return heard(line, who, rest)
    assert verb in ("leaves", "stops"), line
    return Step(line, who, verb)


def sent(words: list[str]) -> bytes:
    if words[0].startswith('"'):
        return b"".join(unquoted(word) for word in words)
    magic = REQ
    if words[0] == "response":
        magic, words = RES, words[1:]
    if words[0] == "type":
        words = words[1:]
        return framed(magic, int(words[0]), words[1:])
    return framed(magic, KINDS[words[0]], words[1:])


def heard(line: str, who: str, words: list[str]) -> Step:
    if words == ["closed"]:
        return Step(line, who, "closed")
    if words[0].startswith('"'):
        return Step(line, who, "<", b"".join(unquoted(word) for word in words))
    any_text = words[-1] == "*"
    body = b"\0".join(unquoted(word) for word in words[1 : len(words) - any_text])
    return Step(line, who, "<", body, KINDS[words[0]], any_text)


def framed(magic: bytes, kind: int, words: list[str]) -> bytes:
    body = b"\0".join(unquoted(word) for word in words)
    return struct.pack(">4sII", magic, kind, len(body)) + body


def unquoted(word: str) -> bytes:
    if word.startswith('"'):
        value = ast.literal_eval(f"b{word}")
        assert isinstance(value, bytes)
        return value
    return word.encode()


# --- playing ---


def play(transcript: Transcript, manner: str = "whole", **setup: Any) -> Harness:
    """Play it against a new harness; raises AssertionError where it is not as written."""
    settings: dict[str, Any] = setup
    for name in transcript.settings:
        settings.update(SETTINGS[name]())
    harness = Harness(**settings)
    ahead: dict[str, int] = {}  # how much of what somebody says next was sent already
    for index, step in enumerate(transcript.steps):
        try:
            if step.verb == ">":
                speak(harness, transcript.steps, index, manner, ahead)
            else:
                perform(harness, step)
        except AssertionError as error:
            raise AssertionError(f"{transcript.title} ({manner}): {step.line}\n{error}") from error
    for name, talker in harness.talkers.items():
        assert not talker.wire.written, f"{transcript.title} ({manner}): {name} also heard {talker.wire.written!r}"
    return harness


def speak(harness: Harness, steps: list[Step], index: int, manner: str, ahead: dict[str, int]) -> None:
    step = steps[index]
    talker = harness.talker(step.who)
    if manner == "byte by byte":
        for byte in step.data:
            talker.send(bytes([byte]))
    elif manner == "with a tail":
        tail = next_words(steps[index + 1 :], step.who)[:-1]
        talker.send(step.data[ahead.pop(step.who, 0) :] + tail)
        ahead[step.who] = len(tail)
    elif not is_continued(steps, index - 1, step.who):
        pieces = [step.data]
        while is_continued(steps, index, step.who):
            index += 1
            pieces.append(steps[index].data)
        talker.send(*pieces)


def is_continued(steps: list[Step], index: int, who: str) -> bool:
    """Whether this step and the next are one piece of what somebody says."""
    pair = steps[index : index + 2] if index >= 0 else []
    return len(pair) == 2 and all(step.verb == ">" and step.who == who for step in pair)


def next_words(steps: list[Step], who: str) -> bytes:
    """What this one says next on the same connection."""
    for step in steps:
        if step.who == who and step.verb != "<":
            return step.data if step.verb == ">" else b""
    return b""


def perform(harness: Harness, step: Step) -> None:
    if step.verb == "pass":
        harness.pass_time(step.seconds)
        return
    talker = harness.talker(step.who)
    if step.verb == "leaves":
        talker.leave()
    elif step.verb == "stops":
        talker.stop_sending()
    elif step.verb == "closed":
        assert not talker.wire.written, f"heard {talker.wire.written!r}"
        assert talker.wire.is_closed, "still connected"
    else:
        hear(talker, step)


def hear(talker: Talker, step: Step) -> None:
    if step.kind < 0:
        assert talker.wire.written.startswith(step.data), f"heard {talker.wire.written!r}"
        talker.wire.written = talker.wire.written[len(step.data) :]
        return
    whole = split_message(talker.wire.written)
    assert whole is not None, f"heard nothing whole: {talker.wire.written!r}"
    message, talker.wire.written = whole
    if step.any_text and isinstance(message, Packet):
        message = Packet(message.type, message.body[: len(step.data) + 1])
        assert message == Packet(step.kind, step.data + b"\0"), f"heard {message!r}"
    else:
        assert message == Packet(step.kind, step.data), f"heard {message!r}"


MANNERS = ("whole", "byte by byte", "with a tail")
