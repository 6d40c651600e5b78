"""A Python task that does nothing, end to end: this library beside Celery, RQ, Dramatiq, Huey, arq, taskiq,
Procrastinate and Dask.

    .venv/bin/python -m bench.tasks                     the cells of the benchmark, three rounds
    .venv/bin/python -m bench.tasks --variants --quick  other settings of the same libraries too

The others run on a real redis-server of their own, in memory, without persistence; so the store to compare them with is
`memory:`, and `sqlite:` (full sync) promises more than they do.  Procrastinate runs on a PostgreSQL with fsync off, and
Dask has its scheduler.  Everybody keeps the result of each task at the broker, for the time that is the library's
default; only Procrastinate has no results, and Dask keeps them at the worker, for as long as the client wants them.
Broker, worker and client are processes of their own.

  bulk        N tasks, submitted in the fastest way that the library has, until the last has run and its result is kept
  round trip  one after the other: submit, wait for the result
  submit      N tasks handed in, without a worker (not Dask, whose client does not wait until the scheduler has them)

That a task has run shows in a byte of shared memory (`task_peers/marks.py`), at the same small price for all; each must
have run exactly once.  `cpu_us` is the broker's; what worker and client use is in the notes, that of the client for
submitting alone, and the sum, which says most on a machine that others use too.  Peers get different numbers of tasks,
so that each is measured for about a second.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from tests.support.postgres import running_postgres

from bench.task_peers import processes
from bench.task_peers.marks import VARIABLE, Marks
from bench.task_peers.processes import (
    Broker,
    Client,
    PeerMissing,
    dask_scheduler,
    peer_program,
    redis_broker,
    tree_cpu_seconds,
)
from switchgear.bench.results import Cell, Reading, run_cells
from switchgear.bench.server import STORES, how_started, running_server

DATABASES = processes.ROOT / "bench" / "build"  # not in /tmp, which may be memory, where a sync costs nothing
QUICK_SHARE = 4
WORKLOADS = ("bulk", "round trip", "submit")
OUR_WORKER = "switchgear worker bench.task_peers.on_switchgear:app --server gearman://127.0.0.1:PORT --quiet"
CELERY_QUIET = "--without-gossip --without-mingle --without-heartbeat --loglevel ERROR"


@dataclass(frozen=True)
class Peer:
    """A library with some settings, and how much of each workload it gets."""

    name: str
    settings: str
    module: str
    worker: str  # the command; PORT is that of the broker
    tasks: Mapping[str, int]  # by workload
    store: str = "redis"  # or our own server with its store: memory, sqlite
    environment: Mapping[str, str] = field(default_factory=dict)
    rounds: int = 3
    is_variant: bool = False  # another setting, to see that those that are shown are the best

    @property
    def is_ours(self) -> bool:
        return self.module == "on_switchgear"


PEERS = (
    Peer(
        "switchgear",
        "worker with 8 threads",
        "on_switchgear",
        f"{OUR_WORKER} --slots 8",
        {"bulk": 20_000, "round trip": 1000, "submit": 40_000},
        store="memory",
    ),
    Peer(
        "switchgear-asyncio",
        "worker with asyncio, 100 at once",
        "on_switchgear",
        f"{OUR_WORKER} --async-slots 100",
        {"bulk": 20_000, "round trip": 1000},
        store="memory",
        environment={"BENCH_ASYNC": "yes"},
    ),
    Peer(
        "switchgear-sqlite",
        "worker with 8 threads",
        "on_switchgear",
        f"{OUR_WORKER} --slots 8",
        {"bulk": 8000, "round trip": 300, "submit": 20_000},
        store="sqlite",
    ),
    Peer(
        "switchgear-sqlite-asyncio",
        "worker with asyncio, 100 at once",
        "on_switchgear",
        f"{OUR_WORKER} --async-slots 100",
        {"bulk": 8000},
        store="sqlite",
        environment={"BENCH_ASYNC": "yes"},
    ),
    Peer(
        "celery",
        "8 threads, prefetch 64 each, acknowledged early, results kept",
        "on_celery",
        f"celery -A bench.task_peers.on_celery worker --pool threads -c 8 {CELERY_QUIET}",
        {"bulk": 600, "round trip": 200, "submit": 1000},
    ),
    Peer(
        "celery-prefork",
        "2 processes (its default pool), prefetch 64 each, acknowledged early, results kept",
        "on_celery",
        f"celery -A bench.task_peers.on_celery worker --pool prefork -c 2 {CELERY_QUIET}",
        {"bulk": 600},
        rounds=2,
        is_variant=True,
    ),
    Peer(
        "celery-solo",
        "in the worker's only thread, prefetch 64, acknowledged early, results kept",
        "on_celery",
        f"celery -A bench.task_peers.on_celery worker --pool solo {CELERY_QUIET}",
        {"bulk": 600, "round trip": 200},
    ),
    Peer(
        "celery-no-results",
        "in the worker's only thread, prefetch 64, acknowledged early, results ignored",
        "on_celery",
        f"celery -A bench.task_peers.on_celery worker --pool solo {CELERY_QUIET}",
        {"bulk": 1000, "submit": 2000},
        environment={"BENCH_RESULTS": "no"},
        is_variant=True,
    ),
    Peer(
        "celery-no-results-threads",
        "as celery, results ignored",
        "on_celery",
        f"celery -A bench.task_peers.on_celery worker --pool threads -c 8 {CELERY_QUIET}",
        {"bulk": 1500},
        environment={"BENCH_RESULTS": "no"},
        is_variant=True,
    ),
    Peer(
        "celery-prefork-8",
        "as celery-prefork, with 8 processes",
        "on_celery",
        f"celery -A bench.task_peers.on_celery worker --pool prefork -c 8 {CELERY_QUIET}",
        {"bulk": 600},
    ),
    Peer(
        "celery-acks-late",
        "as celery, acknowledged late, so that a dying worker loses nothing",
        "on_celery",
        f"celery -A bench.task_peers.on_celery worker --pool threads -c 8 {CELERY_QUIET}",
        {"bulk": 600},
        environment={"BENCH_ACKS_LATE": "yes"},
        is_variant=True,
    ),
    Peer(
        "rq",
        "one SimpleWorker, which does not fork, results kept",
        "on_rq",
        "rq worker --url redis://127.0.0.1:PORT --worker-class rq.SimpleWorker --quiet default",
        {"bulk": 400, "round trip": 150, "submit": 4000},
    ),
    Peer(
        "rq-forking",
        "its default worker, which forks for each task, results kept",
        "on_rq",
        "rq worker --url redis://127.0.0.1:PORT --quiet default",
        {"bulk": 40},
        rounds=2,
        is_variant=True,
    ),
    Peer(
        "rq-pool",
        "pool of 2 SimpleWorkers, results kept",
        "on_rq",
        "rq worker-pool --url redis://127.0.0.1:PORT --num-workers 2 --worker-class rq.SimpleWorker --quiet default",
        {"bulk": 600},
    ),
    Peer(
        "dramatiq",
        "1 process with 8 threads, results kept",
        "on_dramatiq",
        "dramatiq bench.task_peers.on_dramatiq --processes 1 --threads 8",
        {"bulk": 1500, "round trip": 200, "submit": 2500},
    ),
    Peer(
        "dramatiq-processes",
        "2 processes with 8 threads each, results kept",
        "on_dramatiq",
        "dramatiq bench.task_peers.on_dramatiq --processes 2 --threads 8",
        {"bulk": 1500, "round trip": 300},
    ),
    Peer(
        "dramatiq-prefetch",
        "as dramatiq, prefetch 1000",
        "on_dramatiq",
        "dramatiq bench.task_peers.on_dramatiq --processes 1 --threads 8",
        {"bulk": 1500},
        environment={"dramatiq_queue_prefetch": "1000"},
    ),
    Peer(
        "huey",
        "8 threads, results kept",
        "on_huey",
        "huey_consumer bench.task_peers.on_huey.huey -k thread -w 8 -n -q",
        {"bulk": 3000, "submit": 6000},
    ),
    Peer(
        "huey",
        "8 threads, results kept and announced (notify_result)",
        "on_huey",
        "huey_consumer bench.task_peers.on_huey.huey -k thread -w 8 -n -q",
        {"round trip": 300},
        environment={"BENCH_NOTIFY": "yes"},
    ),
    Peer(
        "huey-processes",
        "2 processes, results kept",
        "on_huey",
        "huey_consumer bench.task_peers.on_huey.huey -k process -w 2 -n -q",
        {"bulk": 3000},
        is_variant=True,
    ),
    Peer(
        "huey-processes-8",
        "8 processes, results kept",
        "on_huey",
        "huey_consumer bench.task_peers.on_huey.huey -k process -w 8 -n -q",
        {"bulk": 3000},
    ),
    Peer(
        "arq",
        "100 at once, looks for jobs and results every 5 ms instead of 500, results kept",
        "on_arq",
        "arq bench.task_peers.on_arq.WorkerSettings",
        {"bulk": 600, "round trip": 100, "submit": 1500},
    ),
    Peer(
        "taskiq",
        "1 process, 100 at once, list queue, looks for results every 5 ms instead of 200, results kept",
        "on_taskiq",
        "taskiq worker --workers 1 --log-level ERROR bench.task_peers.on_taskiq:broker",
        {"bulk": 1000, "round trip": 100, "submit": 2500},
    ),
    Peer(
        "procrastinate",
        "10 at once, without results",
        "on_procrastinate",
        "procrastinate --app bench.task_peers.on_procrastinate.app worker --concurrency 10",
        {"bulk": 300, "round trip": 100, "submit": 2000},
        store="postgres",
    ),
    Peer(
        "dask",
        "a worker process with 8 threads, results kept by the worker",
        "on_dask",
        "dask worker tcp://127.0.0.1:PORT --nworkers 1 --nthreads 8 --no-dashboard",
        {"bulk": 1000, "round trip": 200},
        store="dask",
    ),
)


def cells(quick: bool, variants: bool = False) -> list[Cell]:
    """All workloads at all peers; raises PeerMissing if one of them cannot be started."""
    versions = processes.versions()
    return [
        Cell(
            "tasks",
            workload,
            peer.name,
            _settings(peer, versions),
            measure,
            peer.rounds,
            judged_by="p50_us" if workload == "round trip" else "jobs_per_second",
        )
        for workload in WORKLOADS
        for peer in PEERS
        if variants or not peer.is_variant
        for measure in _measuring(peer, workload, quick)
    ]


def _settings(peer: Peer, versions: Mapping[str, str]) -> str:
    if peer.is_ours:
        return f"{how_started(STORES[peer.store])}; {peer.settings}"
    library = peer.module.removeprefix("on_").replace("dask", "distributed")
    brokers = {"redis": f"redis-server {versions['redis-server']}", "postgres": "PostgreSQL with fsync=off"}
    return ", ".join(filter(None, [f"{library} {versions[library]}", brokers.get(peer.store), peer.settings]))


def _measuring(peer: Peer, workload: str, quick: bool) -> Iterator[Callable[[], Reading]]:
    """How to measure it, if the peer takes part."""
    if workload in peer.tasks:
        yield partial(measure, peer, workload, max(1, peer.tasks[workload] // (QUICK_SHARE if quick else 1)))


def measure(peer: Peer, workload: str, tasks: int) -> Reading:
    """Start broker, worker and client, have the workload done once, and stop them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-tasks-")))
        marks = folder / "marks"
        Marks.create(marks, tasks)
        broker = stack.enter_context(running_broker(peer.store, folder))
        environment = environment_of(peer, broker, marks)
        log = stack.enter_context((folder / "log").open("w"))
        prepare_broker(peer, environment, log)
        worker = None
        if workload != "submit":
            worker = stack.enter_context(processes.running(worker_command(peer, broker), environment, log))
        command = [python_of(peer), "-m", "bench.task_peers.client", peer.module, workload, str(tasks)]
        client_process = stack.enter_context(processes.running(command, environment, log, is_heard=True))
        client = Client(client_process, worker, folder / "log")
        watched = {"broker": broker.process_id} | ({"worker": worker.pid} if worker else {})
        before = {name: tree_cpu_seconds(process_id) for name, process_id in watched.items()}
        findings = client.run()
        used = {name: tree_cpu_seconds(process_id) - before[name] for name, process_id in watched.items()}
    return reading_of(findings, tasks, used)


def environment_of(peer: Peer, broker: Broker, marks: Path) -> dict[str, str]:
    """What worker and client find in their environment."""
    return {
        VARIABLE: str(marks),
        "BENCH_PORT": str(broker.port),
        "PYTHONPATH": _module_path(peer),
        **peer.environment,
    }


def prepare_broker(peer: Peer, environment: Mapping[str, str], log: IO[str]) -> None:
    """Make the tables of a library that has some."""
    if peer.store == "postgres":
        program, *rest = peer.worker.split()[:3]
        processes.finish([peer_program(program), *rest, "schema", "--apply"], environment, log)


def python_of(peer: Peer) -> str:
    return sys.executable if peer.is_ours else peer_program("python", peer.module)


def _module_path(peer: Peer) -> str:
    """Ours with what was there, since a compiled server is to meet a compiled worker; the others' without it."""
    inherited = os.environ.get("PYTHONPATH", "") if peer.is_ours else ""
    return os.pathsep.join([str(processes.ROOT), *filter(None, [inherited])])


def reading_of(findings: dict[str, Any], tasks: int, used_seconds: Mapping[str, float]) -> Reading:
    """What the client has found, with the processor time that the others have used."""
    if findings["fault"]:
        return Reading(tasks, 0.0, fault=findings["fault"])
    seconds = {**used_seconds, "client": findings["client_cpu_seconds"]}
    notes = {f"{name} cpu us": used / tasks * 1e6 for name, used in seconds.items()}
    notes["all cpu us"] = sum(notes.values())
    p50_us = p99_us = None
    if "trips" in findings:
        cuts = statistics.quantiles(findings["trips"], n=100)
        p50_us, p99_us = cuts[49] * 1e6, cuts[98] * 1e6
    if "submit_seconds" in findings:
        notes["submitted per second"] = tasks / findings["submit_seconds"]
    return Reading(tasks, findings["seconds"], notes["broker cpu us"], p50_us, p99_us, notes=notes)


@contextmanager
def running_broker(store: str, folder: Path) -> Iterator[Broker]:
    if store == "redis":
        with redis_broker(folder) as broker:
            yield broker
    elif store == "postgres":
        with running_postgres(max_connections=50) as cluster:
            yield Broker(cluster.process_id, cluster.port)
    elif store == "dask":
        with dask_scheduler() as broker:
            yield broker
    else:
        DATABASES.mkdir(parents=True, exist_ok=True)
        with running_server(store, DATABASES) as server:
            yield Broker(server.process_id, server.port)


def worker_command(peer: Peer, broker: Broker) -> list[str]:
    program, *rest = peer.worker.replace("PORT", str(broker.port)).split()
    return [sys.executable, "-m", program, *rest] if program == "switchgear" else [peer_program(program), *rest]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", action="store_true", help="other settings of the same libraries too")
    parser.add_argument("--quick", action="store_true", help="a quarter of the tasks")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default: %(default)s)")
    parser.add_argument("--only", default="", help="only peers whose name contains this")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that what was started is stopped
    try:
        chosen = [cell for cell in cells(options.quick, options.variants) if options.only in cell.peer]
    except PeerMissing as error:
        raise SystemExit(str(error)) from None
    if not chosen:
        parser.error(f"--only: there is no peer with {options.only!r} in its name")
    print(*dict.fromkeys(f"{cell.peer}: {cell.settings}" for cell in chosen), sep="\n", flush=True)
    run_cells(chosen, options.rounds, lambda line: print(line, file=sys.stderr, flush=True), is_exact=True)
    for cell in chosen:
        print(_row(cell))
    raise SystemExit(any(cell.fault for cell in chosen))


def _row(cell: Cell) -> str:
    best = cell.best
    if best is None or cell.fault:
        return f"{cell.workload:11} {cell.peer:26} FAILED: {cell.fault.splitlines()[-1]}"
    trip = f"  p50 {best.p50_us:,.0f} us, p99 {best.p99_us:,.0f} us" if best.p50_us and best.p99_us else ""
    notes = ", ".join(f"{name} {value:,.0f}" for name, value in best.notes.items())
    return f"{cell.workload:11} {cell.peer:26} {best.jobs_per_second:>10,.0f}/s{trip}  {notes}"


if __name__ == "__main__":
    main()
