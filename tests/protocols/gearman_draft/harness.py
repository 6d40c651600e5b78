"""The harness of the modern protocol's tests with the draft at the same listener, detected by its first bytes."""

from __future__ import annotations

from typing import Any

from switchgear.net.connections.protocol_detection import DetectingSession
from switchgear.protocols.context import Context
from switchgear.protocols.gearman.session import GearmanSession
from switchgear.protocols.gearman_draft.codec import MAGIC
from switchgear.protocols.gearman_draft.session import DraftSession, DraftSetup
from switchgear.protocols.session import ByteSession
from switchgear.protocols.session_factory import ProtocolByPrefix, ProtocolDetector
from switchgear.protocols.transport import PeerTransport
from tests.protocols.gearman.harness import NAME_BYTES, PACKET_BYTES, PREFIX, FakeTransport, Harness, Talker
from tests.support.draft_wire import Packet, split_packets


class MixedHarness(Harness):
    """Whoever comes may speak either protocol."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.draft = DraftSetup(PREFIX, PACKET_BYTES, NAME_BYTES, self.setup.sessions)
        self.detector = ProtocolDetector(self._modern, (ProtocolByPrefix(MAGIC, self._draft),))

    def _modern(self, context: Context, transport: PeerTransport) -> ByteSession:
        return GearmanSession(context, transport, self.setup)

    def _draft(self, context: Context, transport: PeerTransport) -> ByteSession:
        return DraftSession(context, transport, self.draft)

    def end_turn(self) -> None:
        super().end_turn()
        if self.engine.changed:  # somebody was hung up on: what that brings about is a turn of its own
            super().end_turn()

    def talker(self, name: str) -> MixedTalker:
        if name not in self.talkers:
            self._connected += 1
            self.talkers[name] = MixedTalker(self, name, self._connected)
        talker = self.talkers[name]
        assert isinstance(talker, MixedTalker)
        return talker


class MixedTalker(Talker):
    """A connection that is yet to show what it speaks."""

    def __init__(self, harness: MixedHarness, name: str, descriptor: int) -> None:
        self.harness = harness
        self.name = name
        self.wire = FakeTransport(harness, descriptor)
        self.wire.session = DetectingSession(harness, self.wire, harness.detector)

    @property
    def session(self) -> ByteSession:  # type: ignore[override]
        assert isinstance(self.wire.session, ByteSession)
        return self.wire.session

    @property
    def draft(self) -> DraftSession:
        assert isinstance(self.session, DraftSession)
        return self.session

    def packets(self) -> list[Packet]:
        """What was heard since the last time, in the draft."""
        return split_packets(self.take_bytes())
