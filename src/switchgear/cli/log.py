"""`switchgear log`: shows runs from the job log, with durations and errors, and entries of the audit log."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from switchgear.cli.output import (
    Column,
    json_option,
    moment,
    named_server_option,
    print_json,
    print_table,
    printable,
    reading,
    shortened,
)
from switchgear.client import Client
from switchgear.config import load_config
from switchgear.errors import ConfigError, StorageError
from switchgear.joblog.audit import AuditQuery, LoggedAudit
from switchgear.joblog.job_log import JobLog
from switchgear.joblog.runs import FunctionSummary, LoggedRun, Outcome, RunQuery
from switchgear.text import without_secrets
from switchgear.units import parse_duration, parse_when, short_duration

__all__ = ["log"]

_ELSEWHERE = (
    "That is where a server with this configuration writes it. --server URL asks a running server where its log is."
    " One that was started with another store has it beside that: --url sqlite:PATH, with jobs-log.db for jobs.db."
    " --config FILE reads the server's configuration. A server with the store memory:, and one that is embedded in a"
    " program, writes none."
)
_WHEN_HELP = "A duration such as 90m or 2d means that long ago."


def _past(text: str) -> float:
    """A time in the past: a moment, as `--at` elsewhere takes it, or a duration before now."""
    words = text.strip().lower()
    if words in ("today", "yesterday"):
        midnight = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
        return (midnight - timedelta(days=words == "yesterday")).timestamp()
    if words[-1:].isalpha() and words[:1].isdigit():
        return max(0.0, time.time() - parse_duration(words))
    try:
        return parse_when(text, time.time())
    except ValueError:
        raise ValueError(
            f"{text!r} is no time: write 2h, yesterday, 2030-01-31T18:00, or seconds since the epoch"
        ) from None


@click.command(
    epilog="""\b
Examples:
  switchgear log --failed --since 24h
  switchgear log --unfinished --function resize
  switchgear log --summary --since yesterday --until today
  switchgear log --audit --since 24h
  switchgear log --json --function mail --limit 1000 | jq '[.runs[].seconds] | max'
  switchgear log --server gearman://jobs.example:4730 --failed
  switchgear log --url postgresql://jobs@db.example/jobs --key order-4711
"""
)
@click.option("--function", metavar="NAME", help="Only runs of this function.")
@click.option("--key", metavar="KEY", help="Only runs with this unique key, or of jobs with this name.")
@click.option("--handle", metavar="HANDLE", help="Only the job with this handle.")
@click.option("--host", metavar="NAME", help="Only runs that this host has written.")
@click.option("--failed", is_flag=True, help="Only failed runs.")
@click.option("--unfinished", is_flag=True, help="Only runs that have started and not ended.")
@click.option("--since", metavar="WHEN", callback=reading(_past), help=f"Only runs from then on. {_WHEN_HELP}")
@click.option("--until", metavar="WHEN", callback=reading(_past), help="Only runs before then.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The maximum number of runs."
)
@click.option("--before", type=click.IntRange(1), metavar="ID", help="Only runs older than the one with this number.")
@click.option("--summary", is_flag=True, help="Instead of runs, show counts and durations for each function.")
@click.option("--audit", is_flag=True, help="Instead of runs, show actions of operators and refusals.")
@click.option("--url", metavar="URL", help="The log to read: sqlite:PATH or postgresql://USER@HOST/DATABASE.")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the log of the server with this configuration. Default: as for `switchgear serve`.",
)
@named_server_option(
    "Read the log of this server, gearman://HOST:PORT. Default: SWITCHGEAR_SERVER, then"
    " SWITCHGEAR_URL; if neither is set, the log in the configuration."
)
@json_option(
    "Write a JSON object: runs, an array, and next_before_id, the ID for --before to go on, or null."
    " With --summary: an array, an object for each function."
)
@click.pass_context
def log(
    ctx: click.Context,
    function: str | None,
    key: str | None,
    handle: str | None,
    host: str | None,
    failed: bool,
    unfinished: bool,
    since: float | None,
    until: float | None,
    limit: int,
    before: int | None,
    summary: bool,
    audit: bool,
    url: str | None,
    file: Path | None,
    server: str | None,
    as_json: bool,
) -> None:
    """Show runs from the job log: when each started, how long it took, and how it ended; newest first.

    The server logs the jobs of every protocol, and workers can log their own tasks. The command reads the database of
    the log. The server need not run, unless the command has to request the location of the log from it. TOOK is the
    duration of the last attempt, KEY the unique key of a job or otherwise its name, such as that of a dwork task, and
    MESSAGE the last message of its worker.
    """
    if failed and unfinished:
        raise click.UsageError("--failed and --unfinished cannot both be: what failed has ended.")
    asks_server = ctx.get_parameter_source("server") is click.core.ParameterSource.COMMANDLINE
    if (url is not None) + (file is not None) + asks_server > 1:
        raise click.UsageError("--url, --config and --server each say where the log is: give one of them.")
    outcome: Outcome = "failed" if failed else "unfinished" if unfinished else "any"
    query = RunQuery(function, key, handle, host, since, until, outcome, before or 0, limit)
    if summary:
        _refuse_with_summary(ctx)
    if audit:
        _refuse_with_audit(ctx)
    with _opened(url, file, server) as job_log:
        if audit:
            _show_audit(job_log.find_audit(AuditQuery(since, until, before or 0, limit)), limit, as_json)
        elif summary:
            _show_summary(job_log.summarize(query), as_json)
        else:
            _show_runs(job_log.find(query), limit, as_json)


def _opened(url: str | None, file: Path | None, server: str | None) -> JobLog:
    """The log that is asked for; says on standard error whose it is, unless the user has named it."""
    if url is not None:
        return JobLog.open(url, create=False)
    if file is None and server is not None:
        job_log, owner = _log_of(server), f"of {server}, "
    else:
        try:
            job_log, owner = JobLog.open(_configured_url(file), create=False), ""
        except StorageError as error:
            if not str(error).startswith("there is no job log"):
                raise
            raise StorageError(f"{error}\n{_ELSEWHERE}") from error
    click.echo(f"Job log {owner}{printable(without_secrets(job_log.url))}", err=True)
    return job_log


def _log_of(server: str) -> JobLog:
    """The log that a server writes, if it can be read from here."""
    with Client(server) as client:
        figures = client.control("server")["joblog"]
    if figures is None:
        raise ConfigError(
            f"{server} writes no job log: it is switched off there, or the server is embedded in a program, or has its"
            " jobs in memory. `switchgear jobs` shows what it has, finished jobs included."
        )
    url = figures["url"]
    try:
        return JobLog.open(url, create=False)
    except StorageError as error:
        where = printable(without_secrets(url))
        raise StorageError(
            f"{error}\n{server} writes its log to {where}, which cannot be read from here: run this command where that"
            " server runs, or name the log with --url"
        ) from error


def _configured_url(file: Path | None) -> str:
    url = load_config(file, os.environ, {}).joblog_url
    if not url:
        raise ConfigError("the job log is switched off in the configuration; --url names another")
    return url


def _refuse_with_summary(ctx: click.Context) -> None:
    for name in ("failed", "unfinished", "limit", "before"):
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--summary counts all of them: --{name} does not go with it.")


def _refuse_with_audit(ctx: click.Context) -> None:
    for name in ("function", "key", "handle", "host", "failed", "unfinished", "summary"):
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--audit shows actions, not runs: --{name} does not go with it.")


def _show_audit(entries: list[LoggedAudit], limit: int, as_json: bool) -> None:
    next_before_id = entries[-1].id if len(entries) == limit else None
    if as_json:
        print_json({"entries": [asdict(entry) for entry in entries], "next_before_id": next_before_id})
        return
    columns = [
        Column("ID", right=True),
        Column("WHEN", drop=2),
        Column("WHO", wrap=True),
        Column("FROM", wrap=True, drop=3),
        Column("PROTOCOL", drop=4),
        Column("OUTCOME", drop=1),
        Column("ACTION", wrap=True),
        Column("OF", wrap=True),
    ]
    rows = [
        [
            str(entry.id),
            moment(entry.at),
            entry.identity,
            entry.address,
            entry.protocol,
            entry.outcome,
            entry.verb,
            shortened(entry.target),
        ]
        for entry in entries
    ]
    print_table(columns, rows)
    if next_before_id:
        click.echo(f"There may be more: --before {next_before_id}", err=True)


def _show_runs(runs: list[LoggedRun], limit: int, as_json: bool) -> None:
    next_before_id = runs[-1].id if len(runs) == limit else None
    if as_json:
        print_json({"runs": [_run_object(run) for run in runs], "next_before_id": next_before_id})
        return
    columns = [
        Column("ID", right=True),
        Column("STARTED", drop=4),
        Column("FUNCTION", wrap=True),
        Column("KEY", wrap=True, drop=6),
        Column("STATE"),
        Column("TOOK", right=True, drop=1),
        Column("ATTEMPTS", right=True, drop=5),
        Column("HANDLE", drop=2),
        Column("HOST", drop=7),
        Column("ERROR", wrap=True),
    ]
    rows = [_run_row(run) for run in runs]
    if any(run.result for run in runs):  # few workers have anything to say
        columns.append(Column("MESSAGE", wrap=True, drop=3))
        for row, run in zip(rows, runs, strict=True):
            row.append(shortened(run.result))
    print_table(columns, rows)
    if next_before_id:
        click.echo(f"There may be more: --before {next_before_id}", err=True)


def _run_object(run: LoggedRun) -> dict[str, Any]:
    return {**asdict(run), "seconds": run.seconds}


def _run_row(run: LoggedRun) -> list[str]:
    error = run.error.strip() or (f"result code {run.result_code}" if run.result_code else "")
    return [
        str(run.id),
        moment(run.started_at),
        run.function,
        shortened(run.key),
        run.state,
        short_duration(run.seconds),
        str(run.attempts),
        run.handle,
        run.host,
        shortened(error),
    ]


def _show_summary(summaries: list[FunctionSummary], as_json: bool) -> None:
    if as_json:
        print_json([{**asdict(summary), "other": summary.other} for summary in summaries])
        return
    heads = {
        "RUNS": 0, "OK": 1, "FAILED": 0, "OTHER": 7, "UNFINISHED": 2, "MEAN": 5, "P50": 4, "P99": 0, "LONGEST": 3,
    }  # fmt: skip
    columns = [
        Column("FUNCTION", wrap=True),
        *(Column(head, right=True, drop=drop) for head, drop in heads.items()),
        Column("FIRST", drop=8),
        Column("LAST", drop=6),
    ]
    print_table(columns, (_summary_row(summary) for summary in summaries))


def _summary_row(summary: FunctionSummary) -> list[str]:
    counts = (summary.runs, summary.ok, summary.failed, summary.other, summary.unfinished)
    durations = (summary.mean_seconds, summary.p50_seconds, summary.p99_seconds, summary.longest_seconds)
    return [
        summary.function,
        *map(str, counts),
        *map(short_duration, durations),
        moment(summary.first_at),
        moment(summary.last_at),
    ]
