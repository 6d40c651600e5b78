"""`--pool`, `--concurrency` and `--autoscale` of `switchgear worker`, as the numbers of slots that they stand for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import click

from switchgear.app.worker.executor_choice import DEFAULT_ASYNC_SLOTS, DEFAULT_SLOTS

__all__ = ["KNOWN_POOLS", "POOLS", "SOLO", "slots_of_pool"]

SOLO: Final = "solo"
# The option that each pool stands for, and its default.
_OPTIONS: Final = {
    "threads": ("slots", "--slots", DEFAULT_SLOTS),
    "processes": ("processes", "--processes", os.cpu_count() or 1),
    "asyncio": ("async_slots", "--async-slots", DEFAULT_ASYNC_SLOTS),
}
_OTHER_NAMES: Final = {"prefork": "processes"}
# Pools of other libraries that replace functions of the standard library by others that switch between green threads.
_GREEN: Final = ("gevent", "eventlet")
POOLS: Final = (*_OPTIONS, SOLO, *_OTHER_NAMES)
KNOWN_POOLS: Final = (*POOLS, *_GREEN)


def slots_of_pool(options: Mapping[str, Any]) -> dict[str, int]:
    """The options that --pool, --concurrency and --autoscale stand for; raises UsageError if they contradict others."""
    pool, concurrency, autoscale = options["pool"], options["concurrency"], options["autoscale"]
    if pool in _GREEN:
        raise click.UsageError(
            f"--pool {pool}: there are no green threads here; write tasks that wait for other machines as `async def`,"
            " of which --pool asyncio runs hundreds at once, or use --pool threads"
        )
    pool = _OTHER_NAMES.get(pool, pool)
    if autoscale is not None:
        if pool not in (None, "processes") or concurrency is not None or options["processes"] is not None:
            raise click.UsageError(
                "--autoscale sets the number of processes; leave out --processes, --concurrency and other pools"
            )
        if pool is None:
            return {"processes": autoscale.most}
        concurrency = autoscale.most
    if pool is None:
        if concurrency is not None:
            raise click.UsageError(f"--concurrency is for a --pool: {', '.join(POOLS)}")
        return {}
    given = [option for name, option, _ in _OPTIONS.values() if options[name] is not None]
    if given:
        raise click.UsageError(f"--pool is another way to write the number of slots; leave out {', '.join(given)}")
    if pool == SOLO:
        if concurrency not in (None, 1):
            raise click.UsageError("--pool solo runs one job at a time; leave out --concurrency")
        return {}
    name, _, default = _OPTIONS[pool]
    return {name: default if concurrency is None else concurrency}
