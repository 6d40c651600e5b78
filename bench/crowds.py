"""Many connections that do nothing.

`sleeping workers`: all can do the same function and sleep; one client submits one job at a time, each when the one
before has ended and everybody who was woken is asleep again.  The note `wake-ups per job` tells how many were woken for
each: one job needs one worker, and whoever wakes all pays for every one of them.  gearmand wakes all unless it is
told `--worker-wakeup=1`.

`idle`: the usual round trips of 64 clients and 64 workers, while a thousand other connections are open and silent.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bench import servers
from bench.generators import Load, blast, build, cell, reading_of
from bench.servers import Peer, running
from switchgear.bench.results import Cell, Reading

IDLE = 1_000
FEW, MANY = 64, 10_000
ROOM = f"--set limits.connections={2 * MANY}"
PEERS = (servers.SWITCHGEAR.with_options(ROOM), servers.GEARMAND_WAKEUP_1, servers.GEARMAND_BEST)
IDLE_PEERS = (servers.SWITCHGEAR, servers.GEARMAND_BEST)
JOBS = 1_500
# For who wakes everybody: ten thousand wake-ups a job take their time.
STAMPEDE_JOBS = {FEW: 300, MANY: 5}
ROUNDS = 2


def cells(quick: bool) -> list[Cell]:
    build("gearblast")
    servers.require(*PEERS, *IDLE_PEERS)
    servers.require_connections(MANY)
    found = []
    for sleepers in (FEW, MANY):
        for peer in PEERS:
            jobs = STAMPEDE_JOBS[sleepers] if peer is servers.GEARMAND_BEST else JOBS
            load = Load("crowd", max(1, jobs // 4) if quick else jobs, clients=1, workers=sleepers)
            name = f"{sleepers:,} sleeping workers"
            found.append(Cell("crowds", name, peer.name, peer.settings, partial(measure, peer, load), ROUNDS))
    still = Load("foreground", 5_000 if quick else 10_000)
    for name, load in ((f"foreground x1, {IDLE:,} idle", with_idle(still, IDLE)), ("foreground x1, none idle", still)):
        found += [cell("crowds", name, peer, load, ROUNDS) for peer in IDLE_PEERS]
    return found


def with_idle(load: Load, count: int) -> Load:
    return replace(load, more=(*load.more, "--idle", str(count)))


def measure(peer: Peer, load: Load) -> Reading:
    with running(peer) as server:
        raw = blast(server, load)
    reading = reading_of(raw)
    if reading.jobs:
        reading.notes["wake-ups per job"] = round(raw["noops"] / reading.jobs, 3)
    grown_bytes = (raw["server_rss_after_kb"] - raw["server_rss_empty_kb"]) * 1024
    reading.notes["bytes per worker"] = round(grown_bytes / load.workers, 1)
    return reading
