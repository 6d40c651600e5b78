"""`switchgear schedules` and `schedule add`, `remove`, `pause`, `resume`, `run`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from switchgear.cli.main import ExitCode
from switchgear.cli.output import (
    Column,
    complain,
    duration_option,
    json_option,
    moment,
    print_json,
    print_table,
    printable,
    server_option,
    text_of,
)
from switchgear.client.gearman.blocking import Client
from switchgear.client.gearman.error_codes import UNKNOWN_EXTENSION
from switchgear.errors import ConfigError, ServerRefused
from switchgear.json_bytes import plain
from switchgear.model import PRIORITY_NAMES, CatchUp
from switchgear.timetable import timetable_of
from switchgear.units import short_duration

__all__ = ["schedule", "schedules"]

F = TypeVar("F", bound=Callable[..., Any])

_CATCH_UP = [policy.name.lower() for policy in CatchUp]


@click.command(
    epilog="""\b
Examples:
  switchgear schedules
  switchgear schedules --json | jq -r '.[] | select(.last_state == "failed") | .name'
"""
)
@server_option
@json_option("Write a JSON array, an object for each schedule.")
def schedules(server: str, as_json: bool) -> None:
    """List schedules: when they come next, and how their last job fares.

    FIRED counts the jobs made, SKIPPED the ticks that found the last job unfinished, MISSED those that were over before
    the server could meet them.
    """
    with Client(server) as client:
        found = client.control("schedules")
    if as_json:
        print_json(found)
        return
    columns = [
        *(Column(head, wrap=True) for head in ("NAME", "FUNCTION", "WHEN")),
        Column("NEXT"),
        Column("LAST"),
        Column("LAST JOB"),
        *(Column(head, right=True) for head in ("FIRED", "SKIPPED", "MISSED")),
        Column("", wrap=True),
    ]
    now = time.time()
    print_table(columns, (_row(each, now) for each in found))


def _row(each: dict[str, Any], now: float) -> list[str]:
    next_at = each["next_at"]
    remark = "paused" if each["paused"] else each["held_up"]
    return [
        text_of(each["name"]),
        text_of(each["function"]),
        _when(each),
        "" if next_at is None else f"in {short_duration(max(0.0, next_at - now))}",
        moment(each["last_at"]),
        " ".join(filter(None, (each["last_job"], each["last_state"]))),
        *(str(each[count]) for count in ("fired", "skipped", "missed")),
        remark,
    ]


def _when(each: dict[str, Any]) -> str:
    return each["spec"] if each["timezone"] == "UTC" else f"{each['spec']} {each['timezone']}"


@click.group(
    epilog="""\b
Examples:
  switchgear schedule add nightly-report report --cron '0 3 * * *' --timezone Europe/Berlin
  switchgear schedule run nightly-report
  switchgear schedule pause nightly-report
"""
)
def schedule() -> None:
    """Jobs that the server makes by itself, at the ticks of a timetable.

    A schedule is kept by the server: each tick makes one job, whoever is connected, and ticks that were missed while
    the server was down are made up for as --catch-up says.
    """


@schedule.command(
    epilog="""\b
Examples:
  switchgear schedule add nightly report --cron '0 3 * * *' --timezone Europe/Berlin
  switchgear schedule add poll fetch '{"url": "http://x.example"}' --every 30 --catch-up none
  switchgear schedule add invoices bill --cron '@monthly' --catch-up all --retention 30d
  generate-payload | switchgear schedule add clean sweep - --every 1h

\b
A cron expression has five fields, or is one of @hourly, @daily, @weekly, @monthly, @yearly:
  minute 0-59, hour 0-23, day of month 1-31 or L, month 1-12 or JAN-DEC, day of week 0-7 or SUN-SAT
"""
)
@click.argument("name")
@click.argument("function")
@click.argument("payload", default="")
@click.option("--cron", metavar="EXPRESSION", default="", help="When: a cron expression.")
@duration_option("--every", "When: each so many seconds, counted from the epoch.")
@click.option("--timezone", metavar="ZONE", default="", help="By which clocks a cron expression goes. Default: UTC.")
@click.option(
    "--catch-up",
    type=click.Choice(_CATCH_UP),
    default="latest",
    show_default=True,
    help="Which of the ticks that were missed are made up for; of all, the last 1,000.",
)
@click.option("--overlap", is_flag=True, help="Make a job even while the last one is unfinished.")
@click.option("--priority", type=click.Choice(PRIORITY_NAMES), default="normal", show_default=True)
@duration_option("--expires", "A job that has not started so long after its tick is not wanted any more.")
@duration_option("--timeout", "The longest run of one attempt.")
@click.option("--attempts", type=click.IntRange(0), help="How often a job may be started; 0: no limit.")
@click.option("--crashes", type=click.IntRange(0), help="How often its worker may be lost; 0: no limit.")
@duration_option("--retention", "How long a job is remembered after its end. Default: the server's setting.")
@click.option("--key", metavar="KEY", default="", help="Whose jobs they are, for limits by key.")
@server_option
@json_option("Write the schedule as a JSON object.")
def add(
    name: str,
    function: str,
    payload: str,
    cron: str,
    every: float | None,
    timezone: str,
    catch_up: str,
    overlap: bool,
    server: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Let there be a schedule NAME that makes jobs of FUNCTION.

    PAYLOAD is what each job carries; - reads it from standard input. If there is a schedule of that name it becomes
    like this one, and only another timetable moves its next tick.
    """
    if bool(cron) == bool(every):
        raise click.UsageError("Give --cron EXPRESSION or --every SECONDS.")
    try:
        timetable_of(cron, every or 0, timezone)  # so that a typo is found even where there is no server
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    data = sys.stdin.buffer.read() if payload == "-" else payload.encode("utf-8", "surrogateescape")
    arguments: dict[str, Any] = {"cron": cron} if cron else {"every_seconds": every}
    with Client(server) as client:
        answer = client.control(
            "schedule",
            name=name,
            function=function,
            payload=plain(data),
            timezone=timezone,
            catch_up=catch_up,
            overlap=overlap,
            options={option: value for option, value in given.items() if value is not None},
            **arguments,
        )
    if as_json:
        print_json(answer)
        return
    next_at = answer["next_at"]
    when = (
        "paused"
        if answer["paused"]
        else f"next at {moment(next_at)}, in {short_duration(max(0.0, next_at - time.time()))}"
    )
    click.echo(f"{printable(text_of(answer['name']))} {printable(_when(answer))}: {when}")


def _names(command: F) -> F:
    """The arguments and options of commands that take names of schedules."""
    return click.argument("names", metavar="NAME...", nargs=-1, required=True)(
        server_option(json_option("Write one JSON object: schedules, an array, and problems.")(command))
    )


@schedule.command(
    epilog="""\b
Examples:
  switchgear schedule remove nightly-report
"""
)
@_names
@click.pass_context
def remove(ctx: click.Context, names: tuple[str, ...], server: str, as_json: bool) -> None:
    """Forget schedules. The jobs that they have made stay."""
    _act(ctx, "unschedule", "removed", names, server, as_json)


@schedule.command(
    epilog="""\b
Examples:
  switchgear schedule pause nightly-report poll
"""
)
@_names
@click.pass_context
def pause(ctx: click.Context, names: tuple[str, ...], server: str, as_json: bool) -> None:
    """Let the ticks of schedules pass without a job, until they are resumed."""
    _act(ctx, "pause_schedule", "paused", names, server, as_json)


@schedule.command(
    epilog="""\b
Examples:
  switchgear schedule resume nightly-report
"""
)
@_names
@click.pass_context
def resume(ctx: click.Context, names: tuple[str, ...], server: str, as_json: bool) -> None:
    """Go on with the next ticks of paused schedules. What passed meanwhile is not made up for."""
    _act(ctx, "resume_schedule", "resumed", names, server, as_json)


@schedule.command(
    epilog="""\b
Examples:
  switchgear schedule run nightly-report
"""
)
@_names
@click.pass_context
def run(ctx: click.Context, names: tuple[str, ...], server: str, as_json: bool) -> None:
    """Make a job of each schedule at once, paused or not. Its ticks come as they would.

    A schedule whose jobs do not overlap refuses while its last one is unfinished.
    """
    _act(ctx, "run_schedule", "submitted", names, server, as_json)


def _act(ctx: click.Context, verb: str, done: str, names: tuple[str, ...], server: str, as_json: bool) -> None:
    """Act on each schedule; one that is refused does not stop the others."""
    answers: list[Any] = []
    problems: list[dict[str, str]] = []
    with Client(server) as client:
        for name in dict.fromkeys(names):
            try:
                answers.append(client.control(verb, name=name))
            except ServerRefused as error:
                if error.code == UNKNOWN_EXTENSION:
                    raise
                problems.append({"name": name, "code": error.code, "error": error.text})
    if as_json:
        print_json({"schedules": answers, "problems": problems})
    else:
        for answer in answers:
            words = (text_of(answer["name"]), done, answer.get("handle"))
            click.echo(printable(" ".join(filter(None, words))))
        for problem in problems:
            complain(f"{problem['name']}: {problem['error'] or problem['code']}")
    ctx.exit(ExitCode.FAILED if problems else ExitCode.SUCCESS)
