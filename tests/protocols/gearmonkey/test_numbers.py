"""Whatever is written where a number should be, the connection goes on."""

from __future__ import annotations

import pytest

from tests.protocols.gearmonkey.harness import MonkeyHarness, Word, pop, push
from tests.support.resp_wire import OK, Error, Simple

NO_NUMBERS: list[Word] = [
    "",
    " 1",
    "1 ",
    "1_000",
    "+1",
    "²",
    "٣",
    "nan",
    b"\xff",
    "0x10",
    "1.5.5",
    "9" * 20,
    "9" * 400,
    "9" * 5000,
    "-" + "9" * 5000,
]


@pytest.mark.parametrize("number", NO_NUMBERS, ids=lambda number: repr(number)[:12])
@pytest.mark.parametrize(
    "words",
    [
        ("HMSET", "job:f:1", "status:dividend", None),
        ("HMSET", "job:f:1", "status:divisor", None),
        ("HSET", "job:f:1", "status", "busy", "status:divisor", None),
        ("BRPOP", "queue:g:high", None),
        ("BRPOP", "lock:f:1", None),
        ("RPOP", "queue:f:normal", None),
        ("INCRBY", "count:f", None),
        ("DECRBY", "count:f", None),
        ("EXPIRE", "job:f:1", None),
        ("SELECT", None),
        ("HELLO", None),
        ("LPUSH", "queue:f:normal", None),
        ("EVAL", "x", None, "queue:f:scheduled", "1"),
        ("EVALSHA", "x", None),
    ],
    ids=lambda words: " ".join(map(str, words))[:30],
)
def test_what_is_no_number_is_refused(words: tuple[str | None, ...], number: Word) -> None:
    harness = MonkeyHarness()
    push(harness)
    pop(harness)
    if words[0] == "BRPOP" and number == "+1":
        number = "++1"  # a float may have a plus
    assert isinstance(harness.ask("worker", *(number if word is None else word for word in words)), Error)
    assert harness.ask("worker", "HMSET", "job:f:1", "status", "success") == OK


@pytest.mark.parametrize(
    "number",
    [*NO_NUMBERS, "inf", "-inf", "1e30", "253402300800", "1e308", "1e309"],
    ids=lambda number: repr(number)[:12],
)
def test_a_job_is_not_scheduled_for_a_time_that_is_none(number: Word) -> None:
    harness = MonkeyHarness()
    harness.ask("client", "INCR", "uid:f")
    harness.ask("client", "HMSET", "job:f:1", "status", "idle")
    if number == "+1":
        number = "++1"  # a float may have a plus
    assert isinstance(harness.ask("client", "ZADD", "queue:f:scheduled", number, "1"), Error)
    assert harness.ask("client", "ZADD", "queue:f:scheduled", "253402300799", "1") == 1


def test_a_number_of_a_length_that_no_string_has_ends_the_conversation() -> None:
    for line in (b"*" + b"9" * 5000, b"*1\r\n$" + b"9" * 5000, b"*\xb2", b"*1_0", b"*1\r\n$1_0", b"*1\r\n$+1"):
        harness = MonkeyHarness()
        harness.talker("client").send(line + b"\r\n")
        (reply,) = harness.heard("client")
        assert isinstance(reply, Error)
        assert reply.text.startswith(b"ERR Protocol error")
        assert harness.talker("client").wire.is_closed
    assert harness.ask("other", "PING") == Simple(b"PONG")
