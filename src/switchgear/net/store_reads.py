"""`StoreReads`: runs reads of the store without blocking the event loop.

A store's reads are coroutines. Those of a store that answers at once, from memory, are run to their end at once; all
others become tasks. A store may be slow or never answer, so a read whose result is no longer needed is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from switchgear.errors import StorageError
from switchgear.protocols.pending_read import PendingRead
from switchgear.storage.base import Store

__all__ = ["ImmediateReads", "StoreReads"]

log = logging.getLogger("switchgear")


class StoreReads:
    """Starts reads, and cancels them when the server stops."""

    def __init__(self, store: Store) -> None:
        self._answers_at_once = store.answers_at_once
        self._tasks: dict[asyncio.Task[Any], PendingRead] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> PendingRead:
        """Start a read. An error that is not a StorageError is a defect; it is logged and becomes a StorageError."""
        read = PendingRead()
        if self._answers_at_once:
            try:
                coroutine.send(None)
            except StopIteration as stop:
                read.finish(stop.value)
                return read
            except Exception as error:
                read.finish(None, _storage_error(error))
                return read
            # The read has yielded (`asyncio.sleep(0)`) in a long search, and continues in the next turn.
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = read
        task.add_done_callback(self._ended)
        read.on_abandoned = task.cancel
        return read

    def _ended(self, task: asyncio.Task[Any]) -> None:
        read = self._tasks.pop(task)
        if task.cancelled():
            read.finish(None, StorageError("the read was abandoned"))
            return
        error = task.exception()
        if error is None:
            read.finish(task.result())
        else:
            read.finish(None, _storage_error(error))

    async def close(self) -> None:
        """Cancel the reads in progress."""
        tasks = list(self._tasks)
        for task in tasks:
            self._tasks[task].abandon()
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class ImmediateReads(StoreReads):
    """`StoreReads` without an event loop, for a store that answers at once: a read ends in `start`."""

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> PendingRead:
        """Start the read now, up to its first wait; what waits for its answer continues when it has ended."""
        read = PendingRead()
        try:
            while True:
                coroutine.send(None)
        except StopIteration as stop:
            read.finish(stop.value)
        except Exception as error:
            read.finish(None, _storage_error(error))
        return read


def _storage_error(error: BaseException) -> StorageError:
    if isinstance(error, StorageError):
        return error
    log.error("internal error while reading the store", exc_info=error)
    return StorageError(f"{type(error).__name__}: {error}")
