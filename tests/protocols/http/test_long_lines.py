"""Very long lines of atomic batches: read in steps, and as they would be read at once."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from switchgear.protocols.http.long_lines import COPIED_BYTES, LONG_LINE_BYTES, WINDOW_BYTES, LongLine
from switchgear.protocols.http.problems import HttpProblem
from switchgear.protocols.http.schemas import job_submission_decoder
from switchgear.protocols.http.submitting import wanted_payload
from tests.protocols.http.harness import HttpHarness

MIB = 1 << 20


def read(line: bytes) -> tuple[Any, bytes, int]:
    """The submission that a line in the middle of a body is, its payload, and the number of steps that took."""
    reader = LongLine(b'{"before"\n' + line + b'\n"after"}', 10, 10 + len(line))
    steps = 0
    for _ in reader.read():
        steps += 1
    wanted: Any = job_submission_decoder.decode(reader.rest)
    payload = wanted_payload(wanted) if wanted.payload is msgspec.UNSET or isinstance(wanted.payload, str) else b""
    reading = reader.payload(wanted)
    while True:
        try:
            next(reading)
            steps += 1
        except StopIteration as end:
            return wanted, payload if end.value is None else end.value, steps


UNITS = ["x", "é", "\U0001f600", '"', "\\", "\n", "\x01", "x\\u0041", "a\\", "日本", "\\ud83d", "\x7f"]


@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shift", range(13))
def test_a_long_text_is_read_as_at_once(unit: str, escaped: bool, shift: int) -> None:
    """However the pieces lie: no character, escape or pair of surrogates is read as two halves."""
    text = "y" * shift + unit * (150_000 // len(unit))
    wanted, payload, steps = read(json.dumps({"function": "f", "payload": text}, ensure_ascii=escaped).encode())
    assert payload == text.encode()
    assert wanted.function == "f"
    assert steps >= 2


def test_short_texts_stay_where_they_are() -> None:
    line = json.dumps({"function": "f", "payload": "p" * WINDOW_BYTES, "name": 'n"\\'})
    wanted, payload, _ = read(line.encode())
    assert (wanted.name, len(payload)) == ('n"\\', WINDOW_BYTES)


def test_a_long_payload_in_base64() -> None:
    for size in (300_000, 300_001, 300_002):
        data = bytes(range(256)) * 2000
        text = base64.b64encode(data[:size]).decode()
        _, payload, steps = read(json.dumps({"function": "f", "payload": {"base64": text}}).encode())
        assert payload == data[:size]
        assert steps > 8


def test_long_texts_in_arguments_stay_as_they_were_written() -> None:
    first, second = "é\\" * 60_000, "\U0001f600" * 40_000
    args = {"a": first, "b": [second, first, "short"]}
    text = json.dumps(args)
    _, payload, _ = read(b'{"args": ' + text.encode() + b', "function": "f"}')
    assert payload == text.encode()


def test_long_texts_are_copied_into_the_payload_in_steps() -> None:
    line = b'{"args":["' + b"x" * (8 * MIB) + b'"],"function":"f"}'
    reader = LongLine(line, 0, len(line))
    assert sum(1 for _ in reader.read()) >= 8 * MIB // WINDOW_BYTES
    copying = reader.payload(job_submission_decoder.decode(reader.rest))
    assert sum(1 for _ in copying) == 8 * MIB // COPIED_BYTES


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"function":"f","payload":"' + LONG, "invalid_json"),
        ('{"function":"f","payload":"' + LONG + "\\u00", "invalid_json"),
        ('{"function":"f","payload":"' + LONG + '\\ud800"}', "invalid_json"),
        ('{"function":"f","payload":"' + LONG + '\\x"}', "invalid_json"),
        ('{"function":"f","payload":"' + "\x01" + LONG + '"}', "invalid_json"),
        ('{"function":"f","payload":{"base64":"' + LONG + "=" + LONG + '"}}', "invalid_field"),
        ('{"function":"f","payload":{"base64":"' + LONG + '!"}}', "invalid_field"),
        ('{"function":"f","payload":{"base64":"' + LONG + '=="}}', "invalid_field"),
        ('{"function":"f","name":"' + LONG + '"}', "text_too_long"),
        ('{"function":"' + LONG + '","payload":"' + LONG + '"}', "text_too_long"),
        ('{"function":"f","args":[' + "1," * (3 * MIB) + "1]}", "body_too_large"),
        ('{"function":"f","args":[' + '"",' * (2 * MIB) + "1]}", "body_too_large"),
    ],
)
def test_what_is_wrong_is_refused(line: str, code: str) -> None:
    with pytest.raises(HttpProblem) as raised:
        read(line.encode())
    assert raised.value.code == code


def test_bytes_that_are_no_text_are_refused() -> None:
    for wrong in (b"\xff", b"\xc3", b"\x80", b"\xed\xa0\x80"):
        with pytest.raises(HttpProblem):
            read(b'{"function":"f","payload":"' + (wrong + b"x" * 7) * 50_000 + b'"}')


def test_an_atomic_batch_with_very_long_lines() -> None:
    harness = HttpHarness()
    harness.setup.packet_bytes = 10_000_000
    long = json.dumps({"function": "f", "payload": "é" * LONG_LINE_BYTES})
    args = json.dumps({"function": "g", "args": ["a" * LONG_LINE_BYTES], "after": ["#1"]})
    answer = harness.ask("client", "POST", "/v1/jobs/batch?atomic=1", f"{long}\n{args}".encode())
    assert [line["id"] for line in answer.lines] == [1, 2]
    first, second = harness.engine.jobs[1], harness.engine.jobs[2]
    assert first.payload == "é".encode() * LONG_LINE_BYTES
    assert json.loads(second.payload or b"") == ["a" * LONG_LINE_BYTES]
    assert second.predecessors == (1,)
    wrong = json.dumps({"function": "f", "name": "n" * LONG_LINE_BYTES})
    answer = harness.ask("client", "POST", "/v1/jobs/batch?atomic=1", f"{long}\n{wrong}".encode())
    assert (answer.status, [line["line"] for line in answer.lines]) == (422, [2])
    assert harness.engine.job_count() == 2
