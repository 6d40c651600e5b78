"""The options of RQ's `enqueue`, as options of `App`; and RQ's small classes that are values of options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Final

from switchgear.compat.not_supported import NotSupported, refuse_unknown
from switchgear.compat.rq.timeouts import CLEAN_UP_SECONDS
from switchgear.units import parse_duration

__all__ = [
    "CLEAN_UP_SECONDS",
    "ENQUEUE_OPTIONS",
    "RqCallback",
    "RqDependency",
    "RqRetry",
    "function_path",
    "job_options",
    "seconds_of",
]

# The keywords of `enqueue` that are not arguments of the function.
ENQUEUE_OPTIONS: Final = frozenset(
    {"job_timeout", "timeout", "result_ttl", "failure_ttl", "ttl", "description", "depends_on", "job_id", "at_front",
     "meta", "retry", "on_success", "on_failure", "on_stopped", "pipeline", "repeat", "unique", "group_id"}
)  # fmt: skip
_HINTS: Final = {
    "pipeline": "enqueue_many sends many jobs together",
    "repeat": "use a schedule: App.every",
    "on_stopped": "on_failure is called for jobs that fail",
    "group_id": "enqueue_many returns the jobs",
}
FOREVER_SECONDS: Final = 10 * 365 * 86_400.0


class RqRetry:
    """How often a job runs again after an exception, and after which pauses in seconds."""

    def __init__(self, max: int, interval: int | float | Iterable[float] = 0, **others: Any) -> None:
        refuse_unknown("Retry", others, {"enqueue_at_front": "a job that runs again keeps its priority"})
        if max < 1:
            raise ValueError("max: please enter a value greater than 0")
        self.max = max
        self.intervals = [float(interval)] if isinstance(interval, int | float) else [float(one) for one in interval]
        if any(seconds < 0 for seconds in self.intervals):
            raise ValueError("interval: negative numbers are not allowed")


class RqDependency:
    """Jobs that another job waits for."""

    def __init__(self, jobs: Any, allow_failure: bool = False, enqueue_at_front: bool = False) -> None:
        self.jobs = list(jobs) if isinstance(jobs, list | tuple) else [jobs]
        if not self.jobs:
            raise ValueError("jobs: cannot be empty.")
        self.allow_failure = allow_failure
        self.enqueue_at_front = enqueue_at_front


class RqCallback:
    """A function that is called after a job."""

    def __init__(self, func: str | Callable[..., Any], timeout: Any = None) -> None:
        self.func = func
        self.timeout = timeout  # the time of the job counts for its callbacks too

    @property
    def name(self) -> str:
        """Where the function can be imported from."""
        return function_path(self.func)


def function_path(function: str | Callable[..., Any]) -> str:
    """Where a worker can import the function from; raises ValueError if it cannot."""
    if isinstance(function, str):
        return function
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType):
        raise NotSupported("methods of objects are not supported: jobs are JSON; pass a function and its arguments")
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module == "__main__":
        raise ValueError("Functions from the __main__ module cannot be processed by workers")
    if not module or not name or "<" in name:
        raise ValueError(f"{function!r} cannot be imported by a worker: define it in a module")
    return f"{module}.{name}"


def seconds_of(duration: Any) -> float | None:
    """Seconds of a number or of a text such as "1h"; None for no limit (-1)."""
    if duration is None:
        return None
    if isinstance(duration, str) and not duration.lstrip("-").isdigit():
        return parse_duration(duration)
    seconds = float(duration)
    return None if seconds < 0 else seconds


def job_options(given: dict[str, Any], default_timeout: Any) -> dict[str, Any]:
    """Options of `task.options` for those of `enqueue`; raises NotSupported."""
    options: dict[str, Any] = {}
    refuse_unknown("enqueue", (name for name in given if name in _HINTS and given[name] is not None), _HINTS)
    timeout = given.get("job_timeout", given.get("timeout"))
    seconds = seconds_of(default_timeout if timeout is None else timeout)
    if seconds:
        options["timeout"] = seconds + CLEAN_UP_SECONDS
    if (ttl := seconds_of(given.get("ttl"))) is not None:
        options["expires"] = max(ttl, 0.001)
    kept = [given[name] for name in ("result_ttl", "failure_ttl") if given.get(name) is not None]
    if kept:  # there is one retention; the longer one counts
        options["retention"] = max(
            FOREVER_SECONDS if seconds_of(each) is None else seconds_of(each) or 0 for each in kept
        )
    if given.get("at_front"):
        options["priority"] = "high"
    if given.get("retry") is not None:
        options["retries"] = given["retry"].max if isinstance(given["retry"], RqRetry) else int(given["retry"])
    if given.get("job_id") is not None:
        options["unique"] = str(given["job_id"])
    return options | _edges(given.get("depends_on"))


def _edges(depends_on: Any) -> dict[str, Any]:
    if depends_on is None:
        return {}
    after: list[Any] = []
    for each in depends_on if isinstance(depends_on, list | tuple) else [depends_on]:
        dependency = each if isinstance(each, RqDependency) else RqDependency(each)
        policy = "run" if dependency.allow_failure else "fail"
        after += [(getattr(job, "handle", job), policy) for job in dependency.jobs]
    return {"after": after}
