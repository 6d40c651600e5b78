"""`WorkerPaths`: routes to the workers of a manager, limited in number and memory.

The protocol has no message for leaving, so a path is kept until its room is needed; then a path whose worker has no job
is dropped. A neighbour can invent any number of paths that begin with it, and must not displace those of others. So the
dropped path belongs to the neighbour with the most idle paths; of several such neighbours, and of its paths, the one
that was silent longest is chosen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from sys import getsizeof
from typing import Any, Final

from switchgear.memory import FOR_WAITING, MemoryAccount
from switchgear.model import Cause, Function, Job, Peer, Worker
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.multipart import Message
from switchgear.protocols.wmp.codec import NO, TAKE, WAKE, encode

__all__ = ["Path", "WorkerPath", "WorkerPaths", "routed", "size_in_memory", "size_of_roles"]

Path = tuple[bytes, ...]
"""A path as seen from the manager: the routing id of its neighbour first, the worker's last."""

# The limit of memory for the headers of all workers: enough for 6.7 kB of each of 10,000.
KEPT_BYTES: Final = 64 * 1024 * 1024

PATH_BYTES: Final = 3_000  # for a path, besides the headers of its worker

ROLE_BYTES: Final = 300  # for each registered function of a worker, in the engine


def size_in_memory(value: Any) -> int:
    """The memory of a header: up to 80 times its encoded size."""
    size = getsizeof(value)
    if type(value) is dict:
        return size + sum(map(getsizeof, value)) + sum(map(size_in_memory, value.values()))
    if type(value) is list:
        return size + sum(map(size_in_memory, value))
    return size


def size_of_roles(roles: list[Any]) -> int:
    """The memory of these roles of a worker."""
    return size_in_memory(roles) + ROLE_BYTES * len(roles)


def routed(path: Path, identity: bytes) -> dict[str, Any]:
    """The headers that route a message from the manager to the end of a path."""
    headers: dict[str, Any] = {"path": [identity]}
    if len(path) > 1:
        headers["to"] = path[1:]
    return headers


class WorkerPath(Peer):
    """One path to a worker, and its jobs. To the engine each path is a worker."""

    def __init__(
        self,
        path: Path,
        identity: bytes,
        send: Callable[[Message], None],
        on_revoked: Callable[[WorkerPath, Job], None],
        on_silent: Callable[[WorkerPath], None],
    ) -> None:
        super().__init__()
        headers = routed(path, identity)
        self.path = path
        self.identity = identity
        self.send = send
        self.on_revoked = on_revoked
        self.on_silent = on_silent
        self.wake_message = [path[0], *encode(WAKE, headers)]
        self.no_message = [path[0], *encode(NO, headers)]
        self.said = b""  # the headers of its registration, as received
        self.roles: Any = None  # the last roles that it sent
        self.said_bytes = 0  # the memory of those and the headers
        self.roles_bytes = 0  # the memory of its registered roles
        self.differs = False  # its registered roles differ from `said`
        self.silence_us = 0  # the lease of its jobs; 0: no limit
        self.held: dict[int, bytes] = {}  # its jobs, with the reference of each
        self.is_gone = False  # its connection is closed, and it keeps its jobs for their lease
        self._take_headers: dict[Function, bytes] = {}
        self.worker: Worker

    def holds(self, reference: bytes) -> bool:
        """Whether it holds a job under this reference."""
        return self.held.get(number_in_handle(reference.partition(b".")[0], b"")) == reference

    @property
    def kept_bytes(self) -> int:
        """The memory of the headers and roles of the worker."""
        return self.said_bytes + self.roles_bytes

    def wake(self, worker: Worker) -> None:
        self.send(self.wake_message)

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        self.on_revoked(self, job)

    def expired(self, worker: Worker) -> None:
        self.on_silent(self)

    def use_silence(self, silence_us: int) -> None:
        """Use this lease for its next jobs."""
        self.silence_us = silence_us
        self._take_headers.clear()

    def take_headers(self, function: Function, reference: bytes, trace: bytes = b"") -> bytes:
        """The headers of a TAKE. Only the reference differs between most jobs of a function, so it is the last."""
        if trace:
            return b"%b%c%b" % (self._start_of_take(function, trace), len(reference), reference)
        start = self._take_headers.get(function)
        if start is None:
            start = self._take_headers[function] = self._start_of_take(function)
        return b"%b%c%b" % (start, len(reference), reference)

    def _start_of_take(self, function: Function, trace: bytes = b"") -> bytes:
        headers = routed(self.path, self.identity)
        headers["manager"] = self.identity
        try:
            headers["role"] = function.told_name.decode()
        except UnicodeDecodeError:
            headers["role"] = function.told_name
        if self.silence_us:
            headers["lease"] = self.silence_us / 1_000_000
        if trace:
            headers["trace"] = trace.decode()
        headers["job"] = b""
        return encode(TAKE, headers)[3][:-1]  # without the last byte, which is the length of the reference


class WorkerPaths:
    """All paths of a manager."""

    def __init__(self, memory: MemoryAccount) -> None:
        self._memory = memory
        self.by_path: dict[Path, WorkerPath] = {}
        # By neighbour: the paths without jobs, the one that was silent longest first.
        self.idle: dict[bytes, OrderedDict[WorkerPath, None]] = {}
        # By neighbour: the paths with jobs.
        self.busy: dict[bytes, dict[WorkerPath, None]] = {}
        # By the number of idle paths: the neighbours that have this many, in the same order.
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
        self._leave_idle(way)
        self._leave_busy(way)
        self.kept_bytes -= way.kept_bytes
        self._memory.registration_bytes -= PATH_BYTES + way.kept_bytes

    def note(self, way: WorkerPath, said_bytes: int, roles_bytes: int) -> None:
        """Note the memory of its headers and roles."""
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
        """Keep the path while it has jobs."""
        self.busy.setdefault(way.path[0], {})[way] = None
        self._leave_idle(way)

    def _leave_busy(self, way: WorkerPath) -> None:
        ways = self.busy.get(way.path[0])
        if ways is not None and way in ways:
            del ways[way]
            if not ways:
                del self.busy[way.path[0]]

    def _leave_idle(self, way: WorkerPath) -> None:
        neighbour = way.path[0]
        ways = self.idle.get(neighbour)
        if ways is not None and way in ways:
            del ways[way]
            if not ways:
                del self.idle[neighbour]
            self._rank(neighbour, len(ways) + 1, len(ways))

    def gave_up_job(self, way: WorkerPath) -> None:
        """Note that it has one job less; without others it may be dropped."""
        neighbour = way.path[0]
        if not way.held:
            self._leave_busy(way)
            ways = self.idle.get(neighbour)
            if ways is None:
                ways = self.idle[neighbour] = OrderedDict()
            if way not in ways:
                ways[way] = None
                self._rank(neighbour, len(ways) - 1, len(ways))

    def _rank(self, neighbour: bytes, before: int, after: int) -> None:
        """Note that a neighbour has one idle path more or less."""
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
        """The path to be dropped first; `None` if all have jobs."""
        if not self._most_idle:
            return None
        neighbour = next(iter(self._neighbours[self._most_idle]))
        return next(iter(self.idle[neighbour]))

    def would_be_too_many(self, more_paths: int, more_bytes: int, most_paths: int) -> bool:
        if len(self.by_path) + more_paths > most_paths or self.kept_bytes + more_bytes > self.most_bytes:
            return True
        return not self._memory.has_registration_room(PATH_BYTES * more_paths + more_bytes, FOR_WAITING)
