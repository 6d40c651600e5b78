"""A schedule as a row of the `schedules` table, and back."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from switchgear.errors import ConfigError
from switchgear.model import CatchUp, Schedule
from switchgear.timetable import timetable_from_spec

__all__ = ["ScheduleRow", "schedule_from_row", "schedule_row"]

ScheduleRow: TypeAlias = tuple[Any, ...]  # in the order of the table


class Options(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What each job is given.  New fields are added at the end, with a default, and older rows stay readable."""

    priority: int = 1
    expires_after_us: int = 0
    timeout_us: int = 0
    attempts_limit: int = -1
    losses_limit: int = -1
    retention_us: int = -1
    key: bytes = b""


encode = msgspec.msgpack.Encoder().encode
decode_options = msgspec.msgpack.Decoder(Options).decode


def schedule_row(schedule: Schedule) -> ScheduleRow:
    """The schedule as it is now."""
    options = Options(
        schedule.priority,
        schedule.expires_after_us,
        schedule.timeout_us,
        schedule.attempts_limit,
        schedule.losses_limit,
        schedule.retention_us,
        schedule.key,
    )
    return (
        schedule.name,
        schedule.function_name,
        schedule.timetable.spec,
        schedule.timetable.timezone,
        int(schedule.catch_up),
        int(schedule.overlap),
        int(schedule.paused),
        schedule.reached_us,
        schedule.last_us,
        schedule.last_job_id,
        schedule.fired,
        schedule.skipped,
        schedule.missed,
        schedule.refused,
        encode(options),
        schedule.payload,
    )


def schedule_from_row(row: ScheduleRow) -> Schedule:
    """The schedule that `schedule_row` made this row of; raises ValueError for one that means nothing."""
    name, function, spec, timezone, catch_up, overlap, paused, reached_us, last_us, last_job_id, *counts = row
    fired, skipped, missed, refused, options, payload = counts
    given = decode_options(options)
    if not isinstance(spec, str) or not isinstance(timezone, str):
        raise ValueError(f"schedule {name!r}: its timetable is no text")
    try:
        timetable = timetable_from_spec(spec, timezone)
    except ConfigError as error:
        raise ValueError(f"schedule {name!r}: {error}") from error
    return Schedule(
        name,
        timetable,
        function,
        payload,
        priority=given.priority,
        catch_up=CatchUp(catch_up),
        overlap=bool(overlap),
        expires_after_us=given.expires_after_us,
        timeout_us=given.timeout_us,
        attempts_limit=given.attempts_limit,
        losses_limit=given.losses_limit,
        retention_us=given.retention_us,
        key=given.key,
        paused=bool(paused),
        reached_us=reached_us,
        last_us=last_us,
        last_job_id=last_job_id,
        fired=fired,
        skipped=skipped,
        missed=missed,
        refused=refused,
    )
