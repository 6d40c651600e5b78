"""Jobs on the disk before they are acknowledged: this server's stores, gearmand's, and beanstalkd's binlog.

What an acknowledgement is worth differs, and only like should be compared with like.  `switchgear-sqlite`,
`switchgear-postgresql`, `gearmand-sqlite` and `beanstalkd-fsync` sync every acknowledged job to the disk;
`switchgear-sqlite-normal` and `beanstalkd-binlog` write it, and leave it to the system when it reaches the disk.

gearmand gets far fewer jobs, because it does a thousand a second at most, and so does beanstalkd with a sync for
each.  At the end of a drain nobody has said whether the last deletions are on the disk yet: the row says what draining
costs, not how safe the end of a job is.
"""

from __future__ import annotations

from dataclasses import replace

from bench import servers
from bench.generators import Load, build, cell
from bench.servers import Peer
from switchgear.bench.results import Cell

SLOW = (servers.GEARMAND_SQLITE, servers.BEANSTALKD_FSYNC)
PEERS = (
    servers.SWITCHGEAR_SQLITE,
    servers.SWITCHGEAR_POSTGRESQL,
    servers.GEARMAND_SQLITE,
    servers.BEANSTALKD_FSYNC,
    servers.SWITCHGEAR_SQLITE_NORMAL,
    servers.BEANSTALKD_BINLOG,
)
# Jobs for those that share a sync among many, and for those that do not.
WORKLOADS = (
    ("background x1", Load("background", 20_000), 400),
    ("background x32", Load("background", 40_000, 32), 400),
    ("drain x1", Load("drain", 20_000), 400),
    ("whole jobs x1", Load("pass", 20_000), 400),
    ("whole jobs x32", Load("pass", 40_000, 32), 400),
    ("one client, background x1", Load("background", 400, clients=1), 200),
)
QUICK_PART = 4
PUSHED = (servers.SWITCHGEAR_SQLITE_CREDITS, servers.SWITCHGEAR_POSTGRESQL_CREDITS)
PUSHED_WORKLOADS = (
    ("whole jobs x1, pushed", Load("pass", 20_000)),
    ("whole jobs x32, pushed", Load("pass", 40_000, 32)),
)
ROUNDS = 3


def cells(quick: bool) -> list[Cell]:
    build("gearblast")
    build("beanblast")
    servers.require(*PEERS)
    found = [
        cell("durable", name, peer, sized(load, peer, slow_jobs, quick), ROUNDS, "jobs_per_second")
        for name, load, slow_jobs in WORKLOADS
        for peer in PEERS
    ]
    for name, load in PUSHED_WORKLOADS:
        for peer in PUSHED:
            found.append(cell("durable", name, peer, sized(load, peer, 0, quick), ROUNDS, "jobs_per_second"))
    return found


def sized(load: Load, peer: Peer, slow_jobs: int, quick: bool) -> Load:
    jobs = slow_jobs if peer in SLOW else load.jobs
    return replace(load, jobs=jobs // QUICK_PART if quick else jobs)
