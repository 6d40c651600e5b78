"""`GearMonkeySetup`: state that all GearMonkey connections share: limits, drafts, subscriptions, worker counts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from switchgear.engine.engine import Engine
from switchgear.errors import PeerError
from switchgear.model import Function
from switchgear.protocols.broadcast import Broadcast
from switchgear.protocols.gearmonkey.drafts import Drafts, ExtraFields
from switchgear.protocols.gearmonkey.lock_lists import LockLists
from switchgear.protocols.gearmonkey.resp import Command
from switchgear.protocols.gearmonkey.subscriptions import ChannelSubscriptions

if TYPE_CHECKING:
    from switchgear.protocols.gearmonkey.session import GearMonkeySession

__all__ = ["PROTOCOL", "Counts", "GearMonkeySetup", "RedisVerb", "remember"]

T = TypeVar("T")

PROTOCOL: Final = "gearmonkey"

MOST_REMEMBERED = 100_000
MOST_COUNTED_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class RedisVerb:
    """The handler of a command, and the number of its words."""

    handler: Callable[[GearMonkeySession, Command], None]
    words: int  # including its name; negative: a minimum
    while_subscribed: bool = False  # also allowed on a RESP2 connection that is subscribed
    in_transaction: bool = True  # allowed between MULTI and EXEC
    subcommands: Mapping[bytes, RedisVerb] = field(default_factory=dict)  # by the word after the name


class GearMonkeySetup:
    """Settings and state that all connections share."""

    def __init__(
        self,
        engine: Engine,
        verbs: Mapping[bytes, RedisVerb],
        version: str,
        check_command: Callable[[GearMonkeySession, Command], None],
        packet_bytes: int = 64 * 1024 * 1024,
        name_bytes: int = 512,
        output_bytes: int = 136 * 1024 * 1024,
        broadcast: Broadcast | None = None,
    ) -> None:
        self.verbs = verbs
        self.check_command: Callable[[GearMonkeySession, Command], None] = check_command
        self.version = version
        self.packet_bytes = packet_bytes
        self.name_bytes = name_bytes
        self.output_bytes = output_bytes  # limit of unread output of a subscribed peer
        self.drafts = Drafts(engine)
        self.extras = ExtraFields(engine)
        self.channels = ChannelSubscriptions(engine, PROTOCOL, broadcast)
        self.locks = LockLists()
        self.counts = Counts(engine)
        self.hidden: OrderedDict[int, int] = OrderedDict()  # finished jobs that are hidden early, and when
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

    Registrations of a lost connection are removed: a crashed worker cannot do it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._counted: dict[bytes, Counted] = {}
        self._own_workers: dict[Function, int] = {}  # workers of this protocol in the engine

    def value(self, function: bytes) -> int | None:
        """The number of registered workers, and those of other protocols; `None` if none was ever registered."""
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
        """Subtract one. A peer that has registered on another of its connections is subtracted there."""
        counted = self._counted.get(function)
        if counted is not None and counted.total:
            owner = session if session in counted.by_session else next(reversed(counted.by_session))
            counted.change(owner, -1)

    def forget(self, session: GearMonkeySession) -> None:
        """Remove the registrations of a closed connection."""
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


def remember(memory: OrderedDict[int, T], job_id: int, value: T) -> None:
    """Add an entry for a job, and drop the oldest beyond a limit."""
    memory[job_id] = value
    memory.move_to_end(job_id)
    if len(memory) > MOST_REMEMBERED:
        memory.popitem(last=False)
