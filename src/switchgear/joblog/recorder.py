"""`Recorder`: writes the server's jobs to the job log; a thread writes the rows.

`note` is called in the event loop's thread at the end of each turn and only copies the fields of a row; both threads
use `_pending`, under a lock that is held only for that. Most jobs end before the thread writes, and their start never
becomes a row: until then it is a `Start`, which refers to the job. (A running job is in memory anyway, so the reference
costs nothing; a finished job may have a payload and a result that should be freed.)

The log must never block the server. Rows wait in a bounded queue. When the database is too slow, the oldest are
dropped, counted and reported; but if possible not the end of a job whose start is in the log, which would then seem to
run forever. When the database fails it is tried again, with growing pauses; rows are identified by handle and
submission, so that writing one twice does no harm.

Both threads share the interpreter lock, so the thread does little in Python: a batch is one statement, and while the
database works on it the event loop runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from switchgear.backoff import ReconnectBackoff, RetryPauses, without_jitter
from switchgear.errors import StorageError
from switchgear.joblog.audit import AuditQuery, AuditWriter, LoggedAudit
from switchgear.joblog.database import ConnectionLost, Server
from switchgear.joblog.job_log import JobLog
from switchgear.joblog.runs import (
    LONGEST_NAME,
    LoggedRun,
    LoggedStart,
    RunQuery,
    RunRow,
    readable,
    start_line,
    starts_of,
)
from switchgear.model import DONE, FINAL_STATES, RUNNING, SECOND_US, Cause, Job, Worker

__all__ = ["Recorder", "Tell", "described_worker"]

log = logging.getLogger("switchgear")

Key: TypeAlias = int | tuple[int, int]  # a job's id, and for a retried job also the time of the retry
WorkerText: TypeAlias = tuple[str, str, str]  # its protocol, name and address
Start: TypeAlias = tuple[Job, int, WorkerText]  # the first start, and the worker
Row = TypeVar("Row", RunRow, RunRow | Start)
Tell: TypeAlias = Callable[[str, Mapping[str, object]], None]  # an event of the telemetry's table, from any thread

# How long rows are collected. Most jobs have ended by then and are one row; a start that is lost in a crash is no
# older.
GATHER_SECONDS: Final = 0.2
# How long the event loop may have to wait while values are bound: half a millisecond.
BATCH_ROWS: Final = 1024
PAGE_ROWS: Final = 500  # that are read at a time
# Of runs that began before a time, so many are looked at for those that still ran.
MOST_ROWS_BEFORE: Final = 2_000
# Some seconds of a busy server, and some 40 MB; ten times that if all of them carry long errors.
QUEUE_ROWS: Final = 100_000
# Rows are dropped in bulk, because the queue is rebuilt each time.
DROPPED_PART: Final = 10

FIRST_RETRY_SECONDS: Final = 0.5
LONGEST_RETRY_SECONDS: Final = 30.0
TRIM_SECONDS: Final = 60.0
TRIM_ROWS: Final = 5_000
CLOSE_SECONDS: Final = 5.0
# Functions can be dropped and created again; their texts need not be kept forever.
MOST_NAMES: Final = 20_000

TAKEN: Final = Cause.TAKEN
RETRIED: Final = (Cause.RETRIED, Cause.RETRIED_WAITING)
# After these an attempt has ended, and the job waits.
STOPPED: Final = (
    Cause.WORKER_LOST,
    Cause.SERVER_LOST,
    Cause.TIMED_OUT,
    Cause.GIVEN_BACK,
    Cause.RETRY_LATER,
    Cause.HELD_BACK,
)
ENDED: Final = 3  # its index in a row
PROTOCOL: Final = 10
WORKER: Final = 13
WORKER_HOST: Final = 14
STARTS: Final = 15
LONGEST_STARTS: Final = 16_384  # as in the statements of the databases
NO_WORKER: Final[tuple[str, str, str]] = ("", "", "")
ONE_LINE: Final = {ord("\t"): " ", ord("\n"): " "}  # what separates the words and lines of starts
MOST_RUNS: Final = 50  # of one job, that is how often it was retried
MOST_SEARCHED: Final = 2_000  # rows that wait, among which all runs of a job are looked for
START_LENGTH: Final = 3


class Recorder:
    """Writes a row for each job that is started or ends."""

    def __init__(
        self,
        job_log: JobLog,
        server: Server,
        tell: Tell,
        *,
        keep_seconds: float,
        keep_count: int,
        queue_rows: int = QUEUE_ROWS,
    ) -> None:
        self.keep_seconds = keep_seconds
        self.keep_count = keep_count
        self.written = 0  # rows
        self.dropped = 0
        self._log = job_log
        self._server = server
        self._tell = tell
        self._queue_rows = queue_rows
        self._lock = threading.Lock()
        self._pending: dict[Key, RunRow | Start] = {}
        self._backlog: dict[Key, RunRow] = {}  # taken from `_pending`, not yet written
        self._started: set[int] = set()  # jobs whose start was written, and not their end
        self._names: dict[bytes, str] = {}
        self._workers: dict[int, tuple[bytes, WorkerText]] = {}  # by id, with the name that they had
        self._noted = threading.Event()
        self._stopping = threading.Event()
        self._failed_at = 0.0
        self.audit = AuditWriter(server.host, self._noted.set)
        self._thread = threading.Thread(target=self._run, name="joblog-writer", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the log."""
        return self._log.url

    @property
    def waiting(self) -> int:
        """How many rows are not written yet."""
        return len(self._pending) + len(self._backlog) + self.audit.waiting

    def find_audit(self, query: AuditQuery) -> list[LoggedAudit]:
        """Entries of the audit log, with those that were noted a moment ago; for any thread. Raises StorageError."""
        self.audit.write(self._log)
        return self._log.find_audit(query)

    def running_at(self, seconds: float, most_rows: int) -> tuple[list[LoggedRun], bool]:
        """The runs that had begun at a time and not ended, as far as they are written, and whether these are all.

        Only so many runs are looked at, those that began last. Raises StorageError, and may take long.
        """
        found: list[LoggedRun] = []
        query = RunQuery(until=seconds + 1e-6, limit=PAGE_ROWS)
        for _ in range(max(1, most_rows // PAGE_ROWS)):
            page = self._log.find(query)
            found += [
                run for run in page if run.started_at is not None and (run.ended_at is None or run.ended_at > seconds)
            ]
            if len(page) < PAGE_ROWS:
                return found, True
            query = replace(query, before_id=page[-1].id)
        return found, False

    def ran_between(self, since: float, until: float, limit: int) -> tuple[list[LoggedRun], int]:
        """Runs that ran at any moment of a time, in the order of their starts, and of how many each of them stands.

        Of more than `limit` some are left out, evenly. Raises StorageError, and may take long.
        """
        running, _ = self.running_at(since, MOST_ROWS_BEFORE)
        started, every = self._log.spread(since, until, limit)
        found = {run.id: run for run in (*running[:limit], *started) if run.started_at is not None}
        return sorted(found.values(), key=lambda run: run.started_at or 0.0), every

    def start(self) -> None:
        """Start the writer.  Raises StorageError if it can never work; a database that cannot be reached is retried."""
        try:
            self._log.connect()
        except ConnectionLost as error:
            self._report_failure(error)
        self._thread.start()

    def close(self) -> None:
        """Write the remaining rows, but do not wait for a database that does not answer."""
        self._stopping.set()
        self._noted.set()
        self._thread.join(CLOSE_SECONDS)
        if self.waiting:
            log.warning("job log: dropped %d entries that could not be written in time", self.waiting)

    def find_starts(self, handle: str, job_id: int) -> dict[int, LoggedStart]:
        """The starts of a job that the log knows, by their times in microseconds; for any thread, and it may take as
        long as the database does.  Raises StorageError."""
        recent = self.recent_starts(job_id)
        found: dict[int, LoggedStart] = {}
        for run in self._log.find(RunQuery(handle=handle, limit=MOST_RUNS)):
            found.update({round(start.started_at * SECOND_US): start for start in run.starts})
        return found | starts_of(recent)

    # --- in the event loop's thread ---

    def note(self, jobs: Iterable[Job]) -> None:
        """Note changed jobs, whose rows are written later."""
        try:
            with self._lock:
                self._note(jobs)
        except Exception:  # a defect of ours: the jobs matter more than their log
            log.exception("internal error in the job log")
        if self._pending and not self._noted.is_set():
            self._noted.set()

    def _note(self, jobs: Iterable[Job]) -> None:
        pending = self._pending
        for job in jobs:
            moves = job.moves
            if moves is None:
                continue  # it was submitted, which is not logged
            if len(moves) == 2 and job.state is RUNNING:
                worker = job.worker
                pending[job.id] = (job, moves[1], self._worker(worker) if worker is not None else NO_WORKER)
            elif len(moves) == 4 and job.state is DONE and moves[0] == TAKEN:
                worker_text, starts = _worker_of(pending.get(job.id))
                pending[job.id] = self._row(
                    job, job.created_us, moves[1], moves[3], job.attempts, "done", worker_text, starts
                )
            else:
                self._note_unusual(job, moves)
        if len(pending) > self._queue_rows:
            self._pending = self._without_oldest(pending)

    def _note_unusual(self, job: Job, moves: list[int]) -> None:
        """Note a job with a longer history: it was retried, lost, cancelled ..."""
        submitted_us = job.created_us
        started_us = 0
        is_running = False  # before the last move
        for cause, at_us in zip(moves[::2], moves[1::2], strict=True):
            if cause == TAKEN:
                started_us, is_running = at_us, True
            elif cause in STOPPED:
                is_running = False
            elif cause in RETRIED:
                submitted_us, started_us, is_running = at_us, 0, False  # the earlier run stays as it ended
        is_final = job.state in FINAL_STATES
        if is_final and not is_running:
            started_us = 0  # it ended while it waited, and from its last start to then nothing was measured
        if not started_us and not is_final:
            return
        key: Key = job.id if submitted_us == job.created_us else (job.id, submitted_us)
        worker_text, starts = _worker_of(self._pending.get(key))
        if job.worker is not None:
            worker_text = self._worker(job.worker)
            line = start_line(moves[-1], *worker_text)
            starts = starts if starts.endswith(line) else starts[-LONGEST_STARTS:] + line
        ended_us = job.finished_us if is_final else 0
        state = job.state.name.lower()
        self._pending[key] = self._row(
            job, submitted_us, started_us, ended_us, job.attempts, state, worker_text, starts
        )

    def _worker(self, worker: Worker) -> WorkerText:
        """What the log says of a worker."""
        known = self._workers.get(worker.id)
        if known is not None and known[0] is worker.name:
            return known[1]
        if len(self._workers) >= MOST_NAMES:
            self._workers.clear()
        text = described_worker(worker)
        self._workers[worker.id] = worker.name, text
        return text

    def recent_starts(self, job_id: int) -> str:
        """Lines of starts of a job that are not written yet; of an earlier run only if few rows wait."""
        with self._lock:
            found = [entries.get(job_id) for entries in (self._backlog, self._pending)]
            if self.waiting <= MOST_SEARCHED:
                rows = [*self._backlog.items(), *self._pending.items()]
                found += [row for key, row in rows if isinstance(key, tuple) and key[0] == job_id]
        return "".join([_worker_of(entry)[1] for entry in found])

    def _row(
        self,
        job: Job,
        submitted_us: int,
        started_us: int,
        ended_us: int,
        attempts: int,
        state: str,
        worker_text: WorkerText,
        starts: str,
    ) -> RunRow:
        name = job.function.name
        function = self._names.get(name)
        if function is None:
            function = self._identify(name)
        unique = job.unique or job.name or job.label
        if len(unique) > LONGEST_NAME or not unique.isascii() or b"\0" in unique:
            key = "-" if unique.startswith(b"-\0") else readable(unique, LONGEST_NAME)  # -: the payload is the key
        else:
            key = unique.decode("ascii")
        code, error = 0, ""
        if state not in ("done", "running"):
            code = job.result_code
            error = readable(job.error or job.result)  # in some protocols the result of a failure is the error
        origin, message, trace = "", "", ""
        if job.has_details:
            origin = job.origin
            trace = job.trace.decode()
            if job.message and ended_us:
                message = readable(job.message)
        return (
            job.id, submitted_us, started_us, ended_us, attempts, code, state, function, key, origin, worker_text[0],
            error, message, worker_text[1], worker_text[2], starts, trace,
        )  # fmt: skip

    def _identify(self, name: bytes) -> str:
        if len(self._names) >= MOST_NAMES:
            self._names.clear()
        text = self._names[name] = readable(name, LONGEST_NAME)
        return text

    def _without_oldest(self, rows: dict[Key, Row]) -> dict[Key, Row]:
        """The rows without the oldest, a little fewer than the queue may hold, so that it is not rebuilt for every
        row."""
        count = len(rows) - self._queue_rows + self._queue_rows // DROPPED_PART
        started = self._started
        dropped = set(islice((key for key, row in rows.items() if _job_id(row) not in started), count))
        if len(dropped) < count:
            dropped.update(islice((key for key in rows if key not in dropped), count - len(dropped)))
            started.difference_update([_job_id(rows[key]) for key in dropped])
        self.dropped += count
        self._tell("joblog_overrun", {"count": count})
        return {key: row for key, row in rows.items() if key not in dropped}

    # --- in the writer's thread ---

    def _run(self) -> None:
        pauses = RetryPauses(ReconnectBackoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, rng=without_jitter))
        trim_at = time.monotonic() + TRIM_SECONDS
        while not self._stopping.is_set():
            self._noted.wait(max(0.0, trim_at - time.monotonic()))
            if self._noted.is_set():
                self._stopping.wait(GATHER_SECONDS)
                self._noted.clear()
                if self._write():
                    pauses.reset()
                else:
                    self._stopping.wait(pauses.next_seconds())
                    self._noted.set()
            if time.monotonic() >= trim_at:
                self._trim()
                trim_at = time.monotonic() + TRIM_SECONDS
        self._write()
        self._log.close()

    def _write(self) -> bool:
        """Write all noted rows; False if the database did not take them."""
        try:
            self.audit.write(self._log)
        except StorageError as error:
            self._report_failure(error)
            return False
        self._take()
        items = list(self._backlog.items())
        for start in range(0, len(items), BATCH_ROWS):
            rows = [row for _, row in items[start : start + BATCH_ROWS]]
            try:
                self._log.put(self._server, rows)
            except StorageError as error:
                self._backlog = dict(items[start:])
                self._report_failure(error)
                return False
            except Exception:  # a defect of ours, which the same rows would cause again
                log.exception("internal error in the job log: %d entries are not written", len(rows))
                self.dropped += len(rows)
            else:
                self.written += len(rows)
                self._started.difference_update([row[0] for row in rows if row[ENDED]])
        self._backlog = {}
        if items and self._failed_at:
            self._tell("joblog_recovered", {"seconds": round(time.monotonic() - self._failed_at, 1)})
            self._failed_at = 0.0
        return True

    def _take(self) -> None:
        """Take the rows that the event loop has noted."""
        with self._lock:
            newer, self._pending = self._pending, {}
        backlog = self._backlog
        for key, entry in newer.items():
            if len(entry) == START_LENGTH:
                # Only fields that never change are read from the job, which may have ended by now.
                job, started_us, worker_text = entry
                starts = start_line(started_us, *worker_text) if worker_text[1] else ""
                backlog[key] = self._row(job, job.created_us, started_us, 0, 1, "running", worker_text, starts)
                self._started.add(job.id)
            else:
                backlog[key] = _with_worker(entry, backlog.get(key))
                if not entry[ENDED]:
                    self._started.add(entry[0])
        if len(self._backlog) > self._queue_rows:
            self._backlog = self._without_oldest(self._backlog)

    def _report_failure(self, error: StorageError) -> None:
        if not self._failed_at:
            self._failed_at = time.monotonic()
            self._tell("joblog_failed", {"error": error})

    def _trim(self) -> None:
        """Delete old runs and old entries of the audit log, a few at a time, with writes in between."""
        count = 0
        try:
            before_us = time.time_ns() // 1000 - int(self.keep_seconds * SECOND_US)
            self._drop_before(self._log.audit_drop_bound(before_us, self.keep_count), self._log.drop_audit)
            count = self._drop_before(self._log.drop_bound(before_us, self.keep_count), self._log.drop)
        except StorageError as error:
            self._report_failure(error)
        if count:
            self._tell("joblog_trimmed", {"count": count})

    def _drop_before(self, before_us: int, drop: Callable[[int, int], int]) -> int:
        """Delete what is older, some rows at a time, until nothing is; returns how many."""
        count = 0
        while not self._stopping.is_set():
            dropped = drop(before_us, TRIM_ROWS)
            count += dropped
            if dropped < TRIM_ROWS or not self._write():
                break
        return count


def described_worker(worker: Worker) -> WorkerText:
    """The protocol of a worker, its name or else its number, and the address that it comes from."""
    host = getattr(getattr(worker.peer, "transport", None), "host", "") or ""
    name = readable(worker.name, LONGEST_NAME) if worker.name else f"worker {worker.id}"
    return worker.protocol, name.translate(ONE_LINE), readable(str(host), LONGEST_NAME).translate(ONE_LINE)


def _job_id(entry: RunRow | Start) -> int:
    return entry[0].id if len(entry) == START_LENGTH else entry[0]


def _worker_of(earlier: RunRow | Start | None) -> tuple[WorkerText, str]:
    """The worker of a row, and its lines of starts; from the start of the run if the job has ended."""
    if earlier is None:
        return NO_WORKER, ""
    if len(earlier) == START_LENGTH:
        text = earlier[2]
        return text, start_line(earlier[1], *text) if text[1] else ""
    return (earlier[PROTOCOL], earlier[WORKER], earlier[WORKER_HOST]), earlier[STARTS]


def _with_worker(row: RunRow, earlier: RunRow | None) -> RunRow:
    """A row that replaces an earlier one that was not written: with all starts, and with the worker if it has none."""
    if earlier is None:
        return row
    worker = row if row[PROTOCOL] else earlier
    return (
        *row[:PROTOCOL], worker[PROTOCOL], row[11], row[12], worker[WORKER], worker[WORKER_HOST],
        (earlier[STARTS] + row[STARTS])[-LONGEST_STARTS:], row[16],
    )  # fmt: skip
