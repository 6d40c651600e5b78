"""`SentryMiddleware`: reports jobs that have failed for good to Sentry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sentry_sdk

from switchgear.app.current_job import CurrentJob
from switchgear.app.middleware import Middleware

__all__ = ["SentryMiddleware"]


class SentryMiddleware(Middleware):
    """Reports the exception of a job that has failed, with its task, handle and attempt as tags.

    Each attempt has an isolation scope of its own, so that breadcrumbs and tags of one job are not seen with another.
    Attempts that are retried are reported too if `reports_retries` is set.  Call `sentry_sdk.init` yourself.
    """

    def __init__(self, *, reports_retries: bool = False) -> None:
        self._reports_retries = reports_retries

    @contextmanager
    def around_run(self, job: CurrentJob) -> Iterator[None]:
        with sentry_sdk.isolation_scope() as scope:
            scope.set_transaction_name(job.function)
            _describe(scope, job)
            yield

    def on_retry(self, job: CurrentJob, error: BaseException, delay_seconds: float) -> None:
        if self._reports_retries:
            self._report(job, error)

    def on_failure(self, job: CurrentJob, error: BaseException) -> None:
        self._report(job, error)

    def on_process_stop(self) -> None:
        sentry_sdk.flush(timeout=2.0)

    def _report(self, job: CurrentJob, error: BaseException) -> None:
        with sentry_sdk.new_scope() as scope:
            _describe(scope, job)
            scope.capture_exception(error)


def _describe(scope: sentry_sdk.Scope, job: CurrentJob) -> None:
    scope.set_tag("switchgear.task", job.function)
    scope.set_tag("switchgear.attempt", job.attempt)
    scope.set_context("job", {"handle": job.handle, "task": job.function, "attempt": job.attempt})
