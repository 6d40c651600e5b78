"""What helps to test this package, and programs built on it, without sleeping and without a network.

    FakeClock        time that stands still until a test moves it
    RecordingPeer    somebody the engine has news for, who writes them down
    check_engine     raises BrokenInvariant if an engine's tables contradict each other
    in_memory        an app with a server in memory, an InMemoryServer, that runs its jobs in the same thread; waiting
                     for what cannot come raises WouldWaitForever

`python -m switchgear.testing.simulation --seed N` plays one history of the deterministic simulation, and
`python -m switchgear.testing.lifecycle_diagram` redraws the diagram of a job's life in the documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from switchgear.lazily import lazy_names

if TYPE_CHECKING:
    from switchgear.testing.clock import FakeClock
    from switchgear.testing.in_memory_server import InMemoryServer, WouldWaitForever, in_memory
    from switchgear.testing.invariants import BrokenInvariant, check_engine
    from switchgear.testing.recording_peer import RecordingPeer

__all__ = [
    "BrokenInvariant",
    "FakeClock",
    "InMemoryServer",
    "RecordingPeer",
    "WouldWaitForever",
    "check_engine",
    "in_memory",
]

# When first used, because pytest loads the plugin in this package in every project that has it installed.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "switchgear.testing.clock": ("FakeClock",),
        "switchgear.testing.in_memory_server": ("InMemoryServer", "WouldWaitForever", "in_memory"),
        "switchgear.testing.invariants": ("BrokenInvariant", "check_engine"),
        "switchgear.testing.recording_peer": ("RecordingPeer",),
    },
)
