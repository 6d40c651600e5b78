"""This server beside beanstalkd, both in memory, each with its own protocol.

`background` is `put` there, `drain` is `reserve` and `delete`.  `pass` is both at once: workers wait, and take what
clients submit.  beanstalkd's jobs have no results and no unique ids; ours have both here, and none of it is waited for.
"""

from __future__ import annotations

from dataclasses import replace

from bench import servers
from bench.generators import Load, build, cell
from switchgear.bench.results import Cell

PEERS = (servers.BEANSTALKD, servers.SWITCHGEAR)
WITH_CREDITS = (*PEERS, servers.SWITCHGEAR_CREDITS)
WORKLOADS = (
    ("background x1", Load("background", 40_000), PEERS),
    ("background x32", Load("background", 60_000, 32), PEERS),
    ("drain x1", Load("drain", 40_000), PEERS),
    ("drain x32", Load("drain", 60_000, 32), PEERS),
    ("pass x1", Load("pass", 20_000), WITH_CREDITS),
    ("pass x32", Load("pass", 40_000, 32), WITH_CREDITS),
)
QUICK_PART = 4
ROUNDS = 2


def cells(quick: bool) -> list[Cell]:
    build("gearblast")
    build("beanblast")
    servers.require(*WITH_CREDITS)
    return [
        cell("beanstalk", name, peer, replace(load, jobs=load.jobs // QUICK_PART) if quick else load, ROUNDS)
        for name, load, peers in WORKLOADS
        for peer in peers
    ]
