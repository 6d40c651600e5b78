"""The history of a figure as a line of braille characters, two values in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["braille_line"]

BLANK: Final = 0x2800
# The dots of the left and the right column of a character, from the bottom up.
LEFT: Final = (0, 0x40, 0x44, 0x46, 0x47)
RIGHT: Final = (0, 0x80, 0xA0, 0xB0, 0xB8)
LEVELS: Final = 4


def braille_line(values: Sequence[float], width: int) -> str:
    """The latest values as a line of this many characters; the highest of them has all dots, and 0 has none."""
    shown = [0.0] * max(0, 2 * width - len(values)) + list(values[-2 * width :])
    highest = max(shown, default=0.0)
    levels = [_level(value, highest) for value in shown]
    return "".join(
        chr(BLANK | LEFT[left] | RIGHT[right]) for left, right in zip(levels[::2], levels[1::2], strict=True)
    )


def _level(value: float, highest: float) -> int:
    """How many dots stand for a value; whatever is more than 0 has one at least."""
    if value <= 0:
        return 0
    return max(1, min(LEVELS, round(LEVELS * value / highest)))
