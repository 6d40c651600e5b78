"""The connections between nodes: `LinkListener` accepts those of other nodes, `NodeLink` opens one to an owner.

A link begins with a challenge, which the node that opens it answers with a proof that it knows the cluster's secret
(HMAC-SHA-256 of both nodes' numbers and a nonce). The bytes that follow are not encrypted.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable
from typing import Any, Final, cast

from switchgear.net.hub import Hub
from switchgear.net.owners.borrowing import Borrowing
from switchgear.net.owners.link_session import LinkSession, LinkTransport, RunVerb
from switchgear.net.owners.messages import (
    Ask,
    Assign,
    Challenge,
    ChannelMessage,
    Framing,
    FromOwner,
    Hello,
    Message,
    Revoke,
    ToOwner,
    VerbAnswer,
    encoded,
)
from switchgear.net.owners.relay import Relay
from switchgear.protocols.pending_read import PendingRead

__all__ = ["LinkListener", "NodeLink"]

log = logging.getLogger("switchgear")

NONCE_BYTES: Final = 32
# A peer that connects and proves nothing is disconnected.
HANDSHAKE_SECONDS: Final = 5.0
LONGEST_HANDSHAKE: Final = 1_000
# So many peers may be connected that have proven nothing yet: the oldest makes room. A node proves itself at once.
MOST_UNPROVEN: Final = 64


def proof_of(secret: bytes, nonce: bytes, owner_id: int, node_id: int) -> bytes:
    """The answer to a challenge, which proves that a node knows the secret."""
    return hmac.digest(secret, b"%b %d %d" % (nonce, owner_id, node_id), "sha256")


class AcceptedLink(asyncio.Protocol):
    """A connection that another node has opened."""

    def __init__(self, listener: LinkListener) -> None:
        self._listener = listener
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._framing = Framing(ToOwner)
        self._transport: asyncio.Transport
        self._received = 0
        self.session: LinkSession | None = None
        self.node_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # that of uvloop is not derived from it
        self._listener.links.add(self)
        self._listener.unproven[self] = None
        self._listener.make_room()
        self._transport.write(encoded(Challenge(self._nonce, self._listener.node_id)))
        loop = asyncio.get_running_loop()
        self._timeout = loop.call_later(HANDSHAKE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self.session is None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.session is None:
            self._received += len(data)
            if self._received > LONGEST_HANDSHAKE and not self._is_hello_there(data):
                self._transport.abort()
                return
        self._listener.hub.begin_turn()
        try:
            for message in self._framing.feed(data):
                if self.session is not None:
                    self.session.receive(message)
                elif not self._begin(message):
                    self._transport.abort()
                    return
        except ValueError as error:
            self._refuse(str(error))
        except Exception:
            log.exception("internal error in a link between nodes")
            self._transport.abort()

    def _refuse(self, reason: str) -> None:
        """Close the connection of a peer that sends what a node does not send, and report it."""
        host, port = self._address()
        self._listener.hub.telemetry.emit("link_refused", host=host, port=port, reason=reason)
        self._transport.abort()

    def _address(self) -> tuple[str, int]:
        host, port = (self._transport.get_extra_info("peername") or ("", 0))[:2]
        return host, port

    def _is_hello_there(self, data: bytes) -> bool:
        """Whether the first message is complete: more may follow it in one piece."""
        return self._received == len(data) and len(data) >= 4 and int.from_bytes(data[:4], "big") <= LONGEST_HANDSHAKE

    def _begin(self, message: Message) -> bool:
        listener = self._listener
        if not isinstance(message, Hello):
            return False
        proof = proof_of(listener.secret, self._nonce, listener.node_id, message.node_id)
        if not hmac.compare_digest(proof, message.proof):
            self._refuse("it does not know the secret of the cluster")
            return False
        self.node_id = message.node_id
        listener.unproven.pop(self, None)
        transport = LinkTransport(self._transport, *self._address())
        self.session = LinkSession(listener.hub, listener.relay, listener.run_verb, transport, message.name)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._timeout.cancel()
        self._listener.links.discard(self)
        self._listener.unproven.pop(self, None)
        if self.session is not None:
            self._listener.hub.begin_turn()
            self.session.closed()


class LinkListener:
    """Accepts links of other nodes."""

    def __init__(self, hub: Hub, relay: Relay, run_verb: RunVerb, node_id: int, secret: bytes) -> None:
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
            oldest.close()

    def keep_only(self, node_ids: set[int]) -> None:
        """Close the links of nodes that are no longer there."""
        for link in [link for link in self.links if link.session is not None and link.node_id not in node_ids]:
            link.close()

    def sessions(self) -> list[LinkSession]:
        """The sessions of the other nodes that are connected."""
        return [link.session for link in self.links if link.session is not None]

    def close(self) -> None:
        """Close all links, and accept none."""
        if self._server is not None:
            self._server.close()
        for link in list(self.links):
            link.close()


class NodeLink(asyncio.Protocol):
    """A link to an owner of functions, opened by this node."""

    def __init__(
        self,
        hub: Hub,
        relay: Relay,
        borrowing: Borrowing,
        own: tuple[int, str],
        secret: bytes,
        on_change: Callable[[], None],
    ) -> None:
        """`own` are the id and name of this node; `on_change` is called when the link can be used, or no longer."""
        self._hub = hub
        self._relay = relay
        self._borrowing = borrowing
        self._own = own
        self._secret = secret
        self._on_change = on_change
        self._framing = Framing(FromOwner)
        self._transport: asyncio.Transport | None = None
        self._out: list[Message] = []
        self._is_flush_due = False
        self._loop = asyncio.get_running_loop()
        self._asked: dict[int, PendingRead] = {}
        self._last_number = 0
        self.is_usable = False
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # that of uvloop is not derived from it

    def send(self, message: Message) -> None:
        """Send this at the end of the turn."""
        self._out.append(message)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        out, self._out = self._out, []
        if self._transport is not None and not self.is_closed:
            self._transport.write(b"".join(map(encoded, out)))

    def ask(self, verb: str, arguments: bytes) -> PendingRead:
        """Ask the node to run a verb; the result is a `VerbAnswer`, or None if the link is lost."""
        self._last_number += 1
        read = self._asked[self._last_number] = PendingRead()
        self.send(Ask(self._last_number, verb, arguments))
        return read

    def data_received(self, data: bytes) -> None:
        self._hub.begin_turn()
        try:
            for message in self._framing.feed(data):
                self._receive(message)
        except ValueError as error:
            log.warning("a link of this node is closed: %s", error)
            self.close()
        except Exception:
            log.exception("internal error in a link between nodes")
            self.close()

    def _receive(self, message: Any) -> None:
        if isinstance(message, Assign):
            self._borrowing.assigned(self, message)
        elif isinstance(message, Revoke):
            self._borrowing.revoked(message)
        elif isinstance(message, ChannelMessage):
            self._relay.channels.received(message)
        elif isinstance(message, VerbAnswer):
            read = self._asked.pop(message.number, None)
            if read is not None:
                read.finish(message)
        elif isinstance(message, Challenge):
            node_id, name = self._own
            proof = proof_of(self._secret, message.nonce, message.node_id, node_id)
            self.send(Hello(node_id, name, proof))
            self.is_usable = True
            self._on_change()
        else:
            self._relay.receive(self, message)

    def close(self) -> None:
        """Close the link at once."""
        if self._transport is not None:
            self._transport.abort()
        self._lost()

    def connection_lost(self, error: Exception | None) -> None:
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
