"""Several protocols behind one address, told apart by the first bytes of a connection.

Until it has said enough, a peer talks to a `Greeting`.  That one hands the connection over to the session that
understands it, and is out of the way from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from switchgear.errors import Refused
from switchgear.protocols.base import Context, Session, Wire

__all__ = ["Dialect", "Dialects", "SessionMaker"]

SessionMaker = Callable[[Context, Wire], Session]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A protocol whose conversations all begin with the same bytes."""

    opening: bytes
    make_session: SessionMaker


@dataclass(frozen=True, slots=True)
class Dialects:
    """Who may speak at one address: whoever does not begin like one of the `others` speaks the `usual` protocol."""

    usual: SessionMaker
    others: tuple[Dialect, ...]

    def __call__(self, context: Context, wire: Wire) -> Session:
        """A session for a connection that has said nothing yet."""
        return Greeting(context, wire, self)

    def find(self, start: bytes) -> SessionMaker | None:
        """Who is meant by this beginning of a conversation; None: more bytes, please."""
        for dialect in self.others:
            if start.startswith(dialect.opening):
                return dialect.make_session
        if any(dialect.opening.startswith(start) for dialect in self.others):
            return None
        return self.usual


class Greeting(Session):
    """A conversation that has not shown yet what it is.

    The session of the usual protocol is there from the beginning, so that a silent peer is seen where connections are
    listed.
    """

    def __init__(self, context: Context, wire: Wire, dialects: Dialects) -> None:
        super().__init__(context, wire)
        self._dialects = dialects
        self._usual = dialects.usual(context, wire)
        self._start = b""
        self.protocol = self._usual.protocol

    def receive(self, data: bytes) -> None:
        self._start += data
        maker = self._dialects.find(self._start)
        if maker is None:
            return
        session = self._usual
        if maker is not self._dialects.usual:
            self._usual.closed()
            session = maker(self.context, self.wire)
        self.wire.session = session
        session.receive(self._start)

    def closed(self) -> None:
        self._usual.closed()

    def refusal(self, refused: Refused) -> bytes:
        return self._usual.refusal(refused)
