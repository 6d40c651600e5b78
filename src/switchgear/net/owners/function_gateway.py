"""`FunctionGateway`: listeners that only the owner of a function can serve, such as those of dwork.

The tasks of a dwork listener are the jobs of one function, and all its requests concern them. So the node that owns the
function serves the connection, and each other node passes its bytes on to it, as a standby does for all connections
(`net.standby_gateway`). When the function gets another owner the connections are closed; their peers connect again, and
go on as after a restart of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from switchgear.config import LimitsConfig
from switchgear.net.connections.tcp_connection import Connection
from switchgear.net.connections.tcp_listener import TcpListener
from switchgear.net.forwarded_address import SIGNATURE, ForwardedConnection, forwarding_header
from switchgear.net.hub import Hub
from switchgear.net.owners.relay import Relay, RelayLink
from switchgear.net.standby_gateway import PassedConnection, StandbyGateway

__all__ = ["FunctionGateway"]


class FunctionGateway(StandbyGateway):
    """Serves the connections of listeners whose function this node owns, and passes the others on."""

    def __init__(
        self,
        listeners: Mapping[TcpListener, bytes],
        limits: LimitsConfig,
        hub: Hub,
        relay: Relay,
        secret: bytes,
        node_id: int,
    ) -> None:
        super().__init__(list(listeners), limits, hub.engine.memory, hub.telemetry, secret)
        self._functions = list(listeners.values())
        self._relay = relay
        self._node_id = node_id
        self._owners: list[RelayLink | None] = [None] * len(self._functions)
        self._are_ours = [relay.is_ours(function) for function in self._functions]
        for place, listener in enumerate(listeners):
            listener.read_forwarded = partial(self._accept, place)

    def _accept(self, place: int, connection: Connection) -> asyncio.Protocol:
        if self._relay.is_ours(self._functions[place]):
            return ForwardedConnection(self._secret, self._node_id, connection)
        return OncePassedConnection(self, place)

    def follow(self) -> None:
        """Close the connections of functions that have another owner now."""
        for place, function in enumerate(self._functions):
            is_ours = self._relay.is_ours(function)
            owner = self._owner_of(place)
            if self._are_ours[place] and not is_ours:
                for connection in list(self._listeners[place].connections):
                    connection.abort()
            if is_ours or (self._owners[place] is not None and owner is not self._owners[place]):
                for passed in [each for each in self.connections if each.place == place]:
                    passed.abort()
            self._are_ours[place], self._owners[place] = is_ours, owner

    def _owner_of(self, place: int) -> RelayLink | None:
        function = self._functions[place]
        link = self._relay.links.get(self._relay.partition_of(function))
        return link if link is not None and link.node_id != self._node_id else None

    def address_for(self, place: int) -> tuple[str, int] | None:
        """Where the owner of the function listens; None if there is none."""
        owner = self._owner_of(place)
        return None if owner is None else owner.served.get(self._functions[place])

    def header_for(self, host: str, port: int, place: int) -> bytes:
        """The header with the address of a peer, for the owner."""
        owner = self._owner_of(place)
        return b"" if owner is None else forwarding_header(host, port, self._secret, owner.node_id)


class OncePassedConnection(PassedConnection):
    """A connection that is passed on, unless another node has passed it on already: the two do not agree on the owner,
    and would pass it to and fro."""

    def __init__(self, gateway: FunctionGateway, place: int) -> None:
        super().__init__(gateway, place)
        self._start: bytes | None = b""

    def data_received(self, data: bytes) -> None:
        if self._start is not None:
            start = self._start = self._start + data[: len(SIGNATURE)]
            if start.startswith(SIGNATURE):
                self.abort()
                return
            if len(start) >= len(SIGNATURE) or not SIGNATURE.startswith(start):
                self._start = None
        super().data_received(data)
