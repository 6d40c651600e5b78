"""The ways to workers that a manager remembers, within bounds.

Nobody says goodbye in this protocol, so a way is kept until its room is needed: then one goes whose worker holds no
job.  A neighbour can make up any number of ways that begin with it, and should not push out those of others by that.
So it is one of the neighbour that has most of them, and of several such neighbours the one heard of longest ago; of its
ways, again the one heard of longest ago.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from sys import getsizeof
from typing import Any, Final

from switchgear.memory import FOR_WAITING, MemoryAccount
from switchgear.model import Cause, Function, Job, Peer, Worker
from switchgear.protocols.base import Message
from switchgear.protocols.wmp.codec import NO, TAKE, WAKE, encode

__all__ = ["Path", "Paths", "WorkerPath", "routed", "size_in_memory", "size_of_roles"]

Path = tuple[bytes, ...]
"""A way as seen from the manager: the name of its neighbour on the socket first, the worker's last."""

# Kept of what workers say of themselves, all together, as it is in memory: enough for 6.7 kB of each of 10,000.
KEPT_BYTES: Final = 64 * 1024 * 1024

PATH_BYTES: Final = 3_000  # for a path, beside what its worker says of itself

ROLE_BYTES: Final = 300  # for the engine to know that a worker can do a function


def size_in_memory(value: Any) -> int:
    """How much a header takes; up to 80 times as much as on its way."""
    size = getsizeof(value)
    if type(value) is dict:
        return size + sum(map(getsizeof, value)) + sum(map(size_in_memory, value.values()))
    if type(value) is list:
        return size + sum(map(size_in_memory, value))
    return size


def size_of_roles(roles: list[Any]) -> int:
    """How much is kept because a worker has these roles."""
    return size_in_memory(roles) + ROLE_BYTES * len(roles)


def routed(path: Path, identity: bytes) -> dict[str, Any]:
    """The headers that bring a message from the manager to the end of a path."""
    headers: dict[str, Any] = {"path": [identity]}
    if len(path) > 1:
        headers["to"] = path[1:]
    return headers


class WorkerPath(Peer):
    """One way to a worker, and what was given to it.  To the engine each is a worker of its own."""

    def __init__(
        self,
        path: Path,
        identity: bytes,
        send: Callable[[Message], None],
        on_revoked: Callable[[WorkerPath, Job], None],
    ) -> None:
        super().__init__()
        headers = routed(path, identity)
        self.path = path
        self.identity = identity
        self.send = send
        self.on_revoked = on_revoked
        self.wake_message = [path[0], *encode(WAKE, headers)]
        self.no_message = [path[0], *encode(NO, headers)]
        self.said = b""  # the headers with which it introduced itself, as they came
        self.roles: Any = None  # what it said last of its roles
        self.said_bytes = 0  # how much memory that takes, and the headers
        self.roles_bytes = 0  # and how much its roles take
        self.differs = False  # it can do less or other things than `said` says
        self.silence_us = 0  # so long nothing may be heard of a job; 0: for ever
        self.held: dict[int, bytes] = {}  # its jobs that count, with the reference that each was given under
        self._take_headers: dict[Function, bytes] = {}
        self.worker: Worker

    @property
    def kept_bytes(self) -> int:
        """How much memory is taken by what the worker says of itself."""
        return self.said_bytes + self.roles_bytes

    def wake(self, worker: Worker) -> None:
        self.send(self.wake_message)

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        self.on_revoked(self, job)

    def use_silence(self, silence_us: int) -> None:
        """From now on it is given jobs with this limit."""
        self.silence_us = silence_us
        self._take_headers.clear()

    def take_headers(self, function: Function, reference: bytes) -> bytes:
        """The headers of a TAKE.  All but the reference is the same for all jobs of a function, so that goes last."""
        start = self._take_headers.get(function)
        if start is None:
            start = self._take_headers[function] = self._start_of_take(function)
        return b"%b%c%b" % (start, len(reference), reference)

    def _start_of_take(self, function: Function) -> bytes:
        headers = routed(self.path, self.identity)
        headers["manager"] = self.identity
        try:
            headers["role"] = function.name.decode()
        except UnicodeDecodeError:
            headers["role"] = function.name
        if self.silence_us:
            headers["lease"] = self.silence_us / 1_000_000
        headers["job"] = b""
        return encode(TAKE, headers)[3][:-1]  # without the last byte, which is the length of the reference


class Paths:
    """All that are remembered."""

    def __init__(self, memory: MemoryAccount) -> None:
        self._memory = memory
        self.by_path: dict[Path, WorkerPath] = {}
        # By neighbour: the ways that hold no job, the one heard of longest ago first.
        self.idle: dict[bytes, OrderedDict[WorkerPath, None]] = {}
        # By the number of such ways: the neighbours that have so many, in the same order.
        self._neighbours: dict[int, OrderedDict[bytes, None]] = {}
        self._most_idle = 0  # the largest of these numbers
        self.kept_bytes = 0
        self.most_bytes = KEPT_BYTES

    def add(self, way: WorkerPath) -> None:
        self.by_path[way.path] = way
        self._memory.registration_bytes += PATH_BYTES
        self.gave_up_job(way)

    def remove(self, way: WorkerPath) -> None:
        del self.by_path[way.path]
        self.takes_job(way)
        self.kept_bytes -= way.kept_bytes
        self._memory.registration_bytes -= PATH_BYTES + way.kept_bytes

    def note(self, way: WorkerPath, said_bytes: int, roles_bytes: int) -> None:
        """So much is kept of what it says of itself."""
        more_bytes = said_bytes + roles_bytes - way.kept_bytes
        self.kept_bytes += more_bytes
        self._memory.registration_bytes += more_bytes
        way.said_bytes = said_bytes
        way.roles_bytes = roles_bytes

    def heard_of(self, way: WorkerPath) -> None:
        neighbour = way.path[0]
        ways = self.idle.get(neighbour)
        if ways is not None and way in ways:
            ways.move_to_end(way)
            self._neighbours[len(ways)].move_to_end(neighbour)

    def takes_job(self, way: WorkerPath) -> None:
        """From now on it is kept."""
        neighbour = way.path[0]
        ways = self.idle.get(neighbour)
        if ways is not None and way in ways:
            del ways[way]
            if not ways:
                del self.idle[neighbour]
            self._rank(neighbour, len(ways) + 1, len(ways))

    def gave_up_job(self, way: WorkerPath) -> None:
        """If it holds no other, it may go."""
        neighbour = way.path[0]
        if not way.held:
            ways = self.idle.get(neighbour)
            if ways is None:
                ways = self.idle[neighbour] = OrderedDict()
            if way not in ways:
                ways[way] = None
                self._rank(neighbour, len(ways) - 1, len(ways))

    def _rank(self, neighbour: bytes, before: int, after: int) -> None:
        """A neighbour has one more or one less of the ways that hold no job."""
        if before:
            equals = self._neighbours[before]
            del equals[neighbour]
            if not equals:
                del self._neighbours[before]
        if after:
            equals = self._neighbours.get(after) or self._neighbours.setdefault(after, OrderedDict())
            equals[neighbour] = None
        if after > self._most_idle or self._most_idle not in self._neighbours:
            self._most_idle = after

    def first_to_go(self) -> WorkerPath | None:
        """The one whose room is taken when there is need; None if all hold jobs."""
        if not self._most_idle:
            return None
        neighbour = next(iter(self._neighbours[self._most_idle]))
        return next(iter(self.idle[neighbour]))

    def would_be_too_many(self, more_paths: int, more_bytes: int, most_paths: int) -> bool:
        if len(self.by_path) + more_paths > most_paths or self.kept_bytes + more_bytes > self.most_bytes:
            return True
        return not self._memory.has_registration_room(PATH_BYTES * more_paths + more_bytes, FOR_WAITING)
