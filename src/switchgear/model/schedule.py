"""`Schedule`: the definition of a job that is made at each tick of a `Timetable`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from switchgear.model.priority import NORMAL
from switchgear.states import CatchUp

__all__ = ["Schedule", "Timetable"]


class Timetable(Protocol):
    """The times of something recurring; `switchgear.timetable` has implementations."""

    spec: str  # as it was written
    timezone: str

    def next_after_us(self, us: int) -> int | None:
        """The first time after this one, or `None`."""

    def last_between_us(self, after_us: int, until_us: int, most: int) -> list[int]:
        """The last times that are after the first and not after the second argument, in order, up to a number."""


@dataclass(slots=True, eq=False)
class Schedule:
    """The definition of a job that is made at each tick of a timetable."""

    name: bytes
    timetable: Timetable
    function_name: bytes
    payload: bytes = b""
    priority: int = NORMAL
    catch_up: int = CatchUp.LATEST
    overlap: bool = False  # a job is made even while the last one is unfinished
    # The options of each job; see Job.
    expires_after_us: int = 0  # counted from the tick
    timeout_us: int = 0
    attempts_limit: int = -1
    crash_limit: int = -1
    retention_us: int = -1
    key: bytes = b""
    requires: bytes = b""
    owner: bytes = b""  # the app that has declared it; empty: an operator
    # The state of the schedule.
    paused: bool = False
    removed: bool = False
    reached_us: int = 0  # ticks up to this time are met: a job was made, or none will be
    next_us: int = 0  # the first tick after that; 0: there is none
    wake_us: int = 0  # when the engine checks it; 0: never
    last_us: int = 0  # when a job was last made
    last_job_id: int = 0
    refusal: str = ""  # why the due tick could not be met yet
    fired: int = 0
    skipped: int = 0  # ticks without a job because the last job was unfinished
    missed: int = 0  # ticks without a job because they were missed
    refused: int = 0  # ticks that had to wait because their job was refused

    def __repr__(self) -> str:
        return f"Schedule({self.name!r}, {self.timetable.spec!r})"
