"""`CallEnd`: lets the event loop wait for a call in another thread."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

__all__ = ["CallEnd"]

# A busy event loop releases the interpreter lock for a microsecond at every system call, and takes it back before the
# writer thread has woken up; each time the switch interval (`sys.setswitchinterval`) of that thread starts anew. It has
# been seen to starve for a second. So when a commit takes longer than the first of these, the event loop sleeps for the
# second, repeatedly, until the commit ends.
PATIENCE_S: Final = 0.005
STEP_ASIDE_S: Final = 0.0001


class CallEnd:
    """The end of a call in another thread, for the event loop, which steps aside if the call takes long."""

    def __init__(self, call: Future[Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._has_ended = False
        self._waiter = self._loop.create_future()
        self._timer = self._loop.call_later(PATIENCE_S, self._step_aside)
        call.add_done_callback(self._on_end)

    async def wait(self) -> None:
        """Wait for the end, and raise CancelledError only then."""
        cancelled: asyncio.CancelledError | None = None
        try:
            while not self._has_ended:
                try:
                    await self._waiter
                except asyncio.CancelledError as error:
                    cancelled = error
                    self._waiter = self._loop.create_future()
        finally:
            self._timer.cancel()
        if cancelled is not None:
            raise cancelled

    def _on_end(self, call: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._has_ended = True
        if not self._waiter.done():
            self._waiter.set_result(None)

    def _step_aside(self) -> None:
        time.sleep(STEP_ASIDE_S)
        self._timer = self._loop.call_later(PATIENCE_S, self._step_aside)
