"""A server without a wire: one engine, a clock that stands still, and sessions that talk to it.

It does what the hub does, at once: every `send` is a turn of its own, and what sessions have to say at its end is
written to wires that only remember.  With `keeps=True` the store is taken for durable and every turn for committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from switchgear.engine.engine import Engine, EngineSettings
from switchgear.errors import StorageError
from switchgear.model import Job, JobState
from switchgear.net.hub import Hub
from switchgear.net.operations import Operations
from switchgear.protocols.base import Context, Session, Wire
from switchgear.protocols.gearman.admin import on_line
from switchgear.protocols.gearman.session import GearmanSession, GearmanSetup
from switchgear.protocols.gearman.verbs import handle_messages
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry
from switchgear.testing import FakeClock
from tests.support.wire import Message, split_message

PREFIX = b"H:t:"
PACKET_BYTES = 10_000
LINE_BYTES = 256
NAME_BYTES = 64


class FakeWire(Wire):
    """Remembers what was written."""

    def __init__(self, descriptor: int) -> None:
        self.host = "10.0.0.1"
        self.port = 40_000 + descriptor
        self.descriptor = descriptor
        self.written = b""
        self.is_closed = False
        self.is_of_servers_user = True

    def is_of_same_user(self) -> bool:
        return self.is_of_servers_user

    def write(self, out: list[bytes]) -> None:
        data = b"".join(out)
        assert not (data and self.is_closed), "written to after it was closed"
        self.written += data

    def close(self) -> None:
        self.is_closed = True


class House(Context):
    """What sessions need of a hub, and a register of who is connected."""

    def __init__(self, *, keeps: bool = False, settings: EngineSettings | None = None, **setup: Any) -> None:
        self.clock = FakeClock()
        self.telemetry = Telemetry(lambda: 0.0)
        self.engine = Engine(settings, self.telemetry)
        self.engine.keeps = self.keeps = keeps
        self.engine.advance(self.clock.now_us())
        self.store = MemoryStore()
        self.storage_error: StorageError | None = None
        self.marked: list[Session] = []
        self.bad_input: list[tuple[str, str]] = []  # the name of who sent it, the code
        self.peers_read = True  # and take at once what they are sent
        self.put_off: list[Callable[[], object]] = []  # what is to be done soon
        self.stops: list[bool] = []  # each with whether it was to be graceful
        self.talkers: dict[str, Talker] = {}
        self.operator = Operations(cast(Hub, self), PREFIX.decode())
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

    def end_turn(self) -> None:
        jobs, functions = self.engine.take_changes()
        self.store.stage(jobs, functions)
        if self.keeps:
            for job in jobs:
                job.kept = True
        while self.marked:
            session = self.marked.pop(0)
            session.marked = False
            session.hold()
            session.wire.write(session.release())
            if (session.put_off or session.choked or session.is_paused) and self.peers_read:
                session.go_on()
            elif session.closing:
                session.wire.close()
                session.closed()
        if self.put_off:
            actions, self.put_off = self.put_off, []
            for action in actions:
                action()
            self.end_turn()

    # --- what sessions ask ---

    def payload(self, job: Job) -> bytes:
        assert job.payload is not None
        return job.payload

    def find_job(self, job_id: int) -> Job | None:
        unfinished = self.engine.jobs.get(job_id)
        ended = (job for job in self.engine.changed if job.id == job_id)
        return unfinished or self.store.get(job_id) or next(ended, None)

    def find_states(self, job_ids: list[int]) -> dict[int, JobState]:
        found = (self.find_job(job_id) for job_id in job_ids)
        return {job.id: job.state for job in found if job is not None}

    def find_named(self, names: frozenset[bytes], since_us: int = 0) -> dict[bytes, Job]:
        raise AssertionError("Gearman knows jobs by their handles")

    def find_kept(self, before_id: int, limit: int) -> list[Job]:
        raise AssertionError("operators ask for lists")

    def operate(self, verb: str, arguments: dict[str, Any]) -> Any:
        return self.operator(verb, arguments)

    def count_bad_input(self, session: Session, code: str, text: str) -> None:
        assert text
        names = [name for name, talker in self.talkers.items() if talker.session is session]
        self.bad_input.append((names[0] if names else "", code))

    def soon(self, action: Callable[[], object]) -> None:
        self.put_off.append(action)

    def request_stop(self, *, graceful: bool) -> None:
        self.stops.append(graceful)


class Talker:
    """One connection, seen from the other end."""

    def __init__(self, house: House, name: str, descriptor: int) -> None:
        self.house = house
        self.name = name
        self.wire = FakeWire(descriptor)
        self.session = GearmanSession(house, self.wire, house.setup)

    def send(self, *packets: bytes) -> None:
        """Send these in one piece, and let the server have its turn."""
        self.house.engine.advance(self.house.clock.now_us())
        self.session.receive(b"".join(packets))
        self.house.end_turn()

    def leave(self) -> None:
        self.session.closed()
        del self.house.talkers[self.name]
        self.house.end_turn()

    def stop_sending(self) -> None:
        self.session.eof()
        self.house.end_turn()

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
