"""Workers over HTTP: registered workers that poll by their id, and temporary workers for a single `take`.

A worker's life is its lease, not its connection: it may ask on one connection, and report on another.  So the engine's
peer of a worker is an `HttpWorker`, and not a session; while a request of the worker waits for a job, the `HttpWorker`
knows the session that is to be answered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from switchgear.access.permissions import FULL_PERMISSIONS
from switchgear.engine.engine import Engine
from switchgear.memory import FOR_WAITING
from switchgear.model import SECOND_US, Job, Peer, Worker
from switchgear.protocols.http.http_wait import HttpWait
from switchgear.states import Cause

if TYPE_CHECKING:
    from switchgear.protocols.http.session import HttpSession

__all__ = ["HttpWorker", "HttpWorkers", "WorkerAddress", "WorkerWait"]

PROTOCOL = "http"
NO_TIMEOUTS: Final[Mapping[bytes, int]] = {}
# So many workers of `take` are kept for a connection, and their lease is longer than any connection.
MOST_IDLE_TAKERS: Final = 64
# Of registered workers, so many are looked at for one that may make room for another.
MOST_LOOKED_AT: Final = 100
IDLE_LEASE_US: Final = 3650 * 86_400 * SECOND_US


class HttpWorkers:
    """All workers over HTTP of a server."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.run = token_hex(6)  # tells ids of workers of this server from those of an earlier one
        self.last_number = 0
        self.last_taker_number = 0  # of connections that have taken jobs
        self.by_id: OrderedDict[str, HttpWorker] = OrderedDict()  # registered ones, that heard of last at the end
        self.by_job: dict[int, tuple[HttpWorker, int]] = {}  # by job: who was last given it, and in which attempt

    def add(
        self,
        session: HttpSession,
        functions: list[bytes],
        lease_us: int,
        name: bytes = b"",
        timeouts_us: Mapping[bytes, int] = NO_TIMEOUTS,
        *,
        is_single: bool,
    ) -> HttpWorker:
        """Register a worker; raises Refused."""
        engine = self.engine
        self._make_room(len(functions))
        engine.refuse_registrations(len(functions), FOR_WAITING)
        found = [engine.function_named(function) for function in functions]
        peer = HttpWorker(self, lease_us, is_single=is_single)
        peer.owner = session.permissions
        peer.transport = WorkerAddress(session)
        peer.worker_tags = session.worker_tags
        peer.worker_resources = session.worker_resources
        peer.worker = worker = engine.add_worker(peer, PROTOCOL, name)
        for function in found:
            engine.can_do(worker, function, timeouts_us.get(function.name, 0))
        if not is_single:
            self.last_number += 1
            peer.id = f"w-{self.run}-{self.last_number}"
            self.by_id[peer.id] = peer
        engine.renew_lease(worker, lease_us)
        return peer

    def _make_room(self, count: int) -> None:
        """Deregister workers that hold no job and do not wait for one, if there is no memory for another worker, who
        can do this many functions: those that were not heard of for longest.

        A lease may last a week, and needs no connection. Without this, a client that has registered very many workers
        and left would keep all others from registering theirs for as long.
        """
        looked_at = 0
        while not self.engine.has_room_for_worker(count, FOR_WAITING) and looked_at < MOST_LOOKED_AT and self.by_id:
            peer = next(iter(self.by_id.values()))
            if peer.job_ids or peer.session is not None:
                self.by_id.move_to_end(peer.id)
                looked_at += 1
            else:
                self.remove(peer)

    def heard_of(self, peer: HttpWorker) -> None:
        """A worker has polled, or reported."""
        if peer.id in self.by_id:
            self.by_id.move_to_end(peer.id)

    def taker(self, session: HttpSession, function: bytes, lease_us: int) -> HttpWorker:
        """A worker for one job: one that has ended an earlier job on this connection, or a new one; raises Refused."""
        if not session.taker_number:
            self.last_taker_number += 1
            session.taker_number = self.last_taker_number
        idle = session.idle_takers.get(function)
        while idle:
            peer: HttpWorker = idle.pop()
            session.idle_takers_count -= 1
            if peer.owner is session.permissions and peer.worker is not None and peer.worker.alive:
                peer.lease_us = lease_us
                return peer
            self.remove(peer)
        peer = self.add(session, [function], lease_us, is_single=True)
        peer.function = function
        peer.taker_number = session.taker_number
        return peer

    def keep_taker(self, session: HttpSession, peer: HttpWorker) -> bool:
        """Keep a worker that has reported on its job for the next `take` on the same connection; whether that is done.

        A client that takes one job after the other is registered once then, and shown as one worker.
        """
        worker = peer.worker
        if (
            worker is None
            or session.has_left
            or peer.taker_number != session.taker_number
            or session.idle_takers_count >= MOST_IDLE_TAKERS
        ):
            return False
        self.engine.renew_lease(worker, IDLE_LEASE_US)
        idle = session.idle_takers.get(peer.function)
        if idle is None:
            session.idle_takers[peer.function] = idle = []
        idle.append(peer)
        session.idle_takers_count += 1
        return True

    def remove_idle(self, session: HttpSession) -> None:
        """Deregister the workers that were kept for a connection, which is closed."""
        for idle in session.idle_takers.values():
            for peer in idle:
                self.remove(peer)
        session.idle_takers.clear()
        session.idle_takers_count = 0

    def remove(self, peer: HttpWorker) -> None:
        """Deregister a worker; a job that it has goes to another."""
        if peer.worker is not None:
            self.engine.remove_worker(peer.worker)
        self.forget(peer)

    def forget(self, peer: HttpWorker) -> None:
        """The engine does not have the worker any more."""
        self.by_id.pop(peer.id, None)
        job_ids = {peer.single_id} if peer.is_single else peer.job_ids
        for job_id in job_ids:
            entry = self.by_job.get(job_id)
            if entry is not None and entry[0] is peer:
                del self.by_job[job_id]
        peer.job_ids.clear()
        peer.worker = None

    def give(self, peer: HttpWorker, job: Job) -> None:
        """Note that a worker holds a job."""
        if peer.is_single:
            peer.single_id = job.id
        else:
            peer.job_ids.add(job.id)
        self.by_job[job.id] = (peer, job.start_number)

    def take_back(self, peer: HttpWorker, job_ids: list[int]) -> None:
        """An answer with these jobs did not reach the worker: others may have them."""
        for job_id in job_ids:
            if peer.worker is not None:
                self.engine.release(peer.worker, job_id)
                self.reported(peer, job_id)

    def holder(self, job_id: int, attempt: int) -> HttpWorker | None:
        """The worker that was given a job in this attempt, if it is still there and has not reported."""
        entry = self.by_job.get(job_id)
        if entry is None or entry[1] != attempt or entry[0].worker is None or not entry[0].worker.alive:
            return None
        return entry[0]

    def reported(self, peer: HttpWorker, job_id: int, session: HttpSession | None = None) -> None:
        """The worker does not have the job any more; one that was there for it alone is kept for the next job on this
        connection, or deregistered."""
        try:
            del self.by_job[job_id]
        except KeyError:  # it was given to another meanwhile, who has reported
            pass
        if not peer.is_single:
            peer.job_ids.discard(job_id)
        elif session is None or not self.keep_taker(session, peer):
            self.remove(peer)


class WorkerAddress:
    """The address from which a worker has asked for jobs; the job log and lists of workers show it."""

    def __init__(self, session: HttpSession) -> None:
        self.host = session.transport.host
        self.port = session.transport.port


class HttpWorker(Peer):
    """The peer of an HTTP worker in the engine; its lease is independent of connections."""

    def __init__(self, workers: HttpWorkers, lease_us: int, *, is_single: bool) -> None:
        super().__init__()
        self.workers = workers
        self.lease_us = lease_us
        self.is_single = is_single  # made up for one job at a time
        self.function = b""  # of such a one
        self.taker_number = 0  # the connection that made such a one; see `HttpWorkers.taker`
        self.id = ""  # of a registered one
        self.owner = FULL_PERMISSIONS  # the identity that has registered it
        self.worker: Worker | None = None
        self.transport: WorkerAddress | None = None  # under the name that other peers have for their connection
        self.session: HttpSession | None = None  # whose request waits for a job of this worker
        self.job_ids: set[int] = set()  # given to a registered one, and not reported on
        self.single_id = 0  # the last job that was given to another one
        # Jobs that were taken from it, each with its attempt, which it is told with its next request for jobs.
        self.revoked: dict[tuple[int, int], Cause] = {}

    def renew(self) -> None:
        """The worker has shown that it is there."""
        self.workers.heard_of(self)
        if self.worker is not None:
            self.workers.engine.renew_lease(self.worker, self.lease_us)

    def event_concerns(self, batch: int) -> None:
        if self.session is not None:
            self.session.event_concerns(batch)

    def assign(self, worker: Worker, job: Job) -> None:
        session = self.session
        wait = session.wait if session is not None else None
        soon = None if session is None else session.context.soon
        if session is None or session.closing or session.ended or not isinstance(wait, WorkerWait):
            if soon is not None:
                soon(partial(self.workers.engine.release, worker, job.id))
            return
        session.context.soon(self.renew)
        wait.give(session, job)
        self.session = None

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        if self.is_single:
            return  # it asks for no more jobs, and learns this with its next report
        self.revoked[job.id, job.start_number] = cause
        session = self.session
        if session is not None and isinstance(session.wait, WorkerWait):
            session.wait.job_revoked(session)

    def wait_timed_out(self, worker: Worker, ticket: int) -> None:
        session, self.session = self.session, None
        if session is not None and session.wait is not None:
            session.wait.timed_out(session)

    def expired(self, worker: Worker) -> None:
        session, self.session = self.session, None
        self.workers.forget(self)
        if session is not None and session.wait is not None:
            session.wait.timed_out(session)


class WorkerWait(HttpWait):
    """A request of a worker for jobs, which waits if there are none."""

    def __init__(self, peer: HttpWorker) -> None:
        self.job = None
        self.is_of_new_job = False
        self.peer = peer

    def give(self, session: HttpSession, job: Job) -> None:
        """Respond to the waiting request with a job."""

    def job_revoked(self, session: HttpSession) -> None:
        """A job was taken from the worker."""

    def end(self, session: HttpSession) -> None:
        peer = self.peer
        peer.session = None
        if peer.is_single:
            peer.workers.remove(peer)
        elif peer.worker is not None:
            peer.workers.engine.withdraw_credit(peer.worker)
            peer.renew()
