"""`switchgear control`: tells running workers to report, drain, restart, resize, or hands them a text."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from switchgear.cli.main import ExitCode
from switchgear.cli.output import (
    complain,
    duration_option,
    insert_nodes,
    json_option,
    print_json,
    print_table,
    server_option,
    text_of,
)
from switchgear.cli.tables import Column
from switchgear.client.gearman.blocking import Client
from switchgear.verbs.permitted_values import WORKER_ACTIONS

__all__ = ["control"]

_PAUSE_SECONDS: Final = 0.05  # between looks at the answers


@click.command(
    epilog="""\b
Examples:
  switchgear control ping
  switchgear control drain web1
  switchgear control restart 'web*'
  switchgear control resize web1/4711/threads --slots 16
  switchgear control broadcast --text 'reload templates'

\b
Exit codes:
  0  every worker has answered, and without an error
  1  no worker was told, one has not answered in time, or one could not do it
"""
)
@click.argument("action", type=click.Choice(WORKER_ACTIONS))
@click.argument("workers", default="*")
@click.option("--slots", type=click.IntRange(1, 10_000), metavar="N", help="With resize: how many jobs run at once.")
@click.option("--text", help="With broadcast: the text that the middleware of the workers is given.")
@duration_option("--wait", "How long to wait for answers. Default: 2.", "2")
@server_option
@json_option("Write one JSON object: told, answered and not_controllable, arrays of workers.")
@click.pass_context
def control(
    ctx: click.Context,
    /,
    action: str,
    workers: str,
    slots: int | None,
    text: str | None,
    wait: float,
    server: str,
    as_json: bool,
) -> None:
    """Tell running workers of Python apps to do something; they answer with their status.

    WORKERS is a name as `switchgear workers` shows it (HOST/PID/threads), the first parts of one (HOST/PID or HOST), a
    pattern with * and ?, or an id. Default: all.

    drain: take no more jobs, let running ones end, and stop. restart: the same, and start again. Both concern the whole
    process. resize: another number of slots, until the worker is restarted. broadcast: call `on_broadcast` of the
    middleware. Other workers, such as those in other languages or over HTTP, cannot be controlled.
    """
    if (slots is None) == (action == "resize"):
        raise click.UsageError("--slots is for resize, which needs it", ctx)
    if (text is None) == (action == "broadcast"):
        raise click.UsageError("--text is for broadcast, which needs it", ctx)
    given = {"slots": slots, "text": text}
    with Client(server) as client:
        answer = client.control(
            "control_workers",
            action=action,
            workers=workers,
            **{name: value for name, value in given.items() if value is not None},
        )
        statuses = _statuses(client, answer, wait, ends_workers=action in ("drain", "restart"))
    ctx.exit(_show(answer, statuses, as_json))


def _key(worker: dict[str, Any]) -> tuple[str, int]:
    """What identifies a worker: its id, among those of its node if there are several."""
    return worker.get("node", ""), worker["id"]


def _statuses(
    client: Client, answer: dict[str, Any], seconds: float, *, ends_workers: bool
) -> dict[tuple[str, int], dict[str, Any]]:
    """The statuses of those that have answered, by the nodes and ids of the workers; a worker that was to end and is
    gone has done what it was told."""
    wanted = {_key(worker) for worker in answer["told"]}
    end = time.monotonic() + seconds
    found: dict[tuple[str, int], dict[str, Any]] = {}
    while wanted - found.keys():
        listed = {_key(worker): worker for worker in client.control("workers")}
        for key in wanted & listed.keys():
            if listed[key]["answered_control"] >= answer["number"]:
                found[key] = listed[key]["status"] or {}
        if ends_workers:
            heard = {"", *(node for node, _ in listed)}  # a node that is not among them may not have answered
            found |= {key: {"stopped": True} for key in wanted - listed.keys() - found.keys() if key[0] in heard}
        if time.monotonic() >= end:
            break
        if wanted - found.keys():
            time.sleep(_PAUSE_SECONDS)
    return found


def _show(answer: dict[str, Any], statuses: dict[tuple[str, int], dict[str, Any]], as_json: bool) -> ExitCode:
    silent = [worker for worker in answer["told"] if _key(worker) not in statuses]
    problems = [status["error"] for status in statuses.values() if status.get("error")]
    if as_json:
        answered = [{**worker, "status": statuses[_key(worker)]} for worker in answer["told"] if worker not in silent]
        print_json({"told": answer["told"], "answered": answered, "not_controllable": answer["not_controllable"]})
    else:
        columns = [Column("ID", right=True), Column("NAME", wrap=True), Column("SLOTS", right=True), Column("ANSWER")]
        rows = [_row(worker, statuses.get(_key(worker))) for worker in answer["told"]]
        insert_nodes(columns, rows, answer["told"])
        print_table(columns, rows)
        if answer["not_controllable"]:
            names = ", ".join(text_of(worker["name"]) or str(worker["id"]) for worker in answer["not_controllable"])
            complain(f"cannot be controlled from the server: {names}")
        if not answer["told"]:
            complain("no worker was told: `switchgear workers` lists them")
    return ExitCode.FAILED if silent or problems or not answer["told"] else ExitCode.SUCCESS


def _row(worker: dict[str, Any], status: dict[str, Any] | None) -> list[str]:
    if status is None:
        return [str(worker["id"]), text_of(worker["name"]), "", "no answer yet"]
    said = status.get("error") or next((word for word in ("stopped", "stopping") if status.get(word)), "ok")
    return [str(worker["id"]), text_of(worker["name"]), str(status.get("slots", "")), str(said)]
