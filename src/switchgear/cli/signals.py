"""Signal handlers while an event loop runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["on_signals"]


@contextmanager
def on_signals(numbers: tuple[signal.Signals, ...], handle: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Within this context `handle` is called with each of these signals."""
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
