"""`Steps`: a long operator verb as a generator, which yields between two small parts of its work.

`net.long_operations` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from switchgear.protocols.pending_read import Step

__all__ = ["ITEMS_PER_STEP", "Steps", "in_steps"]

Item = TypeVar("Item")

Steps: TypeAlias = Generator[Step, None, Any]
"""A generator that does the rest of the work and returns the answer."""

# Describing one job, function or worker takes some ten microseconds.
ITEMS_PER_STEP: Final = 25


def in_steps(action: Callable[[Item], Any], items: Sequence[Item], per_step: int = ITEMS_PER_STEP) -> Steps:
    """Apply an action to each item, in steps; returns the results."""
    results = []
    for start in range(0, len(items), per_step):
        if start:
            yield False
        results += [action(item) for item in items[start : start + per_step]]
    return results
