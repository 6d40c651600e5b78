"""What is to be said to Redis: commands that wait for their turn, and what follows from the answers.

They are sent in the order in which they were added, many in one go.  When the line is lost it is not known which were
done; those that may be done twice are sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from switchgear.net.bridge.line import Command

__all__ = ["Answered", "Deed", "Deeds"]

Answered = Callable[[Any], None]


def _nothing(answer: Any) -> None:
    """No consequence."""


@dataclass(slots=True)
class Deed:
    """One command."""

    command: Command
    then: Answered = _nothing  # is called with the answer, in a turn of the hub
    refused: Answered = _nothing  # is called with the error, if Redis refuses this command and no other
    again: bool = True  # is sent again after the line was lost


class Deeds:
    """The commands that wait."""

    def __init__(self, on_added: Callable[[], None]) -> None:
        self._waiting: deque[Deed] = deque()
        self._on_added = on_added

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, command: Command, then: Answered = _nothing, refused: Answered = _nothing, again: bool = True
    ) -> None:
        self._waiting.append(Deed(command, then, refused, again))
        self._on_added()

    def clear(self) -> None:
        """There is nobody any more for whom these were meant."""
        self._waiting.clear()

    def take(self, most: int) -> list[Deed]:
        """The next ones, as many as may be sent in one go."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def put_back(self, deeds: list[Deed]) -> None:
        """The line was lost before these were answered."""
        self._waiting = deque(deed for deed in (*deeds, *self._waiting) if deed.again)
