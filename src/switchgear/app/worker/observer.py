"""`AppWorkerObserver`: callbacks for the events of a worker, and the observer that logs them."""

from __future__ import annotations

import logging
from typing import Final

from switchgear.app.reraised_exceptions import traceback_in
from switchgear.client.gearman.assigned_job import SUSPENDED, AssignedJob, Complete, Outcome, RetryLater, Stopped

__all__ = ["CANCELLED", "EXPECTED_REASONS", "AppWorkerObserver", "LoggingObserver"]

CANCELLED: Final = "cancelled"  # the reason if a job was cancelled on the server
EXPECTED_REASONS: Final = frozenset({CANCELLED, SUSPENDED})  # somebody asked for it: no problem

_LOG: Final = logging.getLogger("switchgear.worker")


class AppWorkerObserver:
    """Callbacks that do nothing unless overridden.  Called in the worker's I/O thread: must be quick and must not
    raise."""

    def subscribed(self, server: str, pool: str, *, again: bool, extended: bool) -> None:
        """The server knows the tasks of this pool, and jobs may come from it."""

    def disconnected(self, server: str, pool: str, problem: str, retry_seconds: float) -> None:
        """There is no connection; another attempt follows after a pause."""

    def refused(self, server: str, problem: str) -> None:
        """The server has answered with an error."""

    def job_started(self, assignment: AssignedJob) -> None:
        """A task has been called, or is about to be; a job that is held for a slot has not started."""

    def job_ended(self, assignment: AssignedJob, outcome: Outcome, seconds: float) -> None:
        """The end of an attempt was reported."""

    def job_dropped(self, assignment: AssignedJob, reason: str, seconds: float) -> None:
        """An attempt has ended without a report: it was cancelled, released or lost."""

    def job_returned(self, assignment: AssignedJob) -> None:
        """A job that was held for a slot was released, and its task was not called."""

    def note(self, text: str, *, is_problem: bool = False) -> None:
        """Report a message for people."""


class LoggingObserver(AppWorkerObserver):
    """Writes to the log `switchgear.worker`.

    A failed attempt is one line.  The traceback goes to those who wait for the job, often in this same process, and
    stays with the job on the server; so here it is logged at debug level.
    """

    def subscribed(self, server: str, pool: str, *, again: bool, extended: bool) -> None:
        how = "connected again" if again else "connected"
        _LOG.log(logging.WARNING if again else logging.INFO, "%s to %s (%s), ready for jobs", how, server, pool)

    def disconnected(self, server: str, pool: str, problem: str, retry_seconds: float) -> None:
        _LOG.warning("%s (%s): %s; next attempt in %.1f s", server, pool, problem, retry_seconds)

    def refused(self, server: str, problem: str) -> None:
        _LOG.warning("%s answered with an error: %s", server, problem)

    def job_started(self, assignment: AssignedJob) -> None:
        _LOG.debug("%s (%s) started", assignment.handle, assignment.function)

    def job_ended(self, assignment: AssignedJob, outcome: Outcome, seconds: float) -> None:
        if isinstance(outcome, Complete):
            _LOG.debug("%s (%s) done in %.3f s", assignment.handle, assignment.function, seconds)
        elif not isinstance(outcome, Stopped):
            then = _next_attempt(outcome.delay_seconds) if isinstance(outcome, RetryLater) else ""
            first_line, _, rest = outcome.error.partition("\n")
            about = assignment.handle, assignment.function
            _LOG.warning("%s (%s) failed in attempt %d%s: %s", *about, assignment.attempt, then, first_line)
            if rest.strip():  # without the line by which callers find the class of the exception
                _LOG.debug("%s (%s): %s", *about, traceback_in(outcome.error))

    def job_returned(self, assignment: AssignedJob) -> None:
        _LOG.debug("%s (%s) released, not started", assignment.handle, assignment.function)

    def job_dropped(self, assignment: AssignedJob, reason: str, seconds: float) -> None:
        # One request may cancel very many.
        level = logging.DEBUG if reason in EXPECTED_REASONS else logging.WARNING
        _LOG.log(level, "%s (%s) not finished: %s", assignment.handle, assignment.function, reason)

    def note(self, text: str, *, is_problem: bool = False) -> None:
        _LOG.log(logging.WARNING if is_problem else logging.INFO, "%s", text)


def _next_attempt(delay_seconds: float) -> str:
    return f", the next is in {delay_seconds:.3g} s" if delay_seconds else ", the next is at once"
