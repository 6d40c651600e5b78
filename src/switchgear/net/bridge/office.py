"""What both directions of a bridge share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from switchgear.engine.engine import Engine
from switchgear.model import Function, Worker
from switchgear.net.bridge.deeds import Deeds
from switchgear.net.bridge.setup import BridgeSetup
from switchgear.net.hub import Hub

__all__ = ["FINAL", "PROTOCOL", "Action", "Office"]

PROTOCOL: Final = "gearmonkey bridge"

FINAL: Final = (b"success", b"error")  # how a GearMonkey job ends

Action = Callable[[], None]


@dataclass(slots=True)
class Office:
    """The server, the Redis, and the ways to speak to both."""

    hub: Hub
    setup: BridgeSetup
    server: bytes  # what this run of the server calls itself in Redis
    deeds: Deeds
    say: Callable[[Action], None]  # do this when the turn is over; it speaks to Redis only
    promise: Callable[[Action], None]  # do this when everything that was done until now is kept
    nudge: Action  # there is something to do
    input_bytes: int  # a job with more is not taken
    bridge_workers: set[Worker]  # of all bridges of this server
    is_connected: bool = False
    is_closing: bool = False
    is_cluster: bool = False
    has_new_channels: bool = False  # that should be listened to at once
    identity: bytes = b""  # which Redis it is
    skipped: set[bytes] = field(default_factory=set)  # functions that cannot be bridged, and were complained of

    @property
    def engine(self) -> Engine:
        return self.hub.engine

    @property
    def lease_ms(self) -> int:
        return int(self.setup.lease_seconds * 1000)

    @property
    def unique_prefix(self) -> bytes:
        """How the unique keys of jobs begin that were claimed from this Redis."""
        return b"gearmonkey:%b:" % self.identity

    def workers_of(self, function: Function) -> int:
        """Workers that are no bridges.  A bridge that took another for a worker would send it its own jobs."""
        total = len(function.workers)
        return total - sum(worker in function.workers for worker in self.bridge_workers) if total else 0
