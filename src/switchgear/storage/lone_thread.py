"""Work done in one thread, one piece after the other, until the very end of a program."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

__all__ = ["LoneThread"]

Result = TypeVar("Result")
Piece: TypeAlias = tuple[Future[Any], Callable[..., Any], tuple[object, ...]]


class LoneThread:
    """Does what it is given, in that order, in a thread of its own.

    A ThreadPoolExecutor takes no more work once the interpreter has begun to end.  A server that lives in somebody's
    program keeps jobs until that program's exit handlers have run, which is later.
    """

    def __init__(self, name: str) -> None:
        self._pieces: SimpleQueue[Piece | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[..., Result], *arguments: object) -> Future[Result]:
        """Do this when everything before it is done."""
        future: Future[Result] = Future()
        self._pieces.put((future, work, arguments))
        return future

    def shutdown(self) -> None:
        """End when everything is done, and wait for that."""
        self._pieces.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (piece := self._pieces.get()) is not None:
            _do(*piece)
            del piece  # what it held must not live on until the next one comes


def _do(future: Future[Any], work: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work(*arguments)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
