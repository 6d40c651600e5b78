"""Target: patterns of channel names, against the way in which Redis compares them, and within the work promised."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from fuzz.grammar import NUL_FIELDS
from fuzz.target import Target, must
from switchgear.errors import PeerError
from switchgear.protocols.gearmonkey import patterns
from switchgear.protocols.gearmonkey.keys import Key, parse_key

__all__ = ["PATTERNS", "redis_matches"]

MOST_STEPS: Final = 20_000  # that the reference may take; it tries all places for each star


class TooMuchWorkError(Exception):
    """The reference would take too long."""


class RedisGlob:
    """What `stringmatchlen` of Redis does, with its recursion and all its odd cases."""

    def __init__(self) -> None:
        self.steps = 0

    def matches(self, pattern: bytes, text: bytes) -> bool:
        place = at = 0
        while place < len(pattern) and at < len(text):
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise TooMuchWorkError
            character = pattern[place]
            if character == ord("*"):
                while place + 1 < len(pattern) and pattern[place + 1] == ord("*"):
                    place += 1
                if place + 1 == len(pattern):
                    return True
                return any(self.matches(pattern[place + 1 :], text[start:]) for start in range(at, len(text) + 1))
            if character == ord("["):
                is_in, place = self._choice(pattern, place + 1, text[at])
                if not is_in:
                    return False
            elif character != ord("?"):
                if character == ord("\\") and place + 1 < len(pattern):
                    place += 1
                if pattern[place] != text[at]:
                    return False
            at += 1
            place += 1
        if at == len(text):
            while place < len(pattern) and pattern[place] == ord("*"):
                place += 1
        return place >= len(pattern) and at == len(text)

    def _choice(self, pattern: bytes, place: int, byte: int) -> tuple[bool, int]:
        """Whether the byte is one of those between brackets, and where the last of them stands."""
        is_negated = place < len(pattern) and pattern[place] == ord("^")
        if is_negated:
            place += 1
        found = False
        while True:
            if place < len(pattern) - 1 and pattern[place] == ord("\\"):
                place += 1
                found = found or pattern[place] == byte
            elif place < len(pattern) and pattern[place] == ord("]"):
                break
            elif place >= len(pattern):
                place -= 1
                break
            elif len(pattern) - place >= 3 and pattern[place + 1] == ord("-"):
                first, last = sorted((pattern[place], pattern[place + 2]))
                place += 2
                found = found or first <= byte <= last
            else:
                found = found or pattern[place] == byte
            place += 1
        return found != is_negated, place


def redis_matches(pattern: bytes, text: bytes) -> bool | None:
    """Whether Redis finds that the text fits; None if that takes too long to find out."""
    try:
        return RedisGlob().matches(pattern, text)
    except TooMuchWorkError:
        return None


def run_patterns(data: bytes) -> Hashable:
    text, *names = data.split(b"\0")
    text, names = text[:200], names[:6]
    pattern = patterns.Pattern(text)
    must(pattern.memory_bytes <= 64 + len(text) * (289 + 64 + 8), "more memory than a pattern may take")
    prefix = pattern.prefix
    kinds = []
    for name in names:
        fits = pattern.matches(name)
        must(pattern.steps(len(name)) < 1_000_000 + 400 * len(text) * (len(name) + 1), "work without bound")
        expected = redis_matches(text, name)
        must(expected is None or fits == expected, "Redis says otherwise", text, name, fits)
        must(prefix is None or name.startswith(prefix) == fits, "the prefix says otherwise", prefix, name)
        kinds.append(fits)
    return tuple(kinds), prefix is None, patterns.special_count(text) > 4, b"[" in text, b"\\" in text


def run_keys(data: bytes) -> Hashable:
    try:
        key = parse_key(data, 64)
    except PeerError as error:
        return error.code, str(error)[-20:]
    must(isinstance(key, Key) and 0 < len(key.function) <= 64, "a name of another length", key)
    return key.kind, key.number > 9


PATTERNS: Final = (
    Target(
        "gearmonkey-patterns",
        run_patterns,
        ("protocols.gearmonkey.patterns",),
        (NUL_FIELDS,),
        (b"*", b"?", b"[", b"]", b"[^", b"[a-c]", b"\\", b"-", b"a", b"b", b"**", b"[\\]]", b"channel:"),
        400,
    ),
    Target(
        "gearmonkey-keys",
        run_keys,
        ("protocols.gearmonkey.keys",),
        (),
        (b"uid:", b"job:", b"queue:", b"lock:", b"count:", b":high", b":normal", b":1", b":0", b"f"),
        200,
    ),
)
