"""Running one job: arguments from the payload, the call, and what becomes of what it returned or raised.

There is no I/O here.  Threads, event loops, child processes and the in-memory app all run jobs by these functions.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from switchgear.app.current_job import CurrentJob, Retry, running

if TYPE_CHECKING:
    from switchgear.app.task import Task
    from switchgear.app.task_options import TaskOptions

__all__ = [
    "AssignedJob",
    "Complete",
    "Fail",
    "Outcome",
    "RetryLater",
    "Stopped",
    "error_text",
    "references_of",
    "run",
    "run_async",
]

# What a server has to keep of an error, and a terminal to show: the beginning and the end tell most.
LONGEST_ERROR_CHARACTERS: Final = 32_768
LONGEST_SUMMARY_CHARACTERS: Final = 2_000

_OUR_CODE: Final = str(Path(__file__).resolve().parent.parent)


class AssignedJob(msgspec.Struct, frozen=True):
    """One attempt of a job, as the server hands it out."""

    handle: str
    function: str
    payload: bytes
    unique: str = ""
    attempt: int = 1  # how often it was started, this one included
    losses: int = 0  # how many of these starts were lost
    attempts_limit: int = 0  # of the job itself; 0: the task decides
    timeout_seconds: float = 0.0  # 0: none
    results: Mapping[str, bytes | None] = msgspec.field(default_factory=dict)  # by handle, of jobs among its arguments

    def context(self, on_progress: Callable[[int, int, str], None] | None = None) -> CurrentJob:
        """What the task will see of it."""
        return CurrentJob(
            self.handle,
            self.function,
            attempt=self.attempt,
            losses=self.losses,
            timeout_seconds=self.timeout_seconds,
            on_progress=on_progress,
        )


@dataclass(frozen=True, slots=True)
class Complete:
    """It is done, with this result."""

    result: bytes


@dataclass(frozen=True, slots=True)
class Fail:
    """It has failed, for good."""

    error: str


@dataclass(frozen=True, slots=True)
class RetryLater:
    """It has failed, and is to be tried again after a pause."""

    delay_seconds: float
    error: str
    attempts_limit: int = 0  # by the task, for a server that knows of none


@dataclass(frozen=True, slots=True)
class Stopped:
    """It ended early because it was not wanted any more."""

    reason: str


Outcome = Complete | Fail | RetryLater | Stopped


def references_of(task: Task[Any, Any], payload: bytes) -> list[str]:
    """The handles of the jobs among the arguments.  A payload that cannot be read has none: it fails when it is run."""
    if b"$job" not in payload:
        return []
    try:
        return task.arguments.references(payload)
    except Exception:  # whatever is wrong with it is told by the run
        return []


def run(task: Task[Any, Any], assignment: AssignedJob, job: CurrentJob) -> Outcome:
    """Run a task that is a plain function."""
    with running(job):
        try:
            args, kwargs = _arguments(task, assignment)
        except Exception as error:
            return _unreadable(error)
        try:
            value = task.function(*args, **kwargs)
        except BaseException as error:
            return classify(task, assignment, job, error)
        return _result(task, value)


async def run_async(task: Task[Any, Any], assignment: AssignedJob, job: CurrentJob) -> Outcome:
    """Run a task that is a coroutine function."""
    with running(job):
        try:
            args, kwargs = _arguments(task, assignment)
        except Exception as error:
            return _unreadable(error)
        try:
            value = await task.function(*args, **kwargs)
        except BaseException as error:
            return classify(task, assignment, job, error)
        return _result(task, value)


def _arguments(task: Task[Any, Any], assignment: AssignedJob) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return task.arguments.decode(assignment.payload, assignment.results)


def _unreadable(error: Exception) -> Fail:
    """A payload that does not fit the task will not fit it at the next attempt either."""
    return Fail(_cut(f"{_summary(error)}\n\nThe task was not called: its arguments could not be read."))


def _result(task: Task[Any, Any], value: object) -> Outcome:
    try:
        return Complete(task.arguments.encode_result(value))
    except Exception as error:  # the task has done its work, so running it again would not help
        return Fail(_cut(f"{_summary(error)}\n\nThe task has returned, but its result could not be encoded."))


def classify(
    task: Task[Any, Any],
    assignment: AssignedJob,
    job: CurrentJob,
    error: BaseException,
    rng: Callable[[], float] = random.random,
) -> Outcome:
    """What follows from what a task has raised."""
    if job.cancelled:  # whatever it raised on its way out
        return Stopped(job.cancel_reason)
    text = error_text(error)
    options = task.settings
    failures = max(1, assignment.attempt - assignment.losses)  # losses have a limit of their own
    limit = assignment.attempts_limit or options.retries + 1
    if failures >= limit or not _is_worth_another_try(options, error):
        return Fail(_without_retries(text, limit - 1) if isinstance(error, Retry) else text)
    if isinstance(error, Retry) and error.delay is not None:
        return RetryLater(error.delay, text, limit)
    return RetryLater(options.backoff.delay_seconds(failures, rng()), text, limit)


def _is_worth_another_try(options: TaskOptions, error: BaseException) -> bool:
    if isinstance(error, Retry):
        return True
    if not isinstance(error, Exception):  # sys.exit() and the like are no trouble that passes
        return False
    return isinstance(error, options.retry_on) and not isinstance(error, options.give_up_on)


def _without_retries(text: str, retries: int) -> str:
    """For a task that asked to be run again, the reason why it is not."""
    first, end, rest = text.partition("\n")
    used_up = f"used up its {retries} {'retry' if retries == 1 else 'retries'}"
    return f"{first} (but the job has {used_up if retries else 'no retries'}){end}{rest}"


# --- errors as text ---


def error_text(error: BaseException) -> str:
    """The error for people elsewhere: what and why on the first line, then an empty one, then the traceback."""
    trace = traceback.TracebackException(type(error), error, _users_part(error.__traceback__), compact=True)
    return _cut(f"{_summary(error)}\n\n{''.join(trace.format()).rstrip()}")


def _summary(error: BaseException) -> str:
    try:
        message = " ".join(str(error).split("\n"))
    except Exception:
        message = "(its message cannot be read)"
    name = type(error).__name__
    return (f"{name}: {message}" if message else name)[:LONGEST_SUMMARY_CHARACTERS]


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from where our code called the user's."""
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
