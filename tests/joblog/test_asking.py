"""What can be asked of the job log, in every kind of database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from switchgear.errors import StorageError
from switchgear.joblog import FunctionSummary, JobLog, LoggedRun, RunQuery
from tests.joblog.support import HERE, NOON, THERE, put, row


def numbers(runs: list[LoggedRun]) -> list[int]:
    return [int(run.handle.rpartition(":")[2]) for run in runs]


def test_what_a_server_tells_of_a_job(log: JobLog) -> None:
    fields = {"attempts": 2, "result_code": 1, "error": "no room", "origin": "dwork", "protocol": "gearman"}
    put(log, row(7, at=10, took=0.25, state="failed", unique_key="17-3", **fields))
    (run,) = log.ran()
    assert run == LoggedRun(
        id=run.id,
        function="resize",
        key="17-3",
        state="failed",
        submitted_at=NOON + 9,
        started_at=NOON + 10,
        ended_at=NOON + 10.25,
        attempts=2,
        result_code=1,
        error="no room",
        result="",
        handle="H:here:7",
        host="here",
        process="4711",
        source="server",
        origin="dwork",
        protocol="gearman",
    )
    assert run.seconds == 0.25


def test_what_is_told_again_replaces_what_was_told(log: JobLog) -> None:
    put(log, row(1, took=None, protocol="gearman"), row(2, took=None))
    assert [run.state for run in log.ran()] == ["running", "running"]
    put(log, row(1, took=3), row(2, took=4, state="failed", error="no"))
    put(log, row(1, took=3))
    assert [(run.state, run.seconds, run.error, run.protocol) for run in log.ran()] == [
        ("failed", 4, "no", ""),
        ("done", 3, "", "gearman"),
    ]


def test_runs_of_a_time_are_spread_over_it(log: JobLog) -> None:
    assert log.spread(NOON, NOON + 10, 5) == ([], 1)
    put(log, *(row(number, at=number / 10) for number in range(1, 1001)))
    runs, every = log.spread(NOON + 10, NOON + 11, 50)
    assert (sorted(numbers(runs)), every) == (list(range(100, 110)), 1)
    runs, every = log.spread(NOON, NOON + 1000, 50)
    assert every == 20
    assert len(runs) == 50
    found = sorted(numbers(runs))
    assert {after - before for before, after in pairwise(found)} == {20}
    assert log.spread(NOON + 5000, NOON + 6000, 50)[0] == []


@pytest.mark.parametrize("count", [0, 1, 3, 512, 513, 1024, 1025, 2500])
def test_any_number_of_rows_at_once(log: JobLog, count: int) -> None:
    put(log, *(row(number) for number in range(1, count + 1)))
    assert len(log.ran(limit=5000)) == count


def test_servers_with_the_same_handles_are_told_apart(log: JobLog) -> None:
    put(log, row(1), server=HERE)
    put(log, row(1), server=THERE)
    put(log, row(1, at=60), server=HERE)  # its jobs were forgotten, and the numbers begin anew
    assert len(log.ran()) == 3
    assert [run.handle for run in log.ran(host="there")] == ["H:there:1"]
    assert len(log.ran(handle="H:here:1")) == 2


def test_newest_first_and_in_pages(log: JobLog) -> None:
    put(log, *(row(number, at=number) for number in range(1, 8)))
    first = log.ran(limit=3)
    assert numbers(first) == [7, 6, 5]
    second = log.ran(limit=3, before_id=first[-1].id)
    assert numbers(second) == [4, 3, 2]
    assert numbers(log.ran(limit=3, before_id=second[-1].id)) == [1]
    assert numbers(list(log.pages(RunQuery(limit=3)))) == [7, 6, 5, 4, 3, 2, 1]
    assert numbers(list(log.pages(RunQuery(limit=7)))) == [7, 6, 5, 4, 3, 2, 1]


def test_what_failed_and_what_never_ended(log: JobLog) -> None:
    put(
        log,
        row(1),
        row(2, state="failed", error="no room"),
        row(3, took=None),
        row(4, state="cancelled"),
        row(5, took=None, state="ready", function="mail", error="worker lost"),
    )
    assert [(run.handle, run.error) for run in log.failures()] == [("H:here:2", "no room")]
    assert [(run.handle, run.state) for run in log.unfinished()] == [("H:here:5", "ready"), ("H:here:3", "running")]
    assert numbers(log.unfinished(function="resize")) == [3]
    assert numbers(log.unfinished(limit=1)) == [5]


def test_filters(log: JobLog) -> None:
    put(
        log,
        row(1, at=0, unique_key="a"),
        row(2, at=10, unique_key="b"),
        row(3, at=20, function="mail", unique_key="a"),
        row(4, at=0, started_us=0, state="cancelled", took=30),  # never started: it happened when it ended
    )
    assert numbers(log.ran(function="mail")) == [3]
    assert numbers(log.ran(key="a")) == [3, 1]
    assert numbers(log.ran(since=NOON + 10)) == [4, 3, 2]
    assert numbers(log.ran(until=NOON + 10)) == [1]
    assert numbers(log.ran(since=datetime.fromtimestamp(NOON + 10, UTC), until=NOON + 20.5)) == [3, 2]
    assert numbers(log.ran(function="resize", key="a", since=NOON, host="here", handle="H:here:1")) == [1]
    assert log.ran(function="nothing") == []


def test_the_summary(log: JobLog) -> None:
    put(
        log,
        *(row(number, at=number, took=number / 100) for number in range(1, 101)),
        row(201, function="mail", at=500, took=2, state="failed"),
        row(202, function="mail", at=400, took=None),
        row(203, function="mail", at=300, started_us=0, state="cancelled", took=1),
        row(301, function="rss", at=7, took=None),
    )
    mail, resize, rss = log.summary()
    assert resize.mean_seconds == pytest.approx(0.505)
    assert replace(resize, mean_seconds=None) == FunctionSummary(
        function="resize",
        runs=100,
        ok=100,
        failed=0,
        unfinished=0,
        mean_seconds=None,
        p50_seconds=0.5,
        p99_seconds=0.99,
        longest_seconds=1.0,
        first_at=NOON + 1,
        last_at=NOON + 100,
    )
    assert (mail.runs, mail.ok, mail.failed, mail.unfinished, mail.other) == (3, 0, 1, 1, 1)
    assert (mail.mean_seconds, mail.p50_seconds, mail.p99_seconds, mail.longest_seconds) == (2, 2, 2, 2)
    assert (mail.first_at, mail.last_at) == (NOON + 301, NOON + 500)
    assert (rss.function, rss.runs, rss.mean_seconds, rss.p99_seconds) == ("rss", 1, None, None)
    assert [summary.function for summary in log.summary(since=NOON + 350)] == ["mail"]
    assert [summary.runs for summary in log.summary(function="resize", until=NOON + 11)] == [10]
    assert log.summary(function="nothing") == []


def test_a_clock_that_was_set_back_makes_no_negative_duration(log: JobLog) -> None:
    put(log, row(1, at=10, took=-5))
    assert log.ran()[0].seconds == 0
    assert log.summary()[0].longest_seconds == 0


def test_old_rows_are_dropped_a_few_at_a_time(log: JobLog) -> None:
    put(log, *(row(number, at=number) for number in range(1, 11)))
    before_us = log.drop_bound((NOON + 8) * 1_000_000, keep_count=100)
    assert [log.drop(before_us, 5) for _ in range(3)] == [5, 2, 0]
    assert numbers(log.ran()) == [10, 9, 8]


def test_too_many_rows_are_dropped_the_oldest_first(log: JobLog) -> None:
    put(log, *(row(number, at=number) for number in range(1, 11)))
    assert log.drop(log.drop_bound(0, keep_count=3), 100) == 7
    assert numbers(log.ran()) == [10, 9, 8]
    assert log.drop(log.drop_bound(0, keep_count=3), 100) == 0


def test_people_have_a_view(log: JobLog) -> None:
    put(log, row(1, at=10, took=0.5))
    columns = "function, state, seconds, result_code, handle"
    rows = log._database.query(f"SELECT {columns} FROM joblog WHERE started IS NOT NULL", {})
    assert [tuple(row) for row in rows] == [("resize", "done", 0.5, 0, "H:here:1")]


def test_a_closed_log_says_so(log: JobLog) -> None:
    log.close()
    log.close()
    with pytest.raises(StorageError, match="is closed"):
        log.ran()
