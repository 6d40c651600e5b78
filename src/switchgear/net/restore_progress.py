"""`RestoreProgress`: tells the log, the service manager and a progress bar how many jobs have been restored."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol

from switchgear.errors import StorageError
from switchgear.net.hub import Hub
from switchgear.net.process.service_manager import MOST_SILENT_SECONDS, ServiceManager

__all__ = ["RestoreDisplay", "RestoreProgress"]

LOG_SECONDS = 2.0  # between two lines of the log about a long queue
SHOWING_SECONDS = 0.1  # between two steps of a progress bar


class RestoreDisplay(Protocol):
    """Shows how far the restoring of jobs is; a progress bar."""

    def show(self, done: int, total: int) -> None: ...

    def end(self) -> None: ...


class RestoreProgress:
    """How far the hub is with the jobs of its store."""

    def __init__(
        self, hub: Hub, manager: ServiceManager, display: RestoreDisplay | None, is_log_on_terminal: bool
    ) -> None:
        self._hub = hub
        self._manager = manager
        self._display = display
        self._is_log_on_terminal = is_log_on_terminal

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run while jobs are restored, and to be cancelled afterwards."""
        if self._display is None:
            return [self._report()]
        return [self._report(), self._show(self._display)]

    async def _report(self) -> None:
        """Tell the log and the service manager, if it takes long."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            await asyncio.sleep(LOG_SECONDS)
            seconds = round(loop.time() - begun)
            jobs = self._hub.engine.job_count()
            if self._display is None or not self._is_log_on_terminal:  # people see it already
                self._hub.telemetry.emit("restoring", store=self._hub.store.url, jobs=jobs, seconds=seconds)
            self._manager.starting(f"restoring jobs: {jobs}", MOST_SILENT_SECONDS)

    async def _show(self, display: RestoreDisplay) -> None:
        """Show on the terminal how many jobs have been restored."""
        store = self._hub.store
        with suppress(StorageError):  # those who read the jobs tell what is wrong with the store
            total = await store.count_jobs(only_unfinished=True)
            while total:
                # Jobs are read and then taken over; most at the same time, those with options one after the other.
                display.show(min(total, (store.jobs_read() + self._hub.engine.job_count()) // 2), total)
                await asyncio.sleep(SHOWING_SECONDS)
