"""`LongLine`: reads one very long line of an atomic batch in steps.

To read 40 MiB of JSON at once takes a tenth of a second, in which no other peer is served. Nearly all of a long line is
a text or two, the payload. So the line is looked through 64 KiB at a time. Texts that are longer are taken out of it
and read in pieces; what remains is short, and is read at once like any other line.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Generator
from io import BytesIO
from secrets import token_hex
from typing import Any, Final

import msgspec
from msgspec import UNSET

from switchgear.json_bytes import decoded_base64
from switchgear.protocols.http.problems import HttpProblem, field_problem, validation_problem
from switchgear.protocols.http.request_problems import MOST_JSON_BYTES
from switchgear.protocols.pending_read import Step

__all__ = ["LONG_LINE_BYTES", "LongLine"]

LONG_LINE_BYTES: Final = 512 * 1024
# What is looked at in one step: a longer text is read in pieces. A multiple of 4, for base64.
WINDOW_BYTES: Final = 64 * 1024
COPIED_BYTES: Final = 1024 * 1024  # in one step, to the payload
STRINGS_PER_STEP: Final = 200
# The longest unit of a text: two escaped surrogates. A piece that ends earlier than so near its end has an error.
LONGEST_UNIT: Final = 12

# Contents of a string as far as they are complete: no escape and no pair of surrogates is cut in two.
_HEX: Final = rb"[0-9a-fA-F]"
_ESCAPE: Final = (
    rb'\\(?:["\\/bfnrt]|u(?:[dD][89abAB]' + _HEX + rb"{2}\\u" + _HEX + rb"{4}|(?![dD][89abAB])" + _HEX + rb"{4}))"
)
_CONTENTS: Final = re.compile(rb'[^"\\]*+(?:' + _ESCAPE + rb'[^"\\]*+)*+')
_QUOTE: Final = 0x22
_decode_text: Final = msgspec.json.Decoder(str).decode


class LongText:
    """A text that was taken out of a line: where it is, and what it says."""

    def __init__(self, place: str, start: int) -> None:
        self.place = place  # what stands for it in the rest of the line
        self.start = start
        self.end = start
        self.is_used = False
        self._contents = BytesIO()  # returns its contents without copying them

    def add(self, piece: bytes) -> None:
        """Add what the next piece of the text says; raises HttpProblem."""
        try:
            self._contents.write(_decode_text(b'"' + piece + b'"').encode())
        except (msgspec.DecodeError, UnicodeError) as error:
            raise validation_problem(error) from None

    def contents(self) -> bytes:
        """What the text says."""
        self.is_used = True
        return self._contents.getvalue()


class LongLine:
    """A line of a body, from `start` to `end`."""

    def __init__(self, body: bytes, start: int, end: int) -> None:
        self.rest = b""  # the line without its long texts
        self._body = body
        self._start = start
        self._end = end
        self._token = token_hex(16)  # nobody can guess it, so nothing else contains it
        self._texts: list[LongText] = []

    def read(self) -> Generator[Step, None, None]:
        """Take the long texts out of the line, in steps; raises HttpProblem."""
        body, end = self._body, self._end
        rest: list[bytes] = []
        rest_bytes = strings = 0
        place = self._start
        while place < end:
            quote = body.find(b'"', place, end)
            if quote < 0:
                quote = end
            rest_bytes += quote - place
            if rest_bytes <= MOST_JSON_BYTES:
                rest.append(body[place:quote])
            place = quote
            if quote < end:
                stop = self._window(quote + 1)
                if stop < end and body[stop] == _QUOTE:
                    rest.append(body[quote : stop + 1])
                    rest_bytes += stop + 1 - quote
                    place = stop + 1
                else:
                    text = LongText(f"{self._token}{len(self._texts)}", quote + 1)
                    self._texts.append(text)
                    yield from self._read_text(text)
                    rest.append(b'"%b"' % text.place.encode())
                    rest_bytes += len(rest[-1])
                    place = text.end + 1
            if rest_bytes > MOST_JSON_BYTES:
                words = f"without its texts of more than {WINDOW_BYTES} bytes, a line has at most {MOST_JSON_BYTES}"
                raise HttpProblem(413, "body_too_large", f"{words} bytes")
            strings += 1
            if strings % STRINGS_PER_STEP == 0:
                yield False
        self.rest = b"".join(rest)

    def _window(self, start: int) -> int:
        """Where the contents of a string end, or a piece of them."""
        stop = min(self._end, start + WINDOW_BYTES)
        found = _CONTENTS.match(self._body, start, stop)
        place = start if found is None else found.end()
        if place == stop < self._end:
            while place > start and self._body[place] & 0xC0 == 0x80:  # not in the middle of a character
                place -= 1
        return place

    def _read_text(self, text: LongText) -> Generator[Step, None, None]:
        body, end = self._body, self._end
        start = text.start
        while True:
            stop = self._window(start)
            text.add(body[start:stop])
            yield False
            if stop < end and body[stop] == _QUOTE:
                text.end = stop
                return
            if stop == end or stop < start + WINDOW_BYTES - LONGEST_UNIT:
                wrong = "it ends within a text" if stop == end else f"invalid string (byte {stop - self._start})"
                raise validation_problem(msgspec.DecodeError(f"JSON is malformed: {wrong}"))
            start = stop

    def payload(self, wanted: Any) -> Generator[Step, None, bytes | None]:
        """The payload of the submission that the rest of the line is, in steps; `None` if it has no long text.

        Raises HttpProblem if a long text is somewhere else.
        """
        payload: bytes | None = None
        if wanted.args is not UNSET:
            payload = yield from self._with_texts(bytes(wanted.args))
        elif isinstance(wanted.payload, str):
            for text in self._texts:
                if text.place == wanted.payload:
                    payload = text.contents()
        elif wanted.payload is not UNSET:
            for text in self._texts:
                if text.place == wanted.payload.base64:
                    payload = yield from decoded_in_steps(text.contents())
        if not all(text.is_used for text in self._texts):
            text_of = f"only a payload and args have texts of more than {WINDOW_BYTES} bytes"
            raise HttpProblem(413, "text_too_long", text_of)
        return payload

    def _with_texts(self, args: bytes) -> Generator[Step, None, bytes | None]:
        """These arguments with the long texts as they were written; copied in steps."""
        if not self._texts:
            return None
        pieces = BytesIO()
        place = 0
        for text in self._texts:
            found = args.find(text.place.encode(), place)
            if found >= 0:
                text.is_used = True
                pieces.write(args[place:found])
                for start in range(text.start, text.end, COPIED_BYTES):
                    pieces.write(memoryview(self._body)[start : min(start + COPIED_BYTES, text.end)])
                    yield False
                place = found + len(text.place)
        pieces.write(args[place:])
        return pieces.getvalue()


def decoded_in_steps(text: bytes) -> Generator[Step, None, bytes]:
    """What a text in base64 stands for; raises HttpProblem."""
    contents = BytesIO()
    for start in range(0, len(text), WINDOW_BYTES):
        piece = text[start : start + WINDOW_BYTES]
        try:
            if b"=" in piece and start + WINDOW_BYTES < len(text):
                raise ValueError("Discontinuous padding not allowed")
            contents.write(decoded_base64(piece))
        except (binascii.Error, ValueError) as error:
            raise field_problem("pointer", "/payload/base64", str(error)) from None
        yield False
    return contents.getvalue()
