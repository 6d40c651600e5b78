"""How a job ended, as its submitter is told."""

from __future__ import annotations

import pytest

from switchgear import (
    JobCancelled,
    JobExpired,
    JobFailed,
    JobLost,
    JobTimedOut,
    JobUnknown,
    PredecessorFailed,
    Progress,
    TaskFailed,
)
from switchgear.client.gearman.job_subscriber import JobEnd, JobSubscriber

ERROR = b"ValueError: not a number\n\nTraceback (most recent call last):\n  File ...\nValueError: not a number\n"

FAILURES = {
    "raised": (JobEnd("failed", b"", "ended_badly", ERROR), TaskFailed, "job H failed: ValueError: not a number"),
    "no reason": (JobEnd("failed", b"", "ended_badly"), TaskFailed, "job H failed; the worker gave no reason"),
    "dead": (JobEnd("failed", b"", "exhausted"), JobLost, "job H is dead: its attempts were lost or timed out"),
    "dead after an error": (
        JobEnd("failed", b"", "exhausted", ERROR),
        JobLost,
        "job H is dead: its attempts were lost or timed out; it last said: ValueError: not a number",
    ),
    "dead of the last run's length": (
        JobEnd("failed", b"", "exhausted", b"timed out in attempt 2, the last one"),
        JobTimedOut,
        "job H is dead: it timed out in attempt 2, the last one",
    ),
    "doomed": (
        JobEnd("failed", b"", "doomed", b"G, which it waited for, was cancelled"),
        PredecessorFailed,
        "job H failed because G, which it waited for, was cancelled",
    ),
    "cancelled": (JobEnd("cancelled", b"", "cancelled"), JobCancelled, "job H was cancelled"),
    "skipped": (
        JobEnd("cancelled", b"", "skipped", b"G, which it waited for, failed"),
        JobCancelled,
        "job H was cancelled: G, which it waited for, failed",
    ),
    "replaced": (
        JobEnd("cancelled", b"", "replaced"),
        JobCancelled,
        "job H was cancelled: another with its unique key took its place",
    ),
    "abandoned": (
        JobEnd("cancelled", b"", "abandoned"),
        JobCancelled,
        "job H was cancelled: no client waited for it any more",
    ),
    "expired": (JobEnd("expired", b"", "expired"), JobExpired, "job H expired: it was not started in time"),
}


@pytest.mark.parametrize(("end", "kind", "text"), FAILURES.values(), ids=FAILURES)
def test_failures(end: JobEnd, kind: type[JobFailed], text: str) -> None:
    failure = end.failure("H")
    assert type(failure) is kind
    assert str(failure) == text
    assert isinstance(failure, JobFailed)


def test_success_is_no_failure() -> None:
    assert JobEnd("done", b"r").failure("H") is None


def test_the_predecessor_can_be_asked_for() -> None:
    failure = JobEnd("failed", b"", "doomed", b"H:x:6, which it waited for, failed").failure("H:x:7")
    assert isinstance(failure, PredecessorFailed)
    assert failure.predecessor == "H:x:6"


def test_an_unknown_job() -> None:
    assert isinstance(JobEnd("unknown").failure("H"), JobUnknown)


def test_the_remote_traceback_travels_along() -> None:
    failure = JobEnd("failed", b"", "ended_badly", ERROR).failure("H")
    assert isinstance(failure, TaskFailed)
    assert (failure.error_type, failure.message) == ("ValueError", "not a number")
    assert failure.remote_traceback.startswith("Traceback (most recent call last):")
    assert "The traceback of the worker:" in failure.__notes__[0]


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (b"KeyError: 'a: b'", "KeyError", "'a: b'"),
        (b"package.Failure: no", "package.Failure", "no"),
        (b"StopIteration", "StopIteration", ""),
        (b"out of paper: load tray 2", "", "out of paper: load tray 2"),
        (b"", "", ""),
    ],
    ids=["message", "dotted", "no message", "other languages", "nothing"],
)
def test_errors_are_text(error: bytes, kind: str, message: str) -> None:
    failure = TaskFailed("failed", error)
    assert (failure.error_type, failure.message, failure.remote_traceback) == (kind, message, "")


def test_the_first_end_counts() -> None:
    follower = JobSubscriber()
    follower.end(JobEnd("done", b"first"))
    follower.end(JobEnd("done", b"second"))
    follower.give_up(RuntimeError())
    assert follower.future.result().result == b"first"


def test_who_listens_no_more_is_told_no_more() -> None:
    follower = JobSubscriber()
    heard: list[Progress | None] = []
    follower.add_listener(heard.append)
    follower.remove_listener(heard.append)
    follower.end(JobEnd("done"))
    assert heard == []
