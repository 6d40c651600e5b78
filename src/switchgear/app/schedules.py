"""Schedules: declared by a program with `@app.every`, stored by the server, managed through `app.schedules`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from switchgear.app.chosen_values import short_key
from switchgear.app.server_answers import ScheduleInfo
from switchgear.app.task import Task
from switchgear.app.task_requests import schedule_options
from switchgear.errors import ConfigError
from switchgear.json_bytes import plain
from switchgear.units import duration_seconds, parse_duration

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.job import Job

__all__ = ["CATCH_UP", "AppSchedules", "TaskSchedule"]

CATCH_UP: Final = ("latest", "none", "all")


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """A schedule of a task: when it runs, with which arguments."""

    name: str
    cron: str = ""
    every_seconds: float = 0.0
    timezone: str = ""
    catch_up: str = "latest"
    overlap: bool = False
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    task: Task[Any, Any] | None = None

    @classmethod
    def planned(
        cls,
        when: float | str,
        timezone: str,
        catch_up: str,
        overlap: bool,
        name: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> TaskSchedule:
        """A schedule without a task.  `when` is a number of seconds, a duration such as "5m", or a cron line."""
        if catch_up not in CATCH_UP:
            raise ValueError(f"catch_up is one of {', '.join(CATCH_UP)}, not {catch_up!r}")
        if not isinstance(overlap, bool):
            raise ValueError(f"overlap is True or False, not {overlap!r}")
        cron, seconds = _read_when(when)
        _check_timetable(cron, seconds, timezone)
        return cls(name or "", cron, seconds, timezone, catch_up, overlap, tuple(args), kwargs)

    def of(self, task: Task[Any, Any]) -> TaskSchedule:
        """The schedule with this task; raises ArgumentError if the arguments do not fit the task."""
        task.arguments.encode(self.args, self.kwargs)
        return replace(self, name=self.name or task.name, task=task)

    @property
    def task_name(self) -> str:
        """The name of its task, which it must have."""
        assert self.task is not None
        return self.task.name

    def declaration(self) -> dict[str, Any]:
        """The arguments of the CONTROL verb `schedule`."""
        task = self.task
        assert task is not None
        settings = task.settings
        options = schedule_options(settings) | {"priority": settings.priority}
        if settings.expires is not None:
            options["expires"] = settings.expires
        if settings.key is not None:
            key = task.key_of(self.args, self.kwargs)
            if key is not None:
                options["key"] = short_key(key).decode()
        told: dict[str, Any] = {
            "name": self.name,
            "function": task.name,
            "payload": plain(task.arguments.encode(self.args, self.kwargs)),
            "catch_up": self.catch_up,
            "overlap": self.overlap,
            "options": options,
        }
        if self.cron:
            told["cron"] = self.cron
        else:
            told["every_seconds"] = self.every_seconds
        if self.timezone:
            told["timezone"] = self.timezone
        return told


class AppSchedules:
    """Lists, removes, pauses, resumes and runs the schedules that a server keeps."""

    def __init__(self, app: App) -> None:
        self._app = app

    def list(self) -> list[ScheduleInfo]:
        """All schedules, each with its next time."""
        return [ScheduleInfo.read(answer) for answer in self._app.control("schedules")]

    def remove(self, name: str) -> None:
        """Remove a schedule.  If a program still declares it, it is added again when a worker connects.

        This and the other methods raise NotFound if there is none of that name.
        """
        self._app.control("unschedule", name=name)

    def pause(self, name: str) -> None:
        """Pause a schedule: its times pass without jobs."""
        self._app.control("pause_schedule", name=name)

    def resume(self, name: str) -> None:
        """Resume a paused schedule."""
        self._app.control("resume_schedule", name=name)

    def run(self, name: str) -> Job[Any]:
        """Make a job of a schedule now."""
        handle = self._app.control("run_schedule", name=name)["handle"]
        task = next((schedule.task for schedule in self._app.declared_schedules() if schedule.name == name), None)
        return self._app.job_of(task, handle)


def _read_when(when: float | str) -> tuple[str, float]:
    if not isinstance(when, str):
        seconds = duration_seconds(when, "every")
    elif " " in when.strip() or when.strip().startswith("@"):
        return when.strip(), 0.0
    else:
        try:
            seconds = parse_duration(when)
        except ValueError:
            text = f'every takes seconds, a duration such as "5m", or a cron line such as "*/5 * * * *", not {when!r}'
            raise ValueError(text) from None
    if not seconds:
        raise ValueError("every takes more than 0 seconds")
    return "", seconds


def _check_timetable(cron: str, every_seconds: float, timezone: str) -> None:
    from switchgear.timetable import timetable_of

    try:
        timetable_of(cron, every_seconds, timezone)
    except ConfigError as error:
        raise ValueError(f"every: {error}") from None
