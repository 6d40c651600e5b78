"""`SoftTimeout`: raised in a task that takes longer than its `soft_timeout`, so that it can clean up and end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

__all__ = ["SoftTimeout", "raise_after", "raise_after_async"]


class SoftTimeout(Exception):
    """The task has taken longer than its `soft_timeout`.

    A plain function gets it at its next instruction of Python code, in whatever it does, and may catch it to clean up.
    A coroutine is cancelled, and SoftTimeout is what its job fails with.  It is tried again if the task has retries.
    """


@contextmanager
def raise_after(seconds: float, error: type[BaseException]) -> Iterator[None]:
    """Raise this in the thread that enters, after so long, at the next instruction of Python code.

    A thread inside of a system call gets it when the call returns.
    """
    import ctypes  # few tasks have a soft time limit

    lock = threading.Lock()
    is_over = False
    thread_id = threading.get_ident()

    def interrupt() -> None:
        with lock:  # so that it cannot come after the end
            if not is_over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            is_over = True
        timer.cancel()


@asynccontextmanager
async def raise_after_async(seconds: float) -> AsyncIterator[None]:
    """Cancel the body after this time, and raise SoftTimeout instead of the cancellation."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise SoftTimeout(f"the task has taken longer than {seconds:g} s") from error
