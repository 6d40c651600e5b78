"""Bytes to commands of RESP, the protocol of Redis, and replies back to bytes.

A command is an array of strings, or a line of words as somebody types it.  A reply has one of two shapes for some
things: RESP2, which every client knows, and RESP3, which a client asks for with HELLO 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from switchgear.errors import PeerError
from switchgear.text import harmless

__all__ = [
    "OK",
    "WORD_OVERHEAD_BYTES",
    "Command",
    "Decoder",
    "array",
    "bulk",
    "error",
    "integer",
    "mapping",
    "null",
    "null_array",
    "push",
    "simple",
    "split_line",
    "verbatim",
]

Command = list[bytes]
"""The name of a command and its arguments."""

OK: Final = b"+OK\r\n"

# As long may a line be: a typed command, or the number that announces what follows.
MOST_LINE_BYTES: Final = 65_536

# So many words may a command have.  The longest of GearMonkey's, a push of many ids, does with fewer.
MOST_ARGUMENTS: Final = 65_536
WORD_OVERHEAD_BYTES: Final = 64  # of each word in memory, whatever its length, and of each command

# A number as Redis reads it: no sign but a minus, and no zero ahead.
_NUMBER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")

# Most words are short, and looking up how their length is written is quicker than reading it.
SHORT: Final = {b"$%d\r" % size: size for size in range(1000)}

_ASTERISK: Final = 0x2A
_DOLLAR: Final = 0x24


class Decoder:
    """Cuts a stream into commands, however it was sliced on the way.

    What is complete of an unfinished command is not looked at again when more of it arrives, so the work grows with
    the bytes and not with the slices.
    """

    def __init__(self, packet_bytes: int) -> None:
        self.packet_bytes = packet_bytes  # of a whole command
        self.failure: PeerError | None = None  # framing is lost; what came before it was still decoded
        self._held = bytearray()  # what has arrived and is not understood yet
        self._need = 0  # so many bytes of it are worth another look; 0: the end of a line is
        self._command: Command = []  # the words so far of an unfinished command
        self._missing = 0  # how many more it will have
        self._bytes = 0  # how long the words are so far

    @property
    def buffered_bytes(self) -> int:
        """What an unfinished command makes us hold."""
        return len(self._held) + self._bytes + WORD_OVERHEAD_BYTES * len(self._command)

    def feed(self, data: bytes) -> list[Command]:
        """The commands that are complete now.  After `failure` is set nothing more is understood."""
        if self.failure is not None:
            return []
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
        """Read words of the command; where they end, and whether they are all there."""
        command = self._command
        end = len(data)
        find = data.find
        while self._missing:
            if position == end:
                return position, False
            stop = find(b"\n", position, position + MOST_LINE_BYTES)
            if stop < 0:
                self._keep_line(data, position)
                return position, False
            room = self.packet_bytes - self._bytes
            size = SHORT.get(data[position:stop], room + 1)
            if size > room:  # or not one of the usual
                size = self._size(data, position, stop, room)
            start = stop + 1
            after = start + size
            if after + 2 > end:
                self._held += data[position:]
                self._need = after + 2 - position
                return position, False
            if data[after : after + 2] != b"\r\n":
                raise _broken("expected CRLF after a bulk string")
            command.append(data[start:after])
            self._bytes += size
            self._missing -= 1
            position = after + 2
        return position, True

    def _size(self, data: bytes, position: int, stop: int, room: int) -> int:
        if data[position] != _DOLLAR:
            raise _broken(f"expected '$', got '{chr(data[position])}'")
        return self._number(data, position, stop, room, "bulk")

    def _number(self, data: bytes, position: int, stop: int, most: int, what: str) -> int:
        """The number that follows the first byte of a line."""
        line = data[
            position + 1 : stop
        ]  # of which there may be nothing: a compiled slice must not end before its start
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
        """Hold the beginning of a line, if it may ever end."""
        if len(data) - position >= MOST_LINE_BYTES:
            kinds = {_ASTERISK: "too big mbulk count string", _DOLLAR: "too big bulk count string"}
            raise _broken(kinds.get(data[position], "too big inline request"))
        if self._missing and data[position] != _DOLLAR:
            raise _broken(f"expected '$', got '{chr(data[position])}'")
        self._held += data[position:]


def _broken(text: str) -> PeerError:
    return PeerError(harmless(f"Protocol error: {text}"), code="ERR", framing_lost=True)


# --- a line as somebody types it ---

_WORD: Final = re.compile(
    rb"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"'][^\s"']*))(?=\s|\Z)""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def split_line(line: bytes) -> Command:
    """The words of a line; quotes hold words with blanks together, as in a shell.  Raises PeerError."""
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
    """An error; the first word tells its kind."""
    return b"-%b\r\n" % harmless(text).encode()


def integer(number: int) -> bytes:
    return b":%d\r\n" % number


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def null(version: int) -> bytes:
    """Nothing, where a string might have been."""
    return b"_\r\n" if version == 3 else b"$-1\r\n"


def null_array(version: int) -> bytes:
    """Nothing, where an array might have been."""
    return b"_\r\n" if version == 3 else b"*-1\r\n"


def array(items: Sequence[bytes]) -> bytes:
    """An array of replies."""
    return b"*%d\r\n%b" % (len(items), b"".join(items))


def mapping(version: int, items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Names, each with a reply; in RESP2 one after the other."""
    pieces = [b"%b%b" % (bulk(name), value) for name, value in items]
    header = b"%%%d\r\n" % len(pieces) if version == 3 else b"*%d\r\n" % (2 * len(pieces))
    return header + b"".join(pieces)


def push(version: int, items: Sequence[bytes]) -> bytes:
    """What comes without having been asked for."""
    return b"%b%d\r\n%b" % (b">" if version == 3 else b"*", len(items), b"".join(items))


def verbatim(version: int, text: bytes) -> bytes:
    """A text for people."""
    return b"=%d\r\ntxt:%b\r\n" % (len(text) + 4, text) if version == 3 else bulk(text)
