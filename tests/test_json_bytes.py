"""Bytes in JSON, and answers with values that are too long to be encoded at once."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from switchgear.json_bytes import LONG_BYTES, PIECE_BYTES, LongBytes, bytes_of, encoded_around, pieces_of, plain, told

TEXTS = [
    b"x" * (3 * PIECE_BYTES),
    b"\0" * (2 * PIECE_BYTES + 1),
    b'"\\' * PIECE_BYTES,
    "\u00e4".encode() * PIECE_BYTES,
    b"x" + "\u00e4".encode() * PIECE_BYTES,
    "\U0001f600".encode() * PIECE_BYTES,
    b"xx" + "\U0001f600".encode() * PIECE_BYTES,
    "\u2028".encode() * PIECE_BYTES,
]
NO_TEXTS = [
    b"\xff" * (2 * PIECE_BYTES + 1),
    b"x" * (3 * PIECE_BYTES) + b"\xff",
    b"\x80" * (2 * PIECE_BYTES),
    "\U0001f600".encode() * PIECE_BYTES + b"\xf0\x9f",
    b"\xed\xa0\x80" * PIECE_BYTES,  # a surrogate
]


@pytest.mark.parametrize("data", [b"", b"x", *TEXTS, *NO_TEXTS], ids=repr)
def test_pieces_are_what_would_be_encoded_at_once(data: bytes) -> None:
    pieces = list(pieces_of(data))
    assert json.loads(b"".join(pieces)) == plain(data)
    assert max(map(len, pieces)) <= 6 * PIECE_BYTES + 2


def test_text_and_base64() -> None:
    assert plain(b"\xff") == {"base64": b64encode(b"\xff").decode()}
    assert told(b"x" * LONG_BYTES) == "x" * LONG_BYTES
    long = told(b"x" * (LONG_BYTES + 1))
    assert isinstance(long, LongBytes)
    assert bytes_of(long, "payload") == b"x" * (LONG_BYTES + 1)


@pytest.mark.parametrize("answer", [{}, [], {"payload": LongBytes(b"p")}, [LongBytes(b"p"), {"r": LongBytes(b"\xff")}]])
def test_an_answer_around_its_long_values(answer: Any) -> None:
    parts, values = encoded_around(answer)
    assert len(parts) == len(values) + 1
    whole = parts[0]
    for part, value in zip(parts[1:], values, strict=True):
        whole += b"".join(pieces_of(value.data)) + part
    expected = json.dumps(answer, default=lambda value: plain(value.data))
    assert json.loads(whole) == json.loads(expected)


def test_what_cannot_be_written_is_an_error() -> None:
    with pytest.raises(TypeError, match="object cannot be written"):
        encoded_around({"x": object()})
