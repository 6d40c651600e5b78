"""The verb `errors`: failed jobs grouped by function and by what their errors have in common."""

from __future__ import annotations

import time

import pytest

from switchgear.net.monitoring import error_groups
from switchgear.net.monitoring.error_groups import common_text
from switchgear.net.operations import errors
from tests.net.operator_harness import OperatorHarness


@pytest.mark.parametrize(
    ("error", "common"),
    [
        (b"", ""),
        (b"\n\n  no such file: 17 \nmore", "no such file: #"),
        (b"cannot open '/tmp/a.jpg' (errno 2)", "cannot open '…' (errno #)"),
        (b'expected "yes", got `no`', "expected '…', got '…'"),
        (b"can't find 'x' and won't", "can't find '…' and won't"),
        (b"job 0xDEADbeef at 7f3a9c2e11 of 123e4567-e89b-12d3-a456-426614174000", "job # at # of #"),
        (b"defaced facade", "defaced facade"),
        (b"10.0.0.1:4730 took 1,234.5 s at 12:30:01", "# took # s at #"),
        (b"Traceback (most recent call last):\n  File 'x', line 1\nValueError: bad 5\n", "ValueError: bad #"),
        (
            b"Traceback (most recent call last):\n" + b"  File 'x'\n" * 9_000 + b"ValueError: bad 5\n\n",
            "ValueError: bad #",
        ),
        (b"Traceback (most recent call last):", "Traceback (most recent call last):"),
        (b"caf\xc3\xa9 \xff", "café \N{REPLACEMENT CHARACTER}"),
    ],
)
def test_what_errors_have_in_common(error: bytes, common: str) -> None:
    assert common_text(error) == common


@pytest.mark.parametrize("piece", [b"'", b'"', b"a" * 64, b"1", b"a1", b"0x", b"\n", b"\xff", b"1."])
def test_long_errors_are_not_read_to_their_end(piece: bytes) -> None:
    started = time.process_time()
    for _ in range(20):
        assert len(common_text(piece * 500_000)) <= 2 * error_groups.MOST_LINE_CHARACTERS
    assert time.process_time() - started < 2


def test_groups() -> None:
    operator = OperatorHarness(attempts=1)
    operator.submit(4)
    for number in range(3):
        operator.finish(error=b"file %d is missing" % number)
        operator.harness.clock.advance(10)
        operator.harness.turn()
    operator.finish(error=b"something else")
    operator.submit()
    operator.kill()
    answer = operator.ask("errors")
    first, *others = answer["groups"]
    assert (first["function"], first["error"], first["count"], first["dead"]) == ("f", "file # is missing", 3, 0)
    assert sorted((group["error"][:14], group["count"], group["dead"]) for group in others) == [
        ("something else", 1, 0),
        ("worker lost in", 1, 1),
    ]
    assert first["last_at"] - first["first_at"] == 20
    assert first["examples"] == ["H:t:3", "H:t:2", "H:t:1"]
    assert first["example_error"] == "file 2 is missing"
    assert (answer["complete"], answer["searched_to"], answer["searched"]) == (True, 0, 5)
    assert (first["trend"], answer["trend_from"]) == ([0] * 23 + [3], first["last_at"] + 10 - 86_400)
    since = first["first_at"] + 1
    trend = operator.ask("errors", since=since)["groups"][0]["trend"]  # of 29 seconds, 9 and 19 after their beginning
    assert [(part, count) for part, count in enumerate(trend) if count] == [(7, 1), (15, 1)]
    assert operator.ask("errors", since=since)["groups"][0]["count"] == 2
    assert operator.ask("errors", function="g")["groups"] == []
    assert len(operator.ask("errors", limit=1)["groups"]) == 1


def test_a_job_that_was_retried_has_no_error_any_more() -> None:
    operator = OperatorHarness()
    operator.submit()
    job = operator.finish(error=b"no")
    operator.ask("retry", handle=f"H:t:{job.id}")
    assert operator.ask("errors")["groups"] == []


def test_very_many_failed_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "PAGE_JOBS", 10)
    monkeypatch.setattr(errors, "MOST_FAILED", 30)
    monkeypatch.setattr(error_groups, "MOST_GROUPS", 3)
    operator = OperatorHarness()
    operator.submit(50)
    for number in range(50):
        operator.finish(error=bytes([ord("a") + number % 7]))
    answer = operator.ask("errors")
    assert (answer["searched"], answer["complete"], answer["searched_to"]) == (30, False, 21)
    assert answer["groups_count"] == 4
    assert answer["groups"][0]["error"] == error_groups.OTHER_ERRORS
