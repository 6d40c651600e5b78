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
    insert_nodes,
    json_option,
    moment,
    print_json,
    print_table,
    printable,
    server_option,
    shortened,
    text_of,
)
from switchgear.cli.verb_options import given, refuse_dead_with_other_states, verb_options
from switchgear.client.gearman.blocking import Client
from switchgear.client.gearman.error_codes import JOB_NOT_FOUND
from switchgear.errors import ServerRefused
from switchgear.resources import shown_number
from switchgear.units import short_duration

__all__ = ["functions", "job", "jobs", "workers"]

_SHOWN_BYTES = 2000  # of a payload or a result; the whole of it is in the JSON


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

    READY jobs wait for a worker, WAITING jobs for other jobs or for their start time. DONE and FAILED are counted since
    the server started. OLDEST is the age of the job that has been ready for longest. LIMITS were set with
    `switchgear limit` or by a Python program.
    """
    with Client(server) as client:
        found = client.control("functions")
    if as_json:
        print_json(found)
        return
    heads = {"READY": 0, "RUNNING": 0, "WAITING": 3, "WORKERS": 1, "DONE": 5, "FAILED": 4, "OLDEST": 2}
    numbers = (Column(head, right=True, drop=drop) for head, drop in heads.items())
    columns = [Column("FUNCTION", wrap=True), *numbers, Column("")]
    found.sort(key=lambda function: text_of(function["name"]))
    if any(function["policy"] for function in found):
        columns.append(Column("LIMITS", wrap=True, drop=6))
    rows = [_function_row(function)[: len(columns)] for function in found]
    insert_nodes(columns, rows, found)
    print_table(columns, rows)


def _function_row(function: Mapping[str, Any]) -> list[str]:
    counts = ("ready", "running", "waiting_or_scheduled", "workers", "done", "failed")
    return [
        text_of(function["name"]),
        *(str(function[count]) for count in counts),
        short_duration(function["oldest_ready_seconds"]),
        " ".join(word for word in ("paused", "placed") if function.get(word)),
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
    """List connected workers with their functions and the number of jobs that each runs."""
    with Client(server) as client:
        found = client.control("workers")
    if as_json:
        print_json(found)
        return
    columns = [
        Column("ID", right=True),
        Column("NAME", wrap=True),
        Column("PROTOCOL", drop=2),
        Column("ADDRESS", wrap=True, drop=4),
        Column("RUNNING", right=True),
        Column("CONNECTED", right=True, drop=3),
        Column("FUNCTIONS", wrap=True),
    ]
    now = time.time()
    rows = [_worker_row(worker, now) for worker in found]
    if any(worker["tags"] for worker in found):  # most servers have no use for the column
        columns.insert(-1, Column("TAGS", wrap=True, drop=1))
        for row, worker in zip(rows, found, strict=True):
            row.insert(-1, " ".join(worker["tags"]))
    if any(worker["resources"] for worker in found):
        columns.insert(-1, Column("RESOURCES", wrap=True, drop=5))
        for row, worker in zip(rows, found, strict=True):
            row.insert(-1, _resources_of(worker))
    insert_nodes(columns, rows, found)
    print_table(columns, rows)


def _functions_of(worker: Mapping[str, Any]) -> str:
    more = worker["functions_count"] - len(worker["functions"])
    return " ".join(text_of(name) for name in worker["functions"]) + (f" and {more} more" if more else "")


def _resources_of(worker: Mapping[str, Any]) -> str:
    """What a worker has, and what is free of it if that is less."""
    free = worker["resources_free"]
    return " ".join(
        f"{name}={shown_number(amount)}" + ("" if free[name] == amount else f"({shown_number(free[name])} free)")
        for name, amount in worker["resources"].items()
    )


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
  switchgear jobs --contains customer-17 --until 2030-01-31T18:00
  switchgear jobs --json --unique order-4711 | jq -r '.jobs[].handle'
"""
)
@verb_options(
    "jobs",
    *("function", "states", "unique", "name", "dead", "error", "key", "contains", "since", "until"),
    *("limit", "before_id"),
    limit={"default": 50, "show_default": True},
    before_id={"type": click.IntRange(1)},
)
@server_option
@json_option("Write a JSON object: jobs, an array, and next_before_id, the ID for --before to go on, or null.")
def jobs(server: str, as_json: bool, **options: Any) -> None:
    """List jobs, newest first, including finished jobs that are still in the history.

    A job is dead if it failed because its attempts were used up, not because a worker reported a failure; --state
    failed lists both. A search with --dead, --error or --contains examines some thousand jobs at a time, and prints
    where to continue.
    """
    refuse_dead_with_other_states(options)
    with Client(server) as client:
        found = client.control("jobs", **given(options))
    if as_json:
        print_json(found)
        return
    columns = [
        Column("HANDLE"),
        Column("FUNCTION", wrap=True),
        Column("STATE"),
        Column("PRIORITY", drop=5),
        Column("ATTEMPTS", right=True, drop=3),
        Column("PROGRESS", right=True, drop=4),
        Column("AGE", right=True, drop=2),
        Column("ERROR", wrap=True),
    ]
    now = time.time()
    rows = [_job_row(job, now) for job in found["jobs"]]
    if any(job["requires"] for job in found["jobs"]):  # most servers have no use for the column
        columns.insert(-1, Column("REQUIRES", wrap=True, drop=6))
        for row, job in zip(rows, found["jobs"], strict=True):
            row.insert(-1, " ".join(job["requires"]))
    if any(job["name"] or job["label"] for job in found["jobs"]):  # tasks of dwork have names, and few other jobs
        columns.insert(1, Column("NAME", wrap=True, drop=1))
        for row, job in zip(rows, found["jobs"], strict=True):
            row.insert(1, shortened(text_of(job["name"] or job["label"])))  # a whole command, perhaps
    print_table(columns, rows)
    if found["next_before_id"]:
        click.echo(f"There may be more: --before {found['next_before_id']}", err=True)


def _job_row(job: Mapping[str, Any], now: float) -> list[str]:
    return [
        job["handle"],
        text_of(job["function"]),
        _state(job),
        job["priority"],
        _attempts(job),
        _progress(job),
        short_duration(max(0.0, now - job["created_at"])),
        shortened(text_of(job["error"])),
    ]


def _state(job: Mapping[str, Any]) -> str:
    return "dead" if job["dead"] else str(job["state"])


def _attempts(job: Mapping[str, Any]) -> str:
    spent = job["attempts"] - job["losses"]
    return f"{spent}/{job['attempts_limit']}" if job["attempts_limit"] else str(spent)


def _losses(job: Mapping[str, Any]) -> str:
    """How often the job was lost with its worker, if that is limited separately."""
    if job["crash_limit"] is None:
        return ""
    return f"{job['losses']}/{job['crash_limit']}" if job["crash_limit"] else str(job["losses"])


def _predecessors(job: Mapping[str, Any]) -> str:
    """The jobs that it waits for or waited for. Of very many the server names only some."""
    others = job.get("predecessor_count", 0) - len(job["predecessors"])
    return " ".join([*job["predecessors"], f"and {others:,} others"] if others > 0 else job["predecessors"])


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
    """Show one job: its state, payload, result, attempts and state changes.

    Name the job by its HANDLE, which its submitter received, or its number, the last part of the handle. Exits with
    1 if the server does not know the job.
    """
    try:
        with Client(server) as client:
            found = client.control("job", handle=handle, workers=True)
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
    if found["attempt_history"]:
        click.echo("\nattempts")
        for attempt in found["attempt_history"]:
            click.echo(f"  {_attempt_line(attempt)}")
    click.echo("\nhistory")
    for entry in found["log"]:
        click.echo(f"  {moment(entry['at'], 'microseconds')}  {entry['cause'].replace('_', ' ')}")


def _attempt_line(attempt: Mapping[str, Any]) -> str:
    """One attempt: its number, start, outcome, duration, and worker."""
    outcome = attempt["outcome"].replace("_", " ")
    if attempt["ended_at"] is not None:
        outcome += f" after {short_duration(max(0.0, attempt['ended_at'] - attempt['started_at']))}"
    worker = attempt["worker"]
    if worker is None:
        by_whom = ""
    else:
        host = f", {attempt['worker_host']}" if attempt["worker_host"] else ""
        by_whom = f", by {printable(worker)} ({attempt['protocol']}{printable(host)})"
    return f"{attempt['attempt']}  {moment(attempt['started_at'], 'milliseconds')}  {outcome}{by_whom}"


def _job_fields(job: Mapping[str, Any]) -> list[list[str]]:
    fields = {
        "handle": job["handle"],
        "function": text_of(job["function"]),
        "state": _state(job),
        "priority": job["priority"],
        "unique": text_of(job["unique"]),
        "name": text_of(job["name"]),
        "label": text_of(job["label"]),
        "key": text_of(job["key"]),
        "requires": ",".join(job["requires"]),
        "trace": job["trace"],
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
        "after": _predecessors(job),
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
