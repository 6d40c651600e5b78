"""`switchgear cancel`, `retry`, `change`, `pause` and `resume`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import click

from switchgear.cli.bulk_progress import change_in_bulk
from switchgear.cli.main import ExitCode
from switchgear.cli.output import (
    complain,
    json_option,
    moment,
    print_json,
    printable,
    reading,
    server_option,
    text_of,
)
from switchgear.cli.verb_options import given, refuse_dead_with_other_states, verb_options
from switchgear.client.gearman.blocking import Client
from switchgear.client.gearman.error_codes import UNKNOWN_EXTENSION
from switchgear.errors import ServerRefused
from switchgear.units import parse_when

__all__ = ["cancel", "change", "pause", "resume", "retry"]

_MOST_NAMED: Final = 1000  # of the jobs that match; others are counted

_SELECTION: Final = ("function", "states", "unique", "name", "error", "key", "since", "until", "limit")


def _when_or_now(text: str) -> float:
    """A moment; 0, which is long ago for any clock, for now."""
    return 0 if text.strip() == "now" else parse_when(text, time.time())


def _most(what: str) -> dict[str, Any]:
    """Attributes of --limit: the command asks for as many batches as it takes, so any number will do."""
    return {"type": click.IntRange(1), "help": f"{what} at most this many of those that match."}


@click.command(
    epilog="""\b
Examples:
  switchgear cancel H:myhost:42
  switchgear cancel --cascade H:myhost:42 H:myhost:43
  switchgear cancel --function resize --state ready
"""
)
@click.argument("handles", metavar="[HANDLE...]", nargs=-1)
@verb_options("cancel", "cascade", *_SELECTION, limit=_most("Cancel"))
@server_option
@json_option("Write one JSON object: cancelled, an array of handles, others, how many more there are, and problems.")
@click.pass_context
def cancel(
    ctx: click.Context,
    /,
    handles: tuple[str, ...],
    cascade: bool,
    limit: int | None,
    server: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Cancel unfinished jobs: the named ones, or all that match the options.

    Name each job by its HANDLE or its number. A running job ends at once for its submitter and for the server. The
    server tells the worker to stop if its protocol has a message for that; other workers continue, and their reports
    are ignored. Exits with 1 if a named job is unknown or finished; the others are cancelled all the same. With
    options, it is no error if no job matches. If more than 1,000 jobs match, the server cancels the others in one bulk
    action; the command shows its progress, and Ctrl-C aborts it.
    """
    selection = given(options)
    _check(handles, selection, limit)
    with Client(server) as client:
        answers, problems = _each(handles, lambda handle: client.control("cancel", handle=handle, cascade=cascade))
        if selection:
            answers += _cancel_matching(client, selection, cascade, limit)
    # A job that was cancelled together with an earlier one of the list is no problem.
    cancelled = {handle for answer in answers for handle in answer["cancelled"]}
    cancelled |= {handle.rpartition(":")[2] for handle in cancelled}  # by its number
    problems = [problem for problem in problems if problem["name"] not in cancelled]
    _print_handles(ctx, "cancelled", answers, problems, as_json)


def _cancel_matching(client: Client, selection: dict[str, Any], cascade: bool, limit: int | None) -> Iterator[Any]:
    """Cancel the first thousand by name, and all others by one bulk action of the server."""
    batch = _MOST_NAMED if limit is None else min(limit, _MOST_NAMED)
    answer = client.control("cancel", **selection, cascade=cascade, limit=batch)
    yield answer
    left = None if limit is None else limit - batch
    if answer["more"] and left != 0:
        changed = change_in_bulk(client, "cancel", {**selection, "cascade": cascade}, left, "cancelled")
        yield {"cancelled": [], "count": changed}


@click.command(
    epilog="""\b
Examples:
  switchgear retry H:myhost:42
  switchgear retry --dead --function resize --error 'disk full'
  switchgear retry --state cancelled --since 2030-01-31T18:00
"""
)
@click.argument("handles", metavar="[HANDLE...]", nargs=-1)
@verb_options("retry", "dead", *_SELECTION, limit=_most("Retry"))
@server_option
@json_option("Write one JSON object: retried, an array of handles, others, how many more there are, and problems.")
@click.pass_context
def retry(
    ctx: click.Context,
    /,
    handles: tuple[str, ...],
    limit: int | None,
    server: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Retry jobs that ended without success, with the same handles and all their attempts.

    Name each job by its HANDLE or its number, or select jobs by options; a job must match all of them. Options select
    only failed jobs, unless you give --state. Exits with 1 if a named job is unknown or has not ended without success;
    the others are retried all the same. With options, it is no error if no job matches. If more than 1,000 jobs match,
    the server retries the others in one bulk action.
    """
    refuse_dead_with_other_states(options)
    selection = given(options)
    _check(handles, selection, limit)
    with Client(server) as client:
        answers, problems = _each(handles, lambda handle: client.control("retry", handle=handle))
        if selection:
            answers += _retry_matching(client, selection, limit)
    _print_handles(ctx, "retried", answers, problems, as_json)


def _retry_matching(client: Client, selection: dict[str, Any], limit: int | None) -> Iterator[Any]:
    """Retry the first thousand by name, and all others by one bulk action of the server."""
    left = _MOST_NAMED if limit is None else min(limit, _MOST_NAMED)
    named = left
    before_id: int | None = 0
    while before_id is not None and left > 0:
        answer = client.control("retry", **selection, before_id=before_id, limit=left)
        yield answer
        before_id = answer["next_before_id"]
        left -= answer["count"]
    if before_id is not None and limit != named:
        more = None if limit is None else limit - named
        yield {"retried": [], "count": change_in_bulk(client, "retry", selection, more, "retried")}


def _check(handles: tuple[str, ...], selection: dict[str, Any], limit: int | None) -> None:
    if bool(handles) == bool(selection):
        raise click.UsageError("Give the handles of jobs, or options that say which.")
    if limit is not None and not selection:
        raise click.UsageError("--limit needs options that say which jobs.")


@click.command(
    epilog="""\b
Examples:
  switchgear change H:myhost:42 --priority high
  switchgear change H:myhost:42 H:myhost:43 --at 2030-01-31T18:00
  switchgear change H:myhost:42 --at now
"""
)
@click.argument("handles", metavar="HANDLE...", nargs=-1, required=True)
@verb_options(
    "change",
    "priority",
    "run_at",
    run_at={"callback": reading(_when_or_now), "help": "Do not start the job earlier: +5m, 2030-01-31T18:00, or now."},
)
@server_option
@json_option("Write one JSON object: jobs, an array, and problems.")
@click.pass_context
def change(
    ctx: click.Context,
    /,
    handles: tuple[str, ...],
    priority: str | None,
    run_at: float | None,
    server: str,
    as_json: bool,
) -> None:
    """Change the priority or the start time of jobs that have not started.

    Name each job by its HANDLE or its number. A ready job moves to the end of the queue of its new priority. Exits with
    1 if a job is unknown, is running or has ended; the others are changed all the same.
    """
    if priority is None and run_at is None:
        raise click.UsageError("Give --priority, --at, or both.")
    changes = {name: value for name, value in (("priority", priority), ("run_at", run_at)) if value is not None}
    with Client(server) as client:
        jobs, problems = _each(handles, lambda handle: client.control("change", handle=handle, **changes))
    if as_json:
        print_json({"jobs": jobs, "problems": problems})
    else:
        for job in jobs:
            at = f", starts {moment(job['run_at'])}" if job["state"] == "scheduled" else ""
            click.echo(f"{printable(job['handle'])} {job['state']}, priority {job['priority']}{at}")
    _finish(ctx, problems, as_json)


@click.command(
    epilog="""\b
Examples:
  switchgear pause resize
  switchgear pause resize thumbnail --server gearman://jobs.example:4730
"""
)
@click.argument("functions", metavar="FUNCTION...", nargs=-1, required=True)
@server_option
@json_option("Write one JSON object: functions, an array of function, paused and known, and problems.")
@click.pass_context
def pause(ctx: click.Context, functions: tuple[str, ...], server: str, as_json: bool) -> None:
    """Stop starting jobs of functions.

    Jobs are still accepted, and running ones continue. The function stays paused until it is resumed. A function that
    has had no worker and no job since the server was started is paused too, with a note.
    """
    _set_paused(ctx, "pause", functions, server, as_json)


@click.command(
    epilog="""\b
Examples:
  switchgear resume resize
"""
)
@click.argument("functions", metavar="FUNCTION...", nargs=-1, required=True)
@server_option
@json_option("Write one JSON object: functions, an array, and problems.")
@click.pass_context
def resume(ctx: click.Context, functions: tuple[str, ...], server: str, as_json: bool) -> None:
    """Start jobs of paused functions again."""
    _set_paused(ctx, "resume", functions, server, as_json)


def _set_paused(ctx: click.Context, verb: str, functions: tuple[str, ...], server: str, as_json: bool) -> None:
    with Client(server) as client:
        answers, problems = _each(functions, lambda name: client.control(verb, function=name))
        if verb == "pause":
            known = _known_functions(client)
            answers = [{**answer, "known": answer["function"] in known} for answer in answers]
    if as_json:
        print_json({"functions": answers, "problems": problems})
    else:
        for answer in answers:
            click.echo(f"{printable(answer['function'])} {'paused' if answer['paused'] else 'resumed'}")
            if not answer.get("known", True):  # perhaps it is misspelt
                complain(f"there is no function {answer['function']} yet; it will be paused when it appears")
    _finish(ctx, problems, as_json)


def _known_functions(client: Client) -> set[str]:
    """The functions that have a worker or a job, or had a job since the server was started."""
    signs = ("workers", "total", "done", "failed")
    return {
        text_of(function["name"]) for function in client.control("functions") if any(function[sign] for sign in signs)
    }


def _each(names: Iterable[str], act: Callable[[str], Any]) -> tuple[list[Any], list[dict[str, str]]]:
    """Act on each item; a refusal does not stop the others."""
    answers: list[Any] = []
    problems: list[dict[str, str]] = []
    for name in dict.fromkeys(names):
        try:
            answers.append(act(name))
        except ServerRefused as error:
            if error.code == UNKNOWN_EXTENSION:
                raise
            problems.append({"name": name, "code": error.code, "error": error.text})
    return answers, problems


def _print_handles(
    ctx: click.Context, word: str, answers: list[Any], problems: list[dict[str, str]], as_json: bool
) -> None:
    # One handle may come twice: named, and as a successor of another.
    handles = list(dict.fromkeys(handle for answer in answers for handle in answer[word]))
    others = sum(max(0, answer.get("count", 0) - len(answer[word])) for answer in answers)
    if as_json:
        print_json({word: handles, "problems": problems} | ({"others": others} if others else {}))
    else:
        for handle in handles:
            click.echo(f"{printable(handle)} {word}")
        if others:  # not named
            click.echo(f"and {others} others {word}")
        if not handles and not problems:
            click.echo(f"none {word}", err=True)
    _finish(ctx, problems, as_json)


def _finish(ctx: click.Context, problems: list[dict[str, str]], as_json: bool) -> None:
    if not as_json:
        for problem in problems:
            name, text = problem["name"], problem["error"] or problem["code"]
            complain(text if text.startswith(f"{name} ") else f"{name}: {text}")
    ctx.exit(ExitCode.FAILED if problems else ExitCode.SUCCESS)
