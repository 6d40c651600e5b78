"""Runs a function that was enqueued by its path, in a worker."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from switchgear.app.current_job import Retry as JobRetry
from switchgear.app.current_job import current_job
from switchgear.compat.json_types import from_json_types, to_json_types
from switchgear.compat.rq.timeouts import job_timeout

__all__ = ["call_function", "import_function"]


def import_function(path: str) -> Any:
    """The function at `package.module.name`; raises ImportError or AttributeError."""
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:count])
        try:
            found: Any = import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
                continue  # a class within a module
            raise
        for name in parts[count:]:
            found = getattr(found, name)
        return found
    raise ImportError(f"there is no {path}")


def call_function(
    function: str,
    args: list[Any],
    kwargs: dict[str, Any],
    meta: dict[str, Any] | None = None,
    intervals: list[float] | None = None,
    on_success: str = "",
    on_failure: str = "",
) -> Any:
    """Call it with its callbacks, and run it again after the pauses that it was enqueued with."""
    from switchgear.compat.rq.job import running_job

    job = running_job(function, args, kwargs, dict(meta or {}))
    try:
        with job_timeout():
            value = import_function(function)(*from_json_types(args), **from_json_types(kwargs))
            if on_success:
                import_function(on_success)(job, job.connection, value)
    except Exception as error:
        if on_failure:
            import_function(on_failure)(job, job.connection, *sys.exc_info())
        running = current_job()
        failures = max(1, running.attempt - running.losses)
        if intervals and failures < running.attempts_limit:
            delay = intervals[min(failures, len(intervals)) - 1]
            raise JobRetry(f"{type(error).__name__}: {error}", delay=delay) from error
        raise
    return to_json_types(value)
