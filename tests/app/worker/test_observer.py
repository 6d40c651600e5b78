"""What a worker inside a program tells the log."""

from __future__ import annotations

import logging

import pytest

from switchgear.app.worker.observer import LoggingObserver
from switchgear.client.gearman.assigned_job import AssignedJob, Complete, Fail, Outcome, RetryLater, Stopped

ERROR = 'ValueError: no\n\nTraceback (most recent call last):\n  File "tasks.py", line 3, in f\nValueError: no'


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Fail(ERROR), "H:a:1 (tasks.f) failed in attempt 2: ValueError: no"),
        (RetryLater(1.25, ERROR), "H:a:1 (tasks.f) failed in attempt 2, the next is in 1.25 s: ValueError: no"),
        (RetryLater(0, ERROR), "H:a:1 (tasks.f) failed in attempt 2, the next is at once: ValueError: no"),
        (Fail(""), "H:a:1 (tasks.f) failed in attempt 2: "),
        (Complete(b""), None),
        (Stopped("cancelled"), None),
    ],
    ids=["failed", "retried", "retried at once", "no words", "done", "stopped"],
)
def test_a_failed_attempt_is_one_line(caplog: pytest.LogCaptureFixture, outcome: Outcome, line: str | None) -> None:
    """Whoever waits for the job is told the traceback; it need not be told twice."""
    caplog.set_level(logging.INFO, "switchgear.worker")
    LoggingObserver().job_ended(AssignedJob("H:a:1", "tasks.f", b"", attempt=2), outcome, 0.5)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == (
        [] if line is None else [(logging.WARNING, line)]
    )


def test_who_wants_to_know_more_is_told_the_traceback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "switchgear.worker")
    LoggingObserver().job_ended(AssignedJob("H:a:1", "tasks.f", b""), Fail(ERROR), 0.5)
    assert 'File "tasks.py", line 3' in caplog.records[-1].getMessage()
    assert caplog.records[-1].levelno == logging.DEBUG
