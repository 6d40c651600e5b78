"""What sessions of whole messages need of a hub: an engine, time that passes when told, and a far end that listens.

harness = MessageHarness()
listener = harness.listener(lambda context, transport: SomeSession(context, transport, setup))
listener.send(b"peer", b"", b"PING")            # what the ROUTER socket would hand over: the peer's name first
assert listener.heard(b"peer") == [[b"", b"PONG"]]
"""

from __future__ import annotations

from collections.abc import Callable

from switchgear.engine.engine import EngineSettings
from switchgear.protocols.context import Context
from switchgear.protocols.message_session import MessageSession
from switchgear.protocols.multipart import Message
from switchgear.protocols.session import Session
from switchgear.protocols.transport import PeerTransport
from switchgear.testing.in_memory_context import InMemoryContext
from switchgear.testing.invariants import check_engine


class FakeSocket(PeerTransport):
    """Remembers what was sent, and to whom; `gone` are peers that cannot be reached."""

    def __init__(self, harness: MessageHarness) -> None:
        self.harness = harness
        self.sent: list[Message] = []
        self.gone: set[bytes] = set()
        self.listener: FakeListener | None = None

    def write(self, out: list[Message]) -> None:
        assert self.listener is not None
        for message in out:
            assert all(isinstance(frame, bytes) for frame in message), message
            if message[0] in self.gone:
                self.harness.soon(lambda message=message: self.listener.session.unreachable(message))  # type: ignore[misc]
            else:
                self.sent.append(list(message))

    def close(self) -> None:
        raise AssertionError("a session does not close a socket that others talk to as well")


class MessageHarness(InMemoryContext):
    """A hub without event loop and sockets.  With `keeps`, answers wait until `keep` or `fail_to_keep` is called."""

    def __init__(self, *, keeps: bool = False, settings: EngineSettings | None = None) -> None:
        super().__init__(is_durable=keeps, commits_at_once=False, settings=settings)
        self.bad_input: list[tuple[str, str]] = []  # code, text

    def listener(self, make: Callable[[Context, PeerTransport], MessageSession]) -> FakeListener:
        return FakeListener(self, make)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, stopping wherever something happens by itself."""
        end_us = self.clock.now_us() + round(seconds * 1e6)
        while (next_us := self.engine.next_deadline_us) is not None and next_us <= end_us:
            self.clock.advance(max(0, next_us - self.clock.now_us()) / 1e6)
            self.turn()
        self.clock.advance((end_us - self.clock.now_us()) / 1e6)
        self.turn()

    def end_turn(self) -> None:
        super().end_turn()
        check_engine(self.engine)

    def count_bad_input(self, session: Session, code: str, text: str) -> None:
        assert code
        assert text
        self.bad_input.append((code, text))


class FakeListener:
    """One ROUTER socket, seen from the other end."""

    def __init__(self, harness: MessageHarness, make: Callable[[Context, PeerTransport], MessageSession]) -> None:
        self.harness = harness
        self.socket = FakeSocket(harness)
        self.session = make(harness, self.socket)
        self.socket.listener = self

    def send(self, *message: bytes) -> None:
        """A peer, named by the first frame, sends the others; then the server has its turn."""
        self.send_in_one_turn(list(message))

    def send_in_one_turn(self, *messages: Message) -> None:
        self.harness.engine.advance(self.harness.clock.now_us())
        for message in messages:
            self.session.receive_message(list(message))
        self.harness.turn()

    def heard(self, peer: bytes) -> list[Message]:
        """What this peer was sent since it was last asked for, without its name."""
        heard = [message[1:] for message in self.socket.sent if message[0] == peer]
        self.socket.sent = [message for message in self.socket.sent if message[0] != peer]
        return heard

    def heard_by_all(self) -> list[Message]:
        heard, self.socket.sent = self.socket.sent, []
        return heard
