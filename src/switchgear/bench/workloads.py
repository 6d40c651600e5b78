"""The workloads of `switchgear bench`: this server alone, with a load in Python, in about a minute."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from switchgear.bench import load, tasks
from switchgear.bench.load import Load, LoadResult
from switchgear.bench.results import Cell, Reading
from switchgear.bench.server import STORES, BenchServer, running_server

__all__ = ["GROUPS", "cells"]

PEERS = {"memory": "switchgear", "sqlite": "switchgear-sqlite"}
QUICK_PART = 10  # a quick run has a tenth of the jobs

Measure = Callable[[BenchServer], Reading]


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the report."""

    group: str
    name: str
    measure: Callable[[int], Measure]  # from the number of jobs
    jobs: int
    stores: tuple[str, ...] = ("memory",)


def _reading(jobs: int, outcome: LoadResult) -> Reading:
    times = sorted(outcome.latencies_seconds)
    p50, p99 = (times[len(times) * part // 100] * 1e6 for part in (50, 99)) if times else (None, None)
    cpu_us = None if outcome.cpu_seconds is None else outcome.cpu_seconds / jobs * 1e6
    return Reading(jobs, outcome.seconds, cpu_us, p50, p99)


def _submitting(shape: Load) -> Callable[[int], Measure]:
    def measure(jobs: int, server: BenchServer) -> Reading:
        return _reading(jobs, load.submit(server.port, replace(shape, jobs=jobs), server.cpu_seconds))

    return lambda jobs: functools.partial(measure, jobs)


def _draining(shape: Load) -> Callable[[int], Measure]:
    def measure(jobs: int, server: BenchServer) -> Reading:
        load.submit(server.port, replace(shape, jobs=jobs, outstanding=32, credit=0), server.cpu_seconds)
        return _reading(jobs, load.drain(server.port, replace(shape, jobs=jobs), server.cpu_seconds))

    return lambda jobs: functools.partial(measure, jobs)


def _going_round(shape: Load) -> Callable[[int], Measure]:
    def measure(jobs: int, server: BenchServer) -> Reading:
        return _reading(jobs, load.round_trips(server.port, replace(shape, jobs=jobs), server.cpu_seconds))

    return lambda jobs: functools.partial(measure, jobs)


def _growing(jobs: int) -> Measure:
    """The memory of a queued job, without the first few, with which tables and buffers are allocated."""

    def measure(server: BenchServer) -> Reading:
        load.submit(server.port, Load(jobs // 20, outstanding=32), server.cpu_seconds)
        before = server.resident_bytes()
        outcome = load.submit(server.port, Load(jobs, outstanding=32), server.cpu_seconds, already=jobs // 20)
        after = server.resident_bytes()
        reading = _reading(jobs, outcome)
        if before is None or after is None:
            return reading
        growth = after - before
        return replace(reading, memory_bytes=growth, notes={"bytes per queued job": growth / jobs})

    return measure


def _bulk(jobs: int) -> Measure:
    return lambda server: tasks.bulk(server, jobs)


def _tasks_going_round(jobs: int) -> Measure:
    return lambda server: tasks.round_trips(server, jobs)


_ONE = Load(0, clients=1, workers=1)
_SOME = Load(0)
_KEPT = ("sqlite",)
_BOTH = ("memory", "sqlite")

WORKLOADS = (
    Workload("submit", "background x1", _submitting(_SOME), 30_000),
    Workload("submit", "background x32", _submitting(replace(_SOME, outstanding=32)), 60_000),
    Workload("submit", "background x1, 1 client", _submitting(_ONE), 5_000),
    Workload("drain", "drain x1", _draining(_SOME), 30_000),
    Workload("drain", "drain x32", _draining(replace(_SOME, outstanding=32)), 60_000),
    Workload("foreground", "foreground x1", _going_round(_SOME), 10_000),
    Workload("foreground", "foreground x1, 16 clients", _going_round(Load(0, clients=16, workers=16)), 10_000),
    Workload("foreground", "foreground x32", _going_round(replace(_SOME, outstanding=32)), 30_000),
    Workload("foreground", "foreground x1, jobs pushed", _going_round(replace(_SOME, credit=8)), 10_000),
    Workload("foreground", "lone round trip", _going_round(_ONE), 2_000),
    *(
        Workload("payload", f"{what} of {name}", way(Load(0, clients=16, workers=16, payload_bytes=size)), jobs)
        for name, size, jobs in (("100 B", 100, 10_000), ("10 KB", 10_000, 5_000), ("1 MB", 1_000_000, 100))
        for what, way in (("background", _submitting), ("foreground", _going_round))
    ),
    Workload("durable", "background x1", _submitting(_SOME), 10_000, _KEPT),
    Workload("durable", "background x32", _submitting(replace(_SOME, outstanding=32)), 30_000, _KEPT),
    Workload("durable", "drain x1", _draining(_SOME), 10_000, _KEPT),
    Workload("tasks", "Python tasks in bulk", _bulk, 5_000, _BOTH),
    Workload("tasks", "Python task, lone round trip", _tasks_going_round, 500, _BOTH),
    Workload("memory", "jobs that wait", _growing, 200_000, _BOTH),
)
GROUPS = tuple(dict.fromkeys(workload.group for workload in WORKLOADS))
BY_RATE = ("durable", "tasks")  # there it is waited for disks, and for programs besides the server
ONCE = ("memory",)  # growth is nearly the same each time, and long queues take their time


def cells(groups: tuple[str, ...] = GROUPS, quick: bool = False, directory: Path | None = None) -> list[Cell]:
    """A cell for each workload of these groups and each of its stores."""
    return [
        Cell(
            workload.group,
            workload.name,
            PEERS[store],
            STORES[store],
            _measuring(workload, store, quick, directory),
            rounds=1 if workload.group in ONCE else 100,
            judged_by="jobs_per_second" if workload.group in BY_RATE else "cpu_us",
        )
        for workload in WORKLOADS
        if workload.group in groups
        for store in workload.stores
    ]


def _measuring(workload: Workload, store: str, quick: bool, directory: Path | None) -> Callable[[], Reading]:
    measure = workload.measure(workload.jobs // QUICK_PART if quick else workload.jobs)

    def once() -> Reading:
        with running_server(store, directory) as server:
            return measure(server)

    return once
