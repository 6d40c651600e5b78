"""Options are checked where they are written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from switchgear import App, Backoff
from switchgear.app.task_options import Rate, TaskOptions


@pytest.fixture
def app() -> App:
    return App("gearman://127.0.0.1", name="")


def shrink(path: str, width: int = 128) -> str:
    return f"{path}@{width}"


@pytest.mark.parametrize(
    ("given", "kind", "complaint"),
    [
        ({"retrys": 3}, TypeError, "there is no option retrys; did you mean retries?"),
        ({"retry": 3}, TypeError, "there is no option retry; did you mean retries?"),
        ({"max_retries": 3}, TypeError, "there is no option max_retries; did you mean retries?"),
        ({"soft_time_limit": 3}, TypeError, "there is no option soft_time_limit; did you mean soft_timeout?"),
        ({"attempts": 3}, TypeError, "there is no option attempts; did you mean retries?"),
        ({"ttl": 3}, TypeError, "there is no option ttl; did you mean expires?"),
        ({"colour": "q"}, TypeError, "there is no option colour; there are backoff, "),
        ({"delay": 3}, TypeError, "delay is an option of one submission, not of a task"),
        ({"retries": -1}, ValueError, "retries is a whole number from 0 up, not -1"),
        ({"retries": True}, ValueError, "retries is a whole number from 0 up, not True"),
        ({"retries": 1.5}, ValueError, "retries is a whole number from 0 up, not 1.5"),
        ({"crash_limit": -1}, ValueError, "crash_limit is a whole number from 0 up, not -1"),
        ({"backoff": "often"}, ValueError, "backoff is one of exponential, linear, constant, none, not 'often'"),
        ({"jitter": "yes"}, ValueError, "jitter is True or False, not 'yes'"),
        ({"retry_on": "OSError"}, ValueError, "retry_on is an exception class or a tuple of them, not 'OSError'"),
        ({"give_up_on": (ValueError, 3)}, ValueError, "give_up_on is an exception class or a tuple of them"),
        ({"timeout": 0}, ValueError, "timeout is more than 0 seconds, or None"),
        ({"timeout": "30"}, ValueError, "timeout is a number of seconds or a timedelta, not '30'"),
        ({"expires": -1}, ValueError, "expires is a number of seconds or a timedelta, not -1"),
        ({"retention": float("nan")}, ValueError, "retention is a number of seconds or a timedelta, not nan"),
        (
            {"priority": "urgent"},
            ValueError,
            "priority is one of high, normal, low, or a number from 0 to 9 (highest), not 'urgent'",
        ),
        ({"unique": 3}, ValueError, "unique is True, a text or a callable that is given the arguments, not 3"),
        ({"unique": True, "unique_scope": "ever"}, ValueError, "unique_scope is one of unfinished, queued"),
        ({"unique": True, "unique_policy": "wait"}, ValueError, "unique_policy is one of join, reject, replace"),
        ({"unique_for": 60}, ValueError, "unique_for needs a unique key"),
        ({"unique": lambda name: name}, TypeError, "unique wants name, but the task has the parameters path, width"),
        ({"unique": lambda path, /: path}, TypeError, "unique is called with arguments by name"),
        ({"key": 3}, ValueError, "key is a text or a callable that is given the arguments, not 3"),
        ({"key": lambda tenant, **_: tenant}, TypeError, "key wants tenant, but the task has the parameters path"),
        ({"concurrency": 0}, ValueError, "concurrency is a whole number from 1 up, not 0"),
        ({"concurrency_per_key": 1}, ValueError, "concurrency_per_key is about keys, but the task has none"),
        ({"rate_per_key": "1/s"}, ValueError, "rate_per_key is about keys, but the task has none"),
        ({"fair": True}, ValueError, "fair is about keys, but the task has none"),
        ({"rate": "10 per second"}, ValueError, 'rate is written like "10/s", "100/h" or "5/10s"'),
        ({"rate": "0/s"}, ValueError, 'rate is written like "10/s"'),
        ({"rate": "1/0s"}, ValueError, 'rate is written like "10/s"'),
        ({"run_in": "fibre"}, ValueError, "run_in is one of thread, process, not 'fibre'"),
        ({"durable": "yes"}, ValueError, "durable is True or False, not 'yes'"),
        ({"name": ""}, ValueError, "'' cannot be the name of a task"),
        ({"name": "a\0b"}, ValueError, "cannot be the name of a task"),
        ({"name": "mail\n"}, ValueError, "'mail\\n' cannot be the name of a task"),
        ({"name": "\x1b[31mmail"}, ValueError, "cannot be the name of a task"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_bad_option_is_found_at_decoration(
    app: App, given: dict[str, Any], kind: type[Exception], complaint: str
) -> None:
    with pytest.raises(kind) as caught:
        app.task(**given)(shrink)
    assert complaint in str(caught.value)
    assert app.tasks == {}


@pytest.mark.parametrize(
    ("given", "kind", "complaint"),
    [
        ({"concurrency": 3}, TypeError, "concurrency is an option of the task as a whole: @app.task(concurrency=...)"),
        ({"backoff": 3}, TypeError, "backoff is an option of the task as a whole"),
        ({"afters": []}, TypeError, "there is no option afters; did you mean after?"),
        ({"delay": 1, "at": 5}, ValueError, "at and delay both say when a job may start; give one of them"),
        ({"at": "noon"}, ValueError, "at is a datetime or seconds since the epoch, not 'noon'"),
        ({"on_failure": "panic"}, ValueError, "on_failure is one of wait, skip, fail, run, error, not 'panic'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_bad_option_of_a_submission(app: App, given: dict[str, Any], kind: type[Exception], complaint: str) -> None:
    with pytest.raises(kind) as caught:
        app.task(shrink).options(**given)
    assert complaint in str(caught.value)


def test_what_is_given_counts_in_one_unit(app: App) -> None:
    task = app.task(
        retries=3,
        backoff="linear",
        jitter=False,
        retry_on=OSError,
        timeout=timedelta(minutes=2),
        expires=600,
        rate="100/h",
        priority="high",
    )(shrink)
    options = task.settings
    assert (options.retries, options.attempts, options.timeout, options.expires) == (3, 4, 120.0, 600.0)
    assert options.backoff == Backoff("linear", jitter=False)
    assert options.retry_on == (OSError,)
    assert options.rate == Rate(100, 3600.0)
    assert task.options.priority == "high"


def test_without_options_the_defaults_count(app: App) -> None:
    assert app.task(shrink).settings == TaskOptions()
    assert (TaskOptions().retries, TaskOptions().crash_limit, TaskOptions().on_failure) == (0, 3, "fail")


def test_other_options_are_those_of_a_copy(app: App) -> None:
    task = app.task(priority="low", timeout=5)(shrink)
    other = task.options(priority="high", delay=60)
    assert (other.settings.priority, other.settings.delay, other.settings.timeout) == ("high", 60.0, 5.0)
    assert (task.settings.priority, task.settings.delay) == ("low", None)
    assert (other.name, other.function) == (task.name, task.function)
    assert app.tasks == {task.name: task}


@pytest.mark.parametrize(
    ("at", "seconds"),
    [
        (1_900_000_000, 1_900_000_000.0),
        (datetime(2030, 3, 17, 17, 46, 40, tzinfo=UTC), 1_900_000_000.0),
        (datetime.fromtimestamp(1_900_000_000), 1_900_000_000.0),
    ],
    ids=["epoch", "aware", "naive is local"],
)
def test_moments(app: App, at: Any, seconds: float) -> None:
    assert app.task(shrink).options(at=at).settings.at == seconds


def test_limits_are_declared_to_the_server(app: App) -> None:
    app.task(name="plain")(shrink)
    app.task(name="limited", concurrency=4, key=lambda path: path, rate_per_key="5/10s", fair=True)(shrink)
    assert app.declarations() == [
        (
            "limit",
            {
                "function": "limited",
                "concurrency": 4,
                "rate": [0, 0],
                "key_concurrency": 0,
                "key_rate": [5, 10.0],
                "fair": True,
            },
        )
    ]
