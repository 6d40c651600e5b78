"""Clients and workers of the simulation: peers that believe things, and complain when they hear otherwise."""

from __future__ import annotations

from enum import Enum

from switchgear.model import FINAL_STATES, Cause, Function, Job, Peer, Worker
from switchgear.testing.invariants import BrokenInvariant

__all__ = ["Asks", "SimulatedClient", "SimulatedWorker"]


class SimulatedClient(Peer):
    """Watches jobs, and expects to hear of the end of each once for every time it asked."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.collects_data = number % 3 == 0
        self.expects: dict[int, int] = {}  # how many times it will be told of the end, by job id

    def __repr__(self) -> str:
        return f"client {self.number}"

    def expect(self, job: Job) -> None:
        self.expects[job.id] = self.expects.get(job.id, 0) + 1

    def job_finished(self, job: Job) -> None:
        if job.state not in FINAL_STATES or not job.finished_us:
            raise BrokenInvariant(f"{self} was told of the end of {job}")
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
    """The three ways of asking for a job."""

    PULL = 0
    SLEEP = 1
    PUSH = 2


class SimulatedWorker(Peer):
    """A worker as it sees itself."""

    def __init__(self, asks: Asks) -> None:
        super().__init__()
        self.asks = asks
        self.hangs = False  # does nothing any more, and nobody has noticed
        self.is_expired = False
        self.asleep = False
        self.tickets: list[int] = []  # of credits that end, the oldest first
        self.alarms: list[int] = []
        self.holds: list[int] = []  # ids of the jobs it believes to have
        self.reported: list[int] = []  # ids of jobs it had, newest last
        self.worker: Worker  # as the engine knows it; set when it registers
        self.woken: list[Function] = []  # functions it could do when it was last woken

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

    def waited_in_vain(self, worker: Worker, ticket: int) -> None:
        numbers = self.alarms if ticket in self.alarms else self.tickets
        if ticket not in numbers:
            raise BrokenInvariant(f"{self} was told that it waited in vain for ticket {ticket}, and has {self.tickets}")
        numbers.remove(ticket)

    def expired(self, worker: Worker) -> None:
        if self.is_expired or worker.alive:
            raise BrokenInvariant(f"{self} was told that its lease is over")
        self.is_expired = True
        self.tickets.clear()
        self.alarms.clear()

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        if job.id not in self.holds:
            raise BrokenInvariant(f"{self} was told to stop {job}, which it does not have")

    def receive(self, job: Job) -> None:
        """It was given a job."""
        if job.worker is not self.worker:
            raise BrokenInvariant(f"{self} was given {job} of {job.worker}")
        if job.id in self.holds:  # an attempt that it was told to give up, or has forgotten
            self.holds.remove(job.id)
        self.holds.append(job.id)

    def put_down(self, job_id: int) -> None:
        """It is done with a job, in whatever way."""
        if job_id in self.holds:
            self.holds.remove(job_id)
            self.reported.append(job_id)
