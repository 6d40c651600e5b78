"""How long does a takeover with very many queued jobs take, and how long does it hold up the node that takes over?

    python -m bench.takeover [--jobs 1000000] [--mode owners|standby] [--functions 12] [--lease 3]

Starts a PostgreSQL that syncs, and two nodes; fills the queues of one, kills it with SIGKILL, as if it were on another
machine, and measures at the other one, which no other peer uses. In the mode `owners` that node works all the time: a
connection asks it for echoes, and the longest wait is the longest turn, or what the machine did besides.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from tests.support.postgres import running_postgres

from bench.servers import BUILD, HOST, ask, free_port
from bench.stalls import Connection, packet, wait_for_echoes
from switchgear.bench.server import environment
from switchgear.partitions import partition_of, preferred_node

SUBMIT_JOB_BG = 18
NAMES = ("ada", "bob")
SUBMITTED = 1_000
COLUMNS = b"SELECT attname FROM pg_attribute WHERE attrelid = 'sg_job'::regclass AND attnum > 0 AND NOT attisdropped"
READY_SECONDS = 60.0
PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.002


def functions_of(name: str, count: int) -> list[str]:
    """Functions that this node owns while both are there."""
    names = (f"f{number}" for number in range(100_000))
    mine = (each for each in names if preferred_node(partition_of(each.encode()), NAMES) == name)
    return [next(mine) for _ in range(count)]


@contextmanager
def node(
    name: str, store: str, folder: Path, options: argparse.Namespace
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    command = [sys.executable, "-m", "switchgear", "serve", "--listen", f"gearman://{HOST}:{port}", "--store", store]
    settings = [f"cluster.mode={options.mode}", f"cluster.name={name}", f"cluster.lease_seconds={options.lease}"]
    for setting in ("cluster.enabled=true", "cluster.allow_async=true", *settings):
        command += ["--set", setting]
    with (folder / name).open("wb") as log:
        process = subprocess.Popen(
            [*command, "--joblog", "off"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment()
        )
    try:
        until = time.monotonic() + READY_SECONDS
        while ask(port, b"version\n") is None:
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{name} does not answer:\n{(folder / name).read_text()}")
            time.sleep(POLL_SECONDS)
        yield process, port
    finally:
        process.kill()
        process.wait()


def fill(port: int, store: str, functions: list[str], jobs: int) -> float:
    """Submit some jobs, and copy their rows until there are so many: the node that has them is killed anyway.  Returns
    how many seconds that took."""
    connection = Connection(port)
    began = time.monotonic()
    payload = b"x" * 100
    names = [functions[number % len(functions)].encode() for number in range(SUBMITTED)]
    connection.send(*(packet(SUBMIT_JOB_BG, name, b"", payload) for name in names))
    for _ in names:
        connection.receive()
    connection.close()
    with psycopg.connect(store, autocommit=True) as database:
        columns = [row[0] for row in database.execute(COLUMNS).fetchall()]
        others = ", ".join(column for column in columns if column != "id")
        copies = f"generate_series(1, {jobs // SUBMITTED - 1}) AS number"
        select = f"SELECT id + {SUBMITTED} * number, {others} FROM sg_job, {copies}"
        database.execute(f"INSERT INTO sg_job (id, {others}) {select}".encode())
    return time.monotonic() - began


def wait_until_settled(port: int, mode: str, names: tuple[str, ...] = NAMES) -> None:
    """All nodes have what belongs to them."""
    wanted = {name: sum(preferred_node(number, names) == name for number in range(64)) for name in names}
    connection = Connection(port)
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        rows = connection.control("nodes")
        if len(rows) == len(names) and (mode != "owners" or {row["name"]: row["partitions"] for row in rows} == wanted):
            connection.close()
            return
        time.sleep(0.05)
    raise SystemExit(f"the nodes did not settle: {rows}")


def hide_process(store: str) -> None:
    """From now on the other node cannot see that a process of this machine has ended."""
    with psycopg.connect(store, autocommit=True) as connection:
        for table in (b"sg_node", b"sg_lease"):
            connection.execute(b"UPDATE %s SET process = ''" % table)


def accepted_again(port: int, functions: list[str]) -> tuple[float, float]:
    """When the first submission was acknowledged, and when one to each function was."""
    first = 0.0
    until = time.monotonic() + PATIENCE_SECONDS
    for name in functions:
        while True:
            try:
                connection = Connection(port)
                connection.send(packet(SUBMIT_JOB_BG, name.encode(), b"", b"x"))
                connection.receive()
                connection.close()
                break
            except (OSError, EOFError):  # a standby closes connections until there is an owner
                if time.monotonic() > until:
                    raise SystemExit("the other node did not take over") from None
                time.sleep(POLL_SECONDS)
        first = first or time.monotonic()
    return first, time.monotonic()


def measure(options: argparse.Namespace) -> dict[str, object]:
    BUILD.mkdir(exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=BUILD)))
        cluster = stack.enter_context(running_postgres(fsync="on", shared_buffers="128MB"))
        store = cluster.new_url()
        ada, port = stack.enter_context(node(NAMES[0], store, folder, options))
        bob, other = stack.enter_context(node(NAMES[1], store, folder, options))
        wait_until_settled(port, options.mode)
        functions = functions_of(NAMES[0], options.functions)
        fill_seconds = fill(port, store, functions, options.jobs)
        longest = multiprocessing.get_context("fork").Value("d", 0.0)
        echoes = multiprocessing.get_context("fork").Process(target=wait_for_echoes, args=(other, longest), daemon=True)
        if options.mode == "owners":  # a standby would pass the echoes on
            echoes.start()
            time.sleep(1.0)
        quiet = longest.value
        cpu = time.clock_gettime((~bob.pid << 3) | 2)
        hide_process(store)
        began = time.monotonic()
        ada.send_signal(signal.SIGKILL)
        first, all_of_them = accepted_again(other, functions)
        cpu = time.clock_gettime((~bob.pid << 3) | 2) - cpu
        connection = Connection(other)
        queued = sum(row["ready"] for row in connection.control("functions") if row["name"] in functions)
        connection.close()
        result = {
            "mode": options.mode,
            "jobs": options.jobs,
            "filled in, s": round(fill_seconds, 1),
            "first acknowledged after the lease, s": round(first - began - options.lease, 2),
            "all functions after the lease, s": round(all_of_them - began - options.lease, 2),
            "processor time of the adopter, s": round(cpu, 2),
            "jobs found": queued,
            "load": round(os.getloadavg()[0], 1),
        }
        result["log of the adopter"] = (folder / NAMES[1]).read_text().splitlines()[-4:]
        if options.mode == "owners":
            echoes.terminate()
            result |= {
                "longest wait for an echo, ms": round(longest.value * 1000, 1),
                "the same before, ms": round(quiet * 1000, 1),
            }
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--mode", choices=("owners", "standby"), default="owners")
    parser.add_argument("--functions", type=int, default=12)
    parser.add_argument("--lease", type=float, default=3.0)
    print(json.dumps(measure(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
