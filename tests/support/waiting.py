"""The one place where a test may let time pass."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Generous, because a loaded build machine is slow; it is only ever used up by a test that fails.
DEADLINE_SECONDS = float(os.environ.get("TEST_DEADLINE_SECONDS", "10"))
_POLL_SECONDS = 0.01


class NeverHappenedError(AssertionError):
    """The condition did not become true before the deadline."""


def eventually(condition: Callable[[], T], what: str, within_seconds: float = DEADLINE_SECONDS) -> T:
    """Ask ``condition`` again and again until it is true, and give its value."""
    deadline = time.monotonic() + within_seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise NeverHappenedError(f"not within {within_seconds:g} s: {what} (last seen: {value!r})")
        time.sleep(_POLL_SECONDS)
