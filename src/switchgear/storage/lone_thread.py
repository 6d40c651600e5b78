"""`LoneThread`: a worker thread that runs calls one after the other, until the very end of the program."""

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
    """Runs calls in order, in its own thread.

    A ThreadPoolExecutor accepts no more work once the interpreter has begun to shut down. An embedded server stores
    jobs until the exit handlers of its program have run, which is later.
    """

    def __init__(self, name: str) -> None:
        self._pieces: SimpleQueue[Piece | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[..., Result], *arguments: object) -> Future[Result]:
        """Run this after everything submitted before."""
        future: Future[Result] = Future()
        self.run(future, work, *arguments)
        return future

    def run(self, future: Future[Result], work: Callable[..., Result], *arguments: object) -> None:
        """The same, for a caller that has made the future and what waits for it: the thread may begin at once."""
        self._pieces.put((future, work, arguments))

    def shutdown(self) -> None:
        """Wait until all calls have run, and end the thread."""
        self._pieces.put(None)
        self._thread.join()

    def end_soon(self) -> None:
        """End the thread when all calls have run, without waiting for that."""
        self._pieces.put(None)

    def _run(self) -> None:
        while (piece := self._pieces.get()) is not None:
            _do(*piece)
            del piece  # the call's references must not live on until the next call


def _do(future: Future[Any], work: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work(*arguments)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
