"""The options of tasks and of single submissions, checked when they are given.

The same words serve the decorator (`@app.task(timeout=30)`) and a single submission (`task.options(timeout=60)`), so
they are listed once.  Whatever is given is checked here, when it is given: a mistake shows where it was written, not on
a worker in the night.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple, TypedDict

from switchgear.backoff import Backoff
from switchgear.job_options import JOB_OPTIONS, SERVERS_SETTING, JobOption, OptionKind
from switchgear.resources import canonical_requirements, shown_requirements
from switchgear.states import PRIORITY_NAMES
from switchgear.units import LONGEST_SECONDS, SECONDS_PER_UNIT, duration_seconds

__all__ = ["EDGE_POLICIES", "Priority", "Rate", "Seconds", "SubmitKeywords", "TaskKeywords", "TaskOptions"]

Priority = Literal["high", "normal", "low"] | int  # a number is one of 0 to 9, of which 9 is the highest
EdgePolicyName = Literal["wait", "skip", "fail", "run", "error"]
Seconds = float | timedelta
Chooser = Callable[..., Any]  # given the arguments by name, says which of them count

_OPTION_OF: Final = {name: option for option in JOB_OPTIONS for name in option.python}
EDGE_POLICIES: Final = _OPTION_OF["on_failure"].words
_HIGHEST_PRIORITY: Final = 9
_RUN_IN: Final = ("thread", "process")
# Names of the options in other libraries.
_SYNONYMS: Final = {
    "attempts": "retries",
    "max_attempts": "retries",
    "max_retries": "retries",
    "retry": "retries",
    "retry_delay": "backoff",
    "time_limit": "timeout",
    "ttl": "expires",
    "result_ttl": "retention",
    "rate_limit": "rate",
    "max_concurrency": "concurrency",
    "countdown": "delay",
    "eta": "at",
    "autoretry_for": "retry_on",
    "dont_autoretry_for": "give_up_on",
    "default_retry_delay": "backoff",
    "retry_backoff": "backoff",
    "retry_jitter": "jitter",
    "soft_time_limit": "soft_timeout",
    "link": "on_success",
    "link_error": "on_error",
    "result_expires": "retention",
}
# Options of other libraries that are something else here.
_ELSEWHERE: Final = {
    "bind": "a task asks for its job by current_job()",
    "ignore_result": "results are kept for as long as retention says",
    "acks_late": "a job that is lost with its worker runs again always; crash_limit says how often",
    "task_id": "unique= names a job by a key, and the server gives it a handle",
    "base": "middleware and resources take the place of base classes",
    "routing_key": "queue= is an option of the task, and requires= of a job",
    "exchange": "queue= is an option of the task, and requires= of a job",
}
DEFAULT_BACKOFF: Final = Backoff()
DEFAULT_QUEUE: Final = "default"
_QUEUE: Final = re.compile(r"[^\s,=]{1,100}")
_RATE: Final = re.compile(r"\s*([0-9]+)\s*/\s*([0-9]+(?:\.[0-9]+)?)?\s*(ms|s|m|h|d)\s*")


class Rate(NamedTuple):
    """A rate limit: a number of starts per number of seconds.

    >>> Rate.of("10/s"), Rate.of("100/h"), Rate.of("5/10s")
    (Rate(starts=10, seconds=1.0), Rate(starts=100, seconds=3600.0), Rate(starts=5, seconds=10.0))
    """

    starts: int
    seconds: float

    @classmethod
    def of(cls, given: str | tuple[int, float], name: str = "rate") -> Rate:
        """A rate from `"10/s"`, `"5/10s"` or `(5, 10)`; raises ValueError."""
        starts, seconds = 0, 0.0
        if isinstance(given, str):
            match = _RATE.fullmatch(given)
            if match is not None:
                starts, seconds = int(match[1]), float(Decimal(match[2] or 1) * SECONDS_PER_UNIT[match[3]])
        elif isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, int | float) for part in given):
            starts, seconds = given
        if isinstance(starts, int) and starts > 0 and 0 < seconds < LONGEST_SECONDS:
            return cls(starts, float(seconds))
        raise ValueError(f'{name} is written like "10/s", "100/h" or "5/10s" (ms, s, m, h, d), not {given!r}')


class JobKeywords(TypedDict, total=False):
    """Options that travel with each job, so that a task has them and a submission may change them."""

    retries: int
    crash_limit: int
    timeout: Seconds | None
    expires: Seconds | None
    retention: Seconds | None
    priority: Priority
    unique: bool | str | Chooser | None
    unique_scope: Literal["unfinished", "queued"]
    unique_for: Seconds | None
    unique_policy: Literal["join", "reject", "replace"]
    key: str | Chooser | None
    label: str | Chooser | None
    requires: str | Sequence[str] | None
    durable: bool | None


class TaskKeywords(JobKeywords, total=False):
    """The options of `@app.task`: those of its jobs, and those of the task as a whole."""

    backoff: Backoff | str | float | Sequence[float]
    jitter: bool
    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    give_up_on: type[BaseException] | tuple[type[BaseException], ...]
    concurrency: int | None
    concurrency_per_key: int | None
    rate: str | tuple[int, float] | None
    rate_per_key: str | tuple[int, float] | None
    fair: bool
    queue: str
    run_in: Literal["thread", "process"]
    soft_timeout: Seconds | None


class SubmitKeywords(JobKeywords, total=False):
    """The options of `task.options`: those of a job, and those of one submission."""

    delay: Seconds | None
    at: datetime | float | None
    trace: str | None
    after: Any  # a Job, JobGroup or handle, a pair of one and a policy, or an iterable of these
    on_failure: EdgePolicyName
    on_success: Any  # a signature, group or chain that is given the result
    on_error: Any  # one that is given the Failure, if the job does not succeed
    finally_: Any  # one that runs when the job has ended in any way


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Checked options, all durations in seconds.  See docs/howto/python-api.md for what each does."""

    retries: int = 0
    backoff: Backoff = DEFAULT_BACKOFF
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    give_up_on: tuple[type[BaseException], ...] = ()
    crash_limit: int = 3
    timeout: float | None = None  # this and the other times are in seconds
    expires: float | None = None
    retention: float | None = None
    priority: str = "normal"
    unique: bool | str | Chooser | None = None
    unique_scope: str = "unfinished"
    unique_for: float | None = None
    unique_policy: str = "join"
    key: str | Chooser | None = None
    label: str | Chooser | None = None  # what people see beside the task, in listings and in the log
    requires: tuple[str, ...] = ()  # tags and amounts that a worker needs to be given a job
    concurrency: int | None = None
    concurrency_per_key: int | None = None
    rate: Rate | None = None
    rate_per_key: Rate | None = None
    fair: bool = False
    queue: str = DEFAULT_QUEUE  # by which workers choose tasks, and give them slots of their own
    run_in: str = "thread"
    soft_timeout: float | None = None  # SoftTimeout is raised in the task after so long
    durable: bool | None = None
    delay: float | None = None  # from here on: of one submission
    at: float | None = None  # seconds since the epoch
    trace: str | None = None  # the traceparent of the submitter's span
    after: tuple[Any, ...] = ()
    on_failure: str = "fail"
    on_success: Any = None
    on_error: Any = None
    finally_: Any = None

    def changed(self, given: Mapping[str, Any], *, for_submission: bool = False) -> TaskOptions:
        """A copy with these options; raises TypeError for unknown ones and ValueError for bad values."""
        allowed = SUBMIT_OPTIONS if for_submission else TASK_OPTIONS
        for name in given:
            if name not in allowed:
                raise TypeError(_unknown(name, allowed))
        changes = {name: _CHECKS[name](value, name) for name, value in given.items() if name != "jitter"}
        if "jitter" in given:
            changes["backoff"] = Backoff.of(changes.get("backoff", self.backoff), _flag(given["jitter"], "jitter"))
        options = replace(self, **changes)
        _check_together(options, given)
        return options

    @property
    def has_callbacks(self) -> bool:
        """Whether other jobs follow a job of these options."""
        return self.on_success is not None or self.on_error is not None or self.finally_ is not None

    @property
    def attempts(self) -> int:
        """How often a job is started at most, not counting lost workers."""
        return self.retries + 1

    def limits(self) -> dict[str, Any]:
        """The limits of the function, which the server is told; empty if there are none."""
        if not (self.concurrency or self.concurrency_per_key or self.rate or self.rate_per_key or self.fair):
            return {}
        return {
            "concurrency": self.concurrency or 0,
            "rate": list(self.rate or (0, 0)),
            "key_concurrency": self.concurrency_per_key or 0,
            "key_rate": list(self.rate_per_key or (0, 0)),
            "fair": self.fair,
        }


def _unknown(name: str, allowed: frozenset[str]) -> str:
    if name in SUBMIT_OPTIONS:
        return f"{name} is an option of one submission, not of a task: task.options({name}=...).submit(...)"
    if name in TASK_OPTIONS:
        return f"{name} is an option of the task as a whole: @app.task({name}=...)"
    if name in _ELSEWHERE:
        return f"there is no option {name}: {_ELSEWHERE[name]}"
    if name in _SYNONYMS and _SYNONYMS[name] not in allowed:
        return f"there is no option {name}; {_unknown(_SYNONYMS[name], allowed)}"
    import difflib  # for this message only

    near = [_SYNONYMS[name]] if name in _SYNONYMS else difflib.get_close_matches(name, allowed, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(allowed))}"
    return f"there is no option {name}; {hint}"


def _check_together(options: TaskOptions, given: Mapping[str, Any]) -> None:
    if options.at is not None and options.delay is not None:
        raise ValueError("at and delay both say when a job may start; give one of them")
    if not options.unique and any(given.get(name) for name in ("unique_for", "unique_scope", "unique_policy")):
        name = next(name for name in ("unique_for", "unique_scope", "unique_policy") if given.get(name))
        raise ValueError(f"{name} needs a unique key: give unique as well")
    if options.soft_timeout and options.timeout and options.soft_timeout >= options.timeout:
        raise ValueError("soft_timeout is less than timeout, so that the task has some time to clean up")
    per_key = next((name for name in ("concurrency_per_key", "rate_per_key") if getattr(options, name)), None)
    if per_key is None and options.fair:
        per_key = "fair"
    if per_key is not None and options.key is None:
        raise ValueError(f"{per_key} is about keys, but the task has none: give key as well")


def _whole(least: int, most: int) -> Callable[[Any, str], int]:
    def check(value: Any, name: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{name} is a whole number from {least} up, not {value!r}")
        return value

    return check


def _optional(check: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    return lambda value, name: None if value is None else check(value, name)


def _positive_seconds(value: Any, name: str) -> float:
    seconds = duration_seconds(value, name)
    if not seconds:
        raise ValueError(f"{name} is more than 0 seconds, or None")
    return seconds


def _choice(*words: str) -> Callable[[Any, str], str]:
    def check(value: Any, name: str) -> str:
        if value not in words:
            raise ValueError(f"{name} is one of {', '.join(words)}, not {value!r}")
        return str(value)

    return check


def _priority(value: Any, name: str) -> str:
    """The priority for a word, or for a number from 0 to 9 as Celery and others have them."""
    if type(value) is int and 0 <= value <= _HIGHEST_PRIORITY:
        return "low" if value <= 3 else "normal" if value <= 6 else "high"
    if isinstance(value, str) and value in PRIORITY_NAMES:
        return value
    raise ValueError(f"{name} is one of {', '.join(PRIORITY_NAMES)}, or a number from 0 to 9 (highest), not {value!r}")


def _queue(value: Any, name: str) -> str:
    if isinstance(value, str) and _QUEUE.fullmatch(value):
        return value
    raise ValueError(f"{name} is a name without spaces, commas and =, not {value!r}")


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is True or False, not {value!r}")
    return value


def _exceptions(value: Any, name: str) -> tuple[type[BaseException], ...]:
    kinds = value if isinstance(value, tuple | list) else (value,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ValueError(f"{name} is an exception class or a tuple of them, not {value!r}")
    return tuple(kinds)


def _unique(value: Any, name: str) -> Any:
    if value is None or isinstance(value, bool | str) or callable(value):
        return value or None
    raise ValueError(f"{name} is True, a text or a callable that is given the arguments, not {value!r}")


def _key(value: Any, name: str) -> Any:
    if value is None or isinstance(value, str) or callable(value):
        return value
    raise ValueError(f"{name} is a text or a callable that is given the arguments, not {value!r}")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is a text, not {value!r}")
    return value


def _requirements(value: Any, name: str) -> tuple[str, ...]:
    try:
        return tuple(shown_requirements(canonical_requirements(value or ())))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is a list of tags and amounts, such as gpu,memory=64G: {error}") from None


def _moment(value: Any, name: str) -> float:
    """Seconds since the epoch of a number or a datetime; one without a zone is local time."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{name} is a datetime or seconds since the epoch, not {value!r}")
    return float(value)


def _predecessors(value: Any, name: str) -> tuple[Any, ...]:
    """The value of `after` as a tuple: jobs, groups or handles, each perhaps paired with a policy; checked on
    submission."""
    if value is None:
        return ()
    is_pair = isinstance(value, tuple) and len(value) == 2 and value[1] in EDGE_POLICIES
    # A JobGroup can be iterated over as well, but is one thing to wait for.
    is_one = is_pair or isinstance(value, str) or hasattr(type(value), "as_reference")
    return (value,) if is_one or not isinstance(value, Iterable) else tuple(value)


def _step(value: Any, name: str) -> Any:
    """A callback: a signature, group or chain."""
    if value is None or hasattr(value, "plan_jobs"):
        return value
    raise TypeError(f"{name} is a signature such as task.s(...), a group or a chain, not {value!r}")


def _check_of(option: JobOption) -> Callable[[Any, str], Any]:
    """The check for an option whose value in Python has the type that the table says."""
    if option.kind in (OptionKind.CHOICE, OptionKind.CHOICES):
        return _choice(*option.words)
    if option.kind is OptionKind.COUNT:
        return _whole(0, option.most)
    if option.kind is OptionKind.SPAN:
        return _optional(duration_seconds if option.default == SERVERS_SETTING else _positive_seconds)
    if option.kind is OptionKind.TEXT:
        return _optional(_text)
    raise TypeError(f"a value of {option.name} has a type of its own in Python")


# Job options that have their own type in Python.
def _trace(value: Any, name: str) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name} is a traceparent, not {value!r}")
    read: bytes = _OPTION_OF[name].read(value)  # raises OptionError, which is a ValueError
    return read.decode()


_JOB_OPTION_CHECKS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "priority": _priority,
    "retries": _whole(0, _OPTION_OF["retries"].most - 1),
    "expires": _optional(_positive_seconds),
    "key": _key,
    "label": _key,
    "requires": _requirements,
    "durable": _optional(_flag),
    "delay": _optional(duration_seconds),
    "at": _optional(_moment),
    "after": _predecessors,
    "trace": _trace,
}
_CHECKS: Final[dict[str, Callable[[Any, str], Any]]] = {
    **{name: _JOB_OPTION_CHECKS.get(name) or _check_of(option) for name, option in _OPTION_OF.items()},
    "unique": _unique,
    "backoff": lambda value, name: Backoff.of(value),
    "jitter": _flag,
    "retry_on": _exceptions,
    "give_up_on": _exceptions,
    "concurrency": _optional(_whole(1, 2**31 - 1)),
    "concurrency_per_key": _optional(_whole(1, 2**31 - 1)),
    "rate": _optional(Rate.of),
    "rate_per_key": _optional(Rate.of),
    "fair": _flag,
    "queue": _queue,
    "run_in": _choice(*_RUN_IN),
    "soft_timeout": _optional(_positive_seconds),
    "on_success": _step,
    "on_error": _step,
    "finally_": _step,
}
TASK_OPTIONS: Final = frozenset(TaskKeywords.__annotations__)
SUBMIT_OPTIONS: Final = frozenset(SubmitKeywords.__annotations__)

assert {field.name for field in fields(TaskOptions)} | {"jitter"} == _CHECKS.keys() == SUBMIT_OPTIONS | TASK_OPTIONS
