"""Operations in slices: each turn of the event loop does a few steps, and they take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from switchgear.net import long_operations as module
from switchgear.protocols.pending_read import Step
from tests.net.harness import in_turns


async def next_turn() -> None:
    await asyncio.sleep(0)


class LongOperations(module.LongOperations):
    """As many steps in a turn as it takes, however slow the machine is."""

    def __init__(self, begin_turn: Callable[[], None], is_held_up: Callable[[], bool] = lambda: False) -> None:
        super().__init__(begin_turn, is_held_up)
        self.slice_seconds = 1000.0


class Done:
    """Which steps were done, of which operation."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.turns = 0

    def begin_turn(self) -> None:
        self.turns += 1

    def operation(self, name: str, count: int, pause_at: int = -1) -> Iterator[Step]:
        for number in range(count):
            self.steps.append(f"{name}{number}")
            yield number == pause_at


@in_turns
async def test_the_first_step_is_done_at_once_and_then_so_many_a_turn() -> None:
    done = Done()
    operations = LongOperations(done.begin_turn)
    operations.steps_per_turn = 2
    operations.start(done.operation("a", 4))
    assert done.steps == ["a0"]
    await next_turn()
    assert (done.steps, done.turns) == (["a0", "a1", "a2"], 1)
    await next_turn()
    assert done.steps == ["a0", "a1", "a2", "a3"]
    await next_turn()
    assert len(operations) == 0


@in_turns
async def test_operations_take_turns() -> None:
    done = Done()
    operations = LongOperations(done.begin_turn)
    operations.steps_per_turn = 2
    operations.start(done.operation("a", 3))
    operations.start(done.operation("b", 3))
    await next_turn()
    await next_turn()
    assert done.steps == ["a0", "b0", "a1", "b1", "a2", "b2"]


@in_turns
async def test_one_that_pauses_is_not_asked_again_until_it_is_handed_in() -> None:
    done = Done()
    operations = LongOperations(done.begin_turn)
    operation = done.operation("a", 3, pause_at=1)
    operations.start(operation)
    for _ in range(3):
        await next_turn()
    assert (done.steps, len(operations)) == (["a0", "a1"], 0)
    operations.resume(operation)
    await next_turn()
    assert done.steps == ["a0", "a1", "a2"]


@in_turns
async def test_a_defect_in_one_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[Step]:
        yield False
        raise RuntimeError("oh")

    done = Done()
    operations = LongOperations(done.begin_turn)
    operations.start(broken())
    operations.start(done.operation("a", 2))
    await next_turn()
    assert done.steps == ["a0", "a1"]
    assert "internal error in an operation" in caplog.text


@in_turns
async def test_nothing_is_done_while_the_store_is_behind() -> None:
    held = [True]
    done = Done()
    operations = LongOperations(done.begin_turn, lambda: held[0])
    operations.start(done.operation("a", 2))
    await next_turn()
    assert done.steps == ["a0"]
    held[0] = False
    operations.wake()
    await next_turn()
    assert done.steps == ["a0", "a1"]
