"""Waking a thread that waits for sockets."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["Waker"]


class Waker:
    """Wakes whoever waits in a poller or selector; from any thread, and from a signal handler.

    A pair of plain sockets, since a ZeroMQ socket belongs to one thread.
    """

    def __init__(self) -> None:
        self._nudger, self._nudged = socket.socketpair()
        self._nudger.setblocking(False)
        self._nudged.setblocking(False)

    def fileno(self) -> int:
        """What is waited for."""
        return self._nudged.fileno()

    def __call__(self) -> None:
        with suppress(OSError):  # closed, or so many that one more makes no difference
            self._nudger.send(b"x")

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Meanwhile signals wake as well.  Else one that comes just before the wait begins would be handled only when
        the wait ends.  In other threads than the main one there are no signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.set_wakeup_fd(self._nudger.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)

    def clear(self) -> None:
        """All who have nudged so far were heard."""
        with suppress(BlockingIOError):
            while self._nudged.recv(4096):
                pass

    def close(self) -> None:
        self._nudger.close()
        self._nudged.close()
