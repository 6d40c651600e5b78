"""Numbers that peers write in decimal digits.

Python's own `int` and `float` take more than a protocol means: digits of other scripts, underscores, blanks around
them, `inf` and `nan`, and numbers so long that reading them takes long or raises an error of its own.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Final

__all__ = ["LARGEST", "leading_number", "real_number", "signed_number", "whole_number"]

LARGEST: Final = 2**63 - 1  # what a store can hold

_MOST_DIGITS: Final = 19
_MOST_REAL_BYTES: Final = 64  # more digits than that make no difference to a float
_LEADING_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_REAL: Final = re.compile(rb"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def whole_number(text: bytes, most: int = LARGEST) -> int | None:
    """A number that is not negative, written in digits and nothing else; None if it is none, or more than the most."""
    if not text.isdigit():
        return None
    if len(text) > _MOST_DIGITS:
        text = text.lstrip(b"0") or b"0"
        if len(text) > _MOST_DIGITS:
            return None
    number = int(text)
    return number if number <= most else None


def signed_number(text: bytes, most: int = LARGEST) -> int | None:
    """The same with a minus ahead of it, if it is negative."""
    if text.startswith(b"-"):
        number = whole_number(text[1:], most)
        return None if number is None else -number
    return whole_number(text, most)


def leading_number(text: bytes) -> int:
    """The digits that a text starts with, as a number; 0 if there are none.  Of very many only the first count."""
    found = _LEADING_DIGITS.match(text.lstrip())
    return 0 if found is None else int(found.group())


def real_number(text: bytes) -> float | None:
    """A number that may have a fraction or an exponent; None if it is none, or too large for a float."""
    if len(text) > _MOST_REAL_BYTES or _REAL.fullmatch(text) is None:
        return None
    number = float(text)
    return number if isfinite(number) else None
