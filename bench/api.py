"""The cells of the Python API: each kind of worker, and what happens when one dies.  `app.py` takes a closer look."""

from __future__ import annotations

import functools
import statistics
from pathlib import Path

from bench.app import CREWS, PATIENCE_SECONDS, WARM_UP, Crew, drain, round_of_losses, running_server
from switchgear.bench.results import Cell, Reading
from switchgear.bench.server import STORES, how_started

BUILD = Path(__file__).resolve().parent / "build"
JOBS = 4_000
QUICK_JOBS = 1_000
FLAGS = "--listen gearman:// --log-level error"


def cells(quick: bool) -> list[Cell]:
    """Jobs that wait, until a worker has done them all; in memory, so that the disk has no say."""
    jobs = QUICK_JOBS if quick else JOBS
    found = [
        Cell(
            "api",
            crew.name,
            "switchgear",
            how_started(f"{STORES['memory']} {FLAGS}"),
            functools.partial(draining, crew, jobs),
            2,
        )
        for crew in CREWS
    ]
    for each in found:
        each.judged_by = "jobs_per_second"
    for store, peer in (("memory", "switchgear"), ("sqlite", "switchgear-sqlite")):
        settings = how_started(f"{STORES[store]} {FLAGS}")
        lost = functools.partial(losing, store)
        found.append(Cell("losses", "a worker is killed, its job starts elsewhere", peer, settings, lost, rounds=1))
    return found


def draining(crew: Crew, jobs: int) -> Reading:
    with running_server("memory", BUILD) as server, crew.start(server) as worker:
        task = server.tasks.by_name(crew.task)
        for number in range(WARM_UP):
            task.submit(number).result(PATIENCE_SECONDS)
        flow = drain(server, worker, task, jobs)
    return Reading(jobs, jobs / flow.jobs_per_second, flow.server_us, notes={"worker cpu us": flow.worker_us})


def losing(store: str) -> Reading:
    """From the SIGKILL to the start; the median of some."""
    seconds = [each for _ in range(3) for _, each in round_of_losses(BUILD, (store,))]
    return Reading(len(seconds), sum(seconds), None, statistics.median(seconds) * 1e6)
