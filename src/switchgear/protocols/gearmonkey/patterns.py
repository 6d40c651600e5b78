"""Patterns of channel names, as Redis has them, in memory and time that are bounded by the length of the pattern.

A pattern is split at its stars. The part before the first star must match the beginning of a name and the part after
the last its end; each part between is searched for from the left, without backtracking: if the rest matches after a
later position, it also matches after the first.
"""

from __future__ import annotations

import re
from operator import getitem
from typing import Final

__all__ = ["Pattern", "special_count"]

_SPECIAL: Final = re.compile(rb"\*+|[?\[\\]")

# The bytes that match one position, as a table with an entry for each byte. The tables for a single byte and for all
# bytes are shared by all patterns.
_NONE: Final = bytes(256)
_ANY: Final = b"\1" * 256
_SINGLE: Final = [_NONE[:byte] + b"\1" + _NONE[byte + 1 :] for byte in range(256)]

Part = bytes | list[bytes]
"""A part between stars: literal bytes, or for each position a table of the bytes that match."""

# A step is the cost of comparing one position: some 30 nanoseconds.
SCAN_STEPS: Final = 20  # of examining any pattern
PART_STEPS: Final = 20  # of any part
SEARCHED_BYTE_STEPS: Final = 8  # for each byte of a literal search
TRIED_PLACE_STEPS: Final = 10  # of trying a part with tables at one position, besides comparing

STAR: Final = ord("*")
BACKSLASH: Final = ord("\\")
END_OF_CHOICE: Final = ord("]")

TABLE_BYTES: Final = 289
OBJECT_BYTES: Final = 64  # of a list, besides its contents
PLACE_BYTES: Final = 8


class Pattern:
    """`*` is any bytes, `?` any one, `[a-c]` one of these, `[^a-c]` none of these; `\\` takes the next as it is."""

    __slots__ = ("_first", "_has_star", "_last", "_least_bytes", "_middle", "memory_bytes")

    def __init__(self, pattern: bytes) -> None:
        parser = _Parser(pattern)
        parts = parser.parts
        self._has_star = len(parts) > 1
        self._first = parts[0]
        self._last = parts[-1] if self._has_star else b""
        self._middle = [part for part in parts[1:-1] if part]  # nothing between two adjacent stars
        self._least_bytes = sum(map(len, parts))
        self.memory_bytes = parser.memory_bytes

    @property
    def prefix(self) -> bytes | None:
        """The prefix, if the pattern is only a prefix and a star; otherwise `None`."""
        if not self._has_star or self._middle or self._last:
            return None
        return self._first if isinstance(self._first, bytes) else None

    def steps(self, name_bytes: int) -> int:
        """The maximum number of steps of a comparison with a name of this length."""
        steps = SCAN_STEPS
        for part in (self._first, self._last):
            if not isinstance(part, bytes):
                steps += len(part)
        for part in self._middle:
            steps += PART_STEPS
            if isinstance(part, bytes):
                steps += len(part) * SEARCHED_BYTE_STEPS
            else:
                steps += (len(part) + TRIED_PLACE_STEPS) * name_bytes
        return steps

    def matches(self, text: bytes) -> bool:
        size = len(text)
        if size < self._least_bytes or (size > self._least_bytes and not self._has_star):
            return False
        if not _stands_at(self._first, text, 0):
            return False
        end = size - len(self._last)
        if not _stands_at(self._last, text, end):
            return False
        position = len(self._first)
        for part in self._middle:
            position = _find(part, text, position, end)
            if position < 0:
                return False
            position += len(part)
        return True


def _stands_at(part: Part, text: bytes, position: int) -> bool:
    """Whether the part matches at this position; the text is long enough."""
    if isinstance(part, bytes):
        return text.startswith(part, position)
    return all(map(getitem, part, text[position : position + len(part)]))


def _find(part: Part, text: bytes, start: int, end: int) -> int:
    """The first position of the part in this range, or -1."""
    if isinstance(part, bytes):
        return text.find(part, start, end)
    for position in range(start, end - len(part) + 1):
        if _stands_at(part, text, position):
            return position
    return -1


class _Parser:
    """Splits a pattern at its stars."""

    def __init__(self, pattern: bytes) -> None:
        self.parts: list[Part] = []
        self.memory_bytes = 0  # of the parts
        self._pattern = pattern
        self._literal: list[bytes] = []  # of a part with only literal bytes so far
        self._places: list[bytes] | None = None  # of a part with other elements
        self._tables: dict[bytes, bytes] = {}  # equal tables are shared
        self._parse()

    def _parse(self) -> None:
        pattern = self._pattern
        position = 0
        while position < len(pattern):
            found = _SPECIAL.search(pattern, position)
            stop = len(pattern) if found is None else found.start()
            if stop > position:
                self._add_bytes(pattern[position:stop])
            if found is None:
                break
            position = found.end()
            special = found.group()
            if special[0] == STAR:
                self._end_part()
            elif special == b"?":
                self._add_place(_ANY)
            elif special == b"[":
                chosen, position = _choice(pattern, position)
                self._add_place(self._kept(chosen))
            elif position < len(pattern):
                self._add_bytes(pattern[position : position + 1])
                position += 1
            else:
                self._add_bytes(special)
        self._end_part()

    def _kept(self, table: bytes) -> bytes:
        if table not in self._tables:
            self.memory_bytes += TABLE_BYTES
        return self._tables.setdefault(table, table)

    def _add_bytes(self, data: bytes) -> None:
        if self._places is None:
            self._literal.append(data)
        else:
            self._places += [_SINGLE[byte] for byte in data]

    def _add_place(self, place: bytes) -> None:
        if self._places is None:
            self._places = [_SINGLE[byte] for byte in b"".join(self._literal)]
            self._literal = []
        self._places.append(place)

    def _end_part(self) -> None:
        places = self._places
        part: Part = b"".join(self._literal) if places is None else places
        if part or not self.parts or self.parts[-1]:  # several stars in a row count as one
            self.parts.append(part)
            self.memory_bytes += OBJECT_BYTES + len(part) * (1 if places is None else PLACE_BYTES)
        elif len(self.parts) == 1:
            self.parts.append(part)
        self._literal = []
        self._places = None


def _choice(pattern: bytes, position: int) -> tuple[bytes, int]:
    """The table for a bracket expression, and the position behind it."""
    is_negated = pattern[position : position + 1] == b"^"
    if is_negated:
        position += 1
    inside = 0 if is_negated else 1
    table = bytearray(_ANY if is_negated else _NONE)
    while position < len(pattern) and pattern[position] != END_OF_CHOICE:
        if pattern[position] == BACKSLASH and position + 1 < len(pattern):
            position += 1
            table[pattern[position]] = inside
        elif pattern[position + 1 : position + 2] == b"-" and position + 2 < len(pattern):
            first, last = sorted((pattern[position], pattern[position + 2]))
            table[first : last + 1] = bytes([inside]) * (last - first + 1)
            position += 2
        else:
            table[pattern[position]] = inside
        position += 1
    return bytes(table), position + 1


def special_count(pattern: bytes) -> int:
    """How many positions of a pattern have to be parsed one by one."""
    return len(_SPECIAL.findall(pattern))
