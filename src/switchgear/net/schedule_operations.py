"""What an operator, or a worker that declares its schedules, can ask about them.

`schedule` {name, function, payload, cron or every_seconds, timezone, catch_up, overlap, options} says what is wanted,
as often as one likes: only what differs is changed.  `options` are what each job is given: priority, expires (seconds
after the tick), timeout, attempts, crashes, retention and key, with the meaning they have for a single job.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any, Final, Protocol

import msgspec

from switchgear.errors import ConfigError, Refused
from switchgear.model import PRIORITY_NAMES, SECOND_US, URGENT, CatchUp, Job, Schedule
from switchgear.net.hub import Hub
from switchgear.net.steps import Steps, in_steps
from switchgear.net.values import bytes_of, plain
from switchgear.timetable import timetable_of

__all__ = ["ScheduleOperations"]

CATCH_UP_NAMES: Final = {policy.name.lower(): policy for policy in CatchUp}
MOST_NAME_BYTES: Final = 512
# All schedules and their payloads stay in memory, and are listed together.
MOST_PAYLOAD_BYTES: Final = 64 * 1024
MOST_SECONDS: Final = 100_000 * 366 * 24 * 3600
MOST_ATTEMPTS: Final = 1_000_000


class ScheduleOptions(msgspec.Struct, forbid_unknown_fields=True):
    """What each job of a schedule is given; times in seconds."""

    priority: str = "normal"
    expires: float = 0.0  # after the tick
    timeout: float = 0.0
    attempts: int = -1
    crashes: int = -1
    retention: float | None = None
    key: str = ""


class Office(Protocol):
    """What is needed of the other operations."""

    hub: Hub

    def handle(self, job_id: int) -> str:
        """How a job is called outside."""


class ScheduleOperations:
    """The verbs about schedules."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._hub = office.hub
        self._engine = office.hub.engine

    def verbs(self) -> dict[str, Callable[..., Any]]:
        """The verbs by name."""
        return {
            "schedule": self.schedule,
            "schedules": self.schedules,
            "unschedule": self.unschedule,
            "pause_schedule": self.pause_schedule,
            "resume_schedule": self.resume_schedule,
            "run_schedule": self.run_schedule,
        }

    def schedule(
        self,
        name: str,
        function: str,
        payload: str | dict[str, str] = "",
        cron: str = "",
        every_seconds: float = 0,
        timezone: str = "",
        catch_up: str = "latest",
        overlap: bool = False,
        options: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Let there be this schedule; the answer is as for `schedules`."""
        given = converted(options or {}, ScheduleOptions, "options")
        try:
            timetable = timetable_of(
                converted(cron, str, "cron"),
                converted(every_seconds, float, "every_seconds"),
                converted(timezone, str, "timezone"),
            )
        except ConfigError as error:
            raise ValueError(str(error)) from error
        wanted = Schedule(
            name=named(name, "name"),
            timetable=timetable,
            function_name=named(function, "function"),
            payload=short(bytes_of(payload, "payload")),
            priority=PRIORITY_NAMES.index(one_of(given.priority, PRIORITY_NAMES, "priority")),
            catch_up=CATCH_UP_NAMES[one_of(catch_up, tuple(CATCH_UP_NAMES), "catch_up")],
            overlap=converted(overlap, bool, "overlap"),
            expires_after_us=microseconds(given.expires, "expires"),
            timeout_us=microseconds(given.timeout, "timeout"),
            attempts_limit=within(given.attempts),
            losses_limit=within(given.crashes),
            retention_us=-1 if given.retention is None else microseconds(given.retention, "retention"),
            key=named(given.key, "key") if given.key else b"",
        )
        return self._shown(self._engine.set_schedule(wanted))

    def schedules(self) -> Steps:
        """All of them, by name."""
        return in_steps(self._shown, [schedule for _, schedule in sorted(self._engine.schedules.items())])

    def unschedule(self, name: str) -> dict[str, Any]:
        """Forget one; the jobs that it has made stay."""
        schedule = self._find(name)
        self._engine.remove_schedule(schedule)
        return {"name": plain(schedule.name), "removed": True}

    def pause_schedule(self, name: str) -> dict[str, Any]:
        """Let its ticks pass."""
        schedule = self._find(name)
        self._engine.pause_schedule(schedule)
        return self._shown(schedule)

    def resume_schedule(self, name: str) -> dict[str, Any]:
        """Go on with its next tick."""
        schedule = self._find(name)
        self._engine.resume_schedule(schedule)
        return self._shown(schedule)

    def run_schedule(self, name: str) -> dict[str, Any]:
        """Make a job at once, apart from its ticks."""
        job = self._engine.run_schedule_now(self._find(name))
        return {"name": name, "handle": self._office.handle(job.id)}

    def _find(self, name: str) -> Schedule:
        schedule = self._engine.schedules.get(named(name, "name"))
        if schedule is None:
            raise LookupError(f"there is no schedule {name!r}")
        return schedule

    def _shown(self, schedule: Schedule) -> dict[str, Any]:
        last = self._last_job(schedule)
        return {
            "name": plain(schedule.name),
            "function": plain(schedule.function_name),
            "spec": schedule.timetable.spec,
            "timezone": schedule.timetable.timezone,
            "catch_up": CatchUp(schedule.catch_up).name.lower(),
            "overlap": schedule.overlap,
            "paused": schedule.paused,
            "next_at": None if schedule.paused else schedule.next_us / SECOND_US or None,
            "last_at": schedule.last_us / SECOND_US or None,
            "last_job": self._office.handle(schedule.last_job_id) if schedule.last_job_id else None,
            "last_state": None if last is None else last.state.name.lower(),
            "held_up": schedule.refusal,
            "fired": schedule.fired,
            "skipped": schedule.skipped,
            "missed": schedule.missed,
            "refused": schedule.refused,
            "payload": plain(schedule.payload),
            "options": shown_options(schedule),
        }

    def _last_job(self, schedule: Schedule) -> Job | None:
        """The last job, if it is still remembered."""
        try:
            return self._hub.find_job(schedule.last_job_id) if schedule.last_job_id else None
        except Refused:  # the store cannot be read, and the rest is worth telling all the same
            return None


def shown_options(schedule: Schedule) -> dict[str, Any]:
    return {
        "priority": PRIORITY_NAMES[schedule.priority % URGENT],
        "expires": schedule.expires_after_us / SECOND_US,
        "timeout": schedule.timeout_us / SECOND_US,
        "attempts": schedule.attempts_limit,
        "crashes": schedule.losses_limit,
        "retention": None if schedule.retention_us < 0 else schedule.retention_us / SECOND_US,
        "key": plain(schedule.key),
    }


def converted(value: Any, kind: Any, name: str) -> Any:
    """A value of this type, out of a stranger's JSON."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from None


def named(text: str, what: str) -> bytes:
    """A name that can be an argument of any packet."""
    data: bytes = converted(text, str, what).encode()
    if not 0 < len(data) <= MOST_NAME_BYTES or b"\0" in data:
        raise ValueError(f"{what} has 1 to {MOST_NAME_BYTES} bytes, and no NUL")
    return data


def short(payload: bytes) -> bytes:
    if len(payload) > MOST_PAYLOAD_BYTES:
        raise ValueError(f"the payload of a schedule has at most {MOST_PAYLOAD_BYTES} bytes, not {len(payload)}")
    return payload


def one_of(word: str, words: tuple[str, ...], what: str) -> str:
    if word not in words:
        raise ValueError(f"{what} is one of {', '.join(words)}, not {word!r}")
    return word


def microseconds(seconds: float, what: str) -> int:
    if not 0 <= seconds < MOST_SECONDS:
        raise ValueError(f"{what} is out of range")
    return ceil(seconds * SECOND_US)


def within(count: int) -> int:
    return max(-1, min(count, MOST_ATTEMPTS))
