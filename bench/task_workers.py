"""Workers of task libraries: how long one takes from its start to the end of its first task, and its memory when idle.

    .venv/bin/python -m bench.task_workers [--rounds 3] [--only NAME]

A task waits at the broker, and then the worker is started as `bench.tasks` starts it; its first task is over when the
task's mark is set.  Two seconds later the worker is idle, and its memory is read: what is resident of its first
process, and what its child processes do not share.  The least of the rounds is shown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench import tasks
from bench.task_peers import processes
from bench.task_peers.marks import Marks

PEERS = tuple(peer for peer in tasks.PEERS if "round trip" in peer.tasks and peer.store != "sqlite")
IDLE_SECONDS = 2.0
POLL_SECONDS = 0.001


def measure(peer: tasks.Peer) -> tuple[float, float]:
    """Seconds from the start of the worker to the end of its first task, and its bytes when idle."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-workers-")))
        marks = Marks.create(folder / "marks", 1)
        broker = stack.enter_context(tasks.running_broker(peer.store, folder))
        environment = tasks.environment_of(peer, broker, folder / "marks")
        log = stack.enter_context((folder / "log").open("w"))
        tasks.prepare_broker(peer, environment, log)
        python = tasks.python_of(peer)
        client = [python, "-m", "bench.task_peers.client", peer.module, "submit", "1"]
        process = stack.enter_context(processes.running(client, environment, log, is_heard=True))
        start = time.perf_counter()
        if peer.store != "dask":  # whose scheduler drops tasks when nobody waits for them, so its client stays
            processes.Client(process, None, folder / "log").run()
            start = time.perf_counter()
        worker = stack.enter_context(processes.running(tasks.worker_command(peer, broker), environment, log))
        if peer.store == "dask":
            start = time.perf_counter()
            processes.Client(process, worker, folder / "log").run()
        deadline = time.monotonic() + processes.PATIENCE_SECONDS
        while not marks.are_set(1):
            if worker.poll() is not None or time.monotonic() > deadline:
                raise processes.PeerFailed(f"{peer.name}: the first task was not run")
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - start
        time.sleep(IDLE_SECONDS)
        return seconds, processes.tree_memory_bytes(worker.pid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default: %(default)s)")
    parser.add_argument("--only", default="", help="only peers whose name contains this")
    options = parser.parse_args()
    processes.require_peers()
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(options.rounds):
        for peer in PEERS:
            if options.only in peer.name:
                found.setdefault(peer.name, []).append(measure(peer))
                print(peer.name, found[peer.name][-1], file=sys.stderr, flush=True)
    print("| worker | first task, s | memory when idle, MiB |\n|---|---:|---:|")
    for name, readings in found.items():
        seconds, size_bytes = (min(values) for values in zip(*readings, strict=True))
        print(f"| {name} | {seconds:.2f} | {size_bytes / 2**20:.0f} |")


if __name__ == "__main__":
    main()
