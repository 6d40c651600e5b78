"""What sessions of whole messages need of a hub: an engine, time that passes when told, and a far end that listens.

house = MessageHouse()
door = house.door(lambda context, wire: SomeSession(context, wire, setup))
door.send(b"peer", b"", b"PING")            # what the ROUTER socket would hand over: the peer's name first
assert door.heard(b"peer") == [[b"", b"PONG"]]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from switchgear.engine.engine import Engine, EngineSettings
from switchgear.errors import Refused
from switchgear.model import Job
from switchgear.protocols.base import Context, Message, MessageSession, Session, Wire
from switchgear.storage.base import JobQuery
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry
from switchgear.testing import FakeClock
from switchgear.testing.invariants import check_engine


class FakeSocket(Wire):
    """Remembers what was sent, and to whom; `gone` are peers that cannot be reached."""

    def __init__(self, house: MessageHouse) -> None:
        self.house = house
        self.sent: list[Message] = []
        self.gone: set[bytes] = set()
        self.door: Door | None = None

    def write(self, out: list[Message]) -> None:
        assert self.door is not None
        for message in out:
            assert all(isinstance(frame, bytes) for frame in message), message
            if message[0] in self.gone:
                self.house.soon(lambda message=message: self.door.session.unreachable(message))  # type: ignore[misc]
            else:
                self.sent.append(list(message))

    def close(self) -> None:
        raise AssertionError("a session does not close a socket that others talk to as well")


class MessageHouse(Context):
    """A hub without event loop and sockets.  With `keeps`, promises wait until `keep` or `fail_to_keep` is called."""

    def __init__(self, *, keeps: bool = False, settings: EngineSettings | None = None) -> None:
        self.clock = FakeClock()
        self.telemetry = Telemetry(lambda: 0.0)
        self.engine = Engine(settings, self.telemetry)
        self.engine.keeps = self.keeps = keeps
        self.engine.advance(self.clock.now_us())
        self.store = MemoryStore()
        self.marked: list[Session] = []
        self.bad_input: list[tuple[str, str]] = []  # code, text
        self.lost_payloads: set[int] = set()  # jobs whose payload the store has lost
        self._soon: list[Callable[[], object]] = []
        self._unkept: list[Job] = []
        self._waiting: list[Session] = []

    def door(self, make: Callable[[Context, Wire], MessageSession]) -> Door:
        return Door(self, make)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, stopping wherever something happens by itself."""
        end_us = self.clock.now_us() + round(seconds * 1e6)
        while (next_us := self.engine.next_deadline_us) is not None and next_us <= end_us:
            self.clock.advance(max(0, next_us - self.clock.now_us()) / 1e6)
            self.turn()
        self.clock.advance((end_us - self.clock.now_us()) / 1e6)
        self.turn()

    def turn(self) -> None:
        """The end of a turn, and the turns that it gives rise to."""
        self.engine.advance(self.clock.now_us())
        self._end_turn()
        while self._soon:
            actions, self._soon = self._soon, []
            for action in actions:
                action()
            self._end_turn()
        check_engine(self.engine)

    def _end_turn(self) -> None:
        jobs, functions = self.engine.take_changes()
        self.store.stage(jobs, functions)
        self._unkept += jobs
        marked, self.marked = self.marked, []
        for session in marked:
            session.marked = False
            if session.pledges:
                if session not in self._waiting:
                    self._waiting.append(session)
            elif session not in self._waiting:
                self._send(session)

    def _send(self, session: Session) -> None:
        out, session.out = session.out, []
        session.wire.write(out)

    def keep(self) -> None:
        """The store has everything now: promises may be given."""
        for job in self._unkept:
            job.kept = True
        self._unkept = []
        waiting, self._waiting = self._waiting, []
        for session in waiting:
            session.hold()
            session.wire.write(session.release())
        self.turn()

    def fail_to_keep(self, refused: Refused) -> None:
        """The store cannot keep what is new."""
        self.store.unstage([job for job in reversed(self._unkept) if self.engine.withdraw(job)])
        self._unkept = [job for job in self._unkept if not job.withdrawn]
        waiting, self._waiting = self._waiting, []
        for session in waiting:
            session.refuse_withdrawn(refused)
            if session.pledges:
                self._waiting.append(session)  # what it promises besides is not undone, and kept later
            else:
                self._send(session)
        self.turn()

    # --- what sessions ask ---

    def payload(self, job: Job) -> bytes:
        if job.id in self.lost_payloads:
            raise LookupError(f"the store has lost the payload of job {job.id}")
        assert job.payload is not None
        return job.payload

    def find_job(self, job_id: int) -> Job | None:
        return self.engine.jobs.get(job_id) or self.store.get(job_id)

    def find_named(self, names: frozenset[bytes], since_us: int = 0) -> dict[bytes, Job]:
        finished = self.store.find(JobQuery(since_us=since_us, limit=1_000_000))
        newest_last = {job.name: job for job in reversed(finished) if job.name in names}
        return {name: job for name, job in newest_last.items() if name not in self.engine.names}

    def find_kept(self, before_id: int, limit: int) -> list[Job]:
        return self.store.find(JobQuery(before_id=before_id, limit=limit))

    def operate(self, verb: str, arguments: dict[str, Any]) -> Any:
        raise AssertionError("operators speak Gearman")

    def count_bad_input(self, session: Session, code: str, text: str) -> None:
        assert code
        assert text
        self.bad_input.append((code, text))

    def soon(self, action: Callable[[], object]) -> None:
        self._soon.append(action)

    def request_stop(self, *, graceful: bool) -> None:
        raise AssertionError("nobody who speaks this protocol may stop the server")


class Door:
    """One ROUTER socket, seen from the other end."""

    def __init__(self, house: MessageHouse, make: Callable[[Context, Wire], MessageSession]) -> None:
        self.house = house
        self.socket = FakeSocket(house)
        self.session = make(house, self.socket)
        self.socket.door = self

    def send(self, *message: bytes) -> None:
        """A peer, named by the first frame, sends the others; then the server has its turn."""
        self.send_in_one_turn(list(message))

    def send_in_one_turn(self, *messages: Message) -> None:
        self.house.engine.advance(self.house.clock.now_us())
        for message in messages:
            self.session.receive_message(list(message))
        self.house.turn()

    def heard(self, peer: bytes) -> list[Message]:
        """What this peer was sent since it was last asked for, without its name."""
        heard = [message[1:] for message in self.socket.sent if message[0] == peer]
        self.socket.sent = [message for message in self.socket.sent if message[0] != peer]
        return heard

    def heard_by_all(self) -> list[Message]:
        heard, self.socket.sent = self.socket.sent, []
        return heard
