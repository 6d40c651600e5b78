"""Traceparents of W3C Trace Context."""

from __future__ import annotations

import pytest

from switchgear.trace_context import TRACEPARENT_BYTES, is_traceparent, trace_id

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_valid_one() -> None:
    assert is_traceparent(TRACE)
    assert len(TRACE) == TRACEPARENT_BYTES
    assert trace_id(TRACE) == "0af7651916cd43dd8448eb211c80319c"
    assert trace_id(b"") == ""


@pytest.mark.parametrize("version", [b"01", b"cc", b"fe"])
def test_a_later_version_of_the_same_form(version: bytes) -> None:
    assert is_traceparent(version + TRACE[2:])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        TRACE[:-1],
        TRACE + b"0",
        TRACE + b"\n",
        TRACE + b"-more",
        TRACE.upper(),
        b"ff" + TRACE[2:],
        b"0g" + TRACE[2:],
        TRACE.replace(b"-", b"_"),
        b"00-" + b"0" * 32 + TRACE[35:],
        TRACE[:36] + b"0" * 16 + TRACE[52:],
        TRACE[:53] + b"xx",
        b" " + TRACE,
        TRACE.replace(b"0af", b"\xd9\xa1f"),
    ],
)
def test_everything_else_is_none(data: bytes) -> None:
    assert not is_traceparent(data)
