"""Detects the protocol of a connection from its first bytes, where several protocols share one listener.

A new connection has a `DetectingSession`, which reads until the protocol is clear and then hands the connection over to
a session of that protocol. A peer that speaks a foreign protocol (net/connections/foreign_protocols.py), or whose first
line of text is not a command, gets an error and is disconnected; its input has no effect.
"""

from __future__ import annotations

from typing import Final

from switchgear.errors import Refused
from switchgear.net.connections.foreign_protocols import foreign_protocol, foreign_refusal, is_too_short_to_tell
from switchgear.protocols.context import Context
from switchgear.protocols.session import ByteSession
from switchgear.protocols.session_factory import ProtocolDetector, no_refusal
from switchgear.protocols.transport import PeerTransport

__all__ = ["MOST_FIRST_LINE_BYTES", "DetectingSession"]

# The end of the first line is waited for up to this length; no command is longer.
MOST_FIRST_LINE_BYTES: Final = 8192


def may_be_foreign(detector: ProtocolDetector, start: bytes) -> bool:
    """Whether more bytes could show that a connection has a foreign protocol."""
    if is_too_short_to_tell(start, detector.own):
        return True
    return start[0] not in detector.binary and b"\n" not in start and len(start) < MOST_FIRST_LINE_BYTES


class DetectingSession(ByteSession):
    """The session of a connection whose protocol is not known yet.

    It makes the session of the default protocol at once, so that connections that have sent nothing are listed.
    """

    def __init__(self, context: Context, transport: PeerTransport, detector: ProtocolDetector) -> None:
        super().__init__(context, transport)
        self._detector = detector
        self._default = detector.default(context, transport)
        self._start = b""
        self.protocol = self._default.protocol

    def handle_data(self, data: bytes) -> None:
        if self.closing:
            return
        self._start += data
        start = self._start
        if not start:
            return
        maker = self._detector.find(start)
        if maker is None:
            return
        if maker is not self._detector.default:
            self._default.closed()
            self._hand_over(maker(self.context, self.transport))
        elif self._is_accepted(start):
            self._hand_over(self._default)

    def _is_accepted(self, start: bytes) -> bool:
        """Whether to continue with the default protocol. If not, more bytes are needed, or the peer was sent an
        error."""
        detector = self._detector
        if not detector.name:
            return True
        foreign = foreign_protocol(start, detector.own)
        if foreign is not None:
            text = f"it speaks {foreign}, and {detector.name} is spoken here"
            self._refuse("FOREIGN_PROTOCOL", text, foreign_refusal(foreign, detector.name))
            return False
        if may_be_foreign(detector, start):
            return False
        line = start.partition(b"\n")[0]
        if start[0] in detector.binary:
            return True
        if len(line) >= MOST_FIRST_LINE_BYTES and detector.refuse_line is not no_refusal:
            self._refuse("LINE_TOO_LONG", "its first line is no text command", b"")
            return False
        refusal = detector.refuse_line(line.removesuffix(b"\r"))
        if refusal:
            self._refuse("UNKNOWN_COMMAND", "its first line is no text command", refusal)
        return not refusal

    def _refuse(self, code: str, text: str, answer: bytes) -> None:
        self.context.count_bad_input(self, code, text)
        self._start = b""
        self.closing = True
        if answer:
            self.send(answer)
        self.mark()

    def _hand_over(self, session: ByteSession) -> None:
        start, self._start = self._start, b""
        self.transport.session = session
        session.receive(start)

    @property
    def buffered_bytes(self) -> int:
        return len(self._start)

    def awaited_input(self) -> tuple[int, float]:
        awaited, seconds = self._default.awaited_input()
        return (awaited + 1 if self._start else awaited), seconds  # the first bytes, or the rest of the first line

    def silence_timed_out(self) -> None:
        self.closing = True
        self.mark()

    def closed(self) -> None:
        self._default.closed()

    def refusal(self, refused: Refused) -> bytes:
        return self._default.refusal(refused)
