"""`LocalConnection`: a client of a server in the same process, with no socket between them.

It speaks Gearman with a session of the server, as clients in other processes do, so jobs have the same options,
refusals and results.  Everything here happens in the thread of the server's event loop.
"""

from __future__ import annotations

from typing import Any

from switchgear.client.gearman.client_protocol import ClientProtocol
from switchgear.client.gearman.pending_requests import RoutedRequest
from switchgear.errors import ClientError, ServerUnreachable
from switchgear.net.hub import Hub
from switchgear.protocols.session import ByteSession
from switchgear.protocols.session_factory import SessionMaker
from switchgear.protocols.transport import PeerTransport

__all__ = ["LocalConnection"]


class LocalConnection(PeerTransport):
    """Both ends of the connection: the session's transport, and the client behind it."""

    session: ByteSession

    def __init__(self, hub: Hub, make_session: SessionMaker) -> None:
        self.host = "in-process"
        self._hub = hub
        self._protocol = ClientProtocol("this server")
        self._is_closed = False
        self.session = make_session(hub, self)
        self._protocol.greet()
        self._flush()

    def request(self, request: RoutedRequest) -> None:
        """Send a request, whose future gets the answer."""
        if self._is_closed:
            request.fail(_stopped())
            return
        try:
            request.send(self._protocol)
        except ClientError as error:
            request.fail(error)
            return
        self._flush()

    def disconnect(self) -> None:
        """Tell everybody who waits for something that the server stops."""
        if not self._is_closed:
            self._is_closed = True
            self._hub.begin_turn()
            self.session.closed()
            self._protocol.connection_lost(_stopped())

    def _flush(self) -> None:
        if self._protocol.outgoing:
            self._hub.begin_turn()
            self.session.receive(self._protocol.take_outgoing())

    # --- the session's end ---

    def write(self, out: list[Any]) -> None:
        if not self._is_closed:
            for piece in out:
                self._protocol.receive(piece)

    def close(self) -> None:
        """A session hangs up after bytes that it cannot understand, which are never sent here, and when it stops."""
        self._hub.soon(self.disconnect)

    def is_of_same_user(self) -> bool:
        return True


def _stopped() -> ServerUnreachable:
    return ServerUnreachable("the server in this program was stopped")
