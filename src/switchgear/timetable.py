"""`Timetable`s: the times of a schedule, from a cron expression in a timezone or from a fixed interval.

A timetable has no clock and no state, so that a restart cannot shift it. All its times are whole microseconds since the
epoch.

Cron expressions have the usual five fields (minute, hour, day of month, month, day of week), with names for months and
days, ranges, lists and steps, `L` and `LW` for the last day and the last weekday of a month, `FRI#2` for its second
Friday and `5L` for its last; or they are one of `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly` and
`@annually`.

Where clocks are set forward or back there are two rules, those of Debian's cron:

- A timetable whose minutes and hours are both named (`30 2 * * *`) means the clock on the wall.  A time that does not
  exist happens when the clock has been set forward, at the first minute that exists; several that fall into the gap
  happen once.  A time that comes twice happens the first time only.
- One whose minutes or hours begin with a star (`*/15 * * * *`, `30 * * * *`) follows the passing of time: nothing in a
  gap, since there are no such minutes, and both times what comes twice.

An interval is counted from the epoch, so `every 3600 s` is at each full hour of UTC, and any two servers agree on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from switchgear.errors import ConfigError

__all__ = ["Cron", "Every", "timetable_from_spec", "timetable_of"]

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US

# Each tick makes a job, and each job is stored: shorter intervals are work for a loop, not for a timetable.
SHORTEST_INTERVAL_US: Final = SECOND_US // 10
LONGEST_INTERVAL_US: Final = 10 * 366 * 86_400 * SECOND_US
# Longer than any expression that a person writes; expressions of peers are parsed in the event loop.
MOST_SPEC_CHARACTERS: Final = 200

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS: Final = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, L or LW",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT, also FRI#2 and 5L",
}


class Cron:
    """The times of a cron expression in a timezone."""

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self.spec = " ".join(_shortened(expression, "cron expression").split())
        self.timezone = timezone or "UTC"
        self._zone = _zone_named(self.timezone)
        self._expression = NICKNAMES.get(self.spec.lower(), self.spec)
        self._check()

    def __repr__(self) -> str:
        return f"Cron({self.spec!r}, {self.timezone!r})"

    def next_after_us(self, us: int) -> int | None:
        """The first time after this one; `None` if there is none within 50 years."""
        return next(self._after(us), None)

    def last_between_us(self, after_us: int, until_us: int, most: int) -> list[int]:
        """The last times that are after the first and not after the second argument, in order, up to a number.

        They are found by going back further and further, because the first times of a long period may not be needed.
        """
        span_us = MINUTE_US
        while True:
            start_us = max(after_us, until_us - span_us)
            found: list[int] = []
            for moment_us in self._after(start_us):
                if moment_us > until_us:
                    break
                found.append(moment_us)
            if start_us == after_us or len(found) >= most:
                return found[-most:]
            span_us *= 4

    def _after(self, us: int) -> Iterator[int]:
        last_us = us
        try:
            start = (EPOCH + timedelta(microseconds=us)).astimezone(self._zone)
            for moment in CronSim(self._expression, start):
                moment_us = (moment.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
                # A repeated time may be returned although its first occurrence is over, and all times in a gap become
                # its end.
                if moment_us > last_us:
                    last_us = moment_us
                    yield moment_us
        except OverflowError:  # the calendar ends with the year 9999
            return

    def _check(self) -> None:
        quoted = f"cron expression {self.spec!r}"
        if self._expression.startswith("@"):
            raise ConfigError(f"{quoted} is unknown; there are {', '.join(NICKNAMES)}")
        fields = self._expression.split()
        if len(fields) != len(FIELDS):
            wanted = ", ".join(FIELDS)
            raise ConfigError(f"{quoted} has {_counted(len(fields), 'field')}, not five: {wanted}")
        try:
            CronSim(self._expression, EPOCH)
        except CronSimError as error:
            name = str(error).removeprefix("Bad ")
            field = dict(zip(FIELDS, fields)).get(name, "")
            known = FIELDS.get(name, "see the manual")
            if name == "day-of-month":
                known += ", and the months named must have it"
            raise ConfigError(f"{quoted}: {field!r} is no {name} ({known})") from None


class Every:
    """Times at a fixed interval, counted from the epoch."""

    timezone = "UTC"

    def __init__(self, interval_us: int) -> None:
        if not SHORTEST_INTERVAL_US <= interval_us <= LONGEST_INTERVAL_US:
            raise ConfigError(
                f"an interval of {_seconds(interval_us)} s is out of range: it has {_seconds(SHORTEST_INTERVAL_US)}"
                f" to {_seconds(LONGEST_INTERVAL_US)} seconds"
            )
        self.interval_us = interval_us
        self.spec = f"every {_seconds(interval_us)} s"

    def __repr__(self) -> str:
        return f"Every({self.interval_us})"

    def next_after_us(self, us: int) -> int | None:
        """The first tick after this time."""
        return (us // self.interval_us + 1) * self.interval_us

    def last_between_us(self, after_us: int, until_us: int, most: int) -> list[int]:
        """The last times that are after the first and not after the second argument, in order, up to a number."""
        backwards = range(until_us // self.interval_us * self.interval_us, after_us, -self.interval_us)
        return list(islice(backwards, most))[::-1]


def timetable_of(cron: str = "", every_seconds: float = 0, timezone: str = "") -> Cron | Every:
    """The timetable for a cron expression or an interval; raises ConfigError."""
    if bool(cron) == bool(every_seconds):
        raise ConfigError("a timetable is a cron expression or an interval in seconds, one of the two")
    if cron:
        return Cron(cron, timezone)
    if timezone not in ("", "UTC"):
        raise ConfigError("a timezone goes with a cron expression; an interval has the same length everywhere")
    if not math.isfinite(every_seconds * SECOND_US):
        raise ConfigError(f"an interval of {every_seconds} s is out of range")
    return Every(round(every_seconds * SECOND_US))


def timetable_from_spec(spec: str, timezone: str) -> Cron | Every:
    """The timetable with this `spec` and `timezone`; raises ConfigError."""
    words = spec.split()
    if len(words) == 3 and words[0] == "every" and words[2] == "s":
        try:
            return timetable_of(every_seconds=float(words[1]))
        except ValueError:
            raise ConfigError(f"{spec!r} is no interval") from None
    return Cron(spec, timezone)


@lru_cache(maxsize=64)
def _zone_named(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(_shortened(name, "timezone"))
    except (KeyError, ValueError, OSError):  # unknown, not a name, or the name of a folder
        raise ConfigError(
            f"timezone {name!r} is unknown; names are those of the IANA database, such as Europe/Berlin or UTC"
        ) from None


def _shortened(text: str, what: str) -> str:
    if len(text) > MOST_SPEC_CHARACTERS:
        raise ConfigError(f"a {what} has at most {MOST_SPEC_CHARACTERS} characters")
    return text


def _seconds(us: int) -> str:
    """The seconds, exact and without trailing zeros."""
    return f"{us / SECOND_US:.6f}".rstrip("0").rstrip(".")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
