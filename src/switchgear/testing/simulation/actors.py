"""Simulated clients and workers: peers that raise BrokenInvariant at unexpected events."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from switchgear.model import BEST_FIRST, FINAL_STATES, Cause, Function, Job, Peer, Timer, Worker
from switchgear.testing.invariants import BrokenInvariant
from switchgear.testing.simulation.limits import had_fitted

if TYPE_CHECKING:
    from switchgear.testing.simulation.simulated_cluster import SimulatedCluster

__all__ = ["Asks", "SimulatedClient", "SimulatedWorker"]


def counts_starts(job: Job, world: SimulatedCluster) -> bool:
    """Whether a crash must not make the server forget that this attempt of a job was started."""
    if job.schedule and not job.kept:
        return True  # otherwise its tick would be due again
    if not world.store.has_begun_to_store(job.id):
        return False  # a crash makes the server forget the job, which was promised to nobody
    if job.crash_limit >= 0:
        return job.crash_limit > 0
    return (job.attempts_limit if job.attempts_limit >= 0 else world.settings.attempts) > 0


class SimulatedClient(Peer):
    """Subscribes to jobs, and expects to be told of the end of each once for every subscription."""

    def __init__(self, number: int, world: SimulatedCluster) -> None:
        super().__init__()
        self.number = number
        self.world = world
        self.collects_data = number % 3 == 0
        self.expects: dict[int, int] = {}  # by job id, how often it will be told of the end

    def __repr__(self) -> str:
        return f"client {self.number}"

    def expect(self, job: Job) -> None:
        self.expects[job.id] = self.expects.get(job.id, 0) + 1

    def job_finished(self, job: Job) -> None:
        if job.state not in FINAL_STATES or not job.finished_us:
            raise BrokenInvariant(f"{self} was told of the end of {job}")
        self.world.told.job(self, job, "the end of", self.world)
        expected = self.expects.get(job.id, 0)
        if not expected:
            raise BrokenInvariant(f"{self} was told of the end of {job} once more than it asked")
        if expected == 1:
            del self.expects[job.id]
        else:
            self.expects[job.id] = expected - 1

    def job_progress(self, job: Job) -> None:
        self._unfinished(job)

    def job_data(self, job: Job, data: bytes) -> None:
        self._unfinished(job)

    def job_warning(self, job: Job, data: bytes) -> None:
        self._unfinished(job)

    def _unfinished(self, job: Job) -> None:
        if not self.expects.get(job.id):
            raise BrokenInvariant(f"{self} heard of {job}, which it does not watch")


class Asks(Enum):
    """The three ways in which workers get jobs."""

    PULL = 0
    SLEEP = 1
    PUSH = 2


class SimulatedWorker(Peer):
    """A worker with its own view of its jobs."""

    def __init__(self, asks: Asks, world: SimulatedCluster) -> None:
        super().__init__()
        self.asks = asks
        self.world = world
        self.hangs = False  # does nothing any more, and the server has not noticed
        self.is_expired = False
        self.asleep = False
        self.tickets: list[int] = []  # of credits with a time limit, the oldest first
        self.set_timers: dict[Timer, int] = {}  # with the time span after which each fires
        self.asks_for_any = False  # it has just asked for a job of a priority that it does not take otherwise
        self.starts: dict[int, int] = {}  # by job id, the number of the last start that was assigned
        self.holds: list[int] = []  # ids of the jobs that it believes to have
        self.reported: list[int] = []  # ids of jobs that it had, newest last
        self.worker: Worker  # the engine's worker; set at registration
        self.woken: list[Function] = []  # its functions at the last wakeup

    def __repr__(self) -> str:
        return f"worker {self.worker.id} ({self.asks.name.lower()})"

    def wake(self, worker: Worker) -> None:
        if not self.asleep:
            raise BrokenInvariant(f"{self} was woken, and was not asleep")
        self.asleep = False
        self.woken = list(worker.order)

    def assign(self, worker: Worker, job: Job) -> None:
        if self.tickets:
            del self.tickets[0]
        self.receive(job)

    def wait_timed_out(self, worker: Worker, ticket: int) -> None:
        if ticket not in self.tickets:
            raise BrokenInvariant(f"{self} was told that it waited in vain for ticket {ticket}, and has {self.tickets}")
        self.tickets.remove(ticket)

    def timer_fired(self, timer: Timer) -> None:
        if timer not in self.set_timers:
            raise BrokenInvariant(f"{self} was called for a timer that it has not set, or has cancelled")
        del self.set_timers[timer]

    def expired(self, worker: Worker) -> None:
        if self.is_expired or worker.alive:
            raise BrokenInvariant(f"{self} was told that its lease is over")
        self.is_expired = True
        self.tickets.clear()

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        if job.id not in self.holds:
            raise BrokenInvariant(f"{self} was told to stop {job}, which it does not have")

    def receive(self, job: Job) -> None:
        """Handle the assignment of a job."""
        if counts_starts(job, self.world):
            self.world.told.job(self, job, "the start of", self.world)
        if job.worker is not self.worker:
            raise BrokenInvariant(f"{self} was given {job} of {job.worker}")
        allowed = (self.worker.priorities or {}).get(job.function, BEST_FIRST)
        if job.priority not in allowed and not self.asks_for_any:
            raise BrokenInvariant(f"{self} was given {job} of priority {job.priority}, and takes {allowed}")
        if job.start_number <= self.starts.get(job.id, 0):
            raise BrokenInvariant(f"{self} was given start {job.start_number} of {job} twice")
        self.starts[job.id] = job.start_number
        if not had_fitted(self.worker, job, job):
            has = f"{self.worker.tags} and {self.worker.resources}, of which {self.worker.uses} is in use"
            raise BrokenInvariant(f"{self} has {has}, and {job} requires {job.requires!r}")
        if job.id in self.holds:  # an attempt that it was told to stop, or has forgotten
            self.holds.remove(job.id)
        self.holds.append(job.id)

    def put_down(self, job_id: int) -> None:
        """Forget a job, for whatever reason."""
        if job_id in self.holds:
            self.holds.remove(job_id)
            self.reported.append(job_id)
