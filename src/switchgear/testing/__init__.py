"""Helpers for tests of this package and of programs that use it, without sleeping and without a network.

    FakeClock        a clock that stands still until a test advances it
    RecordingPeer    a peer that records the engine's events
    check_engine     raises BrokenInvariant if an engine's tables contradict each other
    SlowStore        a store whose reads take as long as a test wants, fail, or never end
    in_memory        an app with a server in memory, an InMemoryServer, that runs its jobs in the same thread; waiting
                     for what cannot come raises WouldWaitForever
    replay           runs a job that a server has, by its handle, in this process

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
    from switchgear.testing.replay import replay
    from switchgear.testing.slow_store import SlowStore

__all__ = [
    "BrokenInvariant",
    "FakeClock",
    "InMemoryServer",
    "RecordingPeer",
    "SlowStore",
    "WouldWaitForever",
    "check_engine",
    "in_memory",
    "replay",
]

# Imported when first used, because pytest loads the plugin of this package in every project that has it installed.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "switchgear.testing.clock": ("FakeClock",),
        "switchgear.testing.in_memory_server": ("InMemoryServer", "WouldWaitForever", "in_memory"),
        "switchgear.testing.invariants": ("BrokenInvariant", "check_engine"),
        "switchgear.testing.recording_peer": ("RecordingPeer",),
        "switchgear.testing.replay": ("replay",),
        "switchgear.testing.slow_store": ("SlowStore",),
    },
)
