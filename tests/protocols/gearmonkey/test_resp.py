"""RESP: commands however they are cut, replies in both versions, and what is neither."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha1
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.errors import PeerError
from switchgear.protocols.gearmonkey import resp
from switchgear.protocols.gearmonkey.keys import SCRIPT, SCRIPT_SHA, Key, KeyKind, parse_key
from switchgear.protocols.gearmonkey.patterns import Pattern
from switchgear.protocols.gearmonkey.resp import Command, RespDecoder, split_line
from tests.support.resp_wire import Error as ErrorReply
from tests.support.resp_wire import NullArray, Push, Simple, Verbatim, command, split_replies

PACKET_BYTES = 100


@dataclass(frozen=True)
class Decoded:
    commands: list[Command]
    failure: str = ""
    held: int = 0


def decode(*pieces: bytes, packet_bytes: int = PACKET_BYTES) -> Decoded:
    decoder = RespDecoder(packet_bytes)
    commands = []
    for piece in pieces:
        commands += decoder.feed(piece)
    failure = decoder.failure
    if failure is not None:
        assert failure.framing_lost
        assert decoder.buffered_bytes == 0
    return Decoded(commands, str(failure or ""), decoder.buffered_bytes)


def slices(data: bytes, random: Random) -> list[bytes]:
    pieces = []
    while data:
        size = random.randint(1, len(data))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


# --- commands ---


@pytest.mark.parametrize(
    ("data", "commands"),
    [
        (b"*1\r\n$4\r\nPING\r\n", [[b"PING"]]),
        (b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", [[b"ECHO", b""]]),
        (b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\0\xff\r\n", [[b"ECHO", b"\r\n\0\xff"]]),
        (b"*0\r\n*-1\r\n*-5\r\n*1\r\n$4\r\nPING\r\n", [[b"PING"]]),
        (b"PING\r\n", [[b"PING"]]),
        (b"PING\n", [[b"PING"]]),
        (b"\r\n\n  \r\n  PING  \r\n", [[b"PING"]]),
        (b"PING\r\n*1\r\n$4\r\nPING\r\nPING\n", [[b"PING"]] * 3),
        (b"$4\r\n", [[b"$4"]]),
    ],
)
def test_commands(data: bytes, commands: list[Command]) -> None:
    assert decode(data) == Decoded(commands)
    assert decode(*(bytes([byte]) for byte in data)) == Decoded(commands)
    assert decode(data + b"*1\r\n$4\r\nPI") == Decoded(commands, held=6)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'SET a "b c"', [b"SET", b"a", b"b c"]),
        (b"SET a 'b c'", [b"SET", b"a", b"b c"]),
        (b'"a\\n\\r\\t\\b\\a\\x41\\xff\\\\\\"\\q"', [b'a\n\r\t\b\aA\xff\\"q']),
        (b"'a\\n\\'b'", [b"a\\n'b"]),
        (b"\"\" ''", [b"", b""]),
        (b"a\tb\x0bc", [b"a", b"b", b"c"]),
        (b"", []),
    ],
)
def test_a_line_is_split_into_words(line: bytes, words: list[bytes]) -> None:
    assert split_line(line) == words


@pytest.mark.parametrize("line", [b'"a', b"'a", b'"a"b', b"'a'b", b'"a\\"', b'a"b', b'a "'])
def test_quotes_that_do_not_match(line: bytes) -> None:
    with pytest.raises(PeerError, match="Protocol error: unbalanced quotes in request"):
        split_line(line)


@pytest.mark.parametrize(
    ("data", "failure"),
    [
        (b"*a\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"* 1\r\n", "invalid multibulk length"),
        (b"*1\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*65537\r\n", "invalid multibulk length, at most 65536 are taken"),
        (b"*1\r\n+", "expected '$', got '+'"),
        (b"*1\r\n+OK\r\n", "expected '$', got '+'"),
        (b"*1\r\n\xff", "expected '$', got 'ÿ'"),
        (b"*1\r\n$a\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$101\r\n", "invalid bulk length, at most 100 bytes in a command are taken"),
        (
            b"*2\r\n$60\r\n" + b"x" * 60 + b"\r\n$41\r\n",
            "invalid bulk length, at most 100 bytes in a command are taken",
        ),
        (b"*1\r\n$4\r\nPINGxx", "expected CRLF after a bulk string"),
        (b'GET "a\r\n', "unbalanced quotes in request"),
        (b"x" * 65536, "too big inline request"),
        (b"*" + b"1" * 65536, "too big mbulk count string"),
        (b"*1\r\n$" + b"1" * 65536, "too big bulk count string"),
    ],
)
def test_broken_framing(data: bytes, failure: str) -> None:
    expected = Decoded([[b"PING"]], f"Protocol error: {failure}")
    stream = b"PING\r\n" + data
    assert decode(stream) == expected
    assert decode(*slices(stream, Random(data))) == expected
    assert decode(stream, b"PING\r\n") == expected


@pytest.mark.parametrize("size", [99, 100])
def test_a_command_as_long_as_is_taken(size: int) -> None:
    words = [b"E" * 40, b"x" * (size - 40)]
    assert decode(command(*words)) == Decoded([words])


def test_nothing_is_reserved_for_what_is_announced() -> None:
    decoder = RespDecoder(1 << 40)
    assert decoder.feed(b"*3\r\n$1\r\na\r\n$999999999999\r\n") == []
    assert decoder.buffered_bytes < 100


def test_a_long_command_in_many_slices_takes_no_longer_than_its_bytes() -> None:
    """Were it looked at anew with every slice, this would take minutes."""
    decoder = RespDecoder(1 << 30)
    words = [b"LPUSH", *[b"%d" % number for number in range(20_000)], b"x" * 4_000_000]
    data = command(*words)
    before = time.process_time()
    commands = [found for at in range(0, len(data), 100) for found in decoder.feed(data[at : at + 100])]
    assert commands == [words]
    assert time.process_time() - before < 5


words = st.lists(st.binary(max_size=20), min_size=1, max_size=4)
typed = st.lists(st.from_regex(rb"[a-z]{1,8}", fullmatch=True), min_size=1, max_size=3)
streams = st.lists(st.tuples(st.booleans(), words, typed), max_size=6)


@given(streams, st.randoms(use_true_random=False))
def test_slicing_never_matters(stream: list[tuple[bool, Command, Command]], random: Random) -> None:
    data = b"".join(b" ".join(line) + b"\r\n" if is_typed else command(*array) for is_typed, array, line in stream)
    commands = [line if is_typed else array for is_typed, array, line in stream]
    assert decode(*slices(data, random)) == Decoded(commands)


alphabet = st.sampled_from(
    [b"*", b"$", b"1", b"2", b"-", b"\r\n", b"\n", b"\r", b"PING", b'"', b"'", b" ", b"\0", b"*1\r\n$1\r\na\r\n"]
)


@given(
    st.one_of(st.binary(max_size=60), st.lists(alphabet, max_size=20).map(b"".join)), st.randoms(use_true_random=False)
)
def test_any_bytes_are_commands_or_a_failure_in_whatever_slices(data: bytes, random: Random) -> None:
    assert decode(data) == decode(*slices(data, random))


# --- replies ---


@pytest.mark.parametrize(
    ("reply", "version", "data"),
    [
        (resp.OK, 2, b"+OK\r\n"),
        (resp.simple(b"PONG"), 2, b"+PONG\r\n"),
        (resp.error("ERR no\r\n+OK"), 2, b"-ERR no??+OK\r\n"),
        (resp.integer(-5), 2, b":-5\r\n"),
        (resp.bulk(b"a\r\n"), 2, b"$3\r\na\r\n\r\n"),
        (resp.null(2), 2, b"$-1\r\n"),
        (resp.null(3), 3, b"_\r\n"),
        (resp.null_array(2), 2, b"*-1\r\n"),
        (resp.null_array(3), 3, b"_\r\n"),
        (resp.array([]), 2, b"*0\r\n"),
        (resp.array([resp.bulk(b"a"), resp.integer(1)]), 2, b"*2\r\n$1\r\na\r\n:1\r\n"),
        (resp.mapping(2, [(b"a", resp.integer(1))]), 2, b"*2\r\n$1\r\na\r\n:1\r\n"),
        (resp.mapping(3, [(b"a", resp.integer(1))]), 3, b"%1\r\n$1\r\na\r\n:1\r\n"),
        (resp.push(2, [resp.integer(1)]), 2, b"*1\r\n:1\r\n"),
        (resp.push(3, [resp.integer(1)]), 3, b">1\r\n:1\r\n"),
        (resp.verbatim(2, b"text"), 2, b"$4\r\ntext\r\n"),
        (resp.verbatim(3, b"text"), 3, b"=8\r\ntxt:text\r\n"),
    ],
)
def test_replies_to_the_byte(reply: bytes, version: int, data: bytes) -> None:
    assert reply == data


def test_replies_are_read_as_they_are_meant() -> None:
    data = b"".join(
        (
            resp.OK,
            resp.error("ERR no"),
            resp.null(2),
            resp.null_array(2),
            resp.null(3),
            resp.mapping(3, [(b"a", resp.array([resp.bulk(b"b")]))]),
            resp.push(3, [resp.bulk(b"c")]),
            resp.verbatim(3, b"d"),
        )
    )
    expected = [
        Simple(b"OK"),
        ErrorReply(b"ERR no"),
        None,
        NullArray(),
        None,
        {b"a": [b"b"]},
        Push([b"c"]),
        Verbatim(b"d"),
    ]
    assert split_replies(data) == expected


# --- keys, the script, patterns ---


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b"uid:f", Key(KeyKind.UID, b"f")),
        (b"count:f:g", Key(KeyKind.COUNT, b"f:g")),
        (b"job:f:12", Key(KeyKind.JOB, b"f", 12)),
        (b"job:f:g:12", Key(KeyKind.JOB, b"f:g", 12)),
        (b"lock:\xff\0:1", Key(KeyKind.LOCK, b"\xff\0", 1)),
        (b"queue:f:high", Key(KeyKind.QUEUE, b"f", 0)),
        (b"queue:f:normal", Key(KeyKind.QUEUE, b"f", 1)),
        (b"queue:f:low", Key(KeyKind.QUEUE, b"f", 2)),
        (b"queue:low:scheduled", Key(KeyKind.QUEUE, b"low", 3)),
    ],
)
def test_keys(text: bytes, key: Key) -> None:
    assert parse_key(text, 10) == key


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"uid", b"uid:", b"UID:f", b"uid:" + b"f" * 11, b"channel:f"),
        *(b"job:f", b"job:f:", b"job:f:0", b"job:f:-1", b"job:f:1.5", b"job:f:" + b"9" * 19, b"lock:1"),
        *(b"queue:f", b"queue:f:", b"queue:f:High", b"queue::low"),
    ],
)
def test_what_is_no_key(text: bytes) -> None:
    with pytest.raises(PeerError):
        parse_key(text, 10)


@given(st.binary(max_size=40))
def test_any_text_is_a_key_or_an_error(text: bytes) -> None:
    with suppress(PeerError):
        assert text.startswith(parse_key(text, 10).kind.value)


def test_the_script_has_the_digest_of_the_document() -> None:
    assert sha1(SCRIPT).hexdigest() == "5231827cd49b540660ef44969b38cc858f157824" == SCRIPT_SHA.decode()


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        (b"", [b""], [b"a"]),
        (b"*", [b"", b"a", b"a\nb"], []),
        (b"a*c", [b"ac", b"abc", b"acc"], [b"ab", b"bac"]),
        (b"*a*b*", [b"ab", b"xaxbx", b"aab"], [b"ba"]),
        (b"h?llo", [b"hello", b"h\nllo"], [b"hllo", b"heello"]),
        (b"h[ae]llo", [b"hello", b"hallo"], [b"hillo"]),
        (b"h[^e]llo", [b"hallo"], [b"hello"]),
        (b"h[a-c]llo", [b"hallo", b"hbllo"], [b"hdllo"]),
        (b"h[c-a]llo", [b"hbllo"], [b"hdllo"]),
        (b"h[\\]]llo", [b"h]llo"], [b"hello"]),
        (b"a\\*", [b"a*"], [b"ab", b"a\\*"]),
        (b"a\\", [b"a\\"], [b"a"]),
        (b"[a", [b"a"], [b"[a"]),
        (b"[", [], [b"[", b"", b"a"]),
        (b"a[]b", [], [b"ab", b"a]b"]),
    ],
)
def test_patterns(pattern: bytes, fits: list[bytes], does_not: list[bytes]) -> None:
    assert [text for text in fits + does_not if Pattern(pattern).matches(text)] == fits


def test_no_pattern_takes_long() -> None:
    before = time.process_time()
    assert not Pattern(b"*a" * 250 + b"b").matches(b"a" * 500)
    assert time.process_time() - before < 1
