"""`crontab` and `schedule`: when periodic tasks run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from switchgear.compat.not_supported import NotSupported

__all__ = ["crontab", "schedule", "solar", "timetable_text"]

Cronspec = int | str | Iterable[int]


def _field(given: Cronspec) -> str:
    if isinstance(given, str):
        return given.replace(" ", "")
    if isinstance(given, int):
        return str(given)
    return ",".join(map(str, sorted(given)))


class CeleryCrontab:
    """The times of a cron line.

    >>> CeleryCrontab(hour=7, minute=30, day_of_week="mon-fri").cron
    '30 7 * * mon-fri'
    """

    def __init__(
        self,
        minute: Cronspec = "*",
        hour: Cronspec = "*",
        day_of_week: Cronspec = "*",
        day_of_month: Cronspec = "*",
        month_of_year: Cronspec = "*",
        **others: Any,
    ) -> None:
        if others:
            raise NotSupported(f"crontab: {', '.join(others)} is not supported; app.conf.timezone sets the time zone")
        if _field(day_of_month) != "*" and _field(day_of_week) != "*":
            raise NotSupported("crontab with day_of_month and day_of_week is not supported: cron runs on both kinds")
        parts = (minute, hour, day_of_month, month_of_year, day_of_week)
        self.cron = " ".join(_field(part) for part in parts)

    def __repr__(self) -> str:
        return f"<crontab: {self.cron}>"


class CeleryInterval:
    """A fixed interval."""

    def __init__(self, run_every: float | timedelta, relative: bool = False, **others: Any) -> None:
        seconds = run_every.total_seconds() if isinstance(run_every, timedelta) else float(run_every)
        self.run_every = timedelta(seconds=seconds)


class CelerySolar:
    """Times of the sun, which are not supported."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotSupported("solar schedules are not supported; a daily task can compute the time and submit with eta")


def timetable_text(when: Any) -> float | str:
    """A schedule as `App.every` takes it: seconds, or a cron line."""
    if isinstance(when, CeleryCrontab):
        return when.cron
    if isinstance(when, CeleryInterval):
        return when.run_every.total_seconds()
    if isinstance(when, timedelta):
        return when.total_seconds()
    if isinstance(when, int | float) and not isinstance(when, bool):
        return float(when)
    raise NotSupported(f"a schedule is a number of seconds, a timedelta or a crontab, not {when!r}")


# The names that programs import.
crontab = CeleryCrontab
schedule = CeleryInterval
solar = CelerySolar
