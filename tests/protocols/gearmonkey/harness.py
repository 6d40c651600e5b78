"""A server without a wire for connections that speak RESP: one engine, a clock that stands still, and a store.

harness = MonkeyHarness()
assert harness.ask("client", "INCR", "uid:f") == 1

With `keeps`, promises wait until `keep` or `fail_to_keep` is called.
"""

from __future__ import annotations

from typing import Any

from switchgear.engine.engine import EngineSettings
from switchgear.protocols.gearmonkey.command_access import check_command
from switchgear.protocols.gearmonkey.command_table import VERBS
from switchgear.protocols.gearmonkey.listener_state import GearMonkeySetup
from switchgear.protocols.gearmonkey.session import GearMonkeySession
from tests.protocols.message_harness import MessageHarness
from tests.protocols.recording_transport import RecordingTransport
from tests.support.resp_wire import OK, command, split_replies

PACKET_BYTES = 10_000
NAME_BYTES = 64

Word = str | bytes | int | float


class FakeTransport(RecordingTransport):
    """A connection of a peer that reads what it is sent, unless the harness says otherwise."""

    def __init__(self, harness: MonkeyHarness) -> None:
        super().__init__(harness)
        self.harness = harness

    def is_read(self) -> bool:
        return self.harness.peers_read


class MonkeyHarness(MessageHarness):
    """A hub without event loop and sockets, for connections."""

    def __init__(self, *, keeps: bool = False, settings: EngineSettings | None = None, **limits: Any) -> None:
        super().__init__(keeps=keeps, settings=settings)
        sizes = {"packet_bytes": PACKET_BYTES, "name_bytes": NAME_BYTES, **limits}
        self.setup = GearMonkeySetup(self.engine, VERBS, "test", check_command, **sizes)
        self.talkers: dict[str, Talker] = {}
        self.peers_read = True  # and take at once what they are sent

    def talker(self, name: str) -> Talker:
        """Whoever goes by this name, connected now if not before."""
        if name not in self.talkers:
            self.talkers[name] = Talker(self)
        return self.talkers[name]

    def ask(self, name: str, *words: Word) -> Any:
        """Send a command, and the one reply to it."""
        (reply,) = self.tell(name, words)
        return reply

    def tell(self, name: str, *commands: tuple[Word, ...]) -> list[Any]:
        """Send these in one piece, and whatever is heard then."""
        talker = self.talker(name)
        talker.send(b"".join(command(*words) for words in commands))
        return talker.heard()

    def heard(self, name: str) -> list[Any]:
        return self.talker(name).heard()

    def leave(self, name: str) -> None:
        self.talkers.pop(name).session.closed()
        self.turn()


class Talker:
    """One connection, seen from the other end."""

    def __init__(self, harness: MonkeyHarness) -> None:
        self.harness = harness
        self.wire = FakeTransport(harness)
        self.session = self.wire.session = GearMonkeySession(harness, self.wire, harness.setup)

    def send(self, data: bytes) -> None:
        """Send this in one piece, and let the server have its turn."""
        self.harness.engine.advance(self.harness.clock.now_us())
        self.session.receive(data)
        self.harness.turn()

    def stop_sending(self) -> None:
        self.session.eof()
        self.harness.turn()

    def heard(self) -> list[Any]:
        """The replies heard since the last time."""
        heard, self.wire.written = self.wire.written, b""
        return split_replies(heard)


TRIO = ("queue:f:high", "queue:f:normal", "queue:f:low")


def push(harness: MonkeyHarness, data: Word = b"x", queue: str = "queue:f:normal") -> int:
    """What a client says to have a job."""
    job_id: int = harness.ask("client", "INCR", "uid:f")
    assert harness.ask("client", "HMSET", f"job:f:{job_id}", "status", "idle", "input", data) == OK
    assert isinstance(harness.ask("client", "LPUSH", queue, job_id), int)
    return job_id


def pop(harness: MonkeyHarness, who: str = "worker") -> int:
    """What a worker says to have one, when there is one."""
    _, job_id = harness.ask(who, "BRPOP", *TRIO, 1)
    return int(job_id)
