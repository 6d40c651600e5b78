"""Gearman jobs in memory: this server beside gearmand, as it is shipped and at its best.

64 client connections and 64 worker connections unless a row says otherwise, 100 bytes of payload, and a different
36-byte unique id on each job, because that is what libgearman sends when nobody asks for anything.  `x1`: a connection
waits for each answer before it sends the next request; `x32`: it keeps 32 requests under way.  What is timed, and what
is checked, is at the head of gearblast.c.

The queue holds 100,000 jobs at most.  gearmand with 991 buckets searches chains that grow with its queue, so it would
look better with a shorter one and much worse with a longer one.
"""

from __future__ import annotations

from dataclasses import replace

from bench import servers
from bench.generators import Load, build, cell
from bench.servers import Peer
from switchgear.bench.results import Cell

QUICK_PART = 4
PEERS = (servers.SWITCHGEAR, servers.GEARMAND, servers.GEARMAND_BEST)
WITH_THREADS_0 = (*PEERS, servers.GEARMAND_THREADS_0)
WITH_CREDITS = (*PEERS, servers.SWITCHGEAR_CREDITS)

WORKLOADS: tuple[tuple[str, Load, tuple[Peer, ...]], ...] = (
    ("background x1", Load("background", 100_000), WITH_THREADS_0),
    ("background x32", Load("background", 100_000, 32), PEERS),
    ("drain x1", Load("drain", 100_000), PEERS),
    ("drain x32", Load("drain", 100_000, 32), PEERS),
    ("foreground x1", Load("foreground", 20_000), (*WITH_THREADS_0, servers.SWITCHGEAR_CREDITS)),
    ("foreground x32", Load("foreground", 40_000, 32), WITH_CREDITS),
    ("lone round trip", Load("foreground", 3_000, clients=1, workers=1), (*WITH_THREADS_0, servers.SWITCHGEAR_CREDITS)),
    ("one client, background x1", Load("background", 10_000, clients=1), PEERS),
    ("one client, background x32", Load("background", 40_000, 32, clients=1), PEERS),
)
# Who is alone waits, and asks how long.
JUDGED_BY = {"lone round trip": "p50_us"}


def cells(quick: bool) -> list[Cell]:
    build("gearblast")
    servers.require(*(peer for _, _, peers in WORKLOADS for peer in peers))
    found = [
        cell("gearman", name, peer, shorter(load) if quick else load, judged_by=JUDGED_BY.get(name, "cpu_us"))
        for name, load, peers in WORKLOADS
        for peer in peers
    ]
    for each in found:
        each.goes_first = True  # most targets are about these
    return found


def shorter(load: Load, part: int = QUICK_PART) -> Load:
    """The same with fewer jobs: to see that it works."""
    return replace(load, jobs=max(1, load.jobs // part))
