"""Changing what a server does with its jobs and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from switchgear.cli.main import ExitCode
from switchgear.cli.output import complain, json_option, print_json, printable, server_option
from switchgear.client.client import UNKNOWN_EXTENSION, Client
from switchgear.errors import ServerRefused

__all__ = ["cancel", "pause", "resume", "retry"]


@click.command(
    epilog="""\b
Examples:
  switchgear cancel H:myhost:42
  switchgear cancel --cascade H:myhost:42 H:myhost:43
"""
)
@click.argument("handles", metavar="HANDLE...", nargs=-1, required=True)
@click.option("--cascade", is_flag=True, help="Cancel also the jobs that wait for these, and so on.")
@server_option
@json_option("Write one JSON object: cancelled, an array of handles, and problems.")
@click.pass_context
def cancel(ctx: click.Context, handles: tuple[str, ...], cascade: bool, server: str, as_json: bool) -> None:
    """Cancel unfinished jobs.

    A running one ends for its submitter and for the server at once, and what its worker reports is ignored. A WMP
    worker is told to stop; other protocols have no word for that, and their workers go on. Exits with 1 if any of the
    jobs is unknown or finished; the others are cancelled all the same.
    """
    with Client(server) as client:
        answers, problems = _each(handles, lambda handle: client.control("cancel", handle=handle, cascade=cascade))
    # A job that was cancelled together with an earlier one of the list is no problem.
    cancelled = {handle for answer in answers for handle in answer["cancelled"]}
    problems = [problem for problem in problems if problem["name"] not in cancelled]
    _tell_handles(ctx, "cancelled", answers, problems, as_json)


@click.command(
    epilog="""\b
Examples:
  switchgear retry H:myhost:42
  switchgear retry --all-dead --function resize
"""
)
@click.argument("handles", metavar="[HANDLE...]", nargs=-1)
@click.option("--all-dead", is_flag=True, help="Retry the jobs that failed because their attempts were spent.")
@click.option("--function", metavar="NAME", help="With --all-dead: only those of this function.")
@server_option
@json_option("Write one JSON object: retried, an array of handles, and problems.")
@click.pass_context
def retry(
    ctx: click.Context, handles: tuple[str, ...], all_dead: bool, function: str | None, server: str, as_json: bool
) -> None:
    """Run jobs again that ended without success, under their old handles and with all their attempts.

    Exits with 1 if any of the jobs is unknown or did not end without success; the others are retried all the same.
    With --all-dead there is nothing wrong with finding none.
    """
    if bool(handles) == all_dead:
        raise click.UsageError("Give the handles of jobs, or --all-dead.")
    if function is not None and not all_dead:
        raise click.UsageError("--function needs --all-dead.")
    with Client(server) as client:
        answers, problems = _each(handles, lambda handle: client.control("retry", handle=handle))
        if all_dead:
            answers.append(client.control("retry", all_dead=True, function=function))
    _tell_handles(ctx, "retried", answers, problems, as_json)


@click.command(
    epilog="""\b
Examples:
  switchgear pause resize
  switchgear pause resize thumbnail --server gearman://jobs.example:4730
"""
)
@click.argument("functions", metavar="FUNCTION...", nargs=-1, required=True)
@server_option
@json_option("Write one JSON object: functions, an array, and problems.")
@click.pass_context
def pause(ctx: click.Context, functions: tuple[str, ...], server: str, as_json: bool) -> None:
    """Stop handing out the jobs of functions.

    Jobs are still taken, and those that run go on. The function stays paused until it is resumed.
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
    """Hand out the jobs of paused functions again."""
    _set_paused(ctx, "resume", functions, server, as_json)


def _set_paused(ctx: click.Context, verb: str, functions: tuple[str, ...], server: str, as_json: bool) -> None:
    with Client(server) as client:
        answers, problems = _each(functions, lambda name: client.control(verb, function=name))
    if as_json:
        print_json({"functions": answers, "problems": problems})
    else:
        for answer in answers:
            click.echo(f"{printable(answer['function'])} {'paused' if answer['paused'] else 'resumed'}")
    _finish(ctx, problems, as_json)


def _each(names: Iterable[str], act: Callable[[str], Any]) -> tuple[list[Any], list[dict[str, str]]]:
    """Act on each; one that is refused does not keep the others from it."""
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


def _tell_handles(
    ctx: click.Context, word: str, answers: list[Any], problems: list[dict[str, str]], as_json: bool
) -> None:
    # One handle may come twice: named, and as a successor of another.
    handles = list(dict.fromkeys(handle for answer in answers for handle in answer[word]))
    if as_json:
        print_json({word: handles, "problems": problems})
    else:
        for handle in handles:
            click.echo(f"{printable(handle)} {word}")
        if not handles and not problems:
            click.echo(f"none {word}", err=True)
    _finish(ctx, problems, as_json)


def _finish(ctx: click.Context, problems: list[dict[str, str]], as_json: bool) -> None:
    if not as_json:
        for problem in problems:
            name, text = problem["name"], problem["error"] or problem["code"]
            complain(text if text.startswith(f"{name} ") else f"{name}: {text}")
    ctx.exit(ExitCode.FAILED if problems else ExitCode.SUCCESS)
