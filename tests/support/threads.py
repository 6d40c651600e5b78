"""Workers that block, beside a test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tests.support.waiting import DEADLINE_SECONDS


class BlockingWorker(Protocol):
    """Works in the thread that calls `run` until another one calls `stop`."""

    def run(self) -> None: ...

    def stop(self) -> None: ...


@contextmanager
def working_beside(*workers: BlockingWorker) -> Iterator[None]:
    """Workers in threads of their own."""
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()
