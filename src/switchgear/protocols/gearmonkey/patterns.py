"""Patterns of channel names, as Redis has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

__all__ = ["Pattern"]

_ANY: Final = frozenset(range(256))

Part = frozenset[int] | None
"""The bytes of which one has to be here; None: any number of any bytes."""


class Pattern:
    """`*` is any bytes, `?` any one, `[a-c]` one of these, `[^a-c]` none of these; `\\` takes the next byte as it is.

    The time that matching takes is bounded by the lengths of pattern and text, multiplied.
    """

    def __init__(self, pattern: bytes) -> None:
        self._parts = list(_parts(pattern))

    def matches(self, text: bytes) -> bool:
        parts = self._parts
        at = position = 0
        star = -1  # where the last star was seen, and how much of the text it has taken
        taken = 0
        while position < len(text):
            part: Part = parts[at] if at < len(parts) else frozenset()
            if part is None:
                star, taken = at, position
                at += 1
            elif text[position] in part:
                at += 1
                position += 1
            elif star >= 0:
                taken += 1
                at, position = star + 1, taken
            else:
                return False
        return all(part is None for part in parts[at:])


def _parts(pattern: bytes) -> Iterator[Part]:
    position = 0
    while position < len(pattern):
        byte = pattern[position : position + 1]
        position += 1
        if byte == b"*":
            yield None
        elif byte == b"?":
            yield _ANY
        elif byte == b"[":
            chosen, position = _choice(pattern, position)
            yield chosen
        else:
            if byte == b"\\" and position < len(pattern):
                byte = pattern[position : position + 1]
                position += 1
            yield frozenset(byte)


def _choice(pattern: bytes, position: int) -> tuple[frozenset[int], int]:
    """What stands between brackets, and where the pattern goes on after them."""
    is_negated = pattern[position : position + 1] == b"^"
    if is_negated:
        position += 1
    chosen: set[int] = set()
    while position < len(pattern) and pattern[position] != ord("]"):
        if pattern[position] == ord("\\") and position + 1 < len(pattern):
            position += 1
            chosen.add(pattern[position])
        elif pattern[position + 1 : position + 2] == b"-" and position + 2 < len(pattern):
            first, last = sorted((pattern[position], pattern[position + 2]))
            chosen.update(range(first, last + 1))
            position += 2
        else:
            chosen.add(pattern[position])
        position += 1
    return (_ANY - chosen if is_negated else frozenset(chosen)), position + 1
