"""What the server is put through, by name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from torture.run import Run
from torture.scenarios import kills, pauses, power


class Scenario(NamedTuple):
    """One way to torture a server."""

    play: Callable[[Run], Coroutine[Any, Any, None]]
    share: float  # of the time that all scenarios have together


SCENARIOS = {
    "kills": Scenario(kills.kills, 3),
    "power": Scenario(power.power, 2),
    "pauses": Scenario(pauses.pauses, 1),
}
