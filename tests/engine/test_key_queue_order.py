"""Key queues by their turns, and tables by name: with very many entries nothing is done for all of them at once."""

from __future__ import annotations

from random import Random

import pytest

from switchgear.model import Function, KeyQueue, QueueGroup
from switchgear.model.key_queue_order import KeyQueueOrder, KeyQueueTurn
from switchgear.model.names import MOST_IN_ONE, NameTable


@pytest.mark.parametrize("seed", range(20))
def test_turns_are_added_changed_and_removed(seed: int) -> None:
    random = Random(seed)
    group = QueueGroup(Function(b"f"), b"", tells_keys_apart=True)
    order, former = KeyQueueOrder(), KeyQueueOrder()
    turns: list[KeyQueueTurn] = []
    strange = KeyQueueTurn(KeyQueue(group, b"strange"), 0)
    former.add(strange)
    for number in range(500):
        choice = random.random()
        if choice < 0.5 or not turns:
            turn = KeyQueueTurn(KeyQueue(group, b"%d" % number), random.randrange(-50, 1000))
            turns.append(turn)
            order.add(turn)
        elif choice < 0.75:
            order.change(random.choice(turns), random.randrange(-50, 1000))
        else:
            turn = turns.pop(random.randrange(len(turns)))
            order.remove(turn)
            assert not order.has(turn)
        assert len(order) == len(turns)
        assert all(order.has(turn) for turn in turns)
        assert not order.has(strange)
        first = order.first()
        assert (first.number if first is not None else None) == min((turn.number for turn in turns), default=None)
    numbers = {id(turn.key_queue): turn.number for turn in turns}
    assert [numbers[id(key_queue)] for key_queue in order.in_order()] == sorted(numbers.values())
    taken = []
    while (first := order.first()) is not None:
        taken.append(first.number)
        order.remove(first)
    assert taken == sorted(numbers.values())


def test_an_order_has_nothing_left_of_a_turn_that_was_removed() -> None:
    group = QueueGroup(Function(b"f"), b"", tells_keys_apart=True)
    order = KeyQueueOrder()
    for number in range(1000):
        turn = KeyQueueTurn(KeyQueue(group, b"k"), number)
        order.add(turn)
        order.remove(turn)
    assert (len(order), list(order.in_order()), order.first()) == (0, [], None)


def test_a_large_table_consists_of_small_ones() -> None:
    table = NameTable[int]()
    for number in range(20 * MOST_IN_ONE):
        table[b"%d" % number] = number
    portions = list(table.portions())
    assert max(map(len, portions)) < MOST_IN_ONE
    assert sorted(number for portion in portions for number in portion) == list(range(20 * MOST_IN_ONE))
    assert sorted(table.values()) == sorted(number for _, number in table.items()) == list(range(20 * MOST_IN_ONE))
    assert len(table) == 20 * MOST_IN_ONE
    assert (table[b"77"], table.get(b"nobody"), b"77" in table, b"nobody" in table) == (77, None, True, False)
    del table[b"77"]
    assert b"77" not in table
    table.clear()
    assert (len(table), list(table.portions())) == (0, [])


def test_a_table_grows_while_it_is_listed() -> None:
    table = NameTable[int]()
    for number in range(MOST_IN_ONE):
        table[b"%d" % number] = number
    portions = table.portions()
    assert len(next(portions)) == MOST_IN_ONE
    for number in range(MOST_IN_ONE, 2 * MOST_IN_ONE):
        table[b"%d" % number] = number
    assert list(portions) == []
    assert len(table) == 2 * MOST_IN_ONE


@pytest.mark.parametrize("count", [0, 10, 3 * MOST_IN_ONE])
def test_a_table_is_emptied_step_by_step(count: int) -> None:
    table = NameTable[int]()
    for number in range(count):
        table[b"%d" % number] = number
    left = [len(table) for _ in table.discard()]
    assert left == list(range(count - 1, -1, -1))
