"""What the size of a payload costs.

`round trip`: the job's result is its whole payload, so that all of it passes the server four times; 8 clients and 8
workers.  `pass`: a background job, taken by a worker that waits, which beanstalkd can do as well.  Every byte that
arrives is compared with what was sent.
"""

from __future__ import annotations

from dataclasses import replace

from bench import servers
from bench.generators import Load, build, cell
from switchgear.bench.results import Cell

ROUND_TRIP_PEERS = (servers.SWITCHGEAR, servers.GEARMAND, servers.GEARMAND_BEST)
PASS_PEERS = (servers.SWITCHGEAR, servers.GEARMAND_BEST, servers.BEANSTALKD.with_options("-z 2000000"))
SIZES = (("100 B", 100, 8_000), ("10 KB", 10_000, 5_000), ("1 MB", 1_000_000, 160))
CONNECTIONS = 8
QUICK_PART = 4
ROUNDS = 2


def cells(quick: bool) -> list[Cell]:
    build("gearblast")
    build("beanblast")
    servers.require(*ROUND_TRIP_PEERS, *PASS_PEERS)
    found = []
    for name, payload_bytes, all_jobs in SIZES:
        jobs = all_jobs // QUICK_PART if quick else all_jobs
        load = Load("pass", jobs, clients=CONNECTIONS, workers=CONNECTIONS, payload_bytes=payload_bytes)
        back = replace(load, workload="foreground", more=("--echo",))
        found += [cell("payloads", f"round trip, {name}", peer, back, ROUNDS) for peer in ROUND_TRIP_PEERS]
        found += [cell("payloads", f"pass, {name}", peer, load, ROUNDS) for peer in PASS_PEERS]
    return found
