"""`BridgeContext`: state that both directions of a bridge share: the hub, settings and pending commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from switchgear.engine.engine import Engine
from switchgear.model import Function, Worker
from switchgear.net.bridge.pending_commands import PendingCommands
from switchgear.net.bridge.settings import BridgeSettings
from switchgear.net.hub import Hub

__all__ = ["FINAL", "PROTOCOL", "Action", "BridgeContext"]

PROTOCOL: Final = "gearmonkey bridge"

FINAL: Final = (b"success", b"error")  # the final states of a GearMonkey job

Action = Callable[[], None]


@dataclass(slots=True)
class BridgeContext:
    """The hub, the settings and the state of one bridge, and how to schedule actions."""

    hub: Hub
    setup: BridgeSettings
    server: bytes  # the name of this run of the server in Redis
    commands: PendingCommands
    # Run an action at the end of the turn, or after the commit if a durable change concerns the bridge.
    run_action: Callable[[Action], None]
    run_when_stored: Callable[[Action], None]  # the same for something read elsewhere that may not be stored yet
    wake_sender: Action  # wakes the task that sends commands
    input_bytes: int  # a job with a longer input is refused
    bridge_workers: set[Worker]  # the workers of all bridges of this server
    is_connected: bool = False
    is_closing: bool = False
    is_cluster: bool = False
    has_new_channels: bool = False  # channels to subscribe to at once
    identity: bytes = b""  # identifies this Redis with its data
    skipped: set[bytes] = field(default_factory=set)  # functions that cannot be bridged and were reported

    @property
    def engine(self) -> Engine:
        return self.hub.engine

    @property
    def lease_ms(self) -> int:
        return int(self.setup.lease_seconds * 1000)

    @property
    def unique_prefix(self) -> bytes:
        """The prefix of the unique keys of jobs claimed from this Redis."""
        return b"gearmonkey:%b:" % self.identity

    def workers_of(self, function: Function) -> int:
        """Workers of a function that are not bridges. Two bridges that took each other for workers would exchange jobs
        forever.
        """
        total = len(function.workers)
        return total - sum(worker in function.workers for worker in self.bridge_workers) if total else 0
