"""`TaskStream`: records recent attempts (worker, job, start, end) while a client watches them.

While it is watched it is one of the engine's global subscribers, which costs about a microsecond for each job.  When
more jobs end than that is worth, it lets go of the engine and looks at what the workers are running a few times a
second instead; the rows are then samples, and say so.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from switchgear.engine.engine import Engine
from switchgear.errors import Refused
from switchgear.model import CANCELLED, DONE, EXPIRED, FAILED, SECOND_US, Job, JobState, Peer, Timer, Worker
from switchgear.refusals import REFUSED_FULL

__all__ = ["OUTCOMES", "RunRecord", "TaskStream"]

RING_ROWS: Final = 65_536
ROW_BYTES: Final = 4 * 8 + 4 + 1
MOST_FUNCTION_NAMES: Final = 65_536
MOST_WORKER_NAMES: Final = 20_000
STREAM_BYTES: Final = RING_ROWS * ROW_BYTES + 1_000_000  # of the ring, and about of what runs

# From so many ends in a second on, samples are taken; below so many, everything is recorded again.
MOST_ENDS_PER_SECOND: Final = 20_000
FEW_ENDS_PER_SECOND: Final = 15_000
LEAST_INTERVAL_US: Final = SECOND_US // 10  # between two looks
WORKERS_PER_TURN: Final = 1_000  # and jobs that they run; looking at so many takes a millisecond

OUTCOMES: Final = ("done", "failed", "cancelled", "expired", "requeued", "sampled")
REQUEUED: Final = OUTCOMES.index("requeued")
SAMPLED: Final = OUTCOMES.index("sampled")
OUTCOME_OF: Final[dict[JobState, int]] = {DONE: 0, FAILED: 1, CANCELLED: 2, EXPIRED: 3}


class RunRecord(NamedTuple):
    """One attempt: the ids of its worker and job, its function, when it began and ended, and how."""

    worker: int
    function: bytes
    job: int
    start_us: int
    end_us: int
    outcome: str


class TaskStream(Peer):
    """Records recent attempts while a client watches them."""

    def __init__(self, engine: Engine, soon: Callable[[Callable[[], object]], None]) -> None:
        super().__init__()
        self.engine = engine
        self.recording_since_us = 0  # 0: nobody watches
        self.is_sampled = False
        self.written = 0  # how many rows were recorded since the server started
        self.first = 0  # the number of the first row of this recording
        # Names and protocols of workers that were seen.
        self.worker_names: OrderedDict[int, tuple[bytes, str]] = OrderedDict()
        self._not_looked_at: list[Worker] = []  # what they were running when the recording began is not noted yet
        self._soon = soon  # calls something in the next turn
        self._watched_until_us = 0
        self._timer: Timer | None = None
        self._functions: list[bytes] = []
        self._function_numbers: dict[bytes, int] = {}
        self._running: dict[int, tuple[int, int, int]] = {}  # by job: worker, function and start
        self._detached_job = 0  # whose row is the last one
        self._looked_us = 0
        self._ends = 0  # at that time
        self._clear()

    def _clear(self) -> None:
        self._worker_ids = array("q")
        self._function_column = array("I")
        self._job_ids = array("q")
        self._starts = array("q")
        self._ends_column = array("q")
        self._outcomes = bytearray()

    # --- watching ---

    def watch(self, seconds: float) -> None:
        """Record for `seconds` from now on; raises Refused if there is no memory for it."""
        now_us = self.engine.now_us
        self._watched_until_us = max(self._watched_until_us, now_us + round(seconds * SECOND_US))
        if not self.recording_since_us:
            self._begin()
        elif now_us - self._looked_us >= LEAST_INTERVAL_US:
            self._look()

    def _begin(self) -> None:
        engine = self.engine
        if not engine.memory.has_room(STREAM_BYTES):
            raise Refused(REFUSED_FULL, f"no memory for the {STREAM_BYTES} bytes of the task stream")
        self._timer = engine.set_timer(self, self._watched_until_us)
        engine.memory.subscription_bytes += STREAM_BYTES
        self.recording_since_us = self._looked_us = engine.now_us
        self.first = self.written
        self.is_sampled = False
        self._ends = self._ended_jobs()
        zeros = bytes(8 * RING_ROWS)
        self._worker_ids = array("q", zeros)
        self._job_ids = array("q", zeros)
        self._starts = array("q", zeros)
        self._ends_column = array("q", zeros)
        self._function_column = array("I", zeros[: 4 * RING_ROWS])
        self._outcomes = bytearray(RING_ROWS)
        self._attach()

    def _attach(self) -> None:
        self._running = {}
        self.engine.global_subscribers.append(self)
        self._not_looked_at = list(self.engine.workers.values())
        self._look_at_some()

    def _look_at_some(self) -> None:
        """Note what some workers are running; the others follow in the next turns. An attempt that ends before that is
        not recorded."""
        workers = self._not_looked_at
        if not self.recording_since_us or self.is_sampled:
            workers.clear()
        looked_at = 0
        while workers and looked_at < WORKERS_PER_TURN:
            worker = workers.pop()
            looked_at += 1 + len(worker.running)
            for job in worker.running.values():
                if job.worker is worker and job.id not in self._running:
                    self._running[job.id] = self._start(worker, job)
        if workers:
            self._soon(self._look_at_some)

    def timer_fired(self, timer: Timer) -> None:
        self._soon(self._watched_or_not)

    def _watched_or_not(self) -> None:
        if self._watched_until_us > self.engine.now_us:
            try:
                self._timer = self.engine.set_timer(self, self._watched_until_us)
                return
            except Refused:
                pass  # there is no memory to go on
        self.end()

    def end(self) -> None:
        """Stop recording, because no client watches."""
        if not self.recording_since_us:
            return
        self.recording_since_us = 0
        self.engine.memory.subscription_bytes -= STREAM_BYTES
        if not self.is_sampled:
            self.engine.global_subscribers.remove(self)
        self._clear()
        self._running = {}
        self._functions = []
        self._function_numbers = {}
        self.worker_names = OrderedDict()

    # --- events of the engine ---

    def job_started(self, job: Job) -> None:
        if job.worker is not None:
            self._running[job.id] = self._start(job.worker, job)

    def job_detached(self, job: Job) -> None:
        started = self._running.pop(job.id, None)
        if started is not None:
            self._write(started, job.id, REQUEUED)
            self._detached_job = job.id  # if it ends with that, the outcome is told next

    def job_finished(self, job: Job) -> None:
        started = self._running.pop(job.id, None)
        if started is not None:
            self._write(started, job.id, OUTCOME_OF[job.state])
        elif self._detached_job == job.id:
            self._outcomes[(self.written - 1) % RING_ROWS] = OUTCOME_OF[job.state]
        self._detached_job = 0

    def _start(self, worker: Worker, job: Job) -> tuple[int, int, int]:
        if worker.id not in self.worker_names:
            while len(self.worker_names) >= MOST_WORKER_NAMES:
                self.worker_names.popitem(last=False)
            self.worker_names[worker.id] = worker.name, worker.protocol
        name = job.function.name
        number = self._function_numbers.get(name)
        if number is None:
            if len(self._functions) >= MOST_FUNCTION_NAMES:
                name = b"other"
            number = self._function_numbers.setdefault(name, len(self._functions))
            if number == len(self._functions):
                self._functions.append(name)
        return worker.id, number, job.taken_us

    def _write(self, started: tuple[int, int, int], job_id: int, outcome: int) -> None:
        index = self.written % RING_ROWS
        self.written += 1
        self._worker_ids[index], self._function_column[index], self._starts[index] = started
        self._job_ids[index] = job_id
        self._ends_column[index] = self.engine.now_us
        self._outcomes[index] = outcome

    # --- sampling ---

    def _ended_jobs(self) -> int:
        """How many jobs workers have ended since the server started."""
        by_worker = self.engine.flows.by_worker.values()
        return sum(sum(flow.counts()) for by_source in by_worker for flow in by_source)

    def _look(self) -> None:
        """Change between recording and sampling, and take a sample."""
        now_us = self.engine.now_us
        ended = self._ended_jobs()
        rate = (ended - self._ends) * SECOND_US / (now_us - self._looked_us)
        self._ends, self._looked_us = ended, now_us
        if not self.is_sampled and rate > MOST_ENDS_PER_SECOND:
            self.is_sampled = True
            self.engine.global_subscribers.remove(self)
        elif self.is_sampled and rate < FEW_ENDS_PER_SECOND:
            self.is_sampled = False
            self._attach()
        if self.is_sampled:
            self._sample()

    def _sample(self) -> None:
        """Whatever ran at the last look and runs no more has ended in between. Of very many workers the first ones are
        looked at."""
        running: dict[int, tuple[int, int, int]] = {}
        for worker in islice(self.engine.workers.values(), WORKERS_PER_TURN):
            for job in worker.running.values():
                if job.worker is worker:
                    running[job.id] = self._start(worker, job)
        for job_id, started in self._running.items():
            if running.get(job_id) != started:
                self._write(started, job_id, SAMPLED)
        self._running = running

    # --- reading ---

    @property
    def oldest(self) -> int:
        """The number of the oldest row that is kept."""
        return max(self.first, self.written - RING_ROWS)

    def number_since(self, since_us: int) -> int:
        """The number of the first row that ended at or after a time."""
        low, high = self.oldest, self.written
        while low < high:
            middle = (low + high) // 2
            if self._ends_column[middle % RING_ROWS] < since_us:
                low = middle + 1
            else:
                high = middle
        return low

    def row(self, number: int) -> RunRecord:
        """A row by its number."""
        index = number % RING_ROWS
        return RunRecord(
            self._worker_ids[index],
            self._functions[self._function_column[index]],
            self._job_ids[index],
            self._starts[index],
            self._ends_column[index],
            OUTCOMES[self._outcomes[index]],
        )

    @property
    def running_count(self) -> int:
        """How many of the recorded attempts have not ended."""
        return len(self._running)

    def running(self, most: int) -> list[RunRecord]:
        """The running attempts; if there are too many, a sample by job number, so that a chosen job stays chosen."""
        every = -(-len(self._running) // most)
        return [
            RunRecord(worker_id, self._functions[function], job_id, start_us, 0, "running")
            for job_id, (worker_id, function, start_us) in self._running.items()
            if job_id % every == 0
        ][:most]
