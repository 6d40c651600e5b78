"""What all tasks have in common."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from typing import Protocol

from examples.livejournal.world import World

__all__ = ["Handler", "Task", "TaskValue", "fetch"]

FETCH_SECONDS = 10.0
# A feed of a stranger may have no end.
MOST_FETCHED_BYTES = 1024 * 1024

TaskValue = bytes | tuple[int, bytes] | None


class Task(Protocol):
    """A `DraftTask`, as far as tasks here need it."""

    name: str
    args: bytes

    def progress(self, numerator: int, denominator: int, seconds_left: float | None = None) -> None:
        """Tell how far it is."""


Handler = Callable[[World, Task], TaskValue]

# All that is fetched is on this machine, where no proxy can help.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch(url: str) -> bytes:
    """What is there; raises OSError."""
    with _opener.open(url, timeout=FETCH_SECONDS) as answer:
        body: bytes = answer.read(MOST_FETCHED_BYTES)
    return body
