"""`in_thread`: awaits a blocking call in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

__all__ = ["in_thread"]

P = ParamSpec("P")
R = TypeVar("R")


async def in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function in a new thread, and return its result.

    Unlike `asyncio.to_thread` it uses no pool: threads of a pool are waited for when the program ends, and a worker
    must be able to stop while that happens.  Raises RuntimeError if no thread can be started.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def set_outcome(result: R | None, error: BaseException | None) -> None:
        if future.done():
            return  # the wait was cancelled
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, failure = None, None
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(set_outcome, result, failure)

    threading.Thread(target=work, name="switchgear-waiting", daemon=True).start()
    return await future
