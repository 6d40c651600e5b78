"""`HueyResult`: what the call of a Huey task returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from switchgear.compat.huey.exceptions import ResultTimeout, TaskException
from switchgear.compat.json_types import from_json_types
from switchgear.errors import JobFailed, TaskFailed

if TYPE_CHECKING:
    from switchgear.app.app import App

__all__ = ["HueyResult", "HueyResultGroup"]


class HueyResult:
    """The result of a job.  Reading it does not remove it."""

    def __init__(self, app: App, handle: str) -> None:
        self.id = handle
        self._job = app.job(handle)

    def __repr__(self) -> str:
        return f"<Result: {self.id}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Short for `get`."""
        return self.get(*args, **kwargs)

    def get(
        self,
        blocking: bool = False,
        timeout: float | None = None,
        backoff: float = 1.15,
        max_delay: float = 1.0,
        revoke_on_timeout: bool = False,
        preserve: bool = False,
    ) -> Any:
        """What the task returned; None if it has not ended and `blocking` is not given.  Nothing is polled.

        Raises TaskException if the task failed, was revoked or has expired, and ResultTimeout.
        """
        if not blocking and not self.is_ready():
            return None
        try:
            return from_json_types(self._job.result(timeout))
        except TimeoutError as error:
            if revoke_on_timeout:
                self.revoke()
            raise ResultTimeout("timed out waiting for result") from error
        except JobFailed as failure:
            is_exception = isinstance(failure, TaskFailed)
            text = failure.error.decode(errors="replace").partition("\n")[0] if is_exception else str(failure)
            trace = failure.remote_traceback if isinstance(failure, TaskFailed) else ""
            raise TaskException({"error": text, "traceback": trace, "task_id": self.id}) from failure

    def is_ready(self) -> bool:
        """Whether the job has ended."""
        return self._job.status().is_finished

    def is_revoked(self) -> bool:
        """Whether the job was revoked."""
        return self._job.status().state == "cancelled"

    def revoke(self, revoke_once: bool = True) -> None:
        """Cancel the job."""
        self._job.cancel()

    def restore(self) -> bool:
        """Let a revoked job run after all; returns whether it was revoked."""
        was_revoked = self.is_revoked()
        if was_revoked:
            self._job.retry()
        return was_revoked

    def reschedule(
        self, eta: datetime | None = None, delay: float | timedelta | None = None, **others: Any
    ) -> HueyResult:
        """Run a job that has not started at another time."""
        self._job.change(at=eta, delay=delay if eta is None else None)
        return self

    def reset(self) -> None:
        """Nothing is done: results are not cached here."""


class HueyResultGroup:
    """Results in order."""

    def __init__(self, results: Iterable[HueyResult]) -> None:
        self._results = list(results)

    def get(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The return values of the jobs, in order."""
        return [result.get(*args, **kwargs) for result in self._results]

    __call__ = get

    def __getitem__(self, index: int) -> HueyResult:
        return self._results[index]

    def __iter__(self) -> Iterator[HueyResult]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)
