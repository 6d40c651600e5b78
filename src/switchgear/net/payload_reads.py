"""`Payloads`: limits the memory of queued payloads, and reads spilled ones ahead from the store.

Payloads of queued jobs stay in memory up to `storage.payload_memory_bytes`. Beyond that only the store has them. The
engine assigns no job without its payload; at the end of each turn it names the payloads that it wants. Each read
includes the payloads of the jobs behind the wanted one. When half of these are assigned the next read begins, so that
the engine seldom has to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from switchgear.engine.engine import Engine
from switchgear.errors import StorageError
from switchgear.model import KEPT, QUEUED_STATES, READY, RESIDENT, Function, Job, Worker
from switchgear.model.job import lost_payload_text
from switchgear.net.store_reads import StoreReads
from switchgear.protocols.pending_read import PendingRead
from switchgear.storage.base import Store

__all__ = ["Payloads"]

# How many payloads are read ahead at once, at most, and about how many bytes. Their length is known only after the
# read, so the number starts small and grows.
READ_AHEAD: Final = 256
READ_AHEAD_BYTES = 8 * 1024 * 1024
FIRST_READ_AHEAD: Final = 4


class PayloadWait(PendingRead):
    """A worker that asked for a job waits until the payload of a job is read, or another job becomes ready."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker
        self._ready = self._count_ready()

    def has_more_ready(self) -> bool:
        """Whether there are more ready jobs for the worker than when it began to wait."""
        return self._count_ready() > self._ready

    def _count_ready(self) -> int:
        ready = 0
        for function in self._worker.order:
            ready += function.ready
        return ready


class Payloads:
    """Reads the payloads of queued jobs from the store, ahead of the queue."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        reads: StoreReads,
        memory_bytes: int,
        begin_turn: Callable[[], None],
        on_error: Callable[[StorageError], None],
    ) -> None:
        self.memory_bytes = memory_bytes
        self.resident_bytes = 0
        # By function and priority, a job whose payload was read ahead: when it is assigned, more are read.
        self.read_ahead: dict[tuple[Function, int], Job] = {}
        self._engine = engine
        self._store = store
        self._reads = reads
        self._begin_turn = begin_turn
        self._on_error = on_error
        self._in_flight: set[int] = set()  # jobs whose payloads are being read
        self._read_ahead_jobs = FIRST_READ_AHEAD
        self.waits: list[PayloadWait] = []  # workers that asked for a job and get their answer when a payload was read

    # --- payloads in memory ---

    def spill(self, job: Job) -> None:
        """Keep the payload of a queued job in memory only if there is room for it."""
        payload = job.payload
        if payload is not None and job.state in QUEUED_STATES and not self._has_room(job):
            job.payload = None
            if job.entry_bytes:
                self._engine.memory.job_bytes -= len(payload)

    def _has_room(self, job: Job) -> bool:
        """Whether the payload of a queued job may stay in memory; if so, it is counted."""
        size = len(job.payload or b"")
        if self.resident_bytes + size > self.memory_bytes:
            return False
        job.kept = RESIDENT
        self.resident_bytes += size
        return True

    def job_ended(self, job: Job) -> None:
        """Stop counting the payload of a job that has ended."""
        job.kept = KEPT
        self.resident_bytes -= len(job.payload or b"")

    # --- payloads of the next jobs ---

    def awaited_by(self, worker: Worker) -> PendingRead | None:
        """The wait of a worker that asks for a job; `None` if no payload of a job for it is being read."""
        if not (self._in_flight or self._engine.wanted_payloads) or not self._engine.awaits_payload(worker):
            return None
        wait = PayloadWait(worker)
        wait.on_abandoned = partial(self.waits.remove, wait)
        self.waits.append(wait)
        return wait

    def _end_waits(self) -> None:
        waits = list(self.waits)
        self.waits.clear()
        for wait in waits:
            wait.finish(None)

    def end_waits_for_others(self) -> None:
        """Called at the end of a turn: end the waits of workers for which a job has become ready."""
        for wait in [wait for wait in self.waits if wait.has_more_ready()]:
            self.waits.remove(wait)
            wait.finish(None)

    def read_wanted(self) -> None:
        """Called at the end of a turn: start to read the payloads that the engine wants, or will want soon."""
        for job in self._engine.take_wanted_payloads():
            if job.state is not READY or job.payload is not None:  # the job has left its queue
                self._engine.payload_arrivals.offer(job.function, 1)
                self._end_waits()
            elif job.id not in self._in_flight:
                self._read_from(job)
        if self.read_ahead:
            taken = [key for key, job in self.read_ahead.items() if job.state is not READY]
            for key in taken:
                del self.read_ahead[key]
                following = self._following(*key)
                if following:
                    self._read(following)

    def _read_from(self, job: Job) -> None:
        """Read the payload of this job and of the next ones."""
        wanted = self._following(job.function, job.priority)
        wanted[job.id] = job
        self._read(wanted)

    def _following(self, function: Function, priority: int) -> dict[int, Job]:
        entries = islice(function.next_entries(priority), self._read_ahead_jobs)
        return {
            job.id: job
            for job in entries
            if job.payload is None and job.state is READY and job.id not in self._in_flight
        }

    def _read(self, wanted: dict[int, Job]) -> None:
        self._in_flight |= wanted.keys()
        read = self._reads.start(self._store.read_payloads(list(wanted)))
        read.when_done(partial(self._arrived, wanted, read))

    def _arrived(self, wanted: dict[int, Job], read: PendingRead) -> None:
        """Handle the end of a read: let the jobs be assigned, or fail those whose payloads are lost."""
        self._begin_turn()
        self._in_flight -= wanted.keys()
        arrivals = self._engine.payload_arrivals
        functions: dict[Function, int] = {}
        for job in wanted.values():
            functions[job.function] = functions.get(job.function, 0) + 1
        if read.error is not None:
            for function in functions:
                arrivals.want_again(function)
            self._on_error(StorageError(str(read.error)))
            self._end_waits()
            return
        payloads: dict[int, bytes] = read.result
        for job_id, job in wanted.items():
            payload = payloads.get(job_id)
            if payload is None:
                arrivals.lost(job, lost_payload_text(job_id).encode())
            else:
                arrivals.arrived(job, payload)
        self._adapt(sum(map(len, payloads.values())))
        self._read_more_later(list(wanted.values()))
        for function, count in functions.items():
            arrivals.offer(function, count)
        self._end_waits()

    def _adapt(self, read_bytes: int) -> None:
        """Adapt the number of payloads per read to their length."""
        if read_bytes > READ_AHEAD_BYTES:
            self._read_ahead_jobs = FIRST_READ_AHEAD
        elif read_bytes * 2 <= READ_AHEAD_BYTES:
            self._read_ahead_jobs = min(self._read_ahead_jobs * 2, READ_AHEAD)

    def _read_more_later(self, jobs: list[Job]) -> None:
        """Remember the job at which to read ahead again: when half of these payloads are assigned."""
        jobs = [job for job in jobs if job.state is READY]
        if len(jobs) > 1:
            middle = jobs[len(jobs) // 2]
            self.read_ahead[middle.function, middle.priority] = middle
