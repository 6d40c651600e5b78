"""Runs one attempt of a job: decodes its arguments, calls the task, converts the result or exception to an outcome.

There is no I/O here.  Threads, event loops, child processes and the in-memory app all run jobs by these functions.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from switchgear.app.chunks import calls_in, chunk_result
from switchgear.app.current_job import CurrentJob, JobSuspended, Retry, running
from switchgear.app.failure import Failure
from switchgear.app.payloads.codec import PLAIN
from switchgear.app.payloads.envelope import Envelope, is_envelope
from switchgear.app.reraised_exceptions import raised_line
from switchgear.app.soft_timeout import SoftTimeout, raise_after, raise_after_async
from switchgear.client.gearman.assigned_job import SUSPENDED, AssignedJob, Complete, Fail, Outcome, RetryLater, Stopped
from switchgear.client.gearman.job_subscriber import JobEnd
from switchgear.errors import ArgumentError

if TYPE_CHECKING:
    from switchgear.app.task import Task
    from switchgear.app.task_options import TaskOptions

__all__ = [
    "current_job_of",
    "error_text",
    "is_retried",
    "references_of",
    "run",
    "run_async",
]

A = TypeVar("A")
B = TypeVar("B")

# The maximum length of an error, which servers store and terminals show: its beginning and end are kept.
LONGEST_ERROR_CHARACTERS: Final = 32_768
LONGEST_SUMMARY_CHARACTERS: Final = 2_000

_OUR_CODE: Final = str(Path(__file__).resolve().parent.parent)


def current_job_of(assignment: AssignedJob, on_progress: Callable[[int, int, str], None] | None = None) -> CurrentJob:
    """The `CurrentJob` of an assigned job, which its task can ask for."""
    return CurrentJob(
        assignment.handle,
        assignment.function,
        attempt=assignment.attempt,
        losses=assignment.losses,
        attempts_limit=assignment.attempts_limit,
        timeout_seconds=assignment.timeout_seconds,
        trace=assignment.trace,
        on_progress=on_progress,
    )


def references_of(task: Task[Any, Any], payload: bytes) -> list[str]:
    """The handles of jobs among the arguments; none if the payload cannot be read, because then the run fails."""
    try:
        if is_envelope(payload):
            return Envelope.decode(payload).header.references
        return task.arguments.references(payload) if b"$job" in payload else []
    except Exception:  # the run reports what is wrong with it
        return []


def run(task: Task[Any, Any], assignment: AssignedJob, job: CurrentJob) -> Outcome:
    """Run a task that is a plain function."""
    tracing = task.app.tracing
    if tracing is None:
        return _run(task, assignment, job)
    with tracing.processing(assignment) as span:
        outcome = _run(task, assignment, job)
        span.ended(outcome)
    return outcome


def _run(task: Task[Any, Any], assignment: AssignedJob, job: CurrentJob) -> Outcome:
    try:
        calls = calls_in(assignment.payload)
    except ArgumentError as error:
        return _unreadable(error)
    if calls is None:
        return _call(task, assignment, job)
    results: list[bytes] = []
    for payload in calls:
        outcome = _call(task, msgspec.structs.replace(assignment, payload=payload), job)
        if not isinstance(outcome, Complete):
            return outcome
        results.append(outcome.result)
    return Complete(chunk_result(results))


def _call(task: Task[Any, Any], assignment: AssignedJob, job: CurrentJob) -> Outcome:
    job.bind(task.app)
    with running(job):
        try:
            args, kwargs = _arguments(task, assignment)
        except Exception as error:
            return _unreadable(error)
        hooks = task.app.hooks
        limit_seconds = task.settings.soft_timeout
        try:
            with nullcontext() if limit_seconds is None else raise_after(limit_seconds, SoftTimeout):
                if hooks.middleware or task.injected:
                    value = hooks.call(task, job, args, kwargs)
                else:
                    value = task.function(*args, **kwargs)
        except BaseException as error:
            outcome = classify(task, assignment, job, error)
            if hooks.middleware:
                hooks.tell(job, error, outcome)
            return outcome
        return _result(task, value)


async def run_async(task: Task[Any, Any], assignment: AssignedJob, job: CurrentJob) -> Outcome:
    """Run a task that is a coroutine function."""
    tracing = task.app.tracing
    if tracing is None:
        return await _run_async(task, assignment, job)
    with tracing.processing(assignment) as span:
        outcome = await _run_async(task, assignment, job)
        span.ended(outcome)
    return outcome


async def _run_async(task: Task[Any, Any], assignment: AssignedJob, job: CurrentJob) -> Outcome:
    try:
        calls = calls_in(assignment.payload)
    except ArgumentError as error:
        return _unreadable(error)
    if calls is None:
        return await _call_async(task, assignment, job)
    results: list[bytes] = []
    for payload in calls:
        outcome = await _call_async(task, msgspec.structs.replace(assignment, payload=payload), job)
        if not isinstance(outcome, Complete):
            return outcome
        results.append(outcome.result)
    return Complete(chunk_result(results))


async def _call_async(task: Task[Any, Any], assignment: AssignedJob, job: CurrentJob) -> Outcome:
    job.bind(task.app)
    with running(job):
        try:
            args, kwargs = await _beside_loop(_arguments, task, assignment)
        except Exception as error:
            return _unreadable(error)
        hooks = task.app.hooks
        limit_seconds = task.settings.soft_timeout
        try:
            async with nullcontext() if limit_seconds is None else raise_after_async(limit_seconds):
                if hooks.middleware or task.injected:
                    value = await hooks.call_async(task, job, args, kwargs)
                else:
                    value = await task.function(*args, **kwargs)
        except BaseException as error:
            outcome = classify(task, assignment, job, error)
            if hooks.middleware:
                await hooks.tell_async(job, error, outcome)
            return outcome
        return await _beside_loop(_result, task, value)


async def _beside_loop(function: Callable[[Task[Any, Any], A], B], task: Task[Any, Any], value: A) -> B:
    """Call it in a thread if the app has `PayloadCodec`, which may compress for long or talk to a blob store."""
    if task.app.payloads is None:
        return function(task, value)
    return await asyncio.to_thread(function, task, value)


def _arguments(task: Task[Any, Any], assignment: AssignedJob) -> tuple[tuple[Any, ...], dict[str, Any]]:
    payload, results = assignment.payload, assignment.results
    payloads = task.app.payloads or PLAIN
    if is_envelope(payload):
        payload = payloads.unwrap(payload, task.name)
    if results:
        results = {handle: data and payloads.unwrap(data, None) for handle, data in results.items()}
    failures = {
        handle: Failure.of_end(task.app, handle, name, JobEnd(*assignment.failures[handle]))
        for handle, name in task.arguments.failure_references(payload).items()
        if handle in assignment.failures
    }
    return task.arguments.decode(payload, results, failures)


def _unreadable(error: Exception) -> Fail:
    """The outcome for a payload that does not fit the task; another attempt would not help."""
    return Fail(_cut(f"{_summary(error)}\n\nThe task was not called: its arguments could not be read."))


def _result(task: Task[Any, Any], value: object) -> Outcome:
    try:
        data = task.arguments.encode_result(value)
        payloads = task.app.payloads
        return Complete(data if payloads is None else payloads.wrap(data, task.name, []))
    except Exception as error:  # the task has done its work, so running it again would not help
        return Fail(_cut(f"{_summary(error)}\n\nThe task has returned, but its result could not be encoded."))


def classify(
    task: Task[Any, Any],
    assignment: AssignedJob,
    job: CurrentJob,
    error: BaseException,
    rng: Callable[[], float] = random.random,
) -> Outcome:
    """The outcome of an attempt whose task has raised an exception."""
    if job.cancelled:  # whatever it raised on its way out
        return Stopped(job.cancel_reason)
    if isinstance(error, JobSuspended):
        return Stopped(SUSPENDED)
    text = error_text(error)
    options = task.settings
    failures = _failures_of(job)
    limit = job.attempts_limit or options.retries + 1
    if not is_retried(options, job, error):
        return Fail(_without_retries(text, limit - 1) if isinstance(error, Retry) else text)
    if isinstance(error, Retry) and error.delay is not None:
        return RetryLater(error.delay, text, limit)
    return RetryLater(options.backoff.delay_seconds(failures, rng()), text, limit)


def is_retried(options: TaskOptions, job: CurrentJob, error: BaseException) -> bool:
    """Whether another attempt follows after this error."""
    limit = job.attempts_limit or options.retries + 1
    return _failures_of(job) < limit and _is_worth_another_try(options, error)


def _failures_of(job: CurrentJob) -> int:
    return max(1, job.attempt - job.losses)  # losses have a limit of their own


def _is_worth_another_try(options: TaskOptions, error: BaseException) -> bool:
    if isinstance(error, Retry):
        return True
    if not isinstance(error, Exception):  # sys.exit() and the like are no trouble that passes
        return False
    return isinstance(error, options.retry_on) and not isinstance(error, options.give_up_on)


def _without_retries(text: str, retries: int) -> str:
    """The error of a task that raised Retry, with the reason why it is not run again."""
    first, end, rest = text.partition("\n")
    used_up = f"used up its {retries} {'retry' if retries == 1 else 'retries'}"
    return f"{first} (but the job has {used_up if retries else 'no retries'}){end}{rest}"


# --- errors as text ---


def error_text(error: BaseException) -> str:
    """The error as text: class and message on the first line, then an empty line, then the traceback."""
    trace = traceback.TracebackException(type(error), error, _users_part(error.__traceback__), compact=True)
    text = _cut(f"{_summary(error)}\n\n{''.join(trace.format()).rstrip()}")
    raised = raised_line(error, _message(error))
    return f"{text}\n{raised}" if raised else text


def _summary(error: BaseException) -> str:
    message = _message(error)
    name = type(error).__name__
    return (f"{name}: {message}" if message else name)[:LONGEST_SUMMARY_CHARACTERS]


def _message(error: BaseException) -> str:
    try:
        return " ".join(str(error).split("\n"))
    except Exception:
        return "(its message cannot be read)"


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins in the user's code."""
    whole = trace
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OUR_CODE):
        trace = trace.tb_next
    return trace or whole


def _cut(text: str) -> str:
    text = text.encode(errors="backslashreplace").decode()  # names of files may hold what is not text
    if len(text) <= LONGEST_ERROR_CHARACTERS:
        return text
    half = LONGEST_ERROR_CHARACTERS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters are left out ...\n{text[-half:]}"
