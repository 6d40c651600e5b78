"""Options of commands that send an operator verb, generated from the table of verbs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from switchgear.cli.output import reading
from switchgear.units import parse_duration, parse_when
from switchgear.verbs.kinds import Boolean, Number, StartRate, Whole, Word, WordList
from switchgear.verbs.operator_verb import Argument
from switchgear.verbs.table import VERBS

__all__ = ["given", "refuse_dead_with_other_states", "verb_options"]

F = TypeVar("F", bound=Callable[..., Any])

_NO_RATE: Final = ("0", "none")


def verb_options(verb: str, *names: str, **changes: Mapping[str, Any]) -> Callable[[F], F]:
    """The options of a command for arguments of a verb, in this order; `changes` are attributes of single options.

    Each option has the name of its argument as a parameter of the command.  An option that is not given is None, or
    empty, so that the default of the server holds.
    """
    row = VERBS[verb]

    def decorate(command: F) -> F:
        for name in reversed(names):
            command = _option(row.argument(name), changes.get(name, {}))(command)
        return command

    return decorate


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a verb for options that were given."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items() if value}


def refuse_dead_with_other_states(options: Mapping[str, Any]) -> None:
    """Only failed jobs can be dead; raises UsageError if the options ask for dead jobs of other states."""
    if options["dead"] and options["states"] and "failed" not in options["states"]:
        raise click.UsageError("Dead jobs are failed ones: --dead goes with --state failed, or with none.")


def _option(argument: Argument, changes: Mapping[str, Any]) -> Callable[[F], F]:
    attributes: dict[str, Any] = {"help": argument.help, **_attributes(argument)}
    if argument.metavar:
        attributes["metavar"] = argument.metavar
    return click.option(*argument.flag.split(), argument.name, **{**attributes, **changes})


def _attributes(argument: Argument) -> dict[str, Any]:
    """The attributes of an option for arguments of this kind."""
    kind = argument.kind
    if isinstance(kind, WordList):
        return {"multiple": True, "type": click.Choice(kind.words, case_sensitive=False)}
    if isinstance(kind, Word):
        return {"type": click.Choice(kind.words), "default": argument.default, "show_default": True}
    if isinstance(kind, Boolean):
        return {"default": None} if "/" in argument.flag else {"is_flag": True}
    if isinstance(kind, Whole):
        return {"type": click.IntRange(kind.least, kind.most if kind.clamped else None)}
    if isinstance(kind, StartRate):
        return {"callback": reading(_rate)}
    if isinstance(kind, Number):
        read = parse_duration if argument.unit == "seconds" else _moment
        return {"callback": reading(read)}
    return {}


def _moment(text: str) -> float:
    return parse_when(text, time.time())


def _rate(text: str) -> list[float]:
    """A rate as the verb takes it."""
    from switchgear.app.task_options import Rate  # those who only list functions do without it

    if text.strip().lower() in _NO_RATE:
        return [0, 0]
    return list(Rate.of(text, "a rate"))
