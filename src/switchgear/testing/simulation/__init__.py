"""The deterministic simulation: one seed is one history of a server, its store, and everybody who talks to it.

A random number generator, and nothing else, decides what happens: clients submit, join, watch and leave; workers of
every kind come, take, sleep, wait, report, report twice or late, hang and die; operators cancel, retry and pause; the
clock jumps; the store is slow, fails, and recovers; the server crashes and goes on from what was committed.  After
every step everything that should always be true is checked, and at the end everything that can finish has to.

    world.py       what exists, one step after another, and what each kind of step does to the engine
    actors.py      clients and workers
    store.py       a store that keeps copies, and loses what was not committed
    history.py     what an onlooker remembers, and would complain about
    __main__.py    `python -m switchgear.testing.simulation --seed N` replays one history
"""

from __future__ import annotations

from switchgear.testing.simulation.simulated_cluster import SimulatedCluster, SimulationFailed, simulate

__all__ = ["SimulatedCluster", "SimulationFailed", "simulate"]
