"""Parsers of decimal numbers from peers, strict and bounded.

Python's own `int` and `float` accept more than protocols allow: digits of other scripts, underscores, surrounding
blanks, `inf` and `nan`, and numbers so long that parsing them takes long or raises another error.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Final

__all__ = ["LARGEST", "leading_number", "real_number", "signed_number", "whole_number"]

LARGEST: Final = 2**63 - 1  # the maximum in a store

_MOST_DIGITS: Final = 19
_MOST_REAL_BYTES: Final = 64  # further digits make no difference to a float
_LEADING_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_REAL: Final = re.compile(rb"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def whole_number(text: bytes, most: int = LARGEST) -> int | None:
    """A non-negative number of ASCII digits; `None` if it is not one, or greater than the maximum."""
    if not text.isdigit():
        return None
    if len(text) > _MOST_DIGITS:
        text = text.lstrip(b"0") or b"0"
        if len(text) > _MOST_DIGITS:
            return None
    number = int(text)
    return number if number <= most else None


def signed_number(text: bytes, most: int = LARGEST) -> int | None:
    """Like `whole_number`, with an optional minus sign."""
    if text.startswith(b"-"):
        number = whole_number(text[1:], most)
        return None if number is None else -number
    return whole_number(text, most)


def leading_number(text: bytes) -> int:
    """The leading digits of a text as a number; 0 if there are none. Only the first 18 digits count."""
    found = _LEADING_DIGITS.match(text.lstrip())
    return 0 if found is None else int(found.group())


def real_number(text: bytes) -> float | None:
    """A number with an optional fraction or exponent; `None` if it is not one, or too large for a float."""
    if len(text) > _MOST_REAL_BYTES or _REAL.fullmatch(text) is None:
        return None
    number = float(text)
    return number if isfinite(number) else None
