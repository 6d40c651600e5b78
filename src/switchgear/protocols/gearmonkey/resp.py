"""The codec of RESP, the protocol of Redis: bytes to commands, and replies to bytes.

A command is an array of strings, or a typed line of words. Some replies have two forms: RESP2, which every client
knows, and RESP3, which a client requests with HELLO 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from switchgear.errors import PeerError
from switchgear.protocols.framing import LONG_BYTES, LongBody
from switchgear.text import harmless

__all__ = [
    "OK",
    "WORD_OVERHEAD_BYTES",
    "Command",
    "RespDecoder",
    "array",
    "bulk",
    "error",
    "integer",
    "mapping",
    "null",
    "null_array",
    "push",
    "set_of",
    "simple",
    "split_line",
    "verbatim",
]

Command = list[bytes]
"""The name of a command and its arguments."""

OK: Final = b"+OK\r\n"

# The maximum length of a line: a typed command, or the number that announces an item.
MOST_LINE_BYTES: Final = 65_536

# The maximum number of words of a command. The longest of GearMonkey's, a push of many ids, needs fewer.
MOST_ARGUMENTS: Final = 65_536
WORD_OVERHEAD_BYTES: Final = 64  # memory of each word besides its length, and of each command

# A number in Redis notation: no plus sign, and no leading zero.
_NUMBER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")

# Most words are short, and looking up their encoded length is faster than parsing it.
SHORT: Final = {b"$%d\r" % size: size for size in range(1000)}

_ASTERISK: Final = 0x2A
_DOLLAR: Final = 0x24


class RespDecoder:
    """Decodes a stream into commands, independent of how it is sliced.

    Complete words of an unfinished command are not parsed again when more arrives, so the work grows with the bytes and
    not with the slices.
    """

    def __init__(self, packet_bytes: int) -> None:
        self.packet_bytes = packet_bytes  # of a whole command
        self.long_bytes = LONG_BYTES  # from this length on a word is collected in its own buffer
        self.failure: PeerError | None = None  # framing is lost; earlier commands were still decoded
        self._long: LongBody | None = None  # an unfinished long word
        self._long_word: bytes | None = None  # a long word without the end of its line
        self._held = bytearray()  # received and not parsed yet
        self._need = 0  # bytes of it that are needed for the next attempt; 0: a line end is
        self._command: Command = []  # the words so far of an unfinished command
        self._missing = 0  # how many more it will have
        self._bytes = 0  # the length of the words so far

    @property
    def buffered_bytes(self) -> int:
        """The bytes that an unfinished command holds."""
        held_bytes = len(self._held) + self._bytes + WORD_OVERHEAD_BYTES * len(self._command)
        if self._long_word is not None:
            held_bytes += len(self._long_word)
        long = self._long
        return held_bytes if long is None else held_bytes + long.size - long.missing

    @property
    def awaited_bytes(self) -> int:
        """How many bytes of a long word are missing."""
        long = self._long
        return 0 if long is None else long.missing

    def feed(self, data: bytes) -> list[Command]:
        """The commands that are complete now. After `failure` is set no more are decoded."""
        if self.failure is not None:
            return []
        if self._long is not None:
            data = self._long.take(data)
            if self._long.missing:
                return []
            self._long_word = self._long.whole()
            self._long = None
        if self._held:
            if self._need:
                if len(self._held) + len(data) < self._need:
                    self._held += data
                    return []
            elif b"\n" not in data and len(self._held) + len(data) < MOST_LINE_BYTES:
                self._held += data
                return []
            data = b"".join((self._held, data))
            self._held = bytearray()
            self._need = 0
        commands: list[Command] = []
        try:
            self._decode(data, commands)
        except PeerError as failure:
            self.failure = failure
            self._command = []
            self._long_word = None
            self._bytes = 0
        return commands

    def _decode(self, data: bytes, commands: list[Command]) -> None:
        position = 0
        end = len(data)
        while position < end:
            if self._missing:
                position, is_whole = self._words(data, position)
                if not is_whole:
                    return
                commands.append(self._command)
                self._command = []
                self._bytes = 0
                continue
            stop = data.find(b"\n", position, position + MOST_LINE_BYTES)
            if stop < 0:
                self._keep_line(data, position)
                return
            if data[position] == _ASTERISK:
                self._missing = self._number(data, position, stop, MOST_ARGUMENTS, "multibulk")
            else:
                words = split_line(data[position:stop].removesuffix(b"\r"))
                if words:
                    commands.append(words)
            position = stop + 1

    def _words(self, data: bytes, position: int) -> tuple[int, bool]:
        """Read words of the command; returns where they end, and whether the command is complete."""
        end = len(data)
        find = data.find
        while self._missing:
            if position == end:
                return position, False
            if self._long_word is not None:
                if end - position < 2:
                    self._held += data[position:]
                    self._need = 2
                    return position, False
                self._add_word(self._long_word, data[position : position + 2])
                self._long_word = None
                position += 2
                continue
            stop = find(b"\n", position, position + MOST_LINE_BYTES)
            if stop < 0:
                self._keep_line(data, position)
                return position, False
            room = self.packet_bytes - self._bytes
            size = SHORT.get(data[position:stop], room + 1)
            if size > room:  # or an unusual word
                size = self._size(data, position, stop, room)
            start = stop + 1
            after = start + size
            if after > end and size >= self.long_bytes:
                self._long = LongBody(size)
                self._long.take(data[start:])
                return position, False
            if after + 2 > end:
                self._held += data[position:]
                self._need = after + 2 - position
                return position, False
            self._add_word(data[start:after], data[after : after + 2])
            position = after + 2
        return position, True

    def _add_word(self, word: bytes, behind: bytes) -> None:
        if behind != b"\r\n":
            raise _broken("expected CRLF after a bulk string")
        self._command.append(word)
        self._bytes += len(word)
        self._missing -= 1

    def _size(self, data: bytes, position: int, stop: int, room: int) -> int:
        if data[position] != _DOLLAR:
            raise _broken(f"expected '$', got '{chr(data[position])}'")
        return self._number(data, position, stop, room, "bulk")

    def _number(self, data: bytes, position: int, stop: int, most: int, what: str) -> int:
        """The number that follows the first byte of a line."""
        line = data[position + 1 : stop]  # it may be empty: a compiled slice must not end before its start
        digits = line[:-1]
        if not line.endswith(b"\r") or _NUMBER.fullmatch(digits) is None:
            raise _broken(f"invalid {what} length")
        number = int(digits)
        if what == "multibulk" and number <= 0:
            return 0
        if number < 0:
            raise _broken(f"invalid {what} length")
        if number > most:
            limit = MOST_ARGUMENTS if what == "multibulk" else f"{self.packet_bytes} bytes in a command"
            raise _broken(f"invalid {what} length, at most {limit} are taken")
        return number

    def _keep_line(self, data: bytes, position: int) -> None:
        """Hold the beginning of a line, unless it is too long."""
        if len(data) - position >= MOST_LINE_BYTES:
            kinds = {_ASTERISK: "too big mbulk count string", _DOLLAR: "too big bulk count string"}
            raise _broken(kinds.get(data[position], "too big inline request"))
        if self._missing and data[position] != _DOLLAR:
            raise _broken(f"expected '$', got '{chr(data[position])}'")
        self._held += data[position:]


def _broken(text: str) -> PeerError:
    return PeerError(harmless(f"Protocol error: {text}"), code="ERR", framing_lost=True)


# --- typed lines ---

_WORD: Final = re.compile(
    rb"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"'][^\s"']*))(?=\s|\Z)""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def split_line(line: bytes) -> Command:
    """The words of a line; quotes as in a shell. Raises PeerError."""
    words: Command = []
    position = 0
    line = line.rstrip()
    while position < len(line):
        match = _WORD.match(line, position)
        if match is None:
            raise _broken("unbalanced quotes in request")
        doubly_quoted, quoted, plain = match.groups()
        if doubly_quoted is not None:
            words.append(_ESCAPE.sub(_unescape, doubly_quoted))
        elif quoted is not None:
            words.append(quoted.replace(b"\\'", b"'"))
        else:
            words.append(plain)
        position = match.end()
    return words


def _unescape(match: re.Match[bytes]) -> bytes:
    hexadecimal, letter = match.groups()
    return bytes.fromhex(hexadecimal.decode()) if hexadecimal else _ESCAPED.get(letter, letter)


# --- replies ---


def simple(text: bytes) -> bytes:
    return b"+%b\r\n" % text


def error(text: str) -> bytes:
    """An error; its first word is its code."""
    return b"-%b\r\n" % harmless(text).encode()


def integer(number: int) -> bytes:
    return b":%d\r\n" % number


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def null(version: int) -> bytes:
    """A null in place of a string."""
    return b"_\r\n" if version == 3 else b"$-1\r\n"


def null_array(version: int) -> bytes:
    """A null in place of an array."""
    return b"_\r\n" if version == 3 else b"*-1\r\n"


def array(items: Sequence[bytes]) -> bytes:
    """An array of replies."""
    return b"*%d\r\n%b" % (len(items), b"".join(items))


def mapping(version: int, items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Names, each with a reply; in RESP2 one after the other."""
    pieces = [b"%b%b" % (bulk(name), value) for name, value in items]
    header = b"%%%d\r\n" % len(pieces) if version == 3 else b"*%d\r\n" % (2 * len(pieces))
    return header + b"".join(pieces)


def set_of(version: int, items: Sequence[bytes]) -> bytes:
    """A set of replies; in RESP2 an array."""
    return b"~%d\r\n%b" % (len(items), b"".join(items)) if version == 3 else array(items)


def push(version: int, items: Sequence[bytes]) -> bytes:
    """A message that is not an answer."""
    return b"%b%d\r\n%b" % (b">" if version == 3 else b"*", len(items), b"".join(items))


def verbatim(version: int, text: bytes) -> bytes:
    """A verbatim string of RESP3, which clients show to people as it is."""
    return b"=%d\r\ntxt:%b\r\n" % (len(text) + 4, text) if version == 3 else bulk(text)
