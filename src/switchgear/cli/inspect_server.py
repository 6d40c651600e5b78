"""`switchgear functions`, `workers`, `jobs` and `job`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from switchgear.cli.limit import limits_text
from switchgear.cli.main import ExitCode
from switchgear.cli.output import (
    Column,
    bytes_of,
    complain,
    json_option,
    moment,
    print_json,
    print_table,
    printable,
    server_option,
    text_of,
)
from switchgear.client.gearman.blocking import Client
from switchgear.client.gearman.error_codes import JOB_NOT_FOUND
from switchgear.errors import ServerRefused
from switchgear.model import JobState
from switchgear.units import short_duration

__all__ = ["functions", "job", "jobs", "workers"]

_STATES = [state.name.lower() for state in JobState]
_SHOWN_BYTES = 2000  # of a payload or a result; the whole of it is in the JSON
_ERROR_COLUMNS = 60


@click.command(
    epilog="""\b
Examples:
  switchgear functions
  switchgear functions --json | jq '.[] | select(.ready > 100) | .name'
"""
)
@server_option
@json_option("Write a JSON array, an object for each function.")
def functions(server: str, as_json: bool) -> None:
    """List functions with their queues and workers.

    READY jobs wait for a worker, WAITING ones for other jobs or for their time. DONE and FAILED count since the
    server was started. OLDEST is the age of the job that has been ready for longest. LIMITS are those that were set
    with switchgear limit, or by a Python program.
    """
    with Client(server) as client:
        found = client.control("functions")
    if as_json:
        print_json(found)
        return
    heads = ("READY", "RUNNING", "WAITING", "WORKERS", "DONE", "FAILED", "OLDEST")
    columns = [Column("FUNCTION", wrap=True), *(Column(head, right=True) for head in heads), Column("")]
    rows = [_function_row(function) for function in sorted(found, key=lambda f: text_of(f["name"]))]
    if any(function["policy"] for function in found):
        columns.append(Column("LIMITS", wrap=True))
    print_table(columns, (row[: len(columns)] for row in rows))


def _function_row(function: Mapping[str, Any]) -> list[str]:
    counts = ("ready", "running", "waiting_or_scheduled", "workers", "done", "failed")
    return [
        text_of(function["name"]),
        *(str(function[count]) for count in counts),
        short_duration(function["oldest_ready_seconds"]),
        "paused" if function["paused"] else "",
        limits_text(function["policy"]),
    ]


@click.command(
    epilog="""\b
Examples:
  switchgear workers
  switchgear workers --json | jq 'map(.running | length) | add'
"""
)
@server_option
@json_option("Write a JSON array, an object for each worker.")
def workers(server: str, as_json: bool) -> None:
    """List connected workers, what they can do, and how many jobs each of them runs."""
    with Client(server) as client:
        found = client.control("workers")
    if as_json:
        print_json(found)
        return
    columns = [
        Column("ID", right=True),
        Column("NAME"),
        Column("PROTOCOL"),
        Column("ADDRESS"),
        Column("RUNNING", right=True),
        Column("CONNECTED", right=True),
        Column("FUNCTIONS", wrap=True),
    ]
    now = time.time()
    print_table(columns, (_worker_row(worker, now) for worker in found))


def _functions_of(worker: Mapping[str, Any]) -> str:
    more = worker["functions_count"] - len(worker["functions"])
    return " ".join(text_of(name) for name in worker["functions"]) + (f" and {more} more" if more else "")


def _worker_row(worker: Mapping[str, Any], now: float) -> list[str]:
    return [
        str(worker["id"]),
        text_of(worker["name"]),
        worker["protocol"],
        worker["address"],
        str(worker["running_count"]),
        short_duration(max(0.0, now - worker["connected_at"])),
        _functions_of(worker),
    ]


@click.command(
    epilog="""\b
Examples:
  switchgear jobs --function resize --state failed
  switchgear jobs --state running --state ready --limit 500
  switchgear jobs --dead --error 'disk full'
  switchgear jobs --json --unique order-4711 | jq -r '.jobs[].handle'
"""
)
@click.option("--function", metavar="NAME", help="Only jobs of this function.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only jobs in this state; may be given several times.",
)
@click.option("--unique", metavar="KEY", help="Only jobs with this unique key.")
@click.option("--dead", is_flag=True, help="Only jobs that failed because their attempts were spent.")
@click.option("--error", metavar="TEXT", help="Only jobs whose error has this text in it.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@click.option("--before", type=click.IntRange(1), metavar="ID", help="Only jobs older than the one with this number.")
@server_option
@json_option("Write a JSON object: jobs, an array, and next_before_id, the ID for --before to go on, or null.")
def jobs(
    function: str | None,
    states: tuple[str, ...],
    unique: str | None,
    dead: bool,
    error: str | None,
    limit: int,
    before: int | None,
    server: str,
    as_json: bool,
) -> None:
    """List jobs, the newest first, finished ones included as long as the server keeps them.

    A job is dead if it failed because its attempts were spent, not because a worker said so; --state failed lists
    both. A search with --dead or --error looks at some thousand jobs at a time, and says where to go on.
    """
    if dead and states and "failed" not in states:
        raise click.UsageError("Dead jobs are failed ones: --dead goes with --state failed, or with none.")
    selection = {"function": function, "states": list(states) or None, "unique": unique, "error": error}
    with Client(server) as client:
        found = client.control("jobs", **selection, dead=dead or None, before_id=before, limit=limit)
    if as_json:
        print_json(found)
        return
    columns = [
        Column("HANDLE"),
        Column("FUNCTION", wrap=True),
        Column("STATE"),
        Column("PRIORITY"),
        Column("ATTEMPTS", right=True),
        Column("PROGRESS", right=True),
        Column("AGE", right=True),
        Column("ERROR", wrap=True),
    ]
    now = time.time()
    print_table(columns, (_job_row(job, now) for job in found["jobs"]))
    if found["next_before_id"]:
        click.echo(f"There may be more: --before {found['next_before_id']}", err=True)


def _job_row(job: Mapping[str, Any], now: float) -> list[str]:
    error = text_of(job["error"]).strip().partition("\n")[0]
    return [
        job["handle"],
        text_of(job["function"]),
        _state(job),
        job["priority"],
        _attempts(job),
        _progress(job),
        short_duration(max(0.0, now - job["created_at"])),
        error if len(error) <= _ERROR_COLUMNS else error[: _ERROR_COLUMNS - 1] + "…",
    ]


def _state(job: Mapping[str, Any]) -> str:
    return "dead" if job["dead"] else str(job["state"])


def _attempts(job: Mapping[str, Any]) -> str:
    spent = job["attempts"] - job["losses"]
    return f"{spent}/{job['attempts_limit']}" if job["attempts_limit"] else str(spent)


def _losses(job: Mapping[str, Any]) -> str:
    """How often the job was lost with its worker, if that is limited separately."""
    if job["losses_limit"] is None:
        return ""
    return f"{job['losses']}/{job['losses_limit']}" if job["losses_limit"] else str(job["losses"])


def _progress(job: Mapping[str, Any]) -> str:
    return f"{job['numerator']}/{job['denominator']}" if job["denominator"] else ""


@click.command(
    epilog="""\b
Examples:
  switchgear job H:myhost:42
  switchgear job 42
  switchgear job --json H:myhost:42 | jq -r .warnings
"""
)
@click.argument("handle")
@server_option
@json_option("Write one JSON object, with the whole payload and result.")
@click.pass_context
def job(ctx: click.Context, handle: str, server: str, as_json: bool) -> None:
    """Show one job: its state, what it was given, what came of it, and its history.

    HANDLE is what its submitter was told, or its number, which is the end of it and what the server's log says.
    Exits with 1 if the server does not know the job.
    """
    try:
        with Client(server) as client:
            found = client.control("job", handle=handle)
    except ServerRefused as error:
        if error.code != JOB_NOT_FOUND:
            raise
        complain(f"{handle}: {error.text}")
        ctx.exit(ExitCode.FAILED)
    if as_json:
        print_json(found)
        return
    print_table([Column(""), Column("", wrap=True)], _job_fields(found))
    for title in ("payload", "result", "error", "warnings"):
        _show_text(title, found[title])
    click.echo("\nhistory")
    for entry in found["log"]:
        click.echo(f"  {moment(entry['at'], 'microseconds')}  {entry['cause'].replace('_', ' ')}")


def _job_fields(job: Mapping[str, Any]) -> list[list[str]]:
    fields = {
        "handle": job["handle"],
        "function": text_of(job["function"]),
        "state": _state(job),
        "priority": job["priority"],
        "unique": text_of(job["unique"]),
        "name": text_of(job["name"]),
        "key": text_of(job["key"]),
        "attempts": _attempts(job),
        "lost": _losses(job),
        "progress": _progress(job),
        "message": text_of(job["message"]),
        "time left": short_duration(job["time_left"]),
        "created": moment(job["created_at"]),
        "runs at": moment(job["run_at"]),
        "expires": moment(job["expires_at"]),
        "finished": moment(job["finished_at"]),
        "run timeout": short_duration(job["timeout"]),
        "after": " ".join(job["predecessors"]),
        "on failure": " ".join(job["on_failure"]) if any(word != "wait" for word in job["on_failure"]) else "",
        "schedule": text_of(job["schedule"]),
        "delivery": job["delivery"].replace("_", " "),
        "origin": job["origin"],
    }
    return [[name, value] for name, value in fields.items() if value]


def _show_text(title: str, value: object) -> None:
    text = text_of(value)
    if not text:
        return
    size = len(bytes_of(value))
    click.echo(f"\n{title}" + ("" if title == "error" else f" ({size} {'byte' if size == 1 else 'bytes'})"))
    for line in text[:_SHOWN_BYTES].splitlines():
        click.echo(f"  {printable(line)}")
    if len(text) > _SHOWN_BYTES:
        click.echo("  …")
