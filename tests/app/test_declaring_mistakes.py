"""What cannot be a task, and names that users of other libraries try first: errors say what to do instead."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from switchgear import App
from switchgear.errors import ConfigError
from switchgear.testing import in_memory

app = App("gearman://127.0.0.1:1", name="mistakes")


@app.task(name="mistakes.add")
def add(a: int, b: int = 0) -> int:
    return a + b


class Shop:
    def order(self, number: int) -> int:
        return number


def counting(number: int) -> Iterator[int]:
    yield number


async def counting_async(number: int) -> AsyncIterator[int]:
    yield number


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (counting, "counting has a `yield`, and a task has one result: return a list"),
        (counting_async, "has a `yield`"),
        (Shop.order, "Shop.order is a method, and a worker has no object for `self`"),
        (Shop, "a task is made of a function, not of <class"),
        (functools.partial(int, "1"), "is no function; define one that calls it"),
        ("add", "a task is made of a function, not of 'add'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_a_task(function: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        app.task(function)
    assert text in str(caught.value)


def test_a_function_with_self_within_a_function_is_one() -> None:
    def method_like(self: int) -> int:
        return self

    assert app.task(name="mistakes.method_like")(method_like)(3) == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("delay", "task.submit(...) submits a job"),
        ("apply_async", "task.options(delay=10).submit(...)"),
        ("AsyncResult", "task.job(handle)"),
        ("nonsense", "'Task' object has no attribute 'nonsense'"),
    ],
)
def test_methods_of_other_libraries(name: str, text: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(add, name)
    assert text in str(caught.value)


def test_methods_of_other_libraries_on_jobs() -> None:
    with in_memory(app):
        job = add.submit(1)
        for name, text in (("get", "job.result()"), ("id", "job.handle"), ("nonsense", "no attribute 'nonsense'")):
            with pytest.raises(AttributeError) as caught:
                getattr(job, name)
            assert text in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bind": True}, "there is no option bind: a task asks for its job by current_job()"),
        ({"autoretry_for": ValueError}, "did you mean retry_on?"),
        ({"countdown": 3}, "there is no option countdown; delay is an option of one submission"),
    ],
)
def test_options_of_other_libraries(options: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError) as caught:
        app.task(**options)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("number", "word"), [(0, "low"), (3, "low"), (4, "normal"), (6, "normal"), (7, "high"), (9, "high")]
)
def test_priorities_as_numbers(number: int, word: str) -> None:
    assert add.options(priority=number).settings.priority == word


@pytest.mark.parametrize("given", [10, -1, True, "urgent", 5.0, None])
def test_priorities_that_there_are_not(given: Any) -> None:
    with pytest.raises(ValueError, match="priority is one of high, normal, low, or a number from 0 to 9"):
        add.options(priority=given)


@pytest.mark.parametrize("given", ["", "a b", "a,b", "a=1", 7, None])
def test_queues_that_there_are_not(given: Any) -> None:
    with pytest.raises(ValueError, match="queue is a name without spaces, commas and ="):
        app.task(queue=given)
    with pytest.raises(TypeError, match="queue is an option of the task as a whole"):
        add.options(queue="mail")  # type: ignore[call-arg]


@pytest.mark.parametrize("given", [5, [5], ["gearman://127.0.0.1:1", None], object()])
def test_urls_that_are_none(given: Any) -> None:
    with pytest.raises(ConfigError, match="urls is the URL of a server, or a list of them, not "):
        App(given)
