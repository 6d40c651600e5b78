"""What does it cost that the owner of a function is another node?  Round trips of one client and one worker.

    python -m bench.relayed [--rounds 5] [--trips 1000]

Starts a PostgreSQL and three nodes that each own a part of the functions.  A foreground job makes a round trip: the
client submits it, a worker that is pushed it answers at once, and the client gets the result.  *direct*: client and
worker are connected to the owner.  *relayed*: the client is connected to one other node.  *relayed twice*: the worker
is connected to the third node as well.  The three take turns, so that all of them meet the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from tests.support.postgres import running_postgres

from bench import takeover
from bench.servers import BUILD
from bench.stalls import Connection, packet
from switchgear.partitions import partition_of, preferred_node

NAMES = ("ada", "bob", "cleo")
CAN_DO, PRE_SLEEP, NOOP, SUBMIT_JOB, GRAB_JOB, NO_JOB, JOB_ASSIGN, WORK_COMPLETE = 1, 4, 6, 7, 9, 10, 11, 13
CREDIT, JOB_PUSH = 1007, 1008
JOB_CREATED = 8


class PushedWorker(threading.Thread):
    """Answers each job at once; it has granted credit for one."""

    def __init__(self, port: int, function: str) -> None:
        super().__init__(daemon=True)
        self.connection = Connection(port)
        self.connection.send(packet(CAN_DO, function.encode()), packet(CREDIT, b"1", b"0"))
        self.start()

    def run(self) -> None:
        while True:
            try:
                body = self.connection.receive()
            except (EOFError, OSError, ValueError):
                return
            handle, _, rest = body.partition(b"\0")
            if rest:
                self.connection.send(packet(WORK_COMPLETE, handle, b"done"), packet(CREDIT, b"1", b"0"))


def trips(port: int, function: str, count: int) -> list[float]:
    """How long each of so many round trips took, in ms."""
    connection = Connection(port)
    found = []
    for _ in range(count):
        began = time.perf_counter()
        connection.send(packet(SUBMIT_JOB, function.encode(), b"", b"x" * 100))
        connection.receive()  # JOB_CREATED
        connection.receive()  # WORK_COMPLETE
        found.append((time.perf_counter() - began) * 1000)
    connection.close()
    return found


def function_of(name: str, number: int) -> str:
    names = (f"f{index}" for index in range(100_000))
    mine = [next(names) for _ in range(200)]
    return [each for each in mine if preferred_node(partition_of(each.encode()), NAMES) == name][number]


def measure(options: argparse.Namespace) -> dict[str, object]:
    BUILD.mkdir(exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=BUILD)))
        cluster = stack.enter_context(running_postgres(fsync="on", shared_buffers="128MB"))
        store = cluster.new_url()
        settings = argparse.Namespace(mode="owners", lease=10.0)
        ports = [stack.enter_context(takeover.node(name, store, folder, settings))[1] for name in NAMES]
        takeover.wait_until_settled(ports[0], "owners", NAMES)
        ways = {"direct": (0, 0), "relayed": (1, 0), "relayed twice": (1, 2)}
        functions = {way: function_of(NAMES[0], number) for number, way in enumerate(ways)}
        for way, (_, worker) in ways.items():
            PushedWorker(ports[worker], functions[way])
        time.sleep(1.0)
        found: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, (client, _) in ways.items():
                found[way] += trips(ports[client], functions[way], options.trips)
        medians = {way: statistics.median(each) for way, each in found.items()}
        rows: dict[str, object] = {
            way: {
                "p50, ms": round(medians[way], 3),
                "p99, ms": round(statistics.quantiles(each, n=100)[98], 3),
                "beyond direct, ms": round(medians[way] - medians["direct"], 3),
            }
            for way, each in found.items()
        }
        return rows | {"load": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trips", type=int, default=1000)
    print(json.dumps(measure(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
