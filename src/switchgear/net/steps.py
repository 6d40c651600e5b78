"""Operator verbs that may have much to do: generators that yield between small parts of their work (`net.slices`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

__all__ = ["Steps", "in_steps"]

Item = TypeVar("Item")

Steps: TypeAlias = Generator[bool, None, Any]
"""What is left to be done, and then the answer."""

# Describing one job, function or worker takes some ten microseconds.
ITEMS_PER_STEP: Final = 25


def in_steps(action: Callable[[Item], Any], items: Sequence[Item], per_step: int = ITEMS_PER_STEP) -> Steps:
    """The results of an action for each of many items."""
    results = []
    for start in range(0, len(items), per_step):
        if start:
            yield False
        results += [action(item) for item in items[start : start + per_step]]
    return results
