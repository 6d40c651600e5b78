"""`switchgear schedules` and `schedule add`, `remove`, `pause`, `resume`, `run`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from switchgear.cli.job_options import schedule_job_options
from switchgear.cli.main import ExitCode
from switchgear.cli.output import (
    Column,
    complain,
    insert_nodes,
    json_option,
    moment,
    print_json,
    print_table,
    printable,
    server_option,
    text_of,
)
from switchgear.cli.verb_options import verb_options
from switchgear.client.gearman.blocking import Client
from switchgear.client.gearman.error_codes import UNKNOWN_EXTENSION
from switchgear.errors import ConfigError, ServerRefused
from switchgear.json_bytes import plain
from switchgear.timetable import timetable_of
from switchgear.units import short_duration

__all__ = ["schedule", "schedules"]

F = TypeVar("F", bound=Callable[..., Any])


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
    """List schedules with their next tick and the state of their last job.

    FIRED counts the jobs made, SKIPPED the ticks at which the last job was unfinished, and MISSED the ticks that the
    server could not process in time.
    """
    with Client(server) as client:
        found = client.control("schedules")
    if as_json:
        print_json(found)
        return
    columns = [
        Column("NAME", wrap=True),
        Column("FUNCTION", wrap=True, drop=4),
        Column("WHEN", wrap=True),
        Column("NEXT"),
        Column("LAST", drop=5),
        Column("LAST JOB", drop=7),
        Column("FIRED", right=True, drop=3),
        Column("SKIPPED", right=True, drop=6),
        Column("MISSED", right=True, drop=2),
        Column("", wrap=True),
    ]
    now = time.time()
    rows = [_row(each, now) for each in found]
    insert_nodes(columns, rows, found)
    print_table(columns, rows)


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
    """Add, remove, pause, resume or run schedules: periodic jobs that the server makes.

    The server stores a schedule and makes one job at each tick of its timetable. --catch-up decides which ticks get a
    job later if they were missed while the server was down.
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
@verb_options("schedule", "cron", "every_seconds", "timezone", "catch_up", "overlap")
@schedule_job_options
@server_option
@json_option("Write the schedule as a JSON object.")
def add(
    name: str,
    function: str,
    payload: str,
    cron: str | None,
    every_seconds: float | None,
    timezone: str | None,
    catch_up: str,
    overlap: bool,
    server: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Add a schedule NAME that makes jobs of FUNCTION, or change it.

    PAYLOAD is the payload of each job; - reads it from standard input. If the schedule exists, it is replaced; its next
    tick moves only if the timetable changes.
    """
    if bool(cron) == bool(every_seconds):
        raise click.UsageError("Give --cron EXPRESSION or --every SECONDS.")
    try:
        # A typo is found even where there is no server.
        timetable_of(cron or "", every_seconds or 0, timezone or "")
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    data = sys.stdin.buffer.read() if payload == "-" else payload.encode("utf-8", "surrogateescape")
    with Client(server) as client:
        answer = client.control(
            "schedule",
            name=name,
            function=function,
            payload=plain(data),
            cron=cron or None,
            every_seconds=every_seconds,
            timezone=timezone,
            catch_up=catch_up,
            overlap=overlap,
            options={option: value for option, value in given.items() if value is not None},
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
    """Remove schedules. The jobs that they have made stay."""
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
    """Pause schedules: their ticks make no jobs until you resume them."""
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
    """Resume paused schedules with their next ticks. Ticks in between are not made up for."""
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
    """Make a job of each schedule now, paused or not. The ticks of the schedule do not change.

    A schedule whose jobs do not overlap refuses while its last one is unfinished.
    """
    _act(ctx, "run_schedule", "submitted", names, server, as_json)


def _act(ctx: click.Context, verb: str, done: str, names: tuple[str, ...], server: str, as_json: bool) -> None:
    """Act on each schedule; a refusal does not stop the others."""
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
