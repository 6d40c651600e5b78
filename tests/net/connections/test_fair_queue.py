"""Connections that send much are served in turn, a few milliseconds of each turn for all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from switchgear.net.connections.fair_queue import FairQueue


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(test())


@in_a_loop
async def test_everything_is_done_once_a_turn_and_in_order() -> None:
    done: list[str] = []
    fair_queue = FairQueue()
    fair_queue.turn_seconds = 60.0

    def first() -> None:
        done.append("first")
        if len(done) < 4:
            fair_queue.add(first)

    fair_queue.add(first)
    fair_queue.add(lambda: done.append("second"))
    await asyncio.sleep(0)
    assert done == ["first", "second"]
    assert len(fair_queue) == 1  # what is added meanwhile belongs to the next turn
    await asyncio.sleep(0)
    assert done == ["first", "second", "first"]


@in_a_loop
async def test_when_the_time_of_a_turn_is_over_the_rest_waits_for_the_next() -> None:
    done: list[int] = []
    fair_queue = FairQueue()
    fair_queue.turn_seconds = 0.0
    for number in range(3):
        fair_queue.add(lambda number=number: done.append(number))  # type: ignore[misc]
    for count in range(1, 4):
        await asyncio.sleep(0)
        assert done == list(range(count))
    assert not fair_queue


@in_a_loop
async def test_what_fails_does_not_keep_the_others_from_being_served() -> None:
    done: list[str] = []
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))
    fair_queue = FairQueue()
    fair_queue.turn_seconds = 0.0
    fair_queue.add(lambda: done.append("before"))
    fair_queue.add(lambda: [][0])
    fair_queue.add(lambda: done.append("after"))
    for _ in range(4):
        await asyncio.sleep(0)
    assert done == ["before", "after"]
    assert len(failures) == 1
