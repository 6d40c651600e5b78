"""Makes new inputs out of old ones: parts are dropped, doubled, exchanged and taken over, and bytes changed in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from fuzz.grammar import Level, Part

__all__ = ["Mutator", "below", "mutated"]

# How often parts are changed and not bytes, where an input can be cut into parts.
PARTS_SHARE: Final = 0.85
MOST_CHANGES: Final = 4
# Where lengths and counts tend to go wrong.
NUMBERS: Final = (0, 1, 2, 3, 127, 128, 255, 256, 1000, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63)
BYTES: Final = b"\0\x01\x7f\x80\xff\n\r \"'\\*$:{}[]-0aA"
DIGITS: Final = re.compile(rb"[0-9]{1,20}")

Change = Callable[[Random, bytes, Sequence[bytes]], bytes]


def mutated(
    random: Random, data: bytes, other: bytes, levels: Sequence[Level], words: Sequence[bytes], longest_bytes: int
) -> bytes:
    """A new input, made from one with parts of another."""
    changes = random.randint(1, MOST_CHANGES)
    if not levels:
        for _ in range(changes):
            data = _changed_bytes(random, data, words)
        return data[:longest_bytes]
    return _mutated_parts(random, levels[0].cut(data), levels[0].cut(other), changes, levels, words)[:longest_bytes]


class Mutator:
    """Makes inputs from those of a pool, and cuts each of these into parts only once."""

    def __init__(self, random: Random, levels: Sequence[Level], words: Sequence[bytes], longest_bytes: int) -> None:
        self._random: Final = random
        self._levels: Final = levels
        self._words: Final = words
        self._longest_bytes: Final = longest_bytes
        self._pool: Final[list[bytes]] = []
        self._parts: Final[list[list[Part]]] = []

    def __len__(self) -> int:
        return len(self._pool)

    def add(self, data: bytes) -> None:
        """Make inputs from this too."""
        self._pool.append(data)
        self._parts.append(self._levels[0].cut(data) if self._levels else [])

    def next(self) -> bytes:
        """Another input."""
        random = self._random
        place, other = below(random, len(self._pool)), below(random, len(self._pool))
        if not self._levels:
            return mutated(random, self._pool[place], self._pool[other], (), self._words, self._longest_bytes)
        changes = 1 + below(random, MOST_CHANGES)
        made = _mutated_parts(random, self._parts[place].copy(), self._parts[other], changes, self._levels, self._words)
        return made[: self._longest_bytes]


def below(random: Random, end: int) -> int:
    """A number from zero to below this: much faster than `randrange`, and even enough."""
    return int(random.random() * end)


def _mutated_parts(
    random: Random,
    parts: list[Part],
    others: Sequence[Part],
    changes: int,
    levels: Sequence[Level],
    words: Sequence[bytes],
) -> bytes:
    """The bytes of these parts, after so many changes."""
    level = levels[0]
    for left in range(changes - 1, -1, -1):
        if not parts and others:
            parts = list(others)
        elif not parts or random.random() > PARTS_SHARE:
            data = _changed_bytes(random, level.join(parts), words)
            if not left:
                return data
            parts = level.cut(data)
        else:
            _change_parts(random, parts, others, levels, words)
    return level.join(parts)


def _change_parts(
    random: Random, parts: list[Part], others: Sequence[Part], levels: Sequence[Level], words: Sequence[bytes]
) -> None:
    """Change one of these parts, or their order."""
    place = below(random, len(parts))
    if random.random() >= 0.55:
        _rearrange(random, parts, others, place)
        return
    part = parts[place]
    if part.head and random.random() < 0.1:
        parts[place] = part.with_head(_changed_bytes(random, part.head, words)[: len(part.head)])
    elif len(levels) < 2:
        parts[place] = part.with_body(_changed_bytes(random, part.body, words))
    else:
        inner = levels[1]
        donor = inner.cut(others[below(random, len(others))].body) if others else []
        parts[place] = part.with_body(_mutated_parts(random, inner.cut(part.body), donor, 1, levels[1:], words))


def _rearrange(random: Random, parts: list[Part], others: Sequence[Part], place: int) -> None:
    kind = below(random, 6)
    if kind == 0:
        del parts[place]
    elif kind == 1:
        parts.insert(below(random, len(parts) + 1), parts[place])
    elif kind == 2:
        end = place + below(random, min(len(parts) - place, 4) + 1)
        parts[end:end] = parts[place:end]
    elif kind == 3:
        second = below(random, len(parts))
        parts[place], parts[second] = parts[second], parts[place]
    elif not others:
        del parts[place + 1 :]
    elif kind == 4:
        start = below(random, len(others))
        parts[place:place] = others[start : start + (1, 1, 2, 4)[below(random, 4)]]
    else:
        parts[place] = others[below(random, len(others))]


def _changed_bytes(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    change = CHANGES[below(random, len(CHANGES))]
    return change(random, data, words)


# --- bytes ---


def flip_bit(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    if not data:
        return b"\0"
    changed = bytearray(data)
    changed[below(random, len(data))] ^= 1 << below(random, 8)
    return bytes(changed)


def set_byte(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    place = below(random, len(data) + 1)
    byte = BYTES[below(random, len(BYTES))] if random.random() < 0.7 else below(random, 256)
    return data[:place] + bytes([byte]) + data[place + 1 :]


def insert_bytes(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    place = below(random, len(data) + 1)
    return data[:place] + random.randbytes((1, 1, 2, 4, 8)[below(random, 5)]) + data[place:]


def remove_bytes(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    place = below(random, len(data) + 1)
    return data[:place] + data[place + (1, 1, 2, 4, 16)[below(random, 5)] :]


def double_bytes(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start = below(random, len(data) + 1)
    stop = min(len(data), start + (1, 2, 8, 64)[below(random, 4)])
    return data[:stop] + data[start:stop] * (1, 1, 3, 30)[below(random, 4)] + data[stop:]


def cut_off(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    return data[: below(random, len(data) + 1)]


def insert_word(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    if not words:
        return insert_bytes(random, data, words)
    place = below(random, len(data) + 1)
    return data[:place] + words[below(random, len(words))] + data[place:]


def become_word(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    return words[below(random, len(words))] if words else set_byte(random, data, words)


def change_number(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """Another number where one is written in digits, or where four bytes may be one."""
    found = list(DIGITS.finditer(data))
    number = NUMBERS[below(random, len(NUMBERS))]
    if found and random.random() < 0.8:
        match = found[below(random, len(found))]
        near = max(0, int(match.group()) + (-1, 1)[below(random, 2)]) if random.random() < 0.5 else number
        return data[: match.start()] + b"%d" % near + data[match.end() :]
    place = below(random, len(data) + 1)
    width = (1, 2, 4, 8)[below(random, 4)]
    return data[:place] + (number & ((1 << 8 * width) - 1)).to_bytes(width, "big") + data[place + width :]


CHANGES: Final[tuple[Change, ...]] = (
    flip_bit,
    set_byte,
    set_byte,
    insert_bytes,
    remove_bytes,
    double_bytes,
    cut_off,
    insert_word,
    insert_word,
    become_word,
    change_number,
)
