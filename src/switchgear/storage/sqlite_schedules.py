"""Converts schedules to rows of the `schedules` table, and back."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from switchgear.errors import ConfigError
from switchgear.model import CatchUp, Schedule
from switchgear.timetable import timetable_from_spec

__all__ = ["ScheduleRow", "schedule_from_row", "schedule_row"]

ScheduleRow: TypeAlias = tuple[Any, ...]  # in the order of the table


class Options(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The options of each job. New fields are added at the end, with a default, so that older rows stay readable."""

    priority: int = 1
    expires_after_us: int = 0
    timeout_us: int = 0
    attempts_limit: int = -1
    crash_limit: int = -1
    retention_us: int = -1
    key: bytes = b""
    requires: bytes = b""
    owner: bytes = b""


encode = msgspec.msgpack.Encoder().encode
decode_options = msgspec.msgpack.Decoder(Options).decode


def schedule_row(schedule: Schedule) -> ScheduleRow:
    """The row of the schedule's present state."""
    options = Options(*(getattr(schedule, field) for field in Options.__struct_fields__))
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
    """The schedule of a row that `schedule_row` made; raises ValueError for an invalid row."""
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
        catch_up=CatchUp(catch_up),
        overlap=bool(overlap),
        paused=bool(paused),
        reached_us=reached_us,
        last_us=last_us,
        last_job_id=last_job_id,
        fired=fired,
        skipped=skipped,
        missed=missed,
        refused=refused,
        **msgspec.structs.asdict(given),
    )
