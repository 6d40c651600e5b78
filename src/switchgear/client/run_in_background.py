"""Context managers that run a worker in the background of a block: in a thread, or as an asyncio task."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from switchgear.client.in_thread import in_thread

__all__ = ["AsyncRunsBeside", "RunsBeside", "ThreadForAsync"]


class RunsBeside(ABC):
    """Something with `run` and `stop` that blocks.  `with` runs it in a thread, and stops it at the end of the block.

    What `run` raises is raised at the end of the block.
    """

    _thread: threading.Thread | None = None
    _error: BaseException | None = None

    @abstractmethod
    def run(self) -> None:
        """Run until stopped."""

    @abstractmethod
    def stop(self) -> None:
        """Let `run` return; from any thread."""

    def stop_at_once(self) -> None:
        """Let `run` return soon, because the block has failed."""
        self.stop()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run_beside, name=type(self).__name__, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        if error is None:
            self.stop()
        else:
            self.stop_at_once()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run_beside(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error


class ThreadForAsync(RunsBeside):
    """The same also for `async with`, where the event loop goes on meanwhile."""

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self.__exit__, kind, error, trace)


class AsyncRunsBeside(ABC):
    """Something with a coroutine `run` and with `stop`.  `async with` runs it as a task."""

    _task: asyncio.Task[None] | None = None

    @abstractmethod
    async def run(self, *, handle_signals: bool = True) -> None:
        """Run until stopped."""

    @abstractmethod
    def stop(self) -> Any:
        """Let `run` return; from the event loop's thread."""

    def stop_at_once(self) -> None:
        """Let `run` return soon, because the block has failed."""
        self.stop()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(handle_signals=False))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        if error is None:
            self.stop()
        else:
            self.stop_at_once()
        try:
            await self._task
        except BaseException:
            if error is None or not self._task.done():
                raise
