"""`Peer`: the interface by which the engine tells sessions of events; `Timer`: a time at which it calls one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from switchgear.states import Cause

if TYPE_CHECKING:
    from switchgear.model.job import Job
    from switchgear.model.worker import Worker

__all__ = ["Peer", "Timer"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Peer:
    """A receiver of the engine's events: a protocol session, or a recorder in a test.

    The engine calls these methods while it handles a command; an implementation notes what to send and returns. It must
    not call the engine, except to suspend the lease of a worker that the event concerns, or to take back credit.
    """

    worker_tags: frozenset[bytes] = frozenset()  # tags that its listener gives to each of its workers
    worker_resources: Mapping[bytes, int] = {}  # likewise resources, in thousandths, unless the worker states its own
    collects_data: bool = False  # needs the parts of a result joined, because it cannot pass them on one by one
    timers: dict[Timer, None] | None = None  # timers that are set; maintained by the engine
    # Subscriptions that have ended and are still listed at their jobs, by job id; maintained by the engine, which
    # removes them in slices. The peer is told nothing more about these jobs.
    ended_subscriptions: dict[int, Job] | None = None
    source: int = 0  # the number of the protocol by which it submits jobs; see engine.flows

    def __init__(self) -> None:
        self.subscriptions: dict[int, Job] = {}  # jobs it is subscribed to, by id; maintained by the engine
        # The last batch of changes that concerns this peer; set by the engine. The owner sends nothing to the peer
        # until that batch is stored, so a peer is never told of something that a crash could undo.
        self.unstored_batch = 0

    def hears_of(self, job_id: int) -> bool:
        """Whether a subscription of this peer, listed at this job, has not ended."""
        return self.ended_subscriptions is None or job_id not in self.ended_subscriptions

    def drop_subscription(self, job_id: int) -> bool:
        """Forget the subscription to a job that no longer lists this peer; returns whether it had not ended before."""
        self.subscriptions.pop(job_id, None)
        return self.ended_subscriptions is None or self.ended_subscriptions.pop(job_id, None) is None

    def event_concerns(self, batch: int) -> None:
        """The next event for this peer is a change of this batch."""
        self.unstored_batch = batch

    def job_promised(self, job: Job, batch: int) -> None:
        """A submission of this peer has created or joined this job, which this batch will store.

        The next output to the peer is the answer to that submission.
        """
        self.unstored_batch = batch

    def wake(self, worker: Worker) -> None:
        """There is a job for this sleeping worker, which should ask for it."""

    def job_started(self, job: Job) -> None:
        """A job was assigned to a worker. Only global subscribers are told."""

    def job_detached(self, job: Job) -> None:
        """A job was taken from its worker, or its worker is gone or has failed: if it does not end with that, it will
        run again. Only global subscribers are told."""

    def assign(self, worker: Worker, job: Job) -> None:
        """A job was assigned to this worker, which had granted credit."""

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        """The worker's job was cancelled, timed out, done by another or held back: its result is no longer needed.

        The cause is the move that the job is about to make.
        """

    def control_worker(self, worker: Worker, number: int, request: bytes) -> bool:
        """Pass a request of an operator on to the worker; returns whether the worker can be controlled."""
        return False

    def expired(self, worker: Worker) -> None:
        """The worker did not renew its lease in time, and is deregistered."""

    def wait_timed_out(self, worker: Worker, ticket: int) -> None:
        """The worker's credit for one job has reached its time limit."""

    def timer_fired(self, timer: Timer) -> None:
        """A timer that this peer has set has fired."""

    def job_finished(self, job: Job) -> None:
        """A job of this subscriber has reached a final state; global subscribers are told of every job."""

    def job_progress(self, job: Job) -> None:
        """A job of this subscriber has new progress figures."""

    def job_data(self, job: Job, data: bytes) -> None:
        """A job of this subscriber has sent part of its result."""

    def job_warning(self, job: Job, data: bytes) -> None:
        """A job of this subscriber has sent a warning."""


class Timer:
    """A time at which a peer is called. `engine.timers` has the operations."""

    __slots__ = ("is_set", "peer")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.is_set = True  # neither fired nor cancelled
