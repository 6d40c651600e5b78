"""A dwork server without a wire, and words for what is asked of it.

harness = DworkHarness()
assert harness.ask(create("a", "b after a")) == OK
assert names(harness.ask(Query(QueryType.STEAL, location=b"w1"))) == ["a"]
"""

from __future__ import annotations

from typing import Any

from switchgear.engine.engine import Engine, EngineSettings
from switchgear.protocols.dwork.codec import decode_reply, encode
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from switchgear.protocols.dwork.session import DworkSession, DworkSetup
from tests.protocols.dwork.image import ImageStore
from tests.protocols.message_harness import FakeListener, MessageHarness

HOST = b"vm"
OK = Query(QueryType.OK)
NOT_FOUND = Query(QueryType.NOT_FOUND)
EXIT = Query(QueryType.EXIT)


class DworkHarness:
    """A harness with one dwork listener; each peer asks one thing at a time, as a REQ socket does."""

    def __init__(
        self, *, keeps: bool = False, lease_seconds: float = 0, settings: EngineSettings | None = None
    ) -> None:
        self.settings = settings
        self.setup = DworkSetup(b"dwork", round(lease_seconds * 1e6), HOST)
        self.harness = MessageHarness(keeps=keeps, settings=settings)
        self.image = ImageStore()
        if keeps:
            self.harness.store = self.image
        self.listener = self.open_listener()

    def open_listener(self) -> FakeListener:
        return self.harness.listener(lambda context, transport: DworkSession(context, transport, self.setup))

    @property
    def session(self) -> DworkSession:
        assert isinstance(self.listener.session, DworkSession)
        return self.listener.session

    @property
    def engine(self) -> Engine:
        return self.harness.engine

    def keep(self) -> None:
        """The store has everything now."""
        self.image.keep()
        self.harness.keep()

    def restart(self) -> None:
        """The server dies, with all that is not kept, and another goes on in its place."""
        clock = self.harness.clock
        self.image.crash()
        self.harness = MessageHarness(keeps=True, settings=self.settings)
        self.harness.clock = clock
        self.harness.store = self.image
        self.engine.advance(clock.now_us())
        self.image.restore(self.engine)
        self.listener = self.open_listener()
        self.harness.turn()
        self.keep()

    @property
    def now_us(self) -> int:
        return self.engine.now_us

    def send(self, query: Query, peer: bytes = b"peer") -> None:
        self.listener.send(peer, b"", encode(query))

    def heard(self, peer: bytes = b"peer") -> list[Query]:
        """What this peer was answered since it was last asked for."""
        answers = self.listener.heard(peer)
        assert all(frames[:-1] == [b""] for frames in answers)
        return [decode_reply(frames[-1]) for frames in answers]

    def ask(self, query: Query, peer: bytes = b"peer") -> Query:
        """Ask, and get the answer as soon as it may be given."""
        self.send(query, peer)
        if self.harness.is_durable:
            self.keep()
        [answer] = self.heard(peer)
        return answer

    def ask_bytes(self, payload: bytes) -> bytes:
        self.listener.send(b"peer", b"", payload)
        [[empty, answer]] = self.listener.heard(b"peer")
        assert empty == b""
        return answer

    def status(self) -> tuple[int, int]:
        """How many tasks are active, and how many of them ready."""
        self.send(Query(QueryType.OK), b"whoever asks for the status")
        [answer] = self.heard(b"whoever asks for the status")
        assert answer.name is not None
        active, ready = (int(word) for word in answer.name.split() if word.isdigit())
        text = f"dhub: {active} active tasks, {ready} ready."
        assert answer == Query(QueryType.OK, name=text.encode(), n=ready)
        return active, ready


def task(text: str, **fields: Any) -> Task:
    """A task as a line has it: `c after a b`."""
    name, *after = text.split()
    assert after[:1] in ([], ["after"])
    return Task(name.encode(), b"here", [word.encode() for word in after[1:]], **fields)


def create(*lines: str, **fields: Any) -> Query:
    return Query(QueryType.CREATE, [task(line) for line in lines], **fields)


def steal(location: str, n: int | None = None, **fields: Any) -> Query:
    return Query(QueryType.STEAL, location=location.encode(), n=n, **fields)


def complete(location: str, *lines: str) -> Query:
    return Query(QueryType.COMPLETE, [task(line) for line in lines], location=location.encode())


def fail(location: str, name: str, error: str) -> Query:
    return Query(QueryType.COMPLETE, [task(name, error=error.encode())], location=location.encode())


def transfer(location: str, *lines: str) -> Query:
    return Query(QueryType.TRANSFER, [task(line) for line in lines], location=location.encode())


def leave(location: str) -> Query:
    return Query(QueryType.EXIT, location=location.encode())


def names(answer: Query) -> list[str]:
    return [task.name.decode() for task in answer.tasks]
