"""The verbs `at`, `runs` and `storage`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from switchgear.errors import Refused, StorageError
from switchgear.joblog.database import Server
from switchgear.joblog.job_log import JobLog
from switchgear.joblog.recorder import Recorder
from switchgear.joblog.runs import LoggedRun, LoggedStart
from switchgear.net.operations.past import RunRows
from switchgear.net.operations.storage import file_bytes
from tests.net.monitoring.test_function_history import START, sample
from tests.net.operator_harness import OperatorHarness


@pytest.fixture
def job_log(tmp_path: Path) -> JobLog:
    return JobLog.open(f"sqlite:{tmp_path / 'log.db'}")


def recorder_of(log: JobLog) -> Recorder:
    return Recorder(log, Server("H:t:", "host", "1"), lambda name, fields: None, keep_seconds=0, keep_count=0)


def test_nothing_is_known_without_series_and_job_log() -> None:
    answer = OperatorHarness().ask("at", t=1)
    assert answer["totals"] is None
    assert (answer["functions"], answer["running"]) == ([], [])
    assert (answer["running_complete"], answer["running_from"]) == (False, "none")


def test_the_future_is_not_known() -> None:
    operator = OperatorHarness()
    with pytest.raises(ValueError, match="t: that is in the future"):
        operator.ask("at", t=operator.engine.now_us / 1e6 + 10)
    with pytest.raises(ValueError, match="t is missing"):
        operator.ask("at")


def test_figures_of_an_earlier_time() -> None:
    operator = OperatorHarness()
    sample(operator)
    operator.submit(3)
    sample(operator)
    operator.finish()
    sample(operator)
    answer = operator.ask("at", t=START + 25)
    assert answer["totals"] == {
        "at": START + 20, "step": 10, "submitted": 3, "done": 0, "failed": 0, "ready": 3, "running": 0, "oldest": 10,
        "workers": 1,
    }  # fmt: skip
    assert [(each["function"], each["ready"]) for each in answer["functions"]] == [("f", 3)]
    assert operator.ask("at", t=START + 5)["totals"] is None


def test_what_ran(job_log: JobLog) -> None:
    operator = OperatorHarness()
    operator.operations.context.recorder = recorder_of(job_log)
    for number, (start, end) in enumerate([(10, 20), (15, 40), (30, None), (50, 60)]):
        task = job_log.register_start_task(f"H:t:{number}", time=float(START + start))
        if end is not None:
            job_log.register_task_result(task, time=float(START + end))
    operator.harness.clock.advance(100)
    operator.harness.turn()
    for at, handles in ((5, []), (10, [0]), (17, [0, 1]), (20, [1]), (35, [1, 2]), (70, [2])):
        answer = operator.ask("at", t=START + at)
        assert sorted(run["handle"] for run in answer["running"]) == [f"H:t:{number}" for number in handles], at
        assert (answer["running_complete"], answer["running_from"]) == (True, "joblog")


def test_only_so_many_rows_of_the_job_log_are_looked_at(job_log: JobLog) -> None:
    for _ in range(1_200):
        job_log.register_start_task("f", time=float(START))
    runs, is_complete = recorder_of(job_log).running_at(START + 1.0, 1_000)
    assert (len(runs), is_complete) == (1_000, False)
    runs, is_complete = recorder_of(job_log).running_at(START + 1.0, 5_000)
    assert (len(runs), is_complete) == (1_200, True)


def test_what_ran_in_a_time(job_log: JobLog) -> None:
    operator = OperatorHarness()
    operator.operations.context.recorder = recorder_of(job_log)
    for number, (start, end) in enumerate([(10, 20), (15, 40), (30, None), (50, 60)]):
        task = job_log.register_start_task(f"H:t:{number}", time=float(START + start))
        if end is not None:
            job_log.register_task_result(task, time=float(START + end))
    for since, until, handles in ((0, 5, []), (0, 12, [0]), (21, 25, [1]), (0, 100, [0, 1, 2, 3]), (41, 45, [2])):
        answer = operator.ask("runs", since=START + since, until=START + until)
        assert [row[2] for row in answer["rows"]] == [f"H:t:{number}" for number in handles], since
        assert (answer["stored"], answer["every"]) == (True, 1)
    rows = operator.ask("runs", since=START, until=START + 45)["rows"]
    assert [row[3:] for row in rows] == [
        [START + 10, START + 20, "done"], [START + 15, START + 40, "done"], [START + 30, None, "running"],
    ]  # fmt: skip


def test_every_attempt_of_a_job_in_a_time() -> None:
    starts = (LoggedStart(1.0, "gearman", "w1", "a"), LoggedStart(5.0, "wmp", "w2", "b"))
    run = LoggedRun(
        1, "f", "", "failed", 0.5, 5.0, 6.0, 2, 1, "", "", "H:t:1", "here", "1", "server", "", "wmp", "w2", "b", starts
    )
    rows = RunRows()
    rows.add(run)
    assert list(rows.workers) == [("w1", "gearman", "a"), ("w2", "wmp", "b")]
    assert rows.rows == [[0, 0, "H:t:1", 1.0, None, "requeued"], [1, 0, "H:t:1", 5.0, 6.0, "failed"]]


def test_a_time_in_which_nothing_can_have_run() -> None:
    operator = OperatorHarness()
    answer = operator.ask("runs", since=1, until=2)
    assert (answer["stored"], answer["rows"]) == (False, [])
    with pytest.raises(ValueError, match="until: that is not after since"):
        operator.ask("runs", since=2, until=2)


def test_a_job_log_that_cannot_be_read(job_log: JobLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise StorageError("gone")

    monkeypatch.setattr(JobLog, "find", fail)
    operator = OperatorHarness()
    operator.operations.context.recorder = recorder_of(job_log)
    assert operator.ask("at", t=START)["running_from"] == "none"
    with pytest.raises(Refused, match="gone"):
        operator.ask("runs", since=START, until=START + 1)


# --- storage ---


def test_a_store_in_memory_has_no_files() -> None:
    answer = OperatorHarness().ask("storage")
    assert (answer["is_durable"], answer["commits"], answer["file_bytes"], answer["joblog"]) == (False, 0, None, None)
    assert answer["mean_commit_seconds"] is None


def test_commits_and_the_job_log(job_log: JobLog) -> None:
    operator = OperatorHarness()
    operator.operations.context.recorder = recorder_of(job_log)
    for duration_us in (2_000, 2_000, 2_000, 100_000):
        operator.operations.context.commit_times.note(duration_us)
    answer = operator.ask("storage")
    assert answer["commits"] == 4
    assert answer["mean_commit_seconds"] == 0.0265
    assert (answer["p50_commit_seconds"], answer["p99_commit_seconds"]) == (0.004, 0.256)
    assert answer["joblog"]["file_bytes"] > 1_000


def test_the_size_of_files(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "a.db")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE t (x)")
    database.commit()
    size = (tmp_path / "a.db").stat().st_size
    assert (file_bytes(f"sqlite:{tmp_path / 'a.db'}") or 0) > size
    database.close()
    assert file_bytes(f"sqlite:{tmp_path / 'none.db'}") is None
    assert file_bytes("postgresql://host/db") is None
