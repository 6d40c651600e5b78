"""What a long queue costs: submitting and draining while many jobs wait, the memory of each, and a start with all.

    .venv/bin/python -m bench.depth --deep          the same with ten million, some minutes and 10 GB of memory

A queue is filled (not timed), then so many further jobs are submitted, then as many drained; 64 clients and workers,
32 requests under way at each.  `bytes per queued job` is what the server has grown by while it was filled, divided by
the jobs.  `restart` is from the start of a server's process to its first answer, with the database that the one before
has left behind; afterwards all jobs must be there.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from bench import servers
from bench.generators import BYTES_PER_JOB, Load, blast, build, reading_of
from bench.servers import BenchError, Peer, running, temporary_folder
from switchgear.bench.results import Cell, Reading, run_cells

DEPTHS = (10_000, 100_000, 1_000_000)
QUICK_DEPTHS = (10_000, 100_000)
DEEP = 10_000_000
FURTHER = 20_000
FEW_ROUNDS_FROM = 100_000
PEERS = (servers.SWITCHGEAR, servers.SWITCHGEAR_SQLITE, servers.GEARMAND_BEST)
FUNCTION = b"gearblast"
LIMIT_SECONDS = 900


class DeepQueue:
    """One run that several cells share: a queue is filled once for submitting, draining and starting again."""

    def __init__(self, peer: Peer, depth: int) -> None:
        self.peer = peer
        self.depth = depth
        self._found: dict[str, Reading] = {}

    @property
    def parts(self) -> tuple[str, ...]:
        submitted, drained = "background x32", "drain x32"
        return (submitted, drained, "restart") if self.peer.is_durable else (submitted, drained)

    def measure(self, part: str) -> Reading:
        if part not in self._found:
            self._found = self._measure_all()
        return self._found.pop(part)

    def _measure_all(self) -> dict[str, Reading]:
        load = Load("depth", FURTHER, 32, more=("--queued", str(self.depth)), limit_seconds=LIMIT_SECONDS)
        with temporary_folder(self.peer.name) as folder:
            with running(self.peer, folder if self.peer.is_durable else None) as server:
                raw = blast(server, load)
            fault = raw["fault"]
            submitted, drained = reading_of(raw), reading_of(raw["drained"], fault)
            grown_bytes = (raw["server_rss_filled_kb"] - raw["server_rss_empty_kb"]) * 1024
            for reading in (submitted, drained):
                reading.notes[BYTES_PER_JOB] = round(grown_bytes / self.depth, 1)
            found = {"background x32": submitted, "drain x32": drained}
            if self.peer.is_durable:
                found["restart"] = Reading(0, 0.0, fault=fault) if fault else self._measure_restart(folder)
        return found

    def _measure_restart(self, folder: Path) -> Reading:
        try:
            with running(self.peer, folder) as server:
                return restart_reading(server, self.depth)
        except BenchError as error:  # what was found before it still holds
            return Reading(0, 0.0, fault=str(error))


def restart_reading(server: servers.Server, depth: int) -> Reading:
    cpu_us = server.cpu_seconds / depth * 1e6
    held = jobs_in(server)
    fault = "" if held == depth else f"after the start there are {held:,} jobs where {depth:,} are expected"
    return Reading(
        depth, server.ready_seconds, cpu_us, notes={"seconds to the first answer": server.ready_seconds}, fault=fault
    )


def jobs_in(server: servers.Server) -> int:
    """Unfinished jobs, by the text command `status`."""
    for line in server.ask(b"status\n").splitlines():
        name, _, rest = line.partition(b"\t")
        if name == FUNCTION:
            return int(rest.split(b"\t")[0])
    return 0


def cells(quick: bool, depths: tuple[int, ...] | None = None) -> list[Cell]:
    build("gearblast")
    servers.require(*PEERS)
    found = []
    for depth in depths or (QUICK_DEPTHS if quick else DEPTHS):
        rounds = 1 if depth >= FEW_ROUNDS_FROM else 2
        for peer in PEERS:
            if peer is servers.GEARMAND_BEST and depth >= DEEP:
                continue  # it has 200,003 buckets, and would be measured searching them
            queue = DeepQueue(peer, depth)
            for part in queue.parts:
                name = f"{part}, {depth:,} queued"
                found.append(Cell("depth", name, peer.name, peer.settings, partial(queue.measure, part), rounds))
    return found


def main() -> int:
    parser = argparse.ArgumentParser("python -m bench.depth", description="What a long queue costs.")
    parser.add_argument("--deep", action="store_true", help=f"with {DEEP:,} jobs, which takes minutes and some 10 GB")
    options = parser.parse_args()
    servers.end_on_termination()
    try:
        found = cells(False, (DEEP,) if options.deep else None)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    run_cells(found, 1, lambda text: print(text, flush=True))
    for cell in found:
        best = cell.best
        if best is not None:
            print(cell.name, {name: value for name, value in best.notes.items() if "cpu" not in name})
    return 1 if any(cell.fault for cell in found) else 0


if __name__ == "__main__":
    sys.exit(main())
