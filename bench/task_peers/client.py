"""The client of one library: it does a workload when it is told to, and says how long it took.

    python -m bench.task_peers.client on_huey bulk 1000

It warms up, writes `ready`, waits for a line, works, and writes its findings as JSON.  So whoever measures can read
the processor time of broker and worker just before and just after.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any, Protocol

from bench.task_peers.marks import Marks, marks_of_this_run

PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.002
WARM_UP_CALLS = 20
WARM_UP_SUBMISSIONS = 10


class Library(Protocol):
    """What the client wants of a library."""

    def submit_many(self, numbers: range) -> Any:
        """Submit the task for each number in the fastest way there is; return the last when the broker has all."""

    def call(self, number: int) -> int:
        """Submit one, wait for its result."""

    def result(self, submitted: Any) -> int | None:
        """The kept result of a task that has ended; None if the library was told to keep none."""

    def kept(self) -> int | None:
        """How many results the broker has; None if the library was told to keep none."""

    def waiting(self) -> int:
        """How many tasks no worker has taken yet."""


def main() -> None:
    module, workload, tasks = sys.argv[1], sys.argv[2], int(sys.argv[3])
    library: Library = import_module(f"bench.task_peers.{module}").Peer()
    marks = marks_of_this_run()
    if workload == "submit":
        library.submit_many(range(tasks, tasks + WARM_UP_SUBMISSIONS))
    else:
        for _ in range(WARM_UP_CALLS):
            library.call(tasks)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return  # whoever wanted to know is gone
    findings = {"submit": submit, "bulk": bulk, "round trip": round_trips}[workload](library, tasks, marks)
    print(json.dumps(findings), flush=True)
    sys.stdin.readline()  # the other end closes when it has read all clocks


def submit(library: Library, tasks: int, marks: Marks) -> dict[str, Any]:
    """Nobody takes them: what it costs to hand them in."""
    start, start_cpu = time.perf_counter(), time.process_time()
    library.submit_many(range(tasks))
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    waiting = library.waiting()
    expected = tasks + WARM_UP_SUBMISSIONS
    fault = "" if waiting == expected else f"{waiting} tasks wait, not {expected}"
    return {"seconds": seconds, "client_cpu_seconds": cpu_seconds, "fault": fault}


def bulk(library: Library, tasks: int, marks: Marks) -> dict[str, Any]:
    """From the first submission until the last task has run and its result is kept."""
    before = library.kept()
    start, start_cpu = time.perf_counter(), time.process_time()
    last = library.submit_many(range(tasks))
    submit_seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (marks.are_set(tasks) and (before is None or (library.kept() or 0) >= before + tasks)):
        if time.monotonic() > deadline:
            return {"fault": marks.fault(tasks) or "the results are not all kept"}
        time.sleep(POLL_SECONDS)
    seconds = time.perf_counter() - start
    fault = marks.fault(tasks)
    if not fault and before is not None and library.result(last) != tasks - 1:
        fault = "the last result is not what the task returned"
    return {
        "seconds": seconds,
        "submit_seconds": submit_seconds,
        "client_cpu_seconds": cpu_seconds,
        "fault": fault,
    }


def round_trips(library: Library, tasks: int, marks: Marks) -> dict[str, Any]:
    """One after the other, each waiting for its result."""
    trips: list[float] = []
    start, start_cpu = time.perf_counter(), time.process_time()
    for number in range(tasks):
        begun = time.perf_counter()
        if library.call(number) != number:
            return {"fault": f"task {number} has a wrong result"}
        trips.append(time.perf_counter() - begun)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    return {"seconds": seconds, "client_cpu_seconds": cpu_seconds, "trips": trips, "fault": marks.fault(tasks)}


if __name__ == "__main__":
    main()
