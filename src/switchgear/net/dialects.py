"""Several protocols behind one address, told apart by the first bytes of a connection.

Until it has said enough, a peer talks to a `Greeting`.  That one hands the connection over to the session that
understands it, and is out of the way from then on.  Whoever speaks a protocol of somewhere else, or begins with a line
of text that is no command, is told so and hung up on, and nothing that it sends is obeyed (see net/foreign.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from switchgear.errors import Refused
from switchgear.net.foreign import foreign_protocol, foreign_refusal, is_too_short_to_tell
from switchgear.protocols.base import Context, Session, Wire

__all__ = ["Dialect", "Dialects", "SessionMaker"]

SessionMaker = Callable[[Context, Wire], Session]

# A first line is waited for up to this length.  No command is as long.
MOST_FIRST_LINE_BYTES: Final = 8192


@dataclass(frozen=True, slots=True)
class Dialect:
    """A protocol whose conversations all begin with the same bytes."""

    opening: bytes
    make_session: SessionMaker


def no_refusal(line: bytes) -> bytes:
    """Any line may be the first."""
    return b""


@dataclass(frozen=True, slots=True)
class Dialects:
    """Who may speak at one address: whoever does not begin like one of the `others` speaks the `usual` protocol."""

    usual: SessionMaker
    others: tuple[Dialect, ...] = ()
    spoken: str = ""  # what is spoken here, as a sentence may name it
    own: frozenset[str] = frozenset()  # the names that `foreign_protocol` has for that
    binary: bytes = b"\0"  # a conversation that begins with one of these bytes does not begin with a line of text
    refuse_line: Callable[[bytes], bytes] = no_refusal  # the answer to a first line that is no command, or nothing

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

    def may_be_foreign(self, start: bytes) -> bool:
        """Whether more bytes may show that this is a protocol of somewhere else."""
        if is_too_short_to_tell(start):
            return True
        return start[0] not in self.binary and b"\n" not in start and len(start) < MOST_FIRST_LINE_BYTES


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
        if self.closing:
            return
        self._start += data
        start = self._start
        if not start:
            return
        maker = self._dialects.find(start)
        if maker is None:
            return
        if maker is not self._dialects.usual:
            self._usual.closed()
            self._hand_over(maker(self.context, self.wire))
        elif self._is_welcome(start):
            self._hand_over(self._usual)

    def _is_welcome(self, start: bytes) -> bool:
        """Whether the usual protocol may be spoken from here on.  If not, it is too early to say, or they are told."""
        dialects = self._dialects
        if not dialects.spoken:
            return True
        foreign = foreign_protocol(start, dialects.own)
        if foreign is not None:
            text = f"it speaks {foreign}, and {dialects.spoken} is spoken here"
            self._turn_away("FOREIGN_PROTOCOL", text, foreign_refusal(foreign, dialects.spoken))
            return False
        if dialects.may_be_foreign(start):
            return False
        line = start.partition(b"\n")[0]
        if start[0] in dialects.binary:
            return True
        if len(line) >= MOST_FIRST_LINE_BYTES and dialects.refuse_line is not no_refusal:
            self._turn_away("LINE_TOO_LONG", "its first line is no text command", b"")
            return False
        refusal = dialects.refuse_line(line.removesuffix(b"\r"))
        if refusal:
            self._turn_away("UNKNOWN_COMMAND", "its first line is no text command", refusal)
        return not refusal

    def _turn_away(self, code: str, text: str, answer: bytes) -> None:
        self.context.count_bad_input(self, code, text)
        self._start = b""
        self.closing = True
        if answer:
            self.send(answer)
        self.mark()

    def _hand_over(self, session: Session) -> None:
        start, self._start = self._start, b""
        self.wire.session = session
        session.receive(start)

    @property
    def buffered_bytes(self) -> int:
        return len(self._start)

    def closed(self) -> None:
        self._usual.closed()

    def refusal(self, refused: Refused) -> bytes:
        return self._usual.refusal(refused)
