"""Makes new inputs out of old ones: parts are dropped, doubled, exchanged and taken over, and bytes changed in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from fuzz.grammar import Level, Part

__all__ = ["mutated"]

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
    for _ in range(random.randint(1, MOST_CHANGES)):
        data = _changed(random, data, other, levels, words)
    return data[:longest_bytes]


def _changed(random: Random, data: bytes, other: bytes, levels: Sequence[Level], words: Sequence[bytes]) -> bytes:
    if not levels or random.random() > PARTS_SHARE:
        return random.choice(CHANGES)(random, data, words)
    level = levels[0]
    parts = level.cut(data)
    others = level.cut(other)
    if not parts:
        return level.join(others) if others else random.choice(CHANGES)(random, data, words)
    place = random.randrange(len(parts))
    dice = random.random()
    if dice < 0.55:
        part = parts[place]
        donor = random.choice(others).body if others else b""
        if part.head and random.random() < 0.1:
            parts[place] = part._replace(head=random.choice(CHANGES)(random, part.head, words)[: len(part.head)])
        else:
            parts[place] = part._replace(body=_changed(random, part.body, donor, levels[1:], words))
        return level.join(parts)
    return level.join(_rearranged(random, parts, others, place))


def _rearranged(random: Random, parts: list[Part], others: list[Part], place: int) -> list[Part]:
    match random.randrange(6):
        case 0:
            del parts[place]
        case 1:
            parts.insert(random.randint(0, len(parts)), parts[place])
        case 2:
            end = random.randint(place, min(len(parts), place + 4))
            parts[end:end] = parts[place:end]
        case 3:
            second = random.randrange(len(parts))
            parts[place], parts[second] = parts[second], parts[place]
        case 4 if others:
            start = random.randrange(len(others))
            parts[place:place] = others[start : start + random.choice((1, 1, 2, 4))]
        case _:
            if others:
                parts[place] = random.choice(others)
            else:
                del parts[place + 1 :]
    return parts


# --- bytes ---


def flip_bit(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    if not data:
        return b"\0"
    changed = bytearray(data)
    changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def set_byte(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    place = random.randrange(len(data) + 1)
    byte = random.choice(BYTES) if random.random() < 0.7 else random.randrange(256)
    return data[:place] + bytes([byte]) + data[place + 1 :]


def insert_bytes(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.randbytes(random.choice((1, 1, 2, 4, 8))) + data[place:]


def remove_bytes(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + data[place + random.choice((1, 1, 2, 4, 16)) :]


def double_bytes(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start = random.randrange(len(data) + 1)
    stop = min(len(data), start + random.choice((1, 2, 8, 64)))
    return data[:stop] + data[start:stop] * random.choice((1, 1, 3, 30)) + data[stop:]


def cut_off(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def insert_word(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    if not words:
        return insert_bytes(random, data, words)
    place = random.randrange(len(data) + 1)
    return data[:place] + random.choice(words) + data[place:]


def become_word(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    return random.choice(words) if words else set_byte(random, data, words)


def change_number(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """Another number where one is written in digits, or where four bytes may be one."""
    found = list(DIGITS.finditer(data))
    number = random.choice(NUMBERS)
    if found and random.random() < 0.8:
        match = random.choice(found)
        near = max(0, int(match.group()) + random.choice((-1, 1))) if random.random() < 0.5 else number
        return data[: match.start()] + b"%d" % near + data[match.end() :]
    place = random.randrange(len(data) + 1)
    width = random.choice((1, 2, 4, 8))
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
