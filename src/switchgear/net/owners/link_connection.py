"""`LinkConnection`: one end of a connection between two nodes: its encryption, its handshake, and its messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from switchgear.net.connections.fair_queue import FairQueue
from switchgear.net.connections.tls import TlsFailure, TlsStream
from switchgear.net.owners.link_handshake import Accepting, Opening, Sealing, first_frame
from switchgear.net.owners.messages import Message

__all__ = ["HANDSHAKE_SECONDS", "LinkConnection"]

log = logging.getLogger("switchgear")

# A peer that connects and proves nothing is disconnected.
HANDSHAKE_SECONDS: Final = 5.0


class LinkConnection(asyncio.Protocol):
    """One end of a link. Subclasses say what becomes of its messages."""

    def __init__(self, fair_queue: FairQueue, decode: Callable[[Any], Any]) -> None:
        self._fair_queue = fair_queue
        self._decode = decode
        self._handshake: Accepting | Opening
        self._tls: TlsStream | None = None
        self._certificate = b""  # the digest of that of the node that accepts the link
        self._sealing: Sealing | None = None
        self._held = bytearray()  # of the handshake
        self._encrypted = b""  # of the handshake of TLS
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self.is_over = False

    # --- for subclasses ---

    def proven(self) -> None:
        """The other node has proven that it is one."""
        raise NotImplementedError

    def received(self, message: Any) -> None:
        """Handle a message of the other node."""
        raise NotImplementedError

    def begin_turn(self) -> None:
        """Messages of the other node are about to be handled."""
        raise NotImplementedError

    def failed(self, reason: str) -> None:
        """The connection is closed, because the peer has proven nothing, or has sent what no node sends."""
        log.warning("a link between nodes is closed: %s: %s", self.peer_address, reason)

    # --- the connection ---

    @property
    def peer_address(self) -> str:
        """Where the other end is."""
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{name[0]}:{name[1]}" if name else "unknown address"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # that of uvloop is not derived from it
        self._timeout = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._fail(f"it has proven nothing within {HANDSHAKE_SECONDS:g} s")

    def _fail(self, reason: str) -> None:
        if not self.is_over:
            self.failed(reason)
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_over = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_over = True
        if self._timeout is not None:
            self._timeout.cancel()

    # --- output ---

    def send_messages(self, messages: Sequence[Message]) -> None:
        """Send these to the other node, which is proven."""
        assert self._sealing is not None
        self._write(self._sealing.seal(messages))

    def _write(self, pieces: list[bytes]) -> None:
        transport = self._transport
        if transport is None or self.is_over or not pieces:
            return
        transport.write(b"".join(pieces) if self._tls is None else self._tls.encrypt(pieces))

    # --- input ---

    def data_received(self, data: bytes) -> None:
        tls = self._tls
        if tls is not None and not tls.is_ready:
            # A handshake takes a millisecond. Strangers who connect all the time must not stop the others.
            self._encrypted += data
            assert self._transport is not None
            self._transport.pause_reading()
            self._fair_queue.add(self._go_on_with_tls)
            return
        self._receive(data)

    def _go_on_with_tls(self) -> None:
        data, self._encrypted = self._encrypted, b""
        if not self.is_over and self._transport is not None:
            self._receive(data)
            if not self.is_over:
                self._transport.resume_reading()

    def begin_tls(self) -> None:
        """Send the first bytes of TLS, as the side that has connected."""
        self._receive(b"")

    def tls_ready(self) -> None:
        """The handshake of TLS is complete."""

    def _receive(self, data: bytes) -> None:
        """Handle bytes of the network. Whatever may be wrong with them ends the connection."""
        if self.is_over:
            return
        try:
            self._receive_plain(data if self._tls is None else self._decrypted(self._tls, data))
            if self._tls is not None and self._tls.has_ended:
                self.abort()
        except (ValueError, TlsFailure) as error:
            self._fail(str(error))
        except Exception:
            log.exception("internal error in a link between nodes")
            self.abort()

    def _decrypted(self, tls: TlsStream, data: bytes) -> bytes:
        was_ready = tls.is_ready
        try:
            plain = tls.receive(data)
        finally:
            outgoing = tls.take_outgoing()
            if outgoing and self._transport is not None:
                self._transport.write(outgoing)
        if tls.is_ready and not was_ready:
            self.tls_ready()
        return plain

    def _receive_plain(self, data: bytes) -> None:
        if self._sealing is None:
            self._held += data
            while self._sealing is None:
                frame = first_frame(self._held)
                if frame is None:
                    return
                self._advance(self._handshake.receive(frame, self._certificate))
            data = bytes(self._held)
            self._held.clear()
            if not data:
                return
        self.begin_turn()
        for message in self._sealing.feed(data, self._decode):
            self.received(message)

    def _advance(self, answer: bytes) -> None:
        """Go on with the handshake."""
        if answer:
            self._write([answer])
        self._sealing = self._handshake.sealing
        if self._sealing is not None:
            if self._timeout is not None:
                self._timeout.cancel()
            self.proven()
