"""`soft_time_limit`: raises SoftTimeLimitExceeded in the thread of a task that takes too long."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from switchgear.compat.celery.exceptions import SoftTimeLimitExceeded

__all__ = ["soft_time_limit"]


@contextmanager
def soft_time_limit(seconds: float | None) -> Iterator[None]:
    """Raise SoftTimeLimitExceeded in this thread after so long, at the next instruction of Python code.

    A thread inside of a system call gets it when the call returns.
    """
    if seconds is None:
        yield
        return
    lock = threading.Lock()
    is_over = False
    thread_id = threading.get_ident()

    def interrupt() -> None:
        with lock:  # so that it cannot come after the end
            if not is_over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread_id), ctypes.py_object(SoftTimeLimitExceeded)
                )

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            is_over = True
        timer.cancel()
