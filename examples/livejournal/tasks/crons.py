"""The crons: scripts with a command line, whose exit status is the result code."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable
from datetime import date, timedelta

from examples.livejournal.tasks.base import Handler, Task, TaskValue
from examples.livejournal.world import World
from switchgear.joblog import RegisteredTask

__all__ = ["CRONS"]

Script = Callable[[World, list[str]], str]

TABLES = ("users", "friends", "feeds")


def _as_task(script: Script) -> Handler:
    def run(world: World, task: Task) -> TaskValue:
        try:
            return script(world, json.loads(task.args)).encode()
        except SystemExit as end:  # the argument parser's, which has said why on standard error
            return (int(end.code or 0), f"exit status {end.code}".encode())

    return run


def pay_updateaccounts(world: World, argv: list[str]) -> str:
    """Those who have not paid for too long get free accounts."""
    parser = ArgumentParser(prog="pay_updateaccounts")
    parser.add_argument("--grace-days", type=int, default=0)
    options = parser.parse_args(argv)
    paid_since = date.today() - timedelta(days=options.grace_days)
    with world.site() as site:
        count = site.change(
            "UPDATE users SET account = 'free' WHERE account = 'paid' AND paid_until < ?", str(paid_since)
        )
    return f"accounts that are free now: {count}"


def genstats(world: World, argv: list[str]) -> str:
    """Count what there is.  Each count is in the job log too, as a task of its own."""
    parser = ArgumentParser(prog="genstats")
    parser.add_argument("table", nargs="+", choices=TABLES)
    options = parser.parse_args(argv)
    with world.site() as site, world.job_log() as log:
        for table in options.table:
            started = log.register_start_task(RegisteredTask("genstats-count", key=table))
            ((count,),) = site.ask(f"SELECT count(*) FROM {table}")
            site.change("INSERT OR REPLACE INTO statistics VALUES (?, ?)", table, count)
            log.register_task_result(started, result=f"{count} {table}")
    return f"counted {', '.join(options.table)}"


CRONS: dict[str, Handler] = {
    "pay_updateaccounts": _as_task(pay_updateaccounts),
    "genstats": _as_task(genstats),
}
