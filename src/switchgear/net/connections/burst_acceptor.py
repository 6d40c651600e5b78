"""`BurstAcceptor`: accepts the connections that still wait, because uvloop accepts only one per turn.

libuv, below uvloop, accepts one connection of a listening socket in each turn of the event loop.  When hundreds
of peers connect at once and turns take some milliseconds, the last of them would wait for seconds.  asyncio's own event
loop accepts all that wait, and needs none of this.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, Final

__all__ = ["ACCEPTED_PER_TURN", "BurstAcceptor"]

# Each takes a tenth of a millisecond.
ACCEPTED_PER_TURN: Final = 20


class BurstAcceptor:
    """Accepts connections of some listening sockets that an event loop serves too."""

    def __init__(self, listening: list[Any], make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._loop = asyncio.get_running_loop()
        self._make_protocol = make_protocol
        self._copies = [socket.socket(fileno=os.dup(listener.fileno())) for listener in listening]
        for copy in self._copies:
            copy.setblocking(False)
        self._is_armed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def look_soon(self) -> None:
        """The event loop has accepted a connection: perhaps there are others."""
        if not self._is_armed and self._copies:
            self._is_armed = True
            self._loop.call_soon(self._accept_others)

    def close(self) -> None:
        """Close the copies of the listening sockets, so that no more connections are accepted."""
        copies, self._copies = self._copies, []
        for copy in copies:
            copy.close()

    def _accept_others(self) -> None:
        self._is_armed = False
        for copy in self._copies:
            for _ in range(ACCEPTED_PER_TURN):
                try:
                    accepted, _address = copy.accept()
                except OSError:  # there are no others; or it cannot be done, which the event loop finds out too
                    break
                accepted.setblocking(False)
                task = self._loop.create_task(self._loop.connect_accepted_socket(self._make_protocol, accepted))
                self._tasks.add(task)
                task.add_done_callback(self._connected)

    def _connected(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the peer is gone already
