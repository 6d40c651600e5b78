"""`LoggingContext`: the job in every line that a task logs, with the standard library and with structlog."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from switchgear.app.current_job import CurrentJob
from switchgear.app.middleware import Middleware

__all__ = ["JobLogFilter", "LoggingContext"]

_CURRENT: Final[ContextVar[CurrentJob | None]] = ContextVar("switchgear_logged_job", default=None)


class LoggingContext(Middleware):
    """Binds `job`, `task` and `attempt` while an attempt runs.

    For the standard library, `JobLogFilter` adds them to the records of a handler; in a process of a worker this
    middleware adds the filter to the handlers of the root logger.  If structlog is installed, they are among its
    context variables, which `structlog.contextvars.merge_contextvars` adds to each event.
    """

    def __init__(self) -> None:
        try:
            from structlog import contextvars
        except ImportError:
            self._structlog: Any = None
        else:
            self._structlog = contextvars

    def on_process_start(self) -> None:
        for handler in logging.getLogger().handlers:
            if not any(isinstance(known, JobLogFilter) for known in handler.filters):
                handler.addFilter(JobLogFilter())

    @contextmanager
    def around_run(self, job: CurrentJob) -> Iterator[None]:
        token = _CURRENT.set(job)
        bound = None
        if self._structlog is not None:
            bound = self._structlog.bind_contextvars(job=job.handle, task=job.function, attempt=job.attempt)
        try:
            yield
        finally:
            if bound is not None:
                self._structlog.reset_contextvars(**bound)
            _CURRENT.reset(token)


class JobLogFilter(logging.Filter):
    """Gives each record `job`, `task` and `attempt`, empty outside of jobs; for formats such as `%(job)s`."""

    def filter(self, record: logging.LogRecord) -> bool:
        job = _CURRENT.get()
        record.job = job.handle if job is not None else ""
        record.task = job.function if job is not None else ""
        record.attempt = job.attempt if job is not None else 0
        return True
