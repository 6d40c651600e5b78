"""`Mailbox`: a thread-safe queue into an event loop, which wakes the loop once for many items."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Mailbox"]

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Items are received in the loop, in their order, as many at a time as have come by then.

    Waking a loop costs a system call here and another one there, so it is done once for all that comes before it looks.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Callable[[list[T]], None]) -> None:
        self._loop = loop
        self._receive = receive
        self._items: deque[T] = deque()
        self._is_called = False  # the loop is going to look

    def put(self, item: T) -> None:
        """Add an item from any thread; raises RuntimeError if the loop is closed."""
        self._items.append(item)
        if not self._is_called:
            self.call()

    def put_quietly(self, item: T) -> None:
        """Add an item without waking the loop; the caller makes sure that `call` or `look` follows."""
        self._items.append(item)

    def __len__(self) -> int:
        return len(self._items)

    def call(self) -> None:
        """Have the loop receive the items, from any thread; raises RuntimeError if it is closed."""
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon_threadsafe(self.look)

    def look(self) -> None:
        """Receive the items that are there; called in the loop."""
        self._is_called = False  # first, so that nothing is left behind unseen
        items: list[T] = []
        while self._items:
            items.append(self._items.popleft())
        if items:
            self._receive(items)
