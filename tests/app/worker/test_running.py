"""Running one job, without any I/O."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from switchgear.app.app import App
from switchgear.app.current_job import Retry, current_job
from switchgear.app.job_execution import (
    LONGEST_ERROR_CHARACTERS,
    classify,
    current_job_of,
    error_text,
    references_of,
    run,
    run_async,
)
from switchgear.app.task import Task
from switchgear.client.gearman.assigned_job import AssignedJob, Complete, Fail, Outcome, RetryLater, Stopped
from switchgear.errors import RAISED_LINE, JobCancelled


def task_of(function: Callable[..., Any], **options: Any) -> Task[Any, Any]:
    task = App("gearman://127.0.0.1:1").task(name="t", **options)(function)
    assert isinstance(task, Task)
    return task


def outcome_of(task: Task[Any, Any], payload: bytes = b"{}", **more: Any) -> Outcome:
    assignment = AssignedJob("H:a:1", "t", payload, **more)
    if task.is_async:
        return asyncio.run(run_async(task, assignment, current_job_of(assignment)))
    return run(task, assignment, current_job_of(assignment))


def add(a: int, b: int = 1) -> int:
    return a + b


async def add_async(a: int, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


def raise_it(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


@pytest.mark.parametrize("function", [add, add_async])
@pytest.mark.parametrize("payload", [b'{"a": 2}', b'{"a": 1, "b": 2}', b"[2]", b"[1, 2]"], ids=repr)
def test_arguments_by_name_or_by_place(function: Any, payload: bytes) -> None:
    assert outcome_of(task_of(function), payload) == Complete(b"3")


def test_bytes_pass_untouched() -> None:
    def reverse(data: bytes) -> bytes:
        return data[::-1]

    assert outcome_of(task_of(reverse), b"\x00\xffa") == Complete(b"a\xff\x00")


@pytest.mark.parametrize("function", [add, add_async])
def test_arguments_that_cannot_be_read_fail_at_once_and_are_named(function: Any) -> None:
    outcome = outcome_of(task_of(function, retries=5), b'{"a": "one"}')
    assert isinstance(outcome, Fail)
    first, empty, rest = outcome.error.split("\n", 2)
    assert first.startswith("ArgumentError: ")
    assert "a" in first
    assert empty == ""
    assert "not called" in rest


def test_a_result_that_cannot_be_encoded_fails_at_once() -> None:
    outcome = outcome_of(task_of(lambda: object(), retries=5))
    assert isinstance(outcome, Fail)
    assert "could not be encoded" in outcome.error


def test_results_of_other_jobs_take_their_places() -> None:
    task = task_of(add)
    payload = b'{"a": {"$job": "H:a:7"}, "b": 1}'
    assert references_of(task, payload) == ["H:a:7"]
    assert outcome_of(task, payload, results={"H:a:7": b"41"}) == Complete(b"42")


@pytest.mark.parametrize("payload", [b'{"a": 1}', b"not JSON but $job", b""], ids=repr)
def test_other_payloads_refer_to_nothing(payload: bytes) -> None:
    assert references_of(task_of(add), payload) == []


def test_the_task_sees_its_job() -> None:
    def see() -> list[Any]:
        job = current_job()
        return [job.handle, job.function, job.attempt, job.losses]

    assert outcome_of(task_of(see), attempt=3, losses=1) == Complete(b'["H:a:1","t",3,1]')


# --- what follows from an error ---

ERROR = ConnectionError("no answer")
WITH_RETRIES: dict[str, Any] = {"retries": 2, "backoff": [1, 5], "jitter": False}


@pytest.mark.parametrize(
    ("options", "error", "more", "follows"),
    [
        ({}, ERROR, {}, "fail"),
        (WITH_RETRIES, ERROR, {}, 1),
        (WITH_RETRIES, ERROR, {"attempt": 2}, 5),
        (WITH_RETRIES, ERROR, {"attempt": 3}, "fail"),
        (WITH_RETRIES, ERROR, {"attempt": 3, "losses": 1}, 5),
        (WITH_RETRIES, ERROR, {"attempt": 3, "attempts_limit": 4}, 5),
        (WITH_RETRIES, ERROR, {"attempt": 1, "attempts_limit": 1}, "fail"),
        ({}, ERROR, {"attempt": 1, "attempts_limit": 2}, 1.0),
        (WITH_RETRIES | {"retry_on": OSError}, ERROR, {}, 1),
        (WITH_RETRIES | {"retry_on": (KeyError, ValueError)}, ERROR, {}, "fail"),
        (WITH_RETRIES | {"give_up_on": OSError}, ERROR, {}, "fail"),
        (WITH_RETRIES | {"retry_on": OSError, "give_up_on": ConnectionError}, ERROR, {}, "fail"),
        (WITH_RETRIES, Retry(delay=77), {}, 77),
        (WITH_RETRIES | {"give_up_on": Exception}, Retry(delay=77), {}, 77),
        (WITH_RETRIES, Retry(), {}, 1),
        (WITH_RETRIES, Retry(delay=77), {"attempt": 3}, "fail"),
        ({}, Retry(delay=77), {}, "fail"),
        (WITH_RETRIES, SystemExit(1), {}, "fail"),
        (WITH_RETRIES, JobCancelled("another job"), {}, 1),
    ],
    ids=[
        "no retries",
        "first pause",
        "second pause",
        "used up",
        "losses do not count",
        "the job has more",
        "the job has none",
        "only the job has some",
        "in retry_on",
        "not in retry_on",
        "in give_up_on",
        "give_up_on wins",
        "asked for",
        "asked for in spite of give_up_on",
        "asked for without a delay",
        "asked for too often",
        "asked for without retries",
        "exit",
        "another job was cancelled",
    ],
)
def test_retries(options: dict[str, Any], error: BaseException, more: dict[str, Any], follows: Any) -> None:
    task = task_of(raise_it(error), **options)
    assignment = AssignedJob("H:a:1", "t", b"{}", **more)
    outcome = classify(task, assignment, current_job_of(assignment), error, rng=lambda: 1.0)
    if follows == "fail":
        assert isinstance(outcome, Fail)
    else:
        assert isinstance(outcome, RetryLater)
        assert outcome.delay_seconds == follows
        assert outcome.attempts_limit == (more.get("attempts_limit") or 3)


@pytest.mark.parametrize(
    ("options", "more", "first_line"),
    [
        ({}, {}, "Retry: not yet (but the job has no retries)"),
        ({"retries": 1}, {"attempt": 2}, "Retry: not yet (but the job has used up its 1 retry)"),
        (WITH_RETRIES, {"attempt": 3}, "Retry: not yet (but the job has used up its 2 retries)"),
        (WITH_RETRIES, {"attempts_limit": 1}, "Retry: not yet (but the job has no retries)"),
    ],
    ids=["none", "one", "several", "none of its own"],
)
def test_asking_for_a_retry_that_there_is_not_says_so(
    options: dict[str, Any], more: dict[str, Any], first_line: str
) -> None:
    task = task_of(raise_it(Retry("not yet")), **options)
    outcome = outcome_of(task, **more)
    assert isinstance(outcome, Fail)
    assert outcome.error.splitlines()[:2] == [first_line, ""]


@pytest.mark.parametrize("error", [JobCancelled("x"), ValueError("x"), asyncio.CancelledError()], ids=repr)
def test_whatever_a_cancelled_job_raises_is_its_end(error: BaseException) -> None:
    assignment = AssignedJob("H:a:1", "t", b"{}")
    job = current_job_of(assignment)
    job.cancel("cancelled")
    assert run(task_of(raise_it(error)), assignment, job) == Stopped("cancelled")


def test_a_coroutine_that_cancels_itself_has_failed() -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError("of its own")

    outcome = outcome_of(task_of(give_up))
    assert isinstance(outcome, Fail)
    assert outcome.error.startswith("CancelledError: of its own")


# --- errors as text ---


def test_an_error_is_a_summary_and_the_users_own_traceback() -> None:
    outcome = outcome_of(task_of(raise_it(ValueError("too\nlong"))))
    assert isinstance(outcome, Fail)
    summary, empty, *trace = outcome.error.split("\n")
    assert (summary, empty) == ("ValueError: too long", "")
    assert trace[0] == "Traceback (most recent call last):"
    assert __file__ in trace[1]
    assert "running.py" not in "".join(trace).replace("test_running.py", "")
    assert trace[-3:] == ["ValueError: too", "long", RAISED_LINE + r'builtins:ValueError ["too\nlong"]']


def test_causes_are_told() -> None:
    def function() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    outcome = outcome_of(task_of(function))
    assert isinstance(outcome, Fail)
    assert outcome.error.startswith("ValueError: outer\n\n")
    assert "KeyError: 'inner'" in outcome.error


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "summary"),
    [
        (ValueError(), "ValueError"),
        (ValueError("\udcff"), "ValueError: \\udcff"),
        (Unspeakable(), "Unspeakable: (its message cannot be read)"),
    ],
    ids=["without a message", "not text", "unreadable"],
)
def test_odd_errors(error: Exception, summary: str) -> None:
    assert error_text(error).split("\n")[0] == summary


def test_long_errors_are_cut_in_the_middle() -> None:
    text = error_text(ValueError("x" * 1_000_000))
    assert len(text) < LONGEST_ERROR_CHARACTERS + 100
    assert "characters are left out" in text


def test_endless_recursion_is_an_error_like_any_other() -> None:
    def recurse() -> None:
        recurse()

    outcome = outcome_of(task_of(recurse))
    assert isinstance(outcome, Fail)
    assert outcome.error.startswith("RecursionError")
    assert len(outcome.error) < LONGEST_ERROR_CHARACTERS + 100
    assert sys.getrecursionlimit() > 100
