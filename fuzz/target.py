"""What a fuzz target is: a name, a function that an input is given to, and how inputs are made."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from fuzz.grammar import Level

__all__ = ["Defect", "Target", "must"]

LONGEST_BYTES: Final = 4096


class Defect(AssertionError):
    """An input has shown that the product does not do what it should."""


def must(condition: bool, text: str, *details: object) -> None:
    """Raise Defect unless this is so."""
    if not condition:
        raise Defect(": ".join([text, *(repr(detail)[:500] for detail in details)]))


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads bytes of strangers.

    `run` raises if an input shows a defect, and otherwise returns what kind of input it was, such as the code of the
    error that it caused.  The runner without coverage keeps an input in mind if nothing of its kind was seen before.
    """

    name: str  # also of the folders with its corpus and its regressions
    run: Callable[[bytes], Hashable]
    covers: tuple[str, ...]  # the modules of the package that read the input
    levels: tuple[Level, ...] = ()  # how an input is cut into parts, each of these into smaller ones, and so on
    words: tuple[bytes, ...] = ()  # that mean something to the reader
    longest_bytes: int = LONGEST_BYTES  # of an input that is made
