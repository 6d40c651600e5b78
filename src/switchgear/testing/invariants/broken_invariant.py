"""`BrokenInvariant`: two tables of the engine contradict each other."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["BrokenInvariant", "broken"]


class BrokenInvariant(AssertionError):
    """An invariant of the engine does not hold."""


def broken(text: str) -> NoReturn:
    raise BrokenInvariant(text)
