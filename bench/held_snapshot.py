"""What does it cost that another session of PostgreSQL holds a snapshot, as a backup does?

    python -m bench.held_snapshot [--seconds 600] [--jobs 20000]

Runs rounds of whole durable jobs (64 clients, 64 workers) on one server with PostgreSQL: some without, then for so many
seconds while a snapshot is held, then some without again.  Prints the median rate of each part.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import replace

import psycopg
from tests.support.postgres import running_postgres

from bench import servers
from bench.generators import Load, blast

ROUNDS = 5


def measure(options: argparse.Namespace) -> dict[str, object]:
    with running_postgres(fsync="on", shared_buffers="128MB") as cluster:
        url = cluster.new_url()
        peer = replace(servers.SWITCHGEAR_POSTGRESQL, options=f"--store {url}")
        with servers.running(peer) as server:

            def rate() -> float:
                raw = blast(server, Load("pass", options.jobs))
                return float(raw["jobs"] / raw["seconds"])

            rate()
            before = [rate() for _ in range(ROUNDS)]
            held: list[float] = []
            with psycopg.connect(url) as holder:
                holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT count(*) FROM sg_meta")
                until = time.monotonic() + options.seconds
                while time.monotonic() < until or len(held) < ROUNDS:
                    held.append(rate())
            after = [rate() for _ in range(ROUNDS)]
    found = {"before": before, "held, first rounds": held[:ROUNDS], "held, last rounds": held[-ROUNDS:], "after": after}
    medians: dict[str, object] = {name: round(statistics.median(rates)) for name, rates in found.items()}
    return medians | {"jobs while held": len(held) * options.jobs, "load": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=20_000)
    print(json.dumps(measure(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
