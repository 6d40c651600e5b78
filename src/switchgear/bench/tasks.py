"""The workloads with Python tasks: from `submit_many` to the last end, through a real worker process."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from switchgear.app.app import App
from switchgear.app.task import Task
from switchgear.bench.load import Fault
from switchgear.bench.results import Reading
from switchgear.bench.server import BenchServer, cpu_seconds_of, environment

__all__ = ["app", "bulk", "round_trips"]

PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.002  # how often to ask whether all are done
SLOTS = 8

app = App()  # for the worker; its server is given by --server


@app.task(name="nothing")
def nothing(number: int) -> int:
    return number


@contextmanager
def _working(server: BenchServer) -> Iterator[tuple[Task[[int], int], int]]:
    """The task for submissions, and the process id of a connected worker."""
    command = [sys.executable, "-m", "switchgear", "worker", "switchgear.bench.tasks:app", "--server", server.url]
    command += ["--slots", str(SLOTS), "--quiet"]
    process = subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        with App(server.url) as client:
            task = client.task(name="nothing")(nothing.function)
            for number in range(20):
                if task.submit(number).result(PATIENCE_SECONDS) != number:
                    raise Fault("a task has another result than its own")
            yield task, process.pid
    finally:
        process.kill()
        process.wait()


def bulk(server: BenchServer, jobs: int) -> Reading:
    """Submit all tasks at once, to one worker with eight threads."""
    with _working(server) as (task, worker):
        done_before = _ended(task)
        cpu, worker_cpu, start = server.cpu_seconds(), cpu_seconds_of(worker), time.perf_counter()
        task.submit_many(range(jobs))
        submitted = time.perf_counter()
        while _ended(task) - done_before < jobs:
            if time.perf_counter() - submitted > PATIENCE_SECONDS:
                raise Fault(f"{_ended(task) - done_before:,} of {jobs:,} tasks were done in {PATIENCE_SECONDS:.0f} s")
            time.sleep(LOOK_SECONDS)
        seconds = time.perf_counter() - start
        used, worker_used = (
            _per_job(cpu, server.cpu_seconds(), jobs),
            _per_job(worker_cpu, cpu_seconds_of(worker), jobs),
        )
    notes = {"submitted jobs/s": jobs / (submitted - start)}
    if worker_used is not None:
        notes["worker cpu us"] = worker_used
    return Reading(jobs, seconds, used, notes=notes)


def round_trips(server: BenchServer, jobs: int) -> Reading:
    """Submit one task after the other, and wait for each."""
    with _working(server) as (task, _):
        times: list[float] = []
        cpu, start = server.cpu_seconds(), time.perf_counter()
        for number in range(jobs):
            before = time.perf_counter()
            if task.submit(number).result(PATIENCE_SECONDS) != number:
                raise Fault("a task has another result than its own")
            times.append(time.perf_counter() - before)
        seconds = time.perf_counter() - start
        used = _per_job(cpu, server.cpu_seconds(), jobs)
    cuts = statistics.quantiles(times, n=100)
    return Reading(jobs, seconds, used, cuts[49] * 1e6, cuts[98] * 1e6)


def _per_job(before: float | None, after: float | None, jobs: int) -> float | None:
    return None if before is None or after is None else (after - before) / jobs * 1e6


def _ended(task: Task[[int], int]) -> int:
    """How many jobs the server counts as done; raises Fault if one failed."""
    row = next((row for row in task.app.functions() if row.name == task.name), None)
    if row is None:
        return 0
    if row.failed:
        raise Fault(f"{row.failed:,} tasks failed")
    return row.done
