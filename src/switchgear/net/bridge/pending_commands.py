"""`PendingCommands`: commands for Redis that have not been sent yet, with callbacks for their answers.

They are sent in batches, in the order in which they were added.  When the connection is lost it is not known which
commands were executed; those that may be executed twice are sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from switchgear.net.bridge.redis_connection import Command

__all__ = ["Answered", "PendingCommand", "PendingCommands"]

Answered = Callable[[Any], None]


def _nothing(answer: Any) -> None:
    """Take an answer of Redis that nothing depends on."""


@dataclass(slots=True)
class PendingCommand:
    """A command for Redis, and what to do with its answer."""

    command: Command
    then: Answered = _nothing  # called with the answer, in a turn of the hub
    refused: Answered = _nothing  # called with the error, if Redis refuses this command alone
    again: bool = True  # whether to send the command again after the connection was lost


class PendingCommands:
    """Queue of the commands that have not been sent."""

    def __init__(self, on_added: Callable[[], None]) -> None:
        self._waiting: deque[PendingCommand] = deque()
        self._on_added = on_added

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, command: Command, then: Answered = _nothing, refused: Answered = _nothing, again: bool = True
    ) -> None:
        self._waiting.append(PendingCommand(command, then, refused, again))
        self._on_added()

    def clear(self) -> None:
        """Drop all commands: they were meant for a Redis that is gone."""
        self._waiting.clear()

    def take(self, most: int) -> list[PendingCommand]:
        """Remove and return the next batch, of at most this many commands."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def put_back(self, commands: list[PendingCommand]) -> None:
        """Queue unanswered commands again after the connection was lost."""
        self._waiting = deque(pending for pending in (*commands, *self._waiting) if pending.again)
