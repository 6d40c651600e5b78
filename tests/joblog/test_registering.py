"""What a worker registers, in every kind of database."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from switchgear import joblog
from switchgear.joblog import JobLog, LoggedRun, RegisteredTask
from tests.joblog.support import NOON, end_of, put, row, start_script


def test_the_public_names_are_these() -> None:
    assert joblog.__all__ == ["FunctionSummary", "JobLog", "LoggedRun", "RegisteredTask", "RunQuery"]
    assert all(getattr(joblog, name).__doc__ for name in joblog.__all__)


def only(runs: list[LoggedRun]) -> LoggedRun:
    assert len(runs) == 1, runs
    return runs[0]


def test_a_start_and_its_result(log: JobLog) -> None:
    log.register_start_task("mail", NOON)
    started = only(log.unfinished())
    assert (started.function, started.handle, started.state) == ("mail", "", "running")
    assert (started.started_at, started.ended_at, started.seconds) == (NOON, None, None)
    log.register_task_result("mail", NOON + 2.5, 0)
    ended = only(log.ran())
    assert (ended.id, ended.state, ended.seconds, ended.attempts) == (started.id, "done", 2.5, 1)
    assert ended.source == "worker"
    assert ended.host == socket.gethostname()
    assert ended.process == f"{os.getpid()}/{threading.get_native_id()}"
    assert ended.submitted_at is None
    assert not log.unfinished()


def test_the_time_is_now_unless_given(log: JobLog) -> None:
    before = time.time()
    log.register_start_task("mail")
    log.register_task_result("mail")
    run = only(log.ran())
    assert run.started_at is not None
    assert run.ended_at is not None
    assert before - 1 < run.started_at <= run.ended_at < time.time() + 1


def test_a_time_may_be_a_datetime(log: JobLog) -> None:
    log.register_start_task("mail", datetime.fromtimestamp(NOON, UTC))
    log.register_task_result("mail", datetime.fromtimestamp(NOON + 1))
    assert only(log.ran()).seconds == 1


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), True, "noon"])
def test_what_is_no_time(log: JobLog, moment: Any) -> None:
    with pytest.raises(TypeError, match="a time is seconds"):
        log.register_start_task("mail", moment)
    assert not log.ran()


@pytest.mark.parametrize(
    ("result", "state", "code", "error", "data"),
    [
        (None, "done", 0, "", ""),
        (0, "done", 0, "", ""),
        (b"4 images", "done", 0, "", "4 images"),
        ("fünf", "done", 0, "", "fünf"),
        (b"\xff\0", "done", 0, "", "\\xff\\x00"),
        (7, "failed", 7, "result code 7", ""),
        (-1, "failed", -1, "result code -1", ""),
        (10**30, "failed", 2**63 - 1, f"result code {10**30}", ""),
        (ValueError("no such image"), "failed", 1, "ValueError: no such image", ""),
        (KeyboardInterrupt(), "failed", 1, "KeyboardInterrupt", ""),
        (ValueError("\udcff"), "failed", 1, "ValueError: \\udcff", ""),
    ],
)
def test_what_may_come_of_a_task(log: JobLog, result: Any, state: str, code: int, error: str, data: str) -> None:
    log.register_start_task("mail")
    log.register_task_result("mail", result=result)
    run = only(log.ran())
    assert (run.state, run.result_code, run.error, run.result) == (state, code, error, data)


@pytest.mark.parametrize("result", [True, 1.5, ["x"]])
def test_what_is_no_result(log: JobLog, result: Any) -> None:
    log.register_start_task("mail")
    with pytest.raises(TypeError, match="a result is"):
        log.register_task_result("mail", result=result)
    assert log.unfinished()


def test_a_long_error_loses_its_end(log: JobLog) -> None:
    log.register_task_result("mail", result=ValueError("x" * 10_000))
    error = only(log.ran()).error
    assert len(error) == 4096
    assert error.endswith("xx…")


def test_by_name_the_last_start_is_meant(log: JobLog) -> None:
    """The first process has crashed; its task never ended."""
    log.register_start_task("mail", NOON)
    log.register_start_task("mail", NOON + 10)
    log.register_start_task("rss", NOON + 20)
    log.register_task_result("mail", NOON + 11)
    assert [(run.function, run.started_at) for run in log.unfinished()] == [("rss", NOON + 20), ("mail", NOON)]


def test_by_name_rather_the_start_of_this_thread_is_meant(log: JobLog) -> None:
    log.register_start_task("mail", NOON)
    other = threading.Thread(target=log.register_start_task, args=("mail", NOON + 10))
    other.start()
    other.join()
    log.register_task_result("mail", NOON + 20)
    assert only(log.unfinished()).started_at == NOON + 10


def test_a_handle_is_told_from_a_function(log: JobLog) -> None:
    log.register_start_task("H:here:17")
    log.register_task_result("H:here:17")
    run = only(log.ran(handle="H:here:17"))
    assert (run.function, run.handle, run.state) == ("", "H:here:17", "done")


def test_by_handle_the_row_of_a_server_is_left_alone(log: JobLog) -> None:
    put(log, row(17, took=None))
    log.register_task_result("H:here:17")
    worker, server = log.ran(handle="H:here:17")
    assert (worker.source, worker.state) == ("worker", "done")
    assert (server.source, server.state) == ("server", "running")


def test_a_result_without_a_start_is_noted_too(log: JobLog) -> None:
    log.register_task_result("mail", NOON, 3)
    run = only(log.failures())
    assert (run.started_at, run.ended_at, run.seconds) == (None, NOON, None)
    assert not log.unfinished()


def test_a_task_may_end_elsewhere(url: str, log: JobLog) -> None:
    task = log.register_start_task(RegisteredTask("resize", key="17-3", handle="H:here:1", host="web1"), NOON)
    for _ in range(3):
        log.register_start_task(RegisteredTask("resize", key="17-3", handle="H:here:1", host="web1"), NOON + 5)
    with JobLog.open(url) as elsewhere:
        elsewhere.register_task_result(task, NOON + 7, b"640x480")
    run = only([run for run in log.ran() if not run.is_unfinished])
    assert (run.key, run.host, run.seconds, run.result) == ("17-3", "web1", 7, "640x480")


def test_starting_a_task_again_is_another_attempt(log: JobLog) -> None:
    task = RegisteredTask("resize")
    log.register_start_task(task, NOON)
    log.register_task_result(task, NOON + 1, RuntimeError("lost"))
    log.register_start_task(task, NOON + 10)
    again = only(log.unfinished())
    assert (again.attempts, again.state, again.error, again.started_at) == (2, "running", "", NOON + 10)
    log.register_task_result(task, NOON + 12)
    assert only(log.ran()).seconds == 2


def test_a_block_registers_start_and_end(log: JobLog) -> None:
    with log.task("resize", key="17-3-640-480") as task:
        assert only(log.unfinished()).key == "17-3-640-480"
    run = only(log.ran())
    assert (run.function, run.state, run.handle) == ("resize", "done", "")
    assert task == replace(task, function="resize")


def test_an_exception_in_a_block_is_its_error_and_goes_on(log: JobLog) -> None:
    with pytest.raises(ZeroDivisionError), log.task("resize", handle="H:here:3"):
        _ = 1 // 0
    run = only(log.failures())
    assert (run.handle, run.error) == ("H:here:3", "ZeroDivisionError: integer division or modulo by zero")


def test_names_may_be_anything(log: JobLog) -> None:
    name = "größe\0%(x)s '; DROP TABLE joblog_runs; --" + "x" * 1000
    with log.task(name, key="\udcff"):
        pass
    run = only(log.ran(function=name, key="\udcff"))
    assert run.function.startswith("größe\\x00%(x)s '; DROP")
    assert len(run.function) == 512


def test_several_processes_with_several_threads(url: str) -> None:
    """They begin at once, without a database; each task has exactly one row, and all have ended."""
    end_of([start_script("registering", url, f"f{number}", "3", "20") for number in range(4)])
    with JobLog.open(url) as log:
        assert not log.unfinished()
        assert [(s.function, s.runs, s.ok, s.failed) for s in log.summary()] == [
            (f"f{number}", 60, 21, 39) for number in range(4)
        ]
        assert len({run.id for run in log.ran(limit=1000)}) == 240


def test_a_fork_leaves_both_with_a_log(url: str) -> None:
    end_of([start_script("forking", url)])
    with JobLog.open(url) as log:
        counts = {summary.function: (summary.runs, summary.ok) for summary in log.summary()}
    assert counts == {"before": (1, 1), "child": (20, 20), "parent": (20, 20)}
