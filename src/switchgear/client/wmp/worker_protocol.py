"""The worker of WMP, without I/O, threads and clock: messages and the time go in, messages and jobs come out.

A worker has a number of slots, and a job of a role needs some of them. Managers are sent READY while slots are free.
When a manager answers WAKE, the slots that its job may need are reserved for it, until it sends a job (TAKE), says that
there is none (NO), or takes too long. Meanwhile other managers may wake the worker for the remaining slots; a manager
that needs more gets no answer, and READY again when there is room.

Repetition. A manager remembers READY until it has sent WAKE; a repetition before that means nothing to it. So the
worker notes for each connection what the manager should remember, and sends READY if that is nothing, or less than
there is room for now. Since managers do not tell when they forget it, READY is repeated in any case, with growing
pauses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from switchgear.backoff import ReconnectBackoff, RetryPauses, without_jitter
from switchgear.errors import PeerError
from switchgear.protocols.multipart import Message
from switchgear.protocols.wmp.codec import (
    CANCEL,
    DONE,
    GIVE,
    LARGEST_NUMBER,
    NO,
    READY,
    STATUS,
    TAKE,
    WAKE,
    decode,
    encode,
    job_of,
    lease_of,
    manager_of,
    role_of,
    roles_of,
    trace_of,
)

__all__ = ["WmpJob", "WmpResult", "WmpSend", "WmpStart", "WmpTiming", "WmpWorkerProtocol"]

# A sign of life is promised every `lease` seconds, and sent more often than that: a late or lost one must not matter.
SIGNS_PER_LEASE: Final = 4
# A manager that wants to hear more often does not get its way: there would be no time left for the job.
SHORTEST_SIGN_SECONDS: Final = 0.05
LONGEST_ERROR: Final = 16 * 1024  # it has to fit into the headers

# Headers of READY that have a meaning already.
RESERVED_HEADERS: Final = frozenset({"to", "path", "roles", "lease", "slots"})


@dataclass(frozen=True, slots=True)
class WmpTiming:
    """Leases, locks and retry pauses of a worker."""

    lease_seconds: float = 10.0  # managers are promised a sign of life of each job at least this often
    lock_seconds: float = 10.0  # for how long slots are reserved for a manager that called and then sends nothing
    retry_first_seconds: float = 1.0  # between two READY to a manager that does not answer; doubles
    retry_most_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is more than 0, not {getattr(self, name)!r}")

    @property
    def backoff(self) -> ReconnectBackoff:
        """The pauses between two READY to a manager that does not answer."""
        return ReconnectBackoff(self.retry_first_seconds, self.retry_most_seconds, rng=without_jitter)


class WmpJob:
    """A job as its function sees it."""

    def __init__(
        self, role: bytes, payload: bytes, reference: bytes, manager: bytes, tell: Callable[[WmpJob], None]
    ) -> None:
        self.role = role.decode(errors="surrogateescape")
        self.payload = payload
        self.reference = reference  # the manager's own name for it
        self.manager = manager  # the identity of the manager whose job it is
        self.trace = ""  # the traceparent of its submitter's span, if the manager has sent it
        self.cancelled = threading.Event()  # set when the job is cancelled; then raise, or return None
        self.latest_progress: tuple[int, int, int | None] | None = None
        self.has_updates = False  # and the observer was told so
        self._tell = tell

    def __repr__(self) -> str:
        return f"WmpJob({self.role!r}, {self.reference!r})"

    def progress(self, numerator: int, denominator: int, seconds_left: float | None = None) -> None:
        """Report how far the job is, and how many more seconds it will take, if known; replaces earlier reports."""
        left = None if seconds_left is None else _natural(seconds_left)
        self.latest_progress = (_natural(numerator), _natural(denominator), left)
        if not self.has_updates:
            self.has_updates = True
            self._tell(self)


def _natural(number: float) -> int:
    return max(0, min(int(number), LARGEST_NUMBER))


class WmpResult(NamedTuple):
    """The outcome of a job."""

    status: str = "done"  # or "failed", "returned", "cancelled"
    result: bytes = b""
    error: bytes = b""


class WmpSend(NamedTuple):
    """A message to send on this connection; without `keep` it may be lost."""

    connection: int
    message: Message
    keep: bool


class WmpStart(NamedTuple):
    """A job to start."""

    job: WmpJob


@dataclass(slots=True)
class _ManagerState:
    """What the worker knows about the manager, or managers, behind one connection."""

    number: int
    pauses: RetryPauses  # before READY is repeated
    repeat_at: float = 0.0
    remembers: int = 0  # the room in the last READY, if no WAKE has come since


@dataclass(slots=True)
class _Lock:
    """Slots that are reserved for a job of a manager that has called."""

    manager_state: _ManagerState
    manager: bytes  # the origin of the path
    units: int
    until: float


@dataclass(slots=True)
class _RunningJob:
    """A job that runs."""

    manager_state: _ManagerState
    route: list[bytes]
    named_manager: bytes | None  # as TAKE had it
    units: int
    sign_seconds: float  # between two signs of life
    sign_at: float


class WmpWorkerProtocol:
    """The state of a worker.  Its methods add the messages to send and the jobs to start to `out`."""

    def __init__(
        self,
        roles: Mapping[bytes, int],
        slots: int,
        connections: int,
        timing: WmpTiming,
        headers: Mapping[str, Any] | None = None,
        tell: Callable[[WmpJob], None] = lambda job: None,
    ) -> None:
        """`roles` are the functions, and how many slots a job of each needs.  Raises ValueError."""
        if not roles or not connections:
            raise ValueError("a worker needs a role and a manager")
        if any(not 0 < needed <= slots for needed in roles.values()):
            raise ValueError(f"a job needs between 1 and all {slots} slots")
        if reserved := RESERVED_HEADERS & (headers or {}).keys():
            raise ValueError(f"the headers {', '.join(sorted(reserved))} have a meaning already")
        self.out: list[WmpSend | WmpStart] = []
        self.free = slots
        self.stopping = False
        self._roles = dict(roles)
        self._levels = sorted(set(roles.values()), reverse=True)
        self._timing = timing
        self._tell = tell
        self._manager_states = [_ManagerState(number, RetryPauses(timing.backoff)) for number in range(connections)]
        self._locks: list[_Lock] = []
        self._runs: dict[WmpJob, _RunningJob] = {}
        self._by_reference: dict[tuple[bytes, bytes], WmpJob] = {}
        self._slots = slots
        self._headers = headers or {}
        self._ready = {level: self._introduction(level, slots, self._headers) for level in self._levels}

    def _introduction(self, level: int, slots: int, headers: Mapping[str, Any]) -> Message:
        """The READY message for roles that need at most this many slots."""
        own = {"roles": self._fitting(level), "slots": slots, "lease": self._timing.lease_seconds}
        try:
            ready = encode(READY, {**headers, **own})
            roles_of(decode(ready)[1])
        except (PeerError, TypeError, OverflowError) as error:
            raise ValueError(f"no manager would understand this: {error}") from None
        return ready

    def offer(self, roles: Mapping[bytes, int], now: float) -> None:
        """Take jobs of these roles from now on, and no others; of none, if there are none.  Raises ValueError."""
        self._roles = dict(roles)
        self._levels = sorted(set(roles.values()), reverse=True)
        self._ready = {level: self._introduction(level, self._slots, self._headers) for level in self._levels}
        for manager_state in self._manager_states:
            manager_state.remembers = 0
            manager_state.pauses.reset()
        self._offer(now)

    # --- what happens ---

    def start(self, now: float) -> None:
        """Send READY to all managers."""
        self._offer(now)

    def connected(self, connection: int, now: float) -> None:
        """A connection was made: its manager may not know the worker."""
        manager_state = self._manager_states[connection]
        manager_state.remembers = 0
        manager_state.pauses.reset()
        self._offer(now)

    def receive(self, connection: int, message: Message, now: float) -> None:
        """Handle a message of a manager; raises PeerError if it is malformed, and even then there may be something in
        `out`."""
        manager_state = self._manager_states[connection]
        try:
            command, headers, payload = decode(message)
            if headers.get("to"):
                raise PeerError(f"{command.decode()} is for another peer", code="MISROUTED")
            manager_state.pauses.reset()
            if command == WAKE:
                self._on_wake(manager_state, headers, now)
            elif command == TAKE:
                self._on_take(manager_state, headers, payload or b"", now)
            elif command == NO:
                self._unlock(manager_state, _origin(headers))
                manager_state.remembers = 0
            elif command == CANCEL:
                self._on_cancel(headers)
            else:
                raise PeerError(f"{command.decode()} is not said by managers", code="WRONG_WAY")
        finally:
            self._offer(now)

    def advance(self, now: float) -> None:
        """Handle everything that is due by now."""
        for lock in [lock for lock in self._locks if lock.until <= now]:
            self._locks.remove(lock)
            self.free += lock.units
        for job, run in self._runs.items():
            if run.sign_at <= now and self._is_current(job):
                self._say(run, STATUS, {"job": job.reference}, now)
        self._offer(now)

    def progress(self, job: WmpJob, now: float) -> None:
        """The function of a job has reported progress."""
        job.has_updates = False  # before reading, so that progress of this moment is sent again
        run = self._runs.get(job)
        if run is None or job.latest_progress is None or not self._is_current(job):
            return
        numerator, denominator, seconds_left = job.latest_progress
        headers: dict[str, Any] = {"job": job.reference, "numerator": numerator, "denominator": denominator}
        if seconds_left is not None:
            headers["time_left"] = seconds_left
        self._say(run, STATUS, headers, now)

    def finished(self, job: WmpJob, outcome: WmpResult, now: float) -> None:
        """The function of a job has ended."""
        run = self._runs.pop(job, None)
        if run is None:
            return
        self.free += run.units
        if self._is_current(job):
            del self._by_reference[job.manager, job.reference]
            self._say(run, DONE, _done(job.reference, outcome), now, outcome.result)
        self._offer(now)

    def stop(self) -> None:
        """Request no more jobs, and return those that still arrive."""
        self.stopping = True

    @property
    def is_settled(self) -> bool:
        """Whether no job runs, and none may be on its way."""
        return not (self._runs or self._locks)

    def give_up(self, now: float) -> None:
        """Cancel the jobs that still run, and give them back."""
        for job, run in self._runs.items():
            job.cancelled.set()
            if self._is_current(job):
                self._give_back(run, job.reference, now)
        self._runs.clear()
        self._by_reference.clear()
        self._locks.clear()

    def next_deadline(self) -> float | None:
        """When `advance` has to be called, if nothing comes before."""
        moments = [lock.until for lock in self._locks]
        moments += [run.sign_at for job, run in self._runs.items() if self._is_current(job)]
        if self._room():
            moments += [manager_state.repeat_at for manager_state in self._manager_states]
        return min(moments, default=None)

    # --- managers call, give, refuse and cancel ---

    def _on_wake(self, manager_state: _ManagerState, headers: dict[str, Any], now: float) -> None:
        told, manager_state.remembers = manager_state.remembers, 0
        role = role_of(headers)
        room = self._room()
        # A manager that does not name a role may give any job that there is room for.
        units = room if role is None else self._roles.get(role, 0)
        if not 0 < units <= room:
            if told <= room:
                manager_state.remembers = told  # it knows the room already
            return
        self.free -= units
        self._locks.append(_Lock(manager_state, _origin(headers), units, now + self._timing.lock_seconds))
        asked_for = {"roles": self._fitting(units), "lease": self._timing.lease_seconds}
        self._send(manager_state, GIVE, {"to": headers.get("path", []), **asked_for})

    def _on_take(self, manager_state: _ManagerState, headers: dict[str, Any], payload: bytes, now: float) -> None:
        origin = _origin(headers)
        self._unlock(manager_state, origin)
        manager_state.remembers = 0
        reference = job_of(headers)
        run = _RunningJob(
            manager_state, headers.get("path", []), None, 0, self._timing.lease_seconds / SIGNS_PER_LEASE, now
        )
        try:
            role = self._read_take(headers, run)
        except PeerError:
            self._refuse(run, reference, now)
            raise
        manager = run.named_manager or origin
        known = self._by_reference.get((manager, reference))
        if known is not None:
            if not known.cancelled.is_set():
                return  # it is being done
            del self._by_reference[manager, reference]  # cancelled but not stopped: its result is not reported
        if role is None or run.units > self.free or self.stopping:
            self._refuse(run, reference, now)
            return
        job = WmpJob(role, payload, reference, manager, self._tell)
        job.trace = trace_of(headers)
        self.free -= run.units
        run.sign_at = now + run.sign_seconds
        self._runs[job] = run
        self._by_reference[manager, reference] = job
        self._offer(now)  # for what is left, and before the job begins
        self.out.append(WmpStart(job))

    def _read_take(self, headers: dict[str, Any], run: _RunningJob) -> bytes | None:
        """The role of a TAKE, if it is one of ours; its other headers are stored in the run."""
        run.named_manager = manager_of(headers)
        lease_seconds = lease_of(headers)
        if lease_seconds is not None:
            wanted_seconds = max(lease_seconds / SIGNS_PER_LEASE, SHORTEST_SIGN_SECONDS)
            run.sign_seconds = min(run.sign_seconds, wanted_seconds)
        role = role_of(headers)
        run.units = self._roles.get(role or b"", 0)
        return role if run.units else None

    def _refuse(self, run: _RunningJob, reference: bytes, now: float) -> None:
        """Give back a job that is not for this worker.  READY is delayed, or the same job might come again at once."""
        self._give_back(run, reference, now)
        run.manager_state.remembers = self._room()
        run.manager_state.repeat_at = now + run.manager_state.pauses.due_seconds()

    def _give_back(self, run: _RunningJob, reference: bytes, now: float) -> None:
        self._say(run, DONE, _done(reference, WmpResult("returned")), now, b"")

    def _on_cancel(self, headers: dict[str, Any]) -> None:
        job = self._by_reference.get((manager_of(headers) or _origin(headers), job_of(headers)))
        if job is not None:
            job.cancelled.set()

    def _is_current(self, job: WmpJob) -> bool:
        """Whether the job's reference still identifies this job."""
        return self._by_reference.get((job.manager, job.reference)) is job

    # --- locks ---

    def _unlock(self, manager_state: _ManagerState, manager: bytes) -> None:
        """Free the slots that are reserved for this manager."""
        for lock in self._locks:
            if lock.manager_state is manager_state and lock.manager == manager:
                self._locks.remove(lock)
                self.free += lock.units
                return

    def _room(self) -> int:
        """How many slots the largest job may need that could start now; 0: none could."""
        return 0 if self.stopping else next((level for level in self._levels if level <= self.free), 0)

    def _fitting(self, units: int) -> list[str | bytes]:
        """The roles whose jobs need at most this many slots."""
        return [_name(role) for role, needed in self._roles.items() if needed <= units]

    def _offer(self, now: float) -> None:
        """Send READY to managers that do not know the free slots, or have been silent for long."""
        room = self._room()
        if not room:
            return
        for manager_state in self._manager_states:
            if manager_state.remembers >= room and manager_state.repeat_at > now:
                continue
            if any(lock.manager_state is manager_state for lock in self._locks):
                manager_state.repeat_at = max(manager_state.repeat_at, now + self._timing.retry_first_seconds)
                continue  # it has called, and is about to answer
            manager_state.remembers = room
            manager_state.repeat_at = now + manager_state.pauses.next_seconds()
            self.out.append(WmpSend(manager_state.number, self._ready[room], False))

    # --- speaking ---

    def _say(
        self, run: _RunningJob, command: bytes, headers: dict[str, Any], now: float, payload: bytes | None = None
    ) -> None:
        """Send a message about a job to its manager."""
        run.sign_at = now + run.sign_seconds
        headers["to"] = run.route
        if run.named_manager is not None:
            headers["manager"] = run.named_manager
        self._send(run.manager_state, command, headers, payload)

    def _send(
        self, manager_state: _ManagerState, command: bytes, headers: dict[str, Any], payload: bytes | None = None
    ) -> None:
        self.out.append(WmpSend(manager_state.number, encode(command, headers, payload), command == DONE))


def _origin(headers: dict[str, Any]) -> bytes:
    """The sender of a message: the first entry of its path."""
    path = headers.get("path")
    return path[-1] if path else b""


def _name(role: bytes) -> str | bytes:
    """A name as text where it is UTF-8, so that messages can be read."""
    try:
        return role.decode()
    except UnicodeDecodeError:
        return role


def _done(reference: bytes, outcome: WmpResult) -> dict[str, Any]:
    headers: dict[str, Any] = {"job": reference}
    if outcome.status != "done":
        headers["status"] = outcome.status
    if outcome.error:
        headers["error"] = outcome.error[:LONGEST_ERROR]
    return headers
