"""`Flow`: counts the jobs that come by one protocol and are run by workers of another."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from switchgear.model.duration_histogram import DurationHistogram

__all__ = ["Flow"]


@mypyc_attr(acyclic=True)
class Flow(DurationHistogram):
    """The run times of jobs that were done or failed, and how many of them failed."""

    __slots__ = ("failed",)

    def __init__(self) -> None:
        super().__init__()
        self.failed: i64 = 0

    def note_failure(self, duration_us: i64) -> None:
        """Count a job that failed after this time."""
        self.note(duration_us)
        self.failed += 1
