"""What helps to test this package, and programs built on it, without sleeping and without a network.

    FakeClock        time that stands still until a test moves it
    RecordingPeer    somebody the engine has news for, who writes them down
    check_engine     raises BrokenInvariant if an engine's tables contradict each other

`python -m switchgear.testing.simulation --seed N` plays one history of the deterministic simulation, and
`python -m switchgear.testing.diagram` redraws the diagram of a job's life in the documentation.
"""

from __future__ import annotations

from switchgear.testing.clock import FakeClock
from switchgear.testing.invariants import BrokenInvariant, check_engine
from switchgear.testing.peers import RecordingPeer

__all__ = ["BrokenInvariant", "FakeClock", "RecordingPeer", "check_engine"]
