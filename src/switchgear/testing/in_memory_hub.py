"""A server without a wire, a thread or an event loop: the engine, a store in memory and Gearman sessions.

It does what the hub does, at once: everything that a peer sends is a turn of its own, and when the call returns, what
the server has to say about it lies in the inboxes of those concerned.  Time passes only when it is told so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, cast

from switchgear.engine.engine import Engine
from switchgear.errors import StorageError
from switchgear.model import FINAL_STATES, SECOND_US, Job, JobState
from switchgear.net.hub import Hub
from switchgear.net.operations import Operations
from switchgear.protocols.base import Context, Session, Wire
from switchgear.protocols.gearman.admin import on_line
from switchgear.protocols.gearman.session import GearmanSession, GearmanSetup
from switchgear.protocols.gearman.verbs import handle_messages
from switchgear.storage.base import JobQuery
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry
from switchgear.testing.clock import FakeClock
from switchgear.version import VERSION

__all__ = ["InMemoryConnection", "InMemoryHub"]

_PREFIX: Final = "H:memory:"
_PACKET_BYTES: Final = 2**32 - 1  # nobody here is a stranger
_MOST_TURNS: Final = 10_000  # in which a house may come to rest


class InMemoryHub(Context):
    """What sessions need of a hub, and a register of who is connected."""

    storage_error: StorageError | None = None  # as operators ask for it; memory does not fail

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.telemetry = Telemetry(lambda: clock.now_us() / SECOND_US)
        self.engine = Engine(None, self.telemetry)
        self.engine.keeps = self.keeps = False
        self.engine.advance(clock.now_us())
        self.store = MemoryStore()
        self.marked: list[Session] = []
        self._soon: list[Callable[[], object]] = []
        self.operator = Operations(cast(Hub, self), _PREFIX)
        self.setup = GearmanSetup(_PREFIX.encode(), f"switchgear-{VERSION}", handle_messages, on_line)
        self.setup.packet_bytes = _PACKET_BYTES

    def connect(self) -> InMemoryConnection:
        """Somebody new."""
        return InMemoryConnection(self)

    def turn(self, action: Callable[[], object] = lambda: None) -> None:
        """Let something happen now, with all that follows from it."""
        self.engine.advance(self.clock.now_us())
        action()
        for _ in range(_MOST_TURNS):
            self._keep_changes()
            self._send()
            actions, self._soon = self._soon, []
            for each in actions:
                each()
            if not (self.marked or self._soon or self.engine.changed):
                return
        raise RuntimeError("the server does not come to rest")

    def _keep_changes(self) -> None:
        jobs, functions = self.engine.take_changes()
        self.store.stage(jobs, functions, 0, self.engine.take_changed_schedules())

    def _send(self) -> None:
        marked, self.marked = self.marked, []
        for session in marked:
            session.marked = False
            out, session.out = session.out, []
            session.wire.write(out)
            if session.put_off or session.choked or session.is_paused:
                session.go_on()

    @property
    def next_deadline_us(self) -> int | None:
        """When something will happen by itself."""
        return self.engine.next_deadline_us

    # --- what sessions ask ---

    def payload(self, job: Job) -> bytes:
        assert job.payload is not None
        return job.payload

    def find_job(self, job_id: int) -> Job | None:
        return self.engine.job(job_id) or self.store.get(job_id) or self.find_unkept_end(job_id)

    def find_states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        found = (self.find_job(job_id) for job_id in job_ids)
        return {job.id: job.state for job in found if job is not None}

    def find_unkept_end(self, job_id: int) -> Job | None:
        ended = (job for job in reversed(self.engine.changed) if job.id == job_id and job.state in FINAL_STATES)
        return next(ended, None)

    def find_named(self, names: frozenset[bytes], since_us: int = 0) -> dict[bytes, Job]:
        found: dict[bytes, Job] = {}
        for job in chain(reversed(self.engine.changed), self.find_kept(0, 2**31)):
            if job.name in names and job.name not in self.engine.names and job.created_us >= since_us:
                found.setdefault(job.name, job)
        return found

    def find_kept(self, before_id: int, limit: int) -> list[Job]:
        return self.store.find(JobQuery(before_id=before_id, limit=limit))

    def operate(self, verb: str, arguments: dict[str, Any]) -> Any:
        return self.operator(verb, arguments)

    def count_bad_input(self, session: Session, code: str, text: str) -> None:
        wire = session.wire
        self.telemetry.emit(
            "bad_input", code=code, text=text, protocol=session.protocol, host=wire.host, port=wire.port
        )

    def soon(self, action: Callable[[], object]) -> None:
        self._soon.append(action)

    def request_stop(self, *, graceful: bool) -> None:
        """It ends with the test."""


class InMemoryConnection(Wire):
    """One connection, seen from the other end."""

    def __init__(self, house: InMemoryHub) -> None:
        self.host = "memory"
        self.house = house
        self._inbox: list[bytes] = []
        self.session: GearmanSession = GearmanSession(house, self, house.setup)

    def send(self, data: bytes) -> None:
        """Say this; the answer is there when the call returns."""
        if data:
            self.house.turn(lambda: self.session.receive(data))

    def read(self) -> bytes:
        """What was said to us since the last time."""
        data, self._inbox = b"".join(self._inbox), []
        return data

    def leave(self) -> None:
        """Hang up."""
        self.house.turn(self.session.closed)

    # --- the house's end ---

    def write(self, out: list[bytes]) -> None:
        self._inbox += out

    def close(self) -> None:
        """Nobody is hung up on here."""
