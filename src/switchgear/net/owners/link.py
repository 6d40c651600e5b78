"""The connections between nodes: `LinkListener` accepts those of other nodes, `NodeLink` opens one to an owner.

Both nodes prove first that they know the cluster's secret (`link_handshake`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from switchgear.net.connections.tls import TlsStream
from switchgear.net.hub import Hub
from switchgear.net.owners.borrowed_jobs import BorrowedJobs
from switchgear.net.owners.link_connection import LinkConnection
from switchgear.net.owners.link_handshake import Accepting, Opening
from switchgear.net.owners.link_session import LinkSession, LinkTransport, RunVerb
from switchgear.net.owners.link_tls import LinkTls
from switchgear.net.owners.messages import (
    AboutAwaited,
    AboutRuns,
    Ask,
    ChannelMessage,
    Message,
    Serves,
    VerbAnswer,
    decode_from_owner,
    decode_to_owner,
)
from switchgear.net.owners.relay import Relay
from switchgear.protocols.pending_read import PendingRead

__all__ = ["LinkListener", "NodeLink"]

# So many peers may be connected that have proven nothing yet: the oldest makes room. A node proves itself at once.
MOST_UNPROVEN: Final = 64


class AcceptedLink(LinkConnection):
    """A connection that another node has opened."""

    def __init__(self, listener: LinkListener) -> None:
        super().__init__(listener.hub.fair_queue, decode_to_owner)
        self._listener = listener
        self._accepting = self._handshake = Accepting(listener.secret, listener.node_id)
        self.session: LinkSession | None = None
        self.node_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        listener = self._listener
        listener.links.add(self)
        listener.unproven[self] = None
        listener.make_room()
        if listener.tls is not None:
            accepted = listener.tls.accepted()
            if accepted is not None:
                self._tls, self._certificate = accepted

    def proven(self) -> None:
        listener = self._listener
        listener.unproven.pop(self, None)
        self.node_id = self._accepting.hello.node_id
        transport = LinkTransport(self, *self._address())
        name = self._accepting.hello.name
        self.begin_turn()
        self.session = LinkSession(listener.hub, listener.relay, listener.run_verb, transport, name)

    def begin_turn(self) -> None:
        self._listener.hub.begin_turn()

    def received(self, message: Any) -> None:
        assert self.session is not None
        self.session.receive(message)

    def failed(self, reason: str) -> None:
        """Report a peer that has proven nothing, or has sent what no node sends: few lines for many of them."""
        host, port = self._address()
        self._listener.hub.telemetry.emit("link_refused", host=host, port=port, reason=reason)

    def _address(self) -> tuple[str, int]:
        assert self._transport is not None
        host, port = (self._transport.get_extra_info("peername") or ("", 0))[:2]
        return host, port

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._listener.links.discard(self)
        self._listener.unproven.pop(self, None)
        if self.session is not None:
            self._listener.hub.begin_turn()
            self.session.closed()


class LinkListener:
    """Accepts links of other nodes."""

    def __init__(
        self, hub: Hub, relay: Relay, run_verb: RunVerb, node_id: int, secret: bytes, tls: LinkTls | None = None
    ) -> None:
        self.tls = tls
        self.hub = hub
        self.run_verb = run_verb
        self.relay = relay
        self.node_id = node_id
        self.secret = secret
        self.links: set[AcceptedLink] = set()
        self.unproven: dict[AcceptedLink, None] = {}  # those without a session, the oldest first
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: AcceptedLink(self), host or None, port)
        return int(self._server.sockets[0].getsockname()[1])

    def make_room(self) -> None:
        """Close the oldest connections of peers that have proven nothing, if there are too many."""
        while len(self.unproven) > MOST_UNPROVEN:
            oldest = next(iter(self.unproven))
            del self.unproven[oldest]
            oldest.abort()

    def keep_only(self, node_ids: set[int]) -> None:
        """Close the links of nodes that are no longer there."""
        for link in [link for link in self.links if link.session is not None and link.node_id not in node_ids]:
            link.abort()

    def sessions(self) -> list[LinkSession]:
        """The sessions of the other nodes that are connected."""
        return [link.session for link in self.links if link.session is not None]

    def close(self) -> None:
        """Close all links, and accept none."""
        if self._server is not None:
            self._server.close()
        for link in list(self.links):
            link.abort()


class NodeLink(LinkConnection):
    """A link to an owner of functions, opened by this node."""

    def __init__(
        self,
        hub: Hub,
        relay: Relay,
        borrowing: BorrowedJobs,
        handshake: Opening,
        tls: TlsStream | None,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called when the link can be used, or no longer."""
        super().__init__(hub.fair_queue, decode_from_owner)
        self._hub = hub
        self._relay = relay
        self._borrowing = borrowing
        self._opening = self._handshake = handshake
        self._tls = tls
        self._on_change = on_change
        self._out: list[Message] = []
        self._is_flush_due = False
        self._loop = asyncio.get_running_loop()
        self._asked: dict[int, PendingRead] = {}
        self._last_number = 0
        self.is_usable = False
        self.is_closed = False
        self.messages_received = 0
        self.is_silent = False  # whether nothing was received since a question that was not answered in time
        self.why_failed = ""
        self.node_id = handshake.to_node_id
        self.served: dict[bytes, tuple[str, int]] = {}

    # --- the beginning ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._tls is not None:
            self.begin_tls()
        else:
            self._write([self._opening.begin()])

    def tls_ready(self) -> None:
        assert self._tls is not None
        self._certificate = self._tls.certificate_digest() or b""
        self._write([self._opening.begin()])

    def proven(self) -> None:
        self._hub.begin_turn()
        self.is_usable = True
        self._on_change()

    def failed(self, reason: str) -> None:
        self.why_failed = reason
        if self.is_usable:
            super().failed(reason)

    # --- messages ---

    def send(self, message: Message) -> None:
        """Send this at the end of the turn."""
        self._out.append(message)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        out, self._out = self._out, []
        if not self.is_closed:
            self.send_messages(out)

    def ask(self, verb: str, arguments: bytes) -> PendingRead:
        """Ask the node to run a verb; the result is a `VerbAnswer`, or None if the link is lost."""
        self._last_number += 1
        read = self._asked[self._last_number] = PendingRead()
        self.send(Ask(self._last_number, verb, arguments))
        return read

    def begin_turn(self) -> None:
        self._hub.begin_turn()

    def received(self, message: Any) -> None:
        self.messages_received += 1
        self.is_silent = False
        if isinstance(message, AboutRuns):
            self._borrowing.told_of_run(self, message)
        elif isinstance(message, ChannelMessage):
            self._relay.channels.received(message)
        elif isinstance(message, AboutAwaited):
            self._relay.edges.received(self, message)
        elif isinstance(message, VerbAnswer):
            read = self._asked.pop(message.number, None)
            if read is not None:
                read.finish(message)
        elif isinstance(message, Serves):
            self.served = {function: (host, port) for function, host, port in message.listeners}
        else:
            self._relay.receive(self, message)

    # --- the end ---

    def abort(self) -> None:
        super().abort()
        self._lost()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._lost()

    def _lost(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.is_usable = False
        self._hub.begin_turn()
        for read in self._asked.values():
            read.finish(None)
        self._asked.clear()
        self._borrowing.link_lost(self)
        self._relay.link_lost(self)
        self._on_change()
