"""The verbs about schedules: add, list, remove, pause, resume and run them.

`schedule` is idempotent: operators and workers that declare their schedules repeat it, and only differences take
effect. Its `options` are the options of each job: those in the table of job options (`switchgear.job_options`) that
have a name for schedules.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from switchgear.errors import ConfigError, Refused
from switchgear.job_options import SCHEDULE_OPTIONS, json_struct
from switchgear.json_bytes import plain
from switchgear.model import SECOND_US, CatchUp, JobState, Schedule
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import ITEMS_PER_STEP, Steps
from switchgear.timetable import timetable_of
from switchgear.verbs.answers import RunScheduleAnswer, ScheduleAnswer, UnscheduleAnswer

__all__ = ["ScheduleOperations"]

MOST_NAME_BYTES: Final = 512
# All schedules and their payloads stay in memory, and are listed together.
MOST_PAYLOAD_BYTES: Final = 64 * 1024


# The options of each job of a schedule.
ScheduleOptions: Final = json_struct("ScheduleOptions", SCHEDULE_OPTIONS)


class ScheduleOperations:
    """The verbs about schedules."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self._engine = context.engine

    def schedule(
        self,
        name: str,
        function: str,
        payload: bytes,
        cron: str,
        every_seconds: float,
        timezone: str,
        catch_up: str,
        overlap: bool,
        options: dict[str, Any] | None,
        owner: str | None,
    ) -> Steps:
        """Add a schedule, or change the schedule with that name."""
        wanted = self.wanted(name, function, payload, cron, every_seconds, timezone, catch_up, overlap, options, owner)
        return (yield from self._described([self._engine.set_schedule(wanted)]))[0]

    def wanted(
        self,
        name: str,
        function: str,
        payload: bytes,
        cron: str,
        every_seconds: float,
        timezone: str,
        catch_up: str,
        overlap: bool,
        options: dict[str, Any] | None,
        owner: str | None,
    ) -> Schedule:
        """The schedule that these arguments describe; raises ValueError."""
        given = read_options(options or {})
        try:
            timetable = timetable_of(cron, every_seconds, timezone)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return Schedule(
            name=name.encode(),
            timetable=timetable,
            function_name=function.encode(),
            payload=short(payload),
            catch_up=CatchUp[catch_up.upper()],
            overlap=overlap,
            owner=(owner or "").encode(),
            **given,
        )

    def schedules(self) -> Steps:
        """All schedules, sorted by name."""
        schedules = [schedule for _, schedule in sorted(self._engine.schedules.items())]
        answers: list[ScheduleAnswer] = []
        for start in range(0, len(schedules), ITEMS_PER_STEP):
            if start:
                yield False
            answers += yield from self._described(schedules[start : start + ITEMS_PER_STEP])
        return answers

    def unschedule(self, name: str) -> UnscheduleAnswer:
        """Remove a schedule; jobs that it has made stay."""
        schedule = self._find(name)
        self._engine.remove_schedule(schedule)
        return {"name": plain(schedule.name), "removed": True}

    def pause_schedule(self, name: str) -> Steps:
        """Make no jobs at the ticks of a schedule until it is resumed."""
        schedule = self._find(name)
        self._engine.pause_schedule(schedule)
        return (yield from self._described([schedule]))[0]

    def resume_schedule(self, name: str) -> Steps:
        """Resume a paused schedule with its next tick."""
        schedule = self._find(name)
        self._engine.resume_schedule(schedule)
        return (yield from self._described([schedule]))[0]

    def run_schedule(self, name: str) -> RunScheduleAnswer:
        """Make a job of a schedule at once, apart from its ticks."""
        job = self._engine.run_schedule_now(self._find(name))
        return {"name": name, "handle": self._context.handle(job.id)}

    def _find(self, name: str) -> Schedule:
        schedule = self._engine.schedules.get(name.encode())
        if schedule is None:
            raise LookupError(f"there is no schedule {name!r}")
        return schedule

    def _described(self, schedules: list[Schedule]) -> Steps:
        """Descriptions of schedules, with the states of their last jobs if the server still has them."""
        last_ids = [schedule.last_job_id for schedule in schedules if schedule.last_job_id]
        states: dict[int, JobState] = {}
        with suppress(Refused):  # the store cannot be read; the rest of the answer is still useful
            states = yield from self._context.hub.find_states(last_ids)
        return [self._shown(schedule, states.get(schedule.last_job_id)) for schedule in schedules]

    def _shown(self, schedule: Schedule, last_state: JobState | None) -> ScheduleAnswer:
        answer: ScheduleAnswer = {
            "name": plain(schedule.name),
            "function": plain(schedule.function_name),
            "spec": schedule.timetable.spec,
            "timezone": schedule.timetable.timezone,
            "catch_up": CatchUp(schedule.catch_up).name.lower(),
            "overlap": schedule.overlap,
            "paused": schedule.paused,
            "next_at": None if schedule.paused else schedule.next_us / SECOND_US or None,
            "last_at": schedule.last_us / SECOND_US or None,
            "last_job": self._context.handle(schedule.last_job_id) if schedule.last_job_id else None,
            "last_state": None if last_state is None else last_state.name.lower(),
            "held_up": schedule.refusal,
            "fired": schedule.fired,
            "skipped": schedule.skipped,
            "missed": schedule.missed,
            "refused": schedule.refused,
            "payload": plain(schedule.payload),
            "options": shown_options(schedule),
        }
        if schedule.owner:
            answer["owner"] = plain(schedule.owner)
        return answer


def read_options(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `Schedule` for options from a peer's JSON; raises ValueError."""
    given: dict[str, Any] = msgspec.to_builtins(converted(options, ScheduleOptions, "options"))
    fields: dict[str, Any] = {}
    for name, value in given.items():
        option = SCHEDULE_OPTIONS[name]
        if option.schedule_field in fields:
            raise ValueError(f"{option.schedule} is given twice, once under an old name")
        fields[option.schedule_field] = option.read(value, name_bytes=MOST_NAME_BYTES, called=name)
    return fields


def shown_options(schedule: Schedule) -> dict[str, Any]:
    """All options by name; those that were not given have their defaults."""
    shown: dict[str, Any] = {}
    for option in SCHEDULE_OPTIONS.values():
        value = option.show(getattr(schedule, option.schedule_field))
        shown[option.schedule] = plain(value) if isinstance(value, bytes) else value
    return shown


def converted(value: Any, kind: Any, name: str) -> Any:
    """Convert a value of a peer's JSON to this type."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from None


def short(payload: bytes) -> bytes:
    if len(payload) > MOST_PAYLOAD_BYTES:
        raise ValueError(f"the payload of a schedule has at most {MOST_PAYLOAD_BYTES} bytes, not {len(payload)}")
    return payload
