"""The recorder: which rows come of which changes, and what happens when the database does not follow."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from switchgear.errors import SchemaTooNew, StorageError
from switchgear.joblog import JobLog, LoggedRun
from switchgear.joblog import recorder as recorder_module
from switchgear.joblog.audit import AuditEntry, AuditQuery
from switchgear.joblog.database import Server
from switchgear.joblog.recorder import Recorder
from switchgear.joblog.runs import RunQuery, RunRow
from switchgear.joblog.sqlite import SqliteDatabase
from switchgear.model import Cause, Delivery, Job, Worker
from switchgear.testing import RecordingPeer
from tests.engine.harness import Harness
from tests.joblog.support import HERE, NOON, Life, put, row
from tests.support.waiting import eventually


class GatedLog(JobLog):
    """A log whose writing the test can hold up, or make fail."""

    def __init__(self, path: Path) -> None:
        super().__init__(SqliteDatabase(path))
        self.gate = threading.Event()
        self.gate.set()
        self.fault: Exception | None = None
        self.batches: list[int] = []
        self.is_held_up = threading.Event()

    def put(self, server: Server, rows: Sequence[RunRow]) -> None:
        self.is_held_up.set()
        assert self.gate.wait(60)
        self.is_held_up.clear()
        if self.fault is not None:
            raise self.fault
        self.batches.append(len(rows))
        super().put(server, rows)


class RecorderHarness:
    """A recorder at work, and what it says."""

    def __init__(self, path: Path, **options: int) -> None:
        self.log = GatedLog(path)
        self.told: list[tuple[str, Mapping[str, object]]] = []
        settings = {"keep_seconds": 10**9, "keep_count": 10**9} | options
        self.recorder = Recorder(self.log, HERE, lambda name, fields: self.told.append((name, fields)), **settings)
        self.recorder.start()
        self.reader = JobLog.open(f"sqlite:{path}")

    def note(self, *lives: Life) -> None:
        self.recorder.note([life.job for life in lives])

    def runs(self) -> list[LoggedRun]:
        """Everything, once all that was noted is written; the oldest first."""
        eventually(lambda: not self.recorder.waiting, "everything is written")
        return self.reader.ran(limit=10_000)[::-1]

    def words(self) -> list[str]:
        return [name for name, _ in self.told]

    def close(self) -> None:
        self.log.fault = None
        self.log.gate.set()
        self.recorder.close()
        self.reader.close()


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "GATHER_SECONDS", 0.001)
    monkeypatch.setattr(recorder_module, "FIRST_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(recorder_module, "LONGEST_RETRY_SECONDS", 0.001)


@pytest.fixture
def new_recorder(tmp_path: Path) -> Iterator[Callable[..., RecorderHarness]]:
    recorders: list[RecorderHarness] = []

    def make(**options: int) -> RecorderHarness:
        recorders.append(RecorderHarness(tmp_path / "log.db", **options))
        return recorders[-1]

    yield make
    for recorded in recorders:
        recorded.close()


@pytest.fixture
def recorded(new_recorder: Callable[..., RecorderHarness]) -> RecorderHarness:
    return new_recorder()


# --- rows ---


def test_a_job_that_waits_is_no_news(recorded: RecorderHarness) -> None:
    recorded.note(Life())
    recorded.note(Life(1).started().done())
    assert [run.handle for run in recorded.runs()] == ["H:here:1"]


def test_a_start_and_then_its_end(recorded: RecorderHarness) -> None:
    life = Life(7, b"resize", b"17-3").started()
    recorded.note(life)
    (run,) = recorded.runs()
    assert (run.handle, run.function, run.key, run.state) == ("H:here:7", "resize", "17-3", "running")
    assert (run.submitted_at, run.started_at, run.ended_at) == (NOON, NOON + 1, None)
    assert (run.attempts, run.protocol, run.host, run.source) == (1, "gearman", "here", "server")
    recorded.note(life.done())
    (run,) = recorded.runs()
    assert (run.state, run.seconds, run.protocol) == ("done", 1, "gearman")


def test_a_short_job_is_written_once(recorded: RecorderHarness) -> None:
    recorded.log.gate.clear()
    recorded.note(Life(1).started())
    assert recorded.log.is_held_up.wait(10)
    lives = [Life(number) for number in range(2, 5)]
    recorded.note(*(life.started() for life in lives))
    recorded.note(*(life.done() for life in lives))
    recorded.log.gate.set()
    assert [(run.state, run.protocol) for run in recorded.runs()] == [
        ("running", "gearman"),
        *[("done", "gearman")] * 3,
    ]
    assert sum(recorded.log.batches) == 4


def test_a_start_is_written_as_it_was_when_the_job_has_gone_on(recorded: RecorderHarness) -> None:
    """Only what never changes is read later."""
    recorded.log.gate.clear()
    recorded.note(Life(1).started())
    assert recorded.log.is_held_up.wait(10)
    life = Life(2).started()
    recorded.note(life)
    life.lost()  # nobody noted that
    recorded.log.gate.set()
    run = recorded.runs()[1]
    assert (run.state, run.started_at, run.ended_at, run.attempts) == ("running", NOON + 1, None, 1)


def test_a_failure_with_its_error(recorded: RecorderHarness) -> None:
    recorded.note(Life(1).started().failed(b"caf\xe9 \0" + b"x" * 10_000))
    (run,) = recorded.runs()
    assert (run.state, run.result_code) == ("failed", 1)
    assert run.error.startswith("caf\\xe9 \\x00xxx")
    assert len(run.error) == 4096


def test_a_lost_worker_and_another_attempt(recorded: RecorderHarness) -> None:
    life = Life(1).started().lost()
    recorded.note(life)
    (run,) = recorded.runs()
    assert (run.state, run.started_at, run.ended_at) == ("ready", NOON + 1, None)
    recorded.note(life.started())
    recorded.note(life.done())
    (run,) = recorded.runs()
    assert (run.state, run.attempts, run.started_at, run.seconds) == ("done", 2, NOON + 3, 1)


def test_a_job_that_ends_without_a_start(recorded: RecorderHarness) -> None:
    harness = Harness()
    job = harness.submit(b"mail")
    harness.engine.cancel(job)
    recorded.recorder.note([job])
    (run,) = recorded.runs()
    assert (run.state, run.started_at, run.seconds, run.attempts) == ("cancelled", None, None, 0)
    assert run.ended_at == job.finished_us / 1e6


def _stop(harness: Harness, worker: Worker, job: Job, how: str) -> None:
    if how == "given back":
        harness.engine.release(worker, job.id)
    elif how == "lost":
        harness.engine.remove_worker(worker)
    else:
        harness.engine.retry_later(worker, job.id, 1_000_000_000, b"no room", 5)


@pytest.mark.parametrize("how", ["given back", "lost", "to be tried later"])
def test_a_job_that_ends_while_it_waits_again_is_not_measured(recorded: RecorderHarness, how: str) -> None:
    """From its last start to its end it did not run."""
    harness = Harness()
    job = harness.submit(b"mail")
    worker = harness.worker(b"mail")
    assert harness.engine.take(worker) is job
    recorded.recorder.note([job])
    _stop(harness, worker, job, how)
    recorded.recorder.note([job])
    harness.at(100)
    harness.engine.cancel(job)
    recorded.recorder.note([job])
    (run,) = recorded.runs()
    assert (run.state, run.started_at, run.seconds) == ("cancelled", None, None)
    assert run.ended_at == job.finished_us / 1e6
    (summary,) = recorded.reader.summarize(RunQuery())
    assert (summary.mean_seconds, summary.longest_seconds) == (None, None)


def test_a_retried_job_is_another_run(recorded: RecorderHarness) -> None:
    """What failed stays in the log, although the job has the same handle; even if none of it was written yet."""
    recorded.log.gate.clear()
    recorded.note(Life(1).started())
    assert recorded.log.is_held_up.wait(10)
    life = Life(2).started().failed()
    recorded.note(life)
    recorded.note(life.retried())
    recorded.note(life.started())
    recorded.note(life.done())
    recorded.log.gate.set()
    first, second = recorded.runs()[1:]
    assert (first.handle, first.state, first.error, first.submitted_at) == ("H:here:2", "failed", "no room", NOON)
    assert (second.handle, second.state, second.error, second.submitted_at) == ("H:here:2", "done", "", NOON + 3)


@pytest.mark.parametrize(
    ("unique", "key"),
    [
        (b"", ""),
        (b"17-3", "17-3"),
        ("größe".encode(), "größe"),
        (b"\xff", "\\xff"),
        (b"-\0hash", "-"),
        (b"a\0b", "a\\x00b"),
    ],
)
def test_a_key_is_readable(recorded: RecorderHarness, unique: bytes, key: str) -> None:
    recorded.note(Life(1, unique=unique).started().done())
    assert recorded.runs()[0].key == key


def test_a_function_name_is_readable(recorded: RecorderHarness) -> None:
    recorded.note(Life(1, b"gr\xf6\xdfe").started().done(), Life(2, b"x" * 1000).started().done())
    first, second = recorded.runs()
    assert first.function == "gr\\xf6\\xdfe"
    assert len(second.function) == 512


def test_a_defect_is_not_the_servers(recorded: RecorderHarness, caplog: pytest.LogCaptureFixture) -> None:
    life = Life(1).started()
    life.job.moves = [Cause.TAKEN]
    recorded.note(life)
    assert "internal error in the job log" in caplog.text
    recorded.note(Life(2).started().done())
    assert [run.handle for run in recorded.runs()] == ["H:here:2"]


# --- a database that does not follow ---


def test_a_failing_database_is_tried_again_and_nothing_is_lost(recorded: RecorderHarness) -> None:
    recorded.log.fault = StorageError("disk full")
    recorded.note(Life(1).started(), Life(2).started())
    eventually(lambda: recorded.told, "it is told")
    recorded.note(Life(3).started().done())
    recorded.log.fault = None
    assert [run.handle for run in recorded.runs()] == ["H:here:1", "H:here:2", "H:here:3"]
    eventually(lambda: len(recorded.told) == 2, "it is told")
    assert recorded.words() == ["joblog_failed", "joblog_recovered"]
    assert str(recorded.told[0][1]["error"]) == "disk full"
    assert recorded.recorder.written == 3


def test_what_changed_during_a_failure_is_written_as_it_is_then(recorded: RecorderHarness) -> None:
    recorded.log.fault = StorageError("disk full")
    life = Life(1).started()
    recorded.note(life)
    eventually(lambda: recorded.told, "it is told")
    recorded.note(life.done())
    recorded.log.fault = None
    (run,) = recorded.runs()
    assert (run.state, run.protocol) == ("done", "gearman")


def test_a_queue_that_is_full_drops_the_oldest(new_recorder: Callable[..., RecorderHarness]) -> None:
    recorded = new_recorder(queue_rows=100)
    recorded.log.gate.clear()
    recorded.note(Life(1).started())
    assert recorded.log.is_held_up.wait(10)
    for first in range(2, 302, 10):
        recorded.note(*(Life(number).started().done() for number in range(first, first + 10)))
    assert recorded.recorder.waiting <= 101
    recorded.log.gate.set()
    runs = recorded.runs()
    assert runs[0].handle == "H:here:1"  # the database had it in its hands
    assert runs[-1].handle == "H:here:301"
    assert recorded.recorder.dropped == 301 - len(runs) >= 200
    assert set(recorded.words()) == {"joblog_overrun"}
    assert sum(int(str(fields["count"])) for _, fields in recorded.told) == recorded.recorder.dropped


def test_what_was_started_is_ended_even_so(new_recorder: Callable[..., RecorderHarness]) -> None:
    """Of all that can be dropped, the end of a job whose start is in the log is the last."""
    recorded = new_recorder(queue_rows=100)
    early = [Life(number).started() for number in range(1, 51)]
    recorded.note(*early)
    assert len(recorded.runs()) == 50
    recorded.log.gate.clear()
    recorded.note(Life(51).started().done())
    assert recorded.log.is_held_up.wait(10)
    recorded.note(*(life.done() for life in early))
    for number in range(52, 400):
        recorded.note(Life(number).started().done())
    recorded.log.gate.set()
    assert all(run.state == "done" for run in recorded.runs())
    assert recorded.recorder.dropped
    assert recorded.runs()[-1].handle == "H:here:399"


def test_a_queue_full_of_ends_is_bounded_too(new_recorder: Callable[..., RecorderHarness]) -> None:
    recorded = new_recorder(queue_rows=100)
    early = [Life(number).started() for number in range(1, 301)]
    for first in range(0, 300, 50):
        recorded.note(*early[first : first + 50])
        recorded.runs()
    recorded.log.gate.clear()
    recorded.note(Life(301).started())
    assert recorded.log.is_held_up.wait(10)
    recorded.note(*(life.done() for life in early))
    assert recorded.recorder.waiting <= 101
    recorded.log.gate.set()
    assert sum(run.state == "done" for run in recorded.runs()) + recorded.recorder.dropped == 300


def test_a_long_failure_drops_the_oldest_too(new_recorder: Callable[..., RecorderHarness]) -> None:
    recorded = new_recorder(queue_rows=100)
    recorded.log.fault = StorageError("disk full")
    for number in range(1, 400):
        recorded.note(Life(number).started().done())
        eventually(lambda: not recorded.recorder._pending, "it is taken over")
    assert recorded.recorder.waiting <= 100
    recorded.log.fault = None
    assert recorded.runs()[-1].handle == "H:here:399"
    assert len(recorded.runs()) + recorded.recorder.dropped == 399


def test_rows_that_no_database_takes_are_not_tried_for_ever(
    recorded: RecorderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    recorded.log.fault = sqlite3.DataError("nonsense")
    recorded.note(Life(1).started())
    eventually(lambda: recorded.recorder.dropped, "it is given up")
    recorded.log.fault = None
    recorded.note(Life(2).started())
    assert [run.handle for run in recorded.runs()] == ["H:here:2"]
    assert "internal error in the job log: 1 entries are not written" in caplog.text


def test_closing_writes_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "GATHER_SECONDS", 3600)
    recorded = RecorderHarness(tmp_path / "log.db")
    recorded.note(*(Life(number).started().done() for number in range(1, 2000)))
    recorded.close()
    with JobLog.open(f"sqlite:{tmp_path / 'log.db'}") as log:
        assert len(log.ran(limit=5000)) == 1999


def test_closing_does_not_wait_for_ever(
    recorded: RecorderHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_module, "CLOSE_SECONDS", 0.01)
    recorded.log.gate.clear()
    recorded.note(Life(1).started())
    recorded.recorder.close()
    assert "dropped 1 entries" in caplog.text


def test_a_log_of_a_later_version_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    SqliteDatabase(path).open()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(SchemaTooNew):
        RecorderHarness(path)


def test_a_database_that_is_away_is_waited_for(tmp_path: Path) -> None:
    told: list[str] = []
    log = JobLog.later(f"postgresql://jobs@/jobs?host={tmp_path}")
    recorder = Recorder(log, HERE, lambda name, fields: told.append(name), keep_seconds=60, keep_count=60)
    recorder.start()
    recorder.note([Life(1).started().job])
    eventually(lambda: not recorder._pending, "it is taken over")
    recorder.close()
    assert told == ["joblog_failed"]
    assert (recorder.waiting, recorder.written) == (1, 0)


# --- keeping ---


def test_no_more_entries_of_the_audit_log_are_kept_than_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "TRIM_SECONDS", 0.01)
    monkeypatch.setattr(recorder_module, "TRIM_ROWS", 3)
    recorded = RecorderHarness(tmp_path / "log.db", keep_count=2)
    now_us = time.time_ns() // 1000
    for number in range(20):
        recorded.recorder.audit.note(AuditEntry(now_us + number, "stranger", "gearman", "", "maxqueue", "f 1", "done"))
    eventually(lambda: not recorded.recorder.waiting, "everything is written")
    eventually(lambda: len(recorded.reader.find_audit(AuditQuery())) == 2, "the oldest entries are dropped")
    recorded.close()


def test_old_entries_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "TRIM_SECONDS", 0.01)
    monkeypatch.setattr(recorder_module, "TRIM_ROWS", 3)
    now = time.time() - NOON
    with JobLog.open(f"sqlite:{tmp_path / 'log.db'}") as log:
        put(log, *(row(number, at=now - 100 * number) for number in range(1, 11)))
    recorded = RecorderHarness(tmp_path / "log.db", keep_seconds=550)
    eventually(lambda: len(recorded.runs()) == 5, "the old ones are gone")
    recorded.recorder.keep_count = 2  # as a reload may set it
    eventually(lambda: len(recorded.runs()) == 2, "the superfluous ones are gone")
    assert [run.handle for run in recorded.runs()] == ["H:here:1", "H:here:2"]
    eventually(lambda: len(recorded.told) == 2, "it is told")
    assert recorded.told == [("joblog_trimmed", {"count": 5}), ("joblog_trimmed", {"count": 3})]
    recorded.close()


# --- what the engine tells ---


def starts_noted(harness: Harness, delivery: Delivery) -> list[Job]:
    worker = harness.worker(b"mail")
    watcher = RecordingPeer() if delivery is Delivery.WAIT else None
    harness.submit(b"mail", delivery=delivery, watcher=watcher)
    harness.engine.take_changes()
    harness.engine.take(worker)
    jobs, _ = harness.engine.take_changes()
    return jobs


@pytest.mark.parametrize(
    ("keeps", "notes_starts", "delivery", "noted"),
    [
        (True, False, Delivery.HANDLE, True),
        (True, False, Delivery.WAIT, False),
        (True, True, Delivery.WAIT, True),
        (True, True, Delivery.THROW_AWAY, True),
        (False, False, Delivery.HANDLE, False),
    ],
)
def test_which_starts_the_engine_notes(keeps: bool, notes_starts: bool, delivery: Delivery, noted: bool) -> None:
    harness = Harness(keeps=keeps)
    harness.engine.notes_starts = notes_starts
    assert bool(starts_noted(harness, delivery)) is noted
