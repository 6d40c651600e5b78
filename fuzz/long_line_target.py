"""Target: very long lines of an atomic batch over HTTP, read in steps, mean what they mean when they are read at once.

An input is a part of a line.  It is repeated until the text that it is in, or that it makes, has several pieces.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Generator, Hashable
from typing import Any, Final

import msgspec

from fuzz.target import Target, must
from switchgear.protocols.http.long_lines import WINDOW_BYTES, LongLine
from switchgear.protocols.http.problems import HttpProblem
from switchgear.protocols.http.schemas import job_submission_decoder
from switchgear.protocols.http.submitting import wanted_payload

__all__ = ["LONG_LINE", "long_line_seeds"]

# What may be refused only because the line is long.
STRICTER: Final = {"body_too_large", "text_too_long"}
KINDS: Final = (
    (b'{"function":"f","payload":"', b'"}'),
    (b'{"function":"f","payload":{"base64":"', b'"}}'),
    (b'{"function":"f","args":{"a":"', b'"}}'),
    (b'{"function":"f","args":["', b'"]}'),
    (b'{"payload":"x","function":"', b'"}'),
)


def long_line(data: bytes) -> bytes:
    """The first byte says what the line is, the second where the repeated part begins."""
    before, after = KINDS[data[0] % len(KINDS)] if data else KINDS[0]
    shift, unit = data[1:2], data[2:] or b"x"
    return before + b"y" * (shift[0] % 16 if shift else 0) + unit * (WINDOW_BYTES * 2 // len(unit) + 1) + after


def at_once(line: bytes) -> bytes:
    """The payload; raises HttpProblem or an error of the decoder."""
    return wanted_payload(job_submission_decoder.decode(line))


def in_steps(line: bytes) -> bytes:
    """The same by a `LongLine` in the middle of a body."""
    reader = LongLine(b"[1]\n" + line + b'\n"', 4, 4 + len(line))
    finish(reader.read())
    wanted: Any = job_submission_decoder.decode(reader.rest)
    payload = finish(reader.payload(wanted))
    return wanted_payload(wanted) if payload is None else payload


def finish(steps: Generator[Any, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def is_json(line: bytes) -> bool:
    """Whether all of it is: arguments that are read at once are not looked at closely."""
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True


def run_long_line(data: bytes) -> Hashable:
    line = long_line(data)
    problem, payload = "", b""
    try:
        payload = in_steps(line)
    except HttpProblem as refusal:
        problem = refusal.code
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError) as error:
        problem = type(error).__name__
    try:
        expected = at_once(line)
    except (HttpProblem, msgspec.DecodeError, msgspec.ValidationError, UnicodeError):
        must(problem != "", "what is refused at once is accepted in steps", line[:100])
        return "refused", problem
    # What is read at once may end with more padding than base64 has.
    is_loose = not is_json(line) or (line.startswith(KINDS[1][0]) and b64encode(expected) + b'"' not in line)
    must(
        problem == "" or problem in STRICTER or is_loose,
        "what is accepted at once is refused in steps",
        problem,
        line[:100],
    )
    must(problem != "" or payload == expected, "in steps, something else is read", line[:100])
    return problem, min(len(payload), 1)


def long_line_seeds() -> list[bytes]:
    units = [
        "x",
        "é",
        "\\u00e9",
        "\\ud83d\\ude00",
        "\U0001f600",
        "\\n",
        "\\\\",
        '\\"',
        "QUJD",
        '","',
        '":"',
        "\\ud800",
        "\x01",
    ]
    return [bytes([kind, shift]) + unit.encode() for kind in range(len(KINDS)) for shift in (0, 3) for unit in units]


LONG_LINE: Final = (
    Target(
        "http-long-line",
        run_long_line,
        ("protocols.http.long_lines",),
        (),
        (b"\\u", b"\\ud83d\\ude00", b'","payload":"', b'"', b"\\", b"\xf0\x9f\x98\x80", b"=", b"QUJD"),
        64,
    ),
)
