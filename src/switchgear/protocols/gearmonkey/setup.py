"""What the connections of GearMonkey share, at whatever address they came in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from switchgear.engine.engine import Engine
from switchgear.errors import PeerError
from switchgear.model import Function, Peer, Worker
from switchgear.protocols.gearmonkey.channels import Channels
from switchgear.protocols.gearmonkey.drafts import Drafts, ExtraFields
from switchgear.protocols.gearmonkey.locks import Locks
from switchgear.protocols.gearmonkey.resp import Command

if TYPE_CHECKING:
    from switchgear.protocols.gearmonkey.session import GearMonkeySession

__all__ = ["PROTOCOL", "Counts", "GearMonkeySetup", "Timer", "Verb", "remember"]

T = TypeVar("T")

PROTOCOL: Final = "gearmonkey"

MOST_REMEMBERED = 100_000
MOST_COUNTED_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class Verb:
    """How a command is handled, and how many words it has."""

    handler: Callable[[GearMonkeySession, Command], None]
    words: int  # its name included; negative: at least so many
    while_subscribed: bool = False  # also on a RESP2 connection that is subscribed
    in_transaction: bool = True  # may be one of the commands between MULTI and EXEC
    subcommands: Mapping[bytes, Verb] = field(default_factory=dict)  # by the word after the name


class GearMonkeySetup:
    """The listener: limits, and everything that is not one connection's."""

    def __init__(
        self,
        engine: Engine,
        verbs: Mapping[bytes, Verb],
        version: str,
        packet_bytes: int = 64 * 1024 * 1024,
        name_bytes: int = 512,
        output_bytes: int = 136 * 1024 * 1024,
    ) -> None:
        self.verbs = verbs
        self.version = version
        self.packet_bytes = packet_bytes
        self.name_bytes = name_bytes
        self.output_bytes = output_bytes  # that may wait for a peer that has subscribed
        self.drafts = Drafts(engine)
        self.extras = ExtraFields(engine)
        self.channels = Channels(engine, PROTOCOL)
        self.locks = Locks()
        self.counts = Counts(engine)
        self.timer = Timer(engine)
        self.lost: OrderedDict[int, None] = OrderedDict()  # jobs taken from their worker, who may still report
        self.hidden: OrderedDict[int, int] = OrderedDict()  # finished jobs that are to be forgotten early, and when
        self.sessions: dict[GearMonkeySession, None] = {}
        self.last_number = 0  # of a connection


class Counted:
    """The registered workers of one function."""

    __slots__ = ("by_session", "total")

    def __init__(self) -> None:
        self.total = 0
        self.by_session: dict[GearMonkeySession, int] = {}

    def change(self, session: GearMonkeySession, by: int) -> None:
        self.total += by
        count = self.by_session[session] = self.by_session.get(session, 0) + by
        if not count:
            del self.by_session[session]


class Counts:
    """How many workers have registered for a function (`count:FN`), and on which connection.

    What a connection has counted is taken back when it is lost: a worker that crashes cannot do it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._counted: dict[bytes, Counted] = {}
        self._own_workers: dict[Function, int] = {}  # workers of this protocol that the engine knows

    def value(self, function: bytes) -> int | None:
        """Registered workers, and those of other protocols; None if nobody has ever counted any."""
        counted = self._counted.get(function)
        known = self._engine.functions.get(function)
        others = max(0, len(known.workers) - self._own_workers.get(known, 0)) if known is not None else 0
        if counted is None:
            return others or None
        return counted.total + others

    def add(self, session: GearMonkeySession, function: bytes) -> None:
        if function not in self._counted and len(self._counted) >= MOST_COUNTED_NAMES:
            self._counted = {name: counted for name, counted in self._counted.items() if counted.total}
            if len(self._counted) >= MOST_COUNTED_NAMES:
                raise PeerError(f"workers are registered for {MOST_COUNTED_NAMES} functions", code="ERR")
        self._counted.setdefault(function, Counted()).change(session, 1)
        session.counted.add(function)

    def subtract(self, session: GearMonkeySession, function: bytes) -> None:
        """One less.  Who has not counted any itself, but on another connection of its own, takes it from there."""
        counted = self._counted.get(function)
        if counted is not None and counted.total:
            owner = session if session in counted.by_session else next(reversed(counted.by_session))
            counted.change(owner, -1)

    def forget(self, session: GearMonkeySession) -> None:
        """The connection is gone."""
        for function in session.counted:
            counted = self._counted.get(function)
            if counted is not None and session in counted.by_session:
                counted.change(session, -counted.by_session[session])

    def worker_added(self, functions: Iterable[Function]) -> None:
        for function in functions:
            self._own_workers[function] = self._own_workers.get(function, 0) + 1

    def worker_removed(self, functions: Iterable[Function]) -> None:
        for function in functions:
            self._own_workers[function] -= 1
            if not self._own_workers[function]:
                del self._own_workers[function]


class Timer(Peer):
    """Tells connections that wait for the end of a job when they have waited long enough.

    The engine has the only clock, and tells the time to workers; so this is one that can do nothing.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._worker: Worker | None = None
        self._waiting: dict[int, GearMonkeySession] = {}  # by ticket

    def start(self, session: GearMonkeySession, until_us: int) -> int:
        worker = self._worker
        if worker is None or not worker.alive:
            worker = self._worker = self._engine.add_worker(self, PROTOCOL, b"timer")
        ticket = self._engine.alarm(worker, until_us)
        self._waiting[ticket] = session
        return ticket

    def stop(self, ticket: int) -> None:
        if self._waiting.pop(ticket, None) is not None and self._worker is not None:
            self._engine.cancel_alarm(self._worker, ticket)

    def waited_in_vain(self, worker: Worker, ticket: int) -> None:
        session = self._waiting.pop(ticket, None)
        if session is not None:
            session.waited_in_vain(worker, ticket)


def remember(memory: OrderedDict[int, T], job_id: int, value: T) -> None:
    """Note something of a job, and forget the oldest of very many notes."""
    memory[job_id] = value
    memory.move_to_end(job_id)
    if len(memory) > MOST_REMEMBERED:
        memory.popitem(last=False)
