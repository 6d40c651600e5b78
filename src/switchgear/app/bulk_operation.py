"""`BulkOperation`: one request that cancels or retries very many jobs, and its progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from switchgear.backoff import ReconnectBackoff, RetryPauses, without_jitter

if TYPE_CHECKING:
    from switchgear.app.app import App

__all__ = ["BulkOperation"]

_PAUSES: Final = ReconnectBackoff(first_seconds=0.02, most_seconds=0.5, rng=without_jitter)  # between two looks


class BulkOperation:
    """A bulk action of a server.  It goes on whether or not this program does, until the server stops."""

    def __init__(self, app: App, answer: Mapping[str, Any]) -> None:
        self.app = app
        self.id: str = answer["id"]
        self.action: str = answer["action"]
        self.matched: int = answer["matched"]  # so many jobs were chosen when it began
        self.examples: tuple[str, ...] = tuple(answer["examples"])  # the handles of some of them
        self._read(answer)

    def _read(self, answer: Mapping[str, Any]) -> None:
        self.state: str = answer["state"]  # running, done, or aborted
        self.handled: int = answer["handled"]  # so many of those that matched have been looked at
        self.changed: int = answer["changed"]  # so many jobs were changed, with those that waited for them (`cascade`)

    def __repr__(self) -> str:
        return f"<BulkOperation {self.action} {self.state}: {self.handled} of {self.matched}>"

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, as of the last look."""
        return self.state != "running"

    def refresh(self) -> BulkOperation:
        """Ask the server how far it is; raises NotFound if the server has forgotten it."""
        if self.id:  # one that was only tried out has none
            self._read(self.app.control("bulk_actions", id=self.id)[0])
        return self

    def abort(self) -> BulkOperation:
        """Stop it; what it has changed stays changed."""
        self._read(self.app.control("abort_bulk", id=self.id))
        return self

    def wait(self, on_progress: Callable[[BulkOperation], object] | None = None) -> BulkOperation:
        """Wait for its end; `on_progress` is called now and then, and at the end."""
        pauses = RetryPauses(_PAUSES)
        while not self.refresh().is_finished:
            if on_progress is not None:
                on_progress(self)
            time.sleep(pauses.next_seconds())
        if on_progress is not None:
            on_progress(self)
        return self

    async def wait_async(self) -> BulkOperation:
        """`wait` with asyncio."""
        pauses = RetryPauses(_PAUSES)
        while True:
            self._read((await self.app.control_async("bulk_actions", id=self.id))[0])
            if self.is_finished:
                return self
            await asyncio.sleep(pauses.next_seconds())
