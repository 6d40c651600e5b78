"""An event loop without sockets, whose time passes only when it is told so."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["StillLoop", "quiet"]


class StillLoop(asyncio.BaseEventLoop):
    """Runs what is ready.  There is nothing to select from, so a turn of it takes microseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.now_seconds = 1000.0
        self.errors: list[BaseException] = []
        self._selector = self
        self.set_exception_handler(self._note)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(context.get("exception") or RuntimeError(context["message"]))

    def time(self) -> float:
        return self.now_seconds

    def select(self, timeout: float | None) -> list[Any]:
        """Nothing has arrived."""
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing happens any more without time passing."""
        ready: Any = getattr(self, "_ready")  # noqa: B009
        scheduled: Any = getattr(self, "_scheduled")  # noqa: B009
        return not ready and not (scheduled and scheduled[0].when() <= self.now_seconds)

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Run this to its end."""
        return self.run_until_complete(main)


async def quiet(loop: StillLoop, most_turns: int = 10_000) -> None:
    """Let the loop turn until nothing happens any more."""
    for _ in range(most_turns):
        await asyncio.sleep(0)
        if loop.is_quiet:
            return
    raise AssertionError("the server does not come to rest")
