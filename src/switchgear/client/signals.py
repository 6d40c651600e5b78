"""Stop signals (SIGTERM, SIGINT) while a worker runs in the main thread."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["STOP_SIGNALS", "interruption", "on_stop_signals", "on_stop_signals_in_loop"]

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop_signals(handle: Callable[[int], None], *, wanted: bool = True) -> Iterator[None]:
    """Within this context `handle` is called with each stop signal.  Outside of the main thread it does nothing."""
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda got, _: handle(got)) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def on_stop_signals_in_loop(handle: Callable[[int], None], *, wanted: bool = True) -> Iterator[None]:
    """The same in a running event loop, which calls `handle` between two callbacks."""
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def interruption(number: int) -> BaseException:
    """The exception that a handler raises to interrupt running code."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
