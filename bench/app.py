"""What the Python API costs: round trips, bulk submission, jobs a second, memory of a map, and a worker's death.

    .venv/bin/python bench/app.py                          everything, three rounds, some minutes
    .venv/bin/python bench/app.py --only trips,bulk        some of: trips bulk flow map loss
    .venv/bin/python bench/app.py --only map --items 1000000

The server is `switchgear serve` with one listener, and the worker `switchgear worker app:app`, whose tasks are in this
file: processes of their own, as a user has them.  `memory:` keeps jobs in the server's memory, `sqlite:` in a file with
full sync, below `--dir`.  Each round visits everything before the next one begins, so that a slow minute hits all; the
best round is shown, and how far the worst was from it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from switchgear import App, Client, Task, Worker, current_job
from switchgear.bench.server import listen_addresses
from switchgear.version import VERSION

HERE = Path(__file__).resolve().parent
STORES = ("memory", "sqlite")
PATIENCE_SECONDS = 120.0
LINGER_SECONDS = 60.0
WARM_UP = 50


# --- the tasks ---


def nothing(number: int) -> int:
    return number


async def nothing_async(number: int) -> int:
    return number


def nothing_in_a_process(number: int) -> int:
    return number


def outlive_a_worker() -> float:
    """The first attempt says in which process it is, to be killed there; the second tells when it started."""
    job = current_job()
    if job.attempt > 1:
        return time.time()
    job.progress(0, 1, str(os.getpid()))
    job.wait_cancelled(LINGER_SECONDS)
    return 0.0


class Tasks:
    """The tasks, on any server."""

    def __init__(self, url: str | None = None) -> None:
        self.app = App(url)
        self.nothing = self.app.task(name="nothing")(nothing)
        self.nothing_async = self.app.task(name="nothing_async")(nothing_async)
        self.nothing_in_a_process = self.app.task(name="nothing_in_a_process", run_in="process")(nothing_in_a_process)
        self.outlive_a_worker = self.app.task(name="outlive_a_worker")(outlive_a_worker)

    def by_name(self, name: str) -> Task[[int], int]:
        return self.app.tasks[name]


app = Tasks().app  # for the worker; it is told by --server where to work


# --- processes ---


@dataclass
class Server:
    """A running server, and its tasks as a client sees them."""

    process: subprocess.Popen[str]
    url: str
    tasks: Tasks

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)


def cpu_seconds(process_id: int) -> float:
    return time.clock_gettime((~process_id << 3) | 2)  # the CPU clock of another process, all its threads together


@contextmanager
def running_server(store: str, folder: Path) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="app-bench-", dir=folder) as place:
        url = f"sqlite:{Path(place) / 'jobs.db'}" if store == "sqlite" else "memory:"
        command = [sys.executable, "-m", "switchgear", "serve", "--store", url, "--sync", "full"]
        command += ["--listen", "gearman://127.0.0.1:0", "--log-level", "error"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            (address,) = listen_addresses(process, 1)
            server = Server(process, address, Tasks(address))
            try:
                yield server
            finally:
                server.tasks.app.close()
        finally:
            process.kill()
            process.wait()


@contextmanager
def running_worker(server: Server, *options: str) -> Iterator[int]:
    """A worker of this file's tasks; its process id."""
    command = [sys.executable, "-m", "switchgear", "worker", "app:app", "--server", server.url, "--quiet", *options]
    process = subprocess.Popen(command, cwd=HERE)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@contextmanager
def running_plain_worker(server: Server, slots: int) -> Iterator[int]:
    """A worker that uses none of our extensions: it asks for each job, sleeps when there is none, and is woken."""
    process = multiprocessing.get_context("spawn").Process(target=work_plainly, args=(server.url, slots), daemon=True)
    process.start()
    try:
        assert process.pid is not None
        yield process.pid
    finally:
        process.kill()
        process.join()


def work_plainly(url: str, slots: int) -> None:
    import uvloop

    async def nothing(job: Any) -> bytes:
        return str(json.loads(job.payload)["number"]).encode()

    async def work() -> None:
        await Worker(url, {"nothing": nothing}, slots).run()

    uvloop.run(work())


# --- round trips ---


@dataclass(frozen=True)
class Trips:
    """How long some round trips took, and what they cost the server."""

    seconds: list[float]
    server_us: float | None  # None: the server has no process of its own

    def cells(self) -> list[str]:
        cuts = statistics.quantiles(self.seconds, n=100)
        return [f"{cuts[place - 1] * 1000:.2f}" for place in (50, 90, 99)]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.seconds) * 1000


def timed(trip: Callable[[int], object], count: int, server: Server | None = None) -> Trips:
    for number in range(WARM_UP):
        trip(number)
    before = server.cpu_seconds if server else 0.0
    seconds = []
    for number in range(count):
        start = time.perf_counter()
        trip(number)
        seconds.append(time.perf_counter() - start)
    return Trips(seconds, (server.cpu_seconds - before) / count * 1e6 if server else None)


async def timed_async(task: Task[[int], int], count: int, server: Server) -> Trips:
    async def some(count: int) -> AsyncIterator[float]:
        for number in range(count):
            start = time.perf_counter()
            assert await (await task.submit_async(number)) == number
            yield time.perf_counter() - start

    async for _ in some(WARM_UP):
        pass
    before = server.cpu_seconds
    seconds = [each async for each in some(count)]
    return Trips(seconds, (server.cpu_seconds - before) / count * 1e6)


def round_of_trips(folder: Path, count: int) -> Iterator[tuple[str, Trips]]:
    for store in STORES:
        with running_server(store, folder) as server:
            for what, trips in trips_to(server, count, is_plain_too=store == "memory"):
                yield f"{store}: {what}", trips
    with tempfile.TemporaryDirectory(prefix="app-bench-", dir=folder) as place, App(f"embedded:{place}") as app:
        task = app.task(name="nothing")(nothing)
        yield "embedded, all in one process", timed(lambda number: task.submit(number).result(), count)


def trips_to(server: Server, count: int, is_plain_too: bool) -> Iterator[tuple[str, Trips]]:
    task = server.tasks.nothing
    fleeting = task.options(durable=False)

    def trip(number: int) -> None:
        assert task.submit(number).result(PATIENCE_SECONDS) == number

    with running_worker(server, "--slots", "1", "--functions", "nothing"):
        yield "submit, result", timed(trip, count, server)
        yield "the same with asyncio", asyncio.run(timed_async(task, count, server))
        yield "not durable", timed(lambda number: fleeting.submit(number).result(), count, server)
    if is_plain_too:
        with running_plain_worker(server, 1):
            yield "plain worker: sleep, wake, grab", timed(trip, count, server)
        with running_plain_worker(server, 1), Client(server.url) as client:
            plain_trip = timed(lambda number: client.submit("nothing", b'{"number":%d}' % number).wait(), count, server)
            yield "plain worker and client", plain_trip


def measure_trips(options: argparse.Namespace) -> None:
    found = rounds(lambda: round_of_trips(options.dir, options.trips), options.rounds)
    print(f"\nRound trips of a task that does nothing, {options.trips:,} one after the other, ms")
    print(f"  {'':42} {'p50':>7} {'p90':>7} {'p99':>7}  {'worst p50':>9}  {'server, µs':>10}")
    for what, all_trips in found.items():
        best = min(all_trips, key=lambda trips: trips.median_ms)
        worst = max(trips.median_ms for trips in all_trips)
        costs = [trips.server_us for trips in all_trips if trips.server_us is not None]
        cost = f"{min(costs):.0f}" if costs else "-"
        print(f"  {what:42} {' '.join(f'{cell:>7}' for cell in best.cells())}  {worst:>9.2f}  {cost:>10}")


# --- bulk submission ---


def rate(jobs: int, work: Callable[[], object]) -> float:
    """Jobs a second."""
    start = time.perf_counter()
    work()
    return jobs / (time.perf_counter() - start)


def round_of_submissions(folder: Path, jobs: int) -> Iterator[tuple[str, float]]:
    for store in STORES:
        with running_server(store, folder) as server:
            for what, figure in submissions_to(server.tasks.nothing, jobs):
                yield f"{store}: {what}", figure


def submissions_to(task: Task[[int], int], jobs: int) -> Iterator[tuple[str, float]]:
    few = max(1, jobs // 10)

    async def submit_together() -> None:
        await asyncio.gather(*(task.submit_async(number) for number in range(few)))

    task.submit(0)
    yield f"submit_many, {jobs:,}", rate(jobs, lambda: task.submit_many(range(jobs)))
    yield f"submit, {few:,} one by one", rate(few, lambda: [task.submit(number) for number in range(few)])
    yield f"submit_async, {few:,} gathered", rate(few, lambda: asyncio.run(submit_together()))


def measure_submissions(options: argparse.Namespace) -> None:
    found = rounds(lambda: round_of_submissions(options.dir, options.jobs), options.rounds)
    print("\nSubmission until the server has acknowledged all, no worker")
    for what, rates in found.items():
        best, worst = max(rates), min(rates)
        print(f"  {what:42} {best:>9,.0f} jobs/s  (worst {worst:,.0f})  {10_000 / best:7.3f} s for 10,000")


# --- jobs a second ---


@dataclass(frozen=True)
class Crew:
    """Who does the jobs."""

    name: str
    task: str
    start: Callable[[Server], AbstractContextManager[int]]


CREWS = (
    Crew("threads, 1 slot", "nothing", lambda server: running_worker(server, "--slots", "1")),
    Crew("threads, 8 slots", "nothing", lambda server: running_worker(server, "--slots", "8")),
    Crew("asyncio, 100 slots", "nothing_async", lambda server: running_worker(server, "--async-slots", "100")),
    Crew("processes, 2", "nothing_in_a_process", lambda server: running_worker(server, "--processes", "2")),
    Crew("plain worker (grab), 1 slot", "nothing", lambda server: running_plain_worker(server, 1)),
    Crew("plain worker (grab), 8 slots", "nothing", lambda server: running_plain_worker(server, 8)),
)


@dataclass(frozen=True)
class Flow:
    jobs_per_second: float
    server_us: float  # CPU for each job
    worker_us: float  # without child processes


def until_empty(server: Server, task: Task[[int], int]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(row.name == task.name and row.ready + row.running for row in server.tasks.app.functions()):
        if time.monotonic() > deadline:
            raise SystemExit(f"{task.name}: the jobs are not done after {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.01)


def measured(server: Server, worker: int, jobs: int, work: Callable[[], object]) -> Flow:
    before, before_worker, start = server.cpu_seconds, cpu_seconds(worker), time.perf_counter()
    work()
    seconds, server_seconds = time.perf_counter() - start, server.cpu_seconds - before
    return Flow(jobs / seconds, server_seconds / jobs * 1e6, (cpu_seconds(worker) - before_worker) / jobs * 1e6)


def end_to_end(server: Server, worker: int, task: Task[[int], int], jobs: int) -> Flow:
    """From the first submission to the last end."""

    def work() -> None:
        task.submit_many(range(jobs))
        until_empty(server, task)

    return measured(server, worker, jobs, work)


def drain(server: Server, worker: int, task: Task[[int], int], jobs: int) -> Flow:
    """The same without the submissions: all jobs wait when the first begins."""
    server.tasks.app.pause(task)
    task.submit_many(range(jobs))

    def work() -> None:
        server.tasks.app.resume(task)
        until_empty(server, task)

    return measured(server, worker, jobs, work)


def round_of_flows(folder: Path, jobs: int) -> Iterator[tuple[str, Flow]]:
    for store in STORES:
        for crew in CREWS:
            with running_server(store, folder) as server, crew.start(server) as worker:
                task = server.tasks.by_name(crew.task)
                for number in range(WARM_UP):
                    task.submit(number).result(PATIENCE_SECONDS)
                yield f"{store}: {crew.name}\0all", end_to_end(server, worker, task, jobs)
                yield f"{store}: {crew.name}\0drain", drain(server, worker, task, jobs)


def measure_flows(options: argparse.Namespace) -> None:
    jobs = max(1, options.jobs // 2)
    found = rounds(lambda: round_of_flows(options.dir, jobs), options.rounds)
    print(f"\n{jobs:,} tasks that do nothing, from submit_many to the last end; and drained, without the submission")
    print("CPU of the server and of the worker's main process for each job, µs")
    header = f"{'jobs/s':>8} {'worst':>7} {'server':>7} {'worker':>7}"
    print(f"  {'':36} {header}    {header.replace('jobs/s', 'drain/s', 1).replace(' drain', 'drain', 1)}")
    for name in dict.fromkeys(what.partition("\0")[0] for what in found):
        cells = []
        for kind in ("all", "drain"):
            flows: list[Flow] = found[f"{name}\0{kind}"]
            rates = [flow.jobs_per_second for flow in flows]
            costs = min(flow.server_us for flow in flows), min(flow.worker_us for flow in flows)
            cells.append(f"{max(rates):>8,.0f} {min(rates):>7,.0f} {costs[0]:>7.1f} {costs[1]:>7.1f}")
        print(f"  {name:36} {'    '.join(cells)}")


# --- memory of a map ---


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def map_over(url: str, items: int, answers: Any) -> None:
    """In a process of its own, whose memory holds nothing else."""
    tasks = Tasks(url)
    with tasks.app:
        assert sum(tasks.nothing.map(range(5_000))) == 5_000 * 4_999 // 2
        before = most = resident_bytes()
        start = time.perf_counter()
        total = 0
        for result in tasks.nothing.map(range(items)):
            total += result
            if result % 1_000 == 0:
                most = max(most, resident_bytes())
        assert total == items * (items - 1) // 2
        answers.put((items / (time.perf_counter() - start), before, most - before))


def round_of_maps(folder: Path, items: int) -> Iterator[tuple[str, tuple[float, int, int]]]:
    spawning = multiprocessing.get_context("spawn")
    with running_server("memory", folder) as server, running_worker(server, "--slots", "8", "--functions", "nothing"):
        answers = spawning.SimpleQueue()
        process = spawning.Process(target=map_over, args=(server.url, items, answers))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit("the map failed")
        yield "map", answers.get()


def measure_maps(options: argparse.Namespace) -> None:
    rows = rounds(lambda: round_of_maps(options.dir, options.items), options.map_rounds)["map"]
    print(f"\nmap over {options.items:,} items, memory: and 8 threads")
    best = max(rows)
    growth = max(row[2] for row in rows)
    print(f"  {best[0]:,.0f} results/s; the client began with {best[1] / 2**20:.1f} MiB, and grew by at most", end=" ")
    print(f"{growth / 2**20:.1f} MiB (all rounds)")


# --- a worker's death ---


def round_of_losses(folder: Path, stores: Sequence[str] = STORES) -> Iterator[tuple[str, float]]:
    for store in stores:
        with running_server(store, folder) as server, ExitStack() as resources:
            options = ("--slots", "1", "--functions", "outlive_a_worker")
            for _ in range(2):
                resources.enter_context(running_worker(server, *options))
            job = server.tasks.outlive_a_worker.submit()
            update = next(iter(job.updates()))
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(server.tasks.app.workers()) < 2:  # the other one is to be there
                if time.monotonic() > deadline:
                    raise SystemExit("there is only one worker")
                time.sleep(0.01)
            killed_at = time.time()
            os.kill(int(update.message), signal.SIGKILL)
            yield store, job.result(PATIENCE_SECONDS) - killed_at


def measure_losses(options: argparse.Namespace) -> None:
    found = rounds(lambda: round_of_losses(options.dir), options.losses)
    print("\nFrom the SIGKILL of a worker to the start of its job at another one")
    for store, seconds in found.items():
        best, middle, worst = min(seconds), statistics.median(seconds), max(seconds)
        figures = f"median {middle * 1000:.1f} ms, best {best * 1000:.1f}, worst {worst * 1000:.1f}"
        print(f"  {store:10} {figures}, of {len(seconds)}")


# --- the whole ---


def rounds(one: Callable[[], Iterator[tuple[str, Any]]], count: int) -> dict[str, list[Any]]:
    """The figures of so many rounds, by what was measured."""
    found: dict[str, list[Any]] = {}
    for _ in range(count):
        for what, figure in one():
            found.setdefault(what, []).append(figure)
    return found


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "trips": measure_trips,
    "bulk": measure_submissions,
    "flow": measure_flows,
    "map": measure_maps,
    "loss": measure_losses,
}


def describe(options: argparse.Namespace) -> None:
    versions = [f"{name} {metadata.version(name)}" for name in ("msgspec", "uvloop")]
    print(
        f"switchgear {VERSION}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}",
        *versions,
        sep=", ",
    )
    print(
        f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"
    )
    print(
        f"sqlite: with full sync in {options.dir or tempfile.gettempdir()}; best of {options.rounds} rounds", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), metavar="A,B", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many is shown")
    parser.add_argument("--trips", type=int, default=1_000, help="round trips of each kind in a round")
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs that are submitted in bulk")
    parser.add_argument("--items", type=int, default=50_000, help="what to map over; 1000000 takes some minutes")
    parser.add_argument("--map-rounds", type=int, default=1, help="how often to map")
    parser.add_argument("--losses", type=int, default=5, help="how many workers to kill for each store")
    parser.add_argument("--dir", type=Path, default=None, help="where databases are kept meanwhile")
    options = parser.parse_args()
    parts = [part.strip() for part in options.only.split(",")]
    if unknown := set(parts) - PARTS.keys():
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    describe(options)
    for part in parts:
        PARTS[part](options)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
