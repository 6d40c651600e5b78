"""`PendingRead`: a read of the store that an operation waits for.

Code that needs data of the store is an operation (`Session.work_off`): an iterator that yields the read, and continues
when it has ended. A `Reading` is such an iterator that returns the data, for `yield from`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeAlias, TypeVar

from mypy_extensions import mypyc_attr

__all__ = ["PendingRead", "Reading", "Step", "awaited", "close_steps"]

Result = TypeVar("Result")


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingRead:
    """A read that was started, and its outcome."""

    def __init__(self) -> None:
        self.is_done = False
        self.is_given_up = False
        self.result: Any = None
        self.error: Exception | None = None
        self.on_abandoned: Callable[[], object] | None = None  # called when the result is no longer needed
        self._on_done: Callable[[], object] | None = None

    def when_done(self, on_done: Callable[[], object]) -> None:
        """Call this once when the read has ended; at once if it already has."""
        if self.is_done:
            on_done()
        else:
            self._on_done = on_done

    def finish(self, result: Any, error: Exception | None = None) -> None:
        """End the read with a result or an error."""
        if not self.is_done:
            self.is_done = True
            self.result = result
            self.error = error
            self.on_abandoned = None
            on_done, self._on_done = self._on_done, None
            if on_done is not None:
                on_done()

    def give_up(self) -> None:
        """The result is no longer needed: the waiting operation continues at once."""
        if not self.is_done:
            self.is_given_up = True
            on_abandoned, self.on_abandoned = self.on_abandoned, None
            if on_abandoned is not None:
                on_abandoned()
            self.finish(None)

    def abandon(self) -> None:
        """Abandon the read: its result is no longer needed."""
        self._on_done = None
        on_abandoned, self.on_abandoned = self.on_abandoned, None
        if on_abandoned is not None:
            on_abandoned()


Step: TypeAlias = bool | PendingRead
"""The values that an operation yields: False, it can continue; True, it pauses until its owner resumes it; or a read
that has to end first."""

Reading: TypeAlias = Generator[Step, None, Result]


def awaited(read: PendingRead) -> Reading[Any]:
    """The result of a read; raises its error. An operation that is closed meanwhile abandons the read."""
    try:
        while not read.is_done:
            yield read
    finally:
        if not read.is_done:
            read.abandon()
    if read.error is not None:
        raise read.error
    return read.result


def close_steps(steps: Iterator[Step]) -> None:
    """Close an operation, which runs its clean-up code."""
    close = getattr(steps, "close", None)
    if close is not None:
        close()
