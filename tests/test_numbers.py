"""Numbers that peers write: what is one, and what Python alone would take for one."""

from __future__ import annotations

import time

import pytest

from switchgear.numbers import LARGEST, leading_number, real_number, signed_number, whole_number

NO_NUMBERS = [
    b"", b" ", b"-", b"+1", b"1_000", b" 1", b"1 ", b"1\n", "²".encode(), "٣".encode(), b"0x10", b"1.5", b"1e3", b"nan",
    b"inf", b"\xff", b"--1", b"9" * 20, b"9" * 5000, b"1" * 10_000_000, b"1\0",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_NUMBERS, ids=lambda text: repr(text[:10]))
def test_what_is_no_whole_number(text: bytes) -> None:
    assert whole_number(text) is None
    assert signed_number(text) is None
    assert signed_number(b"-" + text) is None or text == b"-"


def test_whole_numbers() -> None:
    assert [whole_number(text) for text in (b"0", b"7", b"007", b"0" * 5000 + b"5")] == [0, 7, 7, 5]
    assert whole_number(b"%d" % LARGEST) == LARGEST
    assert whole_number(b"%d" % (LARGEST + 1)) is None
    assert [whole_number(text, 10) for text in (b"10", b"11")] == [10, None]
    assert [signed_number(text) for text in (b"-7", b"7", b"-0", b"-%d" % LARGEST)] == [-7, 7, 0, -LARGEST]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"", 0),
        (b"x", 0),
        (b"12x", 12),
        (b" \t12", 12),
        (b"-5", 0),
        (b"1_0", 1),
        (b"9" * 5000, 10**18 - 1),
        ("٣".encode(), 0),
    ],
)
def test_the_digits_that_a_text_starts_with(text: bytes, number: int) -> None:
    assert leading_number(text) == number


def test_a_long_text_is_not_read_to_its_end() -> None:
    text = b"1" * 64_000_000
    before = time.process_time()
    leading_number(text)
    assert time.process_time() - before < 0.5


@pytest.mark.parametrize("text", [b"0", b"1.5", b".5", b"1.", b"-1e3", b"+2E-3", b"1" * 64])
def test_real_numbers(text: bytes) -> None:
    assert real_number(text) == float(text)


@pytest.mark.parametrize(
    "text",
    [b"", b".", b"nan", b"inf", b"-Infinity", b"1_0", b" 1", b"1e", b"1e400", b"1" * 400, b"0x1p3", "²".encode()],
)
def test_what_is_no_real_number(text: bytes) -> None:
    assert real_number(text) is None
