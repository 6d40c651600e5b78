"""What the server is put through, by name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from torture.run import Run
from torture.scenarios import (
    clock,
    cluster,
    disk_full,
    io_errors,
    kills,
    network,
    owners,
    pauses,
    postgres,
    power,
    simulation,
    soak,
)


class Scenario(NamedTuple):
    """One way to torture a server."""

    play: Callable[[Run], Coroutine[Any, Any, None]]
    share: float  # of the time that all scenarios have together


SCENARIOS = {
    "kills": Scenario(kills.kills, 4),
    "power": Scenario(power.power, 4),
    "io-errors": Scenario(io_errors.io_errors, 2),
    "disk-full": Scenario(disk_full.disk_full, 1.5),
    "clock": Scenario(clock.clock, 1.5),
    "pauses": Scenario(pauses.pauses, 1.5),
    "network": Scenario(network.network, 1.5),
    "postgres": Scenario(postgres.postgres, 4),
    "postgres-failover": Scenario(postgres.postgres_failover, 1),
    "cluster": Scenario(cluster.cluster, 4),
    "owners": Scenario(owners.owners, 4),
    "soak": Scenario(soak.soak, 2),
    "simulation": Scenario(simulation.simulation, 2),
}
