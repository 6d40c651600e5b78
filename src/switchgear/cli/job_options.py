"""Options of commands that submit jobs, generated from the table of job options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from switchgear.cli.output import duration_option, when_option
from switchgear.job_options import JOB_OPTIONS, SCHEDULE_OPTIONS, JobOption, OptionKind

__all__ = ["schedule_job_options", "submit_job_options"]

F = TypeVar("F", bound=Callable[..., Any])

# Options that the packets of every Gearman server have.
_PLAIN: Final = ("priority", "run_at")


def submit_job_options(command: F) -> F:
    """The job options of `switchgear submit`; those that need a Switchgear server are marked with a star."""
    for option in reversed(JOB_OPTIONS):
        if option.command_line:
            help_text = option.help if option.name in _PLAIN else f"{option.help} *"
            command = _option(option, option.command_line, help_text)(command)
    return command


def schedule_job_options(command: F) -> F:
    """The job options of `switchgear schedule add`."""
    for option in reversed(list(dict.fromkeys(SCHEDULE_OPTIONS.values()))):
        name = f"--{option.schedule.replace('_', '-')}"
        if option.kind is OptionKind.MOMENT:
            text = "A job that has not started this long after its tick expires."
            command = duration_option(name, text)(command)
        else:
            command = _option(option, name, option.help)(command)
    return command


def _option(option: JobOption, name: str, help_text: str) -> Callable[[F], F]:
    names = [name, *(f"--{old.replace('_', '-')}" for old in option.old_names if option.kind is OptionKind.COUNT)]
    attributes: dict[str, Any] = {"help": help_text}
    if option.kind is OptionKind.SPAN:
        return duration_option(name, help_text)
    if option.kind is OptionKind.MOMENT:
        return when_option(name, help_text)
    if option.kind is OptionKind.COUNT:
        attributes |= {"type": click.IntRange(0), "metavar": option.metavar}
    elif option.kind in (OptionKind.CHOICE, OptionKind.CHOICES):
        attributes["type"] = click.Choice(option.words, case_sensitive=False)
        if option.name == "priority":
            attributes |= {"default": option.json_default, "show_default": True}
    elif option.kind is OptionKind.HANDLES:
        attributes |= {"multiple": True, "metavar": option.metavar}
    else:
        attributes["metavar"] = option.metavar
    return click.option(*names, option.name if len(names) > 1 else name.strip("-").replace("-", "_"), **attributes)
