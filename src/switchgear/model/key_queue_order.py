"""`KeyQueueOrder`: the key queues of a function from which a job may be taken, in the order of their turns.

There may be as many keys as jobs, and any key queue may be opened, closed or served at any time. So this is a binary
heap in which each entry knows its position: one that leaves is removed, not left behind to be swept, and nothing is
done for all key queues at once, as a dictionary does when it grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from mypy_extensions import i64

if TYPE_CHECKING:
    from switchgear.model.limiter import KeyQueue

__all__ = ["KeyQueueOrder", "KeyQueueTurn"]


class KeyQueueTurn:
    """An entry of the order: a key queue, and a number that is lower the earlier its turn comes."""

    __slots__ = ("key_queue", "number", "position")

    def __init__(self, key_queue: KeyQueue, number: i64) -> None:
        self.key_queue = key_queue
        self.number = number
        self.position: i64 = -1  # in the heap; below 0: in none


class KeyQueueOrder:
    """A heap of turns, of which each can be moved and removed."""

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns: list[KeyQueueTurn] = []

    def __len__(self) -> int:
        return len(self._turns)

    def has(self, turn: KeyQueueTurn) -> bool:
        """Whether this turn is in this order."""
        turns = self._turns
        position = turn.position
        return 0 <= position < len(turns) and turns[position] is turn

    def first(self) -> KeyQueueTurn | None:
        """The turn with the lowest number."""
        return self._turns[0] if self._turns else None

    def add(self, turn: KeyQueueTurn) -> None:
        """Add a turn, which is in no order."""
        turn.position = len(self._turns)
        self._turns.append(turn)
        self._move_up(turn)

    def remove(self, turn: KeyQueueTurn) -> None:
        """Remove a turn, which is in this order."""
        last = self._turns.pop()
        if last is not turn:
            last.position = turn.position
            self._turns[last.position] = last
            self._move(last)
        turn.position = -1

    def change(self, turn: KeyQueueTurn, number: i64) -> None:
        """Give a turn of this order another number."""
        turn.number = number
        self._move(turn)

    def _move(self, turn: KeyQueueTurn) -> None:
        if turn.position and turn.number < self._turns[(turn.position - 1) >> 1].number:
            self._move_up(turn)
        else:
            self._move_down(turn)

    def _move_up(self, turn: KeyQueueTurn) -> None:
        turns = self._turns
        number = turn.number
        position = turn.position
        while position:
            above = (position - 1) >> 1
            other = turns[above]
            if other.number <= number:
                break
            turns[position] = other
            other.position = position
            position = above
        turns[position] = turn
        turn.position = position

    def _move_down(self, turn: KeyQueueTurn) -> None:
        turns = self._turns
        count: i64 = len(turns)
        number = turn.number
        position = turn.position
        while True:
            below = 2 * position + 1
            if below >= count:
                break
            other = turns[below]
            if below + 1 < count and turns[below + 1].number < other.number:
                below += 1
                other = turns[below]
            if number <= other.number:
                break
            turns[position] = other
            other.position = position
            position = below
        turns[position] = turn
        turn.position = position

    def in_order(self) -> Iterator[KeyQueue]:
        """The key queues in the order of their turns. It may not change meanwhile."""
        turns = self._turns
        next_ones: list[tuple[int, int]] = []  # a heap of numbers and positions: the turns after those that were told
        if turns:
            next_ones.append((turns[0].number, 0))
        while next_ones:
            _, position = heappop(next_ones)
            yield turns[position].key_queue
            for below in (2 * position + 1, 2 * position + 2):
                if below < len(turns):
                    heappush(next_ones, (turns[below].number, below))
