"""`BurstAcceptor`: accepts the connections that still wait, because uvloop accepts only one per turn.

libuv, below uvloop, accepts one connection of a listening socket in each turn of the event loop.  When hundreds
of peers connect at once and turns take some milliseconds, the last of them would wait for seconds.  asyncio's own event
loop accepts all that wait, and needs none of this.

All listeners of an event loop share what is accepted in a turn, in rotation, so that floods at several of them do not
make turns longer than a flood at one.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

__all__ = ["ACCEPTED_PER_TURN", "BurstAcceptor"]

# Each takes a tenth of a millisecond.
ACCEPTED_PER_TURN: Final = 20


class BurstAcceptor:
    """Accepts connections of some listening sockets that an event loop serves too."""

    def __init__(self, listening: list[Any], make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._loop = asyncio.get_running_loop()
        self._rotation = _rotations.setdefault(self._loop, _Rotation())
        self._make_protocol = make_protocol
        self._copies = [socket.socket(fileno=os.dup(listener.fileno())) for listener in listening]
        for copy in self._copies:
            copy.setblocking(False)
        self._tasks: set[asyncio.Task[Any]] = set()

    def look_soon(self) -> None:
        """The event loop has accepted a connection: perhaps there are others."""
        for copy in self._copies:
            self._rotation.add(self._loop, self, copy)

    def close(self) -> None:
        """Close the copies of the listening sockets, so that no more connections are accepted."""
        copies, self._copies = self._copies, []
        for copy in copies:
            copy.close()

    def accept_one(self, copy: socket.socket) -> bool:
        """Accept a connection of this socket; False if none waits."""
        try:
            accepted, _address = copy.accept()
        except OSError:  # there are no others; or it cannot be done, which the event loop finds out too
            return False
        accepted.setblocking(False)
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._make_protocol, accepted))
        self._tasks.add(task)
        task.add_done_callback(self._connected)
        return True

    def _connected(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the peer is gone already


class _Rotation:
    """The listening sockets of an event loop at which connections may wait."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[BurstAcceptor, socket.socket]] = deque()

    def add(self, loop: asyncio.AbstractEventLoop, acceptor: BurstAcceptor, copy: socket.socket) -> None:
        if (acceptor, copy) not in self._waiting:
            if not self._waiting:
                loop.call_soon(self._accept, loop)
            self._waiting.append((acceptor, copy))

    def _accept(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting
        for _ in range(ACCEPTED_PER_TURN):
            if not waiting:
                return
            acceptor, copy = waiting.popleft()
            if acceptor.accept_one(copy):
                waiting.append((acceptor, copy))
        if waiting:
            loop.call_soon(self._accept, loop)


_rotations: WeakKeyDictionary[asyncio.AbstractEventLoop, _Rotation] = WeakKeyDictionary()
