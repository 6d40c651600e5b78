"""Which task runs where."""

from __future__ import annotations

import os
from typing import Any

import pytest

from switchgear.app.app import App
from switchgear.app.worker.executor_choice import DEFAULT_ASYNC_SLOTS, DEFAULT_SLOTS, choose_executors
from switchgear.errors import ConfigError

app = App("gearman://127.0.0.1:1")


@app.task(name="plain")
def plain() -> None:
    pass


@app.task(name="coroutine")
async def coroutine() -> None:
    pass


@app.task(name="heavy", run_in="process")
def heavy() -> None:
    pass


CORES = os.cpu_count() or 1


@pytest.mark.parametrize(
    ("asked", "threads", "loop", "processes"),
    [
        ({}, ("plain", DEFAULT_SLOTS), ("coroutine", DEFAULT_ASYNC_SLOTS), ("heavy", CORES)),
        ({"slots": 3}, ("plain", 3), ("coroutine", DEFAULT_ASYNC_SLOTS), ("heavy", CORES)),
        ({"slots": 3, "processes": 2}, ("plain", 3), ("coroutine", DEFAULT_ASYNC_SLOTS), ("heavy", 2)),
        ({"processes": 2}, ("", 0), ("coroutine", DEFAULT_ASYNC_SLOTS), ("plain heavy", 2)),
        ({"processes": 0}, ("plain", DEFAULT_SLOTS), ("coroutine", DEFAULT_ASYNC_SLOTS), ("", 0)),
        ({"slots": 0, "async_slots": 5}, ("", 0), ("coroutine", 5), ("heavy", CORES)),
        ({"only": frozenset({"plain"})}, ("plain", DEFAULT_SLOTS), ("", 0), ("", 0)),
        ({"solo": True}, ("", 0), ("", 0), ("plain coroutine heavy", 1)),
    ],
    ids=["defaults", "slots", "both", "processes only", "no processes", "no threads", "one function", "solo"],
)
def test_the_rule(asked: Any, threads: Any, loop: Any, processes: Any) -> None:
    executor_choice = choose_executors(app.tasks, **asked)
    assert list(executor_choice.in_threads) == threads[0].split()
    assert list(executor_choice.in_loop) == loop[0].split()
    assert list(executor_choice.in_processes) == processes[0].split()
    if threads[0]:
        assert executor_choice.slots == threads[1]
    if loop[0]:
        assert executor_choice.async_slots == loop[1]
    if processes[0]:
        assert executor_choice.processes == processes[1]


def test_tasks_without_slots_are_named() -> None:
    assert choose_executors(app.tasks, processes=0).not_served == ("heavy",)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"only": frozenset({"plane"})}, "no task plane; it has coroutine, heavy, plain"),
        ({"slots": 0, "async_slots": 0, "processes": 0}, "no slots for any task"),
        ({"only": frozenset({"heavy"}), "processes": 0}, "no slots for any task: heavy"),
    ],
    ids=["unknown", "nothing", "nowhere"],
)
def test_nothing_to_do(asked: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose_executors(app.tasks, **asked)


def test_an_app_without_tasks() -> None:
    with pytest.raises(ConfigError, match="no tasks"):
        choose_executors({})
