"""The ways to workers that a manager remembers, within bounds.

Nobody says goodbye in this protocol, so a way is kept until its room is needed: then the one goes that was heard of
longest ago, of those whose worker holds no job.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from switchgear.model import Function, Job, Peer, Worker
from switchgear.protocols.base import Message
from switchgear.protocols.wmp.codec import NO, TAKE, WAKE, encode

__all__ = ["Path", "Paths", "WorkerPath", "routed"]

Path = tuple[bytes, ...]
"""A way as seen from the manager: the name of its neighbour on the socket first, the worker's last."""

# Kept of what workers say of themselves, all together: enough for 1.6 kB of each of 10,000.
KEPT_BYTES: Final = 16 * 1024 * 1024


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
        self.kept_bytes = 0  # how much of what it said is kept
        self.differs = False  # it can do less or other things than `said` says
        self.silence_us = 0  # so long nothing may be heard of a job; 0: for ever
        self.held: dict[int, bytes] = {}  # its jobs that count, with the reference that each was given under
        self._take_headers: dict[Function, bytes] = {}
        self.worker: Worker

    def wake(self, worker: Worker) -> None:
        self.send(self.wake_message)

    def revoke(self, worker: Worker, job: Job) -> None:
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

    def __init__(self) -> None:
        self.by_path: dict[Path, WorkerPath] = {}
        self.idle: OrderedDict[WorkerPath, None] = OrderedDict()  # those that hold no job, heard of longest ago first
        self.kept_bytes = 0
        self.most_bytes = KEPT_BYTES

    def add(self, way: WorkerPath) -> None:
        self.by_path[way.path] = way
        self.idle[way] = None

    def remove(self, way: WorkerPath) -> None:
        del self.by_path[way.path]
        self.idle.pop(way, None)
        self.kept_bytes -= way.kept_bytes

    def note(self, way: WorkerPath, size: int) -> None:
        """So much is kept of what it says of itself."""
        self.kept_bytes += size - way.kept_bytes
        way.kept_bytes = size

    def heard_of(self, way: WorkerPath) -> None:
        if way in self.idle:
            self.idle.move_to_end(way)

    def takes_job(self, way: WorkerPath) -> None:
        self.idle.pop(way, None)

    def gave_up_job(self, way: WorkerPath) -> None:
        if not way.held:
            self.idle[way] = None

    def would_be_too_many(self, more_paths: int, more_bytes: int, most_paths: int) -> bool:
        return len(self.by_path) + more_paths > most_paths or self.kept_bytes + more_bytes > self.most_bytes
