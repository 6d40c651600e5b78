"""The deterministic simulation: a seed determines the whole run of a server, its store, clients and workers.

A random number generator alone decides what happens: clients submit, join, subscribe and leave; workers of every kind
register, take, sleep, wait, report, report twice or late, hang and die; operators cancel, retry and pause; the clock
jumps; the store is slow, fails, and recovers; the server crashes and continues from what was committed. After every
step all invariants are checked, and at the end every job that can finish must finish.

    simulated_cluster.py  the server, its store, clients and workers; steps, commits and crashes
    actions.py            the actions of clients, operators, time and the store; worker_actions.py those of workers
    actors.py             clients and workers, with what each of them expects
    store.py              a store of copies, which loses what was not committed
    history.py            checks the log of every job, and every promise
    limits.py, schedules.py, payload_reads.py  actions and checks of one subject
    simulated_nodes.py    several engines that own partitions of functions, on one database (owners_database.py)
    __main__.py           `python -m switchgear.testing.simulation --seed N` replays one run
"""

from __future__ import annotations

from switchgear.testing.simulation.simulated_cluster import SimulatedCluster, SimulationFailed, simulate

__all__ = ["SimulatedCluster", "SimulationFailed", "simulate"]
