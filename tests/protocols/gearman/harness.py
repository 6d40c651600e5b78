"""A server without a wire: one engine, a clock that stands still, and sessions that talk to it.

It does what the hub does, at once: every `send` is a turn of its own, and what sessions have to say at its end is
written to wires that only remember.  With `keeps=True` the store is taken for durable and every turn for committed.
"""

from __future__ import annotations

from typing import Any, cast

from switchgear.engine.engine import EngineSettings
from switchgear.net.hub import Hub
from switchgear.net.operations.dispatcher import Operations
from switchgear.protocols.gearman.admin import on_line
from switchgear.protocols.gearman.packet_dispatch import handle_messages
from switchgear.protocols.gearman.session import GearmanSession, GearmanSetup
from switchgear.protocols.session import Session
from switchgear.testing.in_memory_context import InMemoryContext
from tests.protocols.recording_transport import RecordingTransport
from tests.support.wire import Message, split_message

PREFIX = b"H:t:"
PACKET_BYTES = 10_000
LINE_BYTES = 256
NAME_BYTES = 64


class FakeTransport(RecordingTransport):
    """A connection of a peer that may have the user of the server."""

    def __init__(self, harness: Harness, descriptor: int) -> None:
        super().__init__(harness)
        self.harness = harness
        self.port = 40_000 + descriptor
        self.descriptor = descriptor
        self.is_of_servers_user = True

    def is_read(self) -> bool:
        return self.harness.peers_read

    def is_of_same_user(self) -> bool:
        return self.is_of_servers_user


class Harness(InMemoryContext):
    """What sessions need of a hub, and a register of who is connected."""

    def __init__(self, *, keeps: bool = False, settings: EngineSettings | None = None, **setup: Any) -> None:
        super().__init__(is_durable=keeps, settings=settings)
        self.bad_input: list[tuple[str, str]] = []  # the name of who sent it, the code
        self.peers_read = True  # and take at once what they are sent
        self.talkers: dict[str, Talker] = {}
        self.operations = Operations(cast(Hub, self), PREFIX.decode())
        self.operator = self.operations
        limits: dict[str, Any] = {"packet_bytes": PACKET_BYTES, "line_bytes": LINE_BYTES, "name_bytes": NAME_BYTES}
        self.setup = GearmanSetup(PREFIX, "test", handle_messages, on_line, **{**limits, **setup})
        self._connected = 0

    def talker(self, name: str) -> Talker:
        """Whoever goes by this name, connected now if not before."""
        if name not in self.talkers:
            self._connected += 1
            self.talkers[name] = Talker(self, name, self._connected)
        return self.talkers[name]

    def pass_time(self, seconds: float) -> None:
        self.engine.advance(self.clock.advance(seconds))
        self.end_turn()

    def count_bad_input(self, session: Session, code: str, text: str) -> None:
        assert text
        names = [name for name, talker in self.talkers.items() if talker.session is session]
        self.bad_input.append((names[0] if names else "", code))


class Talker:
    """One connection, seen from the other end."""

    def __init__(self, harness: Harness, name: str, descriptor: int) -> None:
        self.harness = harness
        self.name = name
        self.wire = FakeTransport(harness, descriptor)
        self.session = self.wire.session = GearmanSession(harness, self.wire, harness.setup)

    def send(self, *packets: bytes) -> None:
        """Send these in one piece, and let the server have its turn."""
        self.harness.engine.advance(self.harness.clock.now_us())
        self.session.receive(b"".join(packets))
        self.harness.end_turn()

    def leave(self) -> None:
        self.session.closed()
        del self.harness.talkers[self.name]
        self.harness.end_turn()

    def stop_sending(self) -> None:
        self.session.eof()
        self.harness.end_turn()

    def take_bytes(self) -> bytes:
        """What was heard since the last time."""
        heard, self.wire.written = self.wire.written, b""
        return heard

    def heard(self) -> list[Message]:
        """The messages heard since the last time."""
        rest = self.take_bytes()
        messages: list[Message] = []
        while rest:
            whole = split_message(rest)
            assert whole is not None, f"half a message: {rest!r}"
            messages.append(whole[0])
            rest = whole[1]
        return messages
