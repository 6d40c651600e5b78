"""`Waker`: wakes a thread that waits in a poller or selector."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["Waker"]


class Waker:
    """Wakes a thread that waits in a poller or selector; from any thread, and from a signal handler.

    A pair of plain sockets, since a ZeroMQ socket belongs to one thread.
    """

    def __init__(self) -> None:
        self._sender, self._receiver = socket.socketpair()
        self._sender.setblocking(False)
        self._receiver.setblocking(False)

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._receiver.fileno()

    def __call__(self) -> None:
        with suppress(OSError):  # closed, or so many that one more makes no difference
            self._sender.send(b"x")

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Within this context signals wake as well.  Otherwise one that comes just before the wait begins would be
        handled
        only when the wait ends.  Outside of the main thread it does nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)

    def clear(self) -> None:
        """Forget all wakeups so far."""
        with suppress(BlockingIOError):
            while self._receiver.recv(4096):
                pass

    def close(self) -> None:
        self._sender.close()
        self._receiver.close()
