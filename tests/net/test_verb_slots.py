"""Verbs that look at everything hold what they have found: so many at once, and no more, however many ask."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from switchgear.net.operations.verb_slots import MOST_AT_ONCE, VerbSlots
from switchgear.protocols.pending_read import PendingRead, Step
from tests.net.operator_harness import OperatorHarness


class Requests:
    """Requests for the verb `graph`, each of one step."""

    def __init__(self) -> None:
        self.slots = VerbSlots(frozenset({"graph"}))
        self.begun: list[int] = []

    def ask(self, number: int, verb: str = "graph") -> Generator[Step, None, int]:
        """A request whose first step is done."""
        request: Generator[Step, None, int] = self.slots.holding(verb, self._steps(number))
        self.waits = next(request)
        return request

    def _steps(self, number: int) -> Generator[Step, None, int]:
        self.begun.append(number)
        yield False
        return number


def result_of(request: Generator[Step, None, int]) -> int:
    while True:
        try:
            next(request)
        except StopIteration as ended:
            found: int = ended.value
            return found


def full() -> tuple[Requests, list[Generator[Step, None, int]]]:
    """Requests in all slots, and two that wait."""
    requests = Requests()
    asked = [requests.ask(number) for number in range(MOST_AT_ONCE + 2)]
    assert requests.begun == list(range(MOST_AT_ONCE))
    return requests, asked


def test_requests_beyond_the_slots_wait_in_their_order() -> None:
    requests, asked = full()
    wait = requests.waits
    assert isinstance(wait, PendingRead)
    assert not wait.is_done
    assert result_of(asked[1]) == 1
    assert not wait.is_done
    assert result_of(asked[-2]) == MOST_AT_ONCE
    assert wait.is_done
    assert result_of(asked[-1]) == MOST_AT_ONCE + 1
    for each in (asked[0], *asked[2:-2]):
        result_of(each)
    assert requests.slots.used("graph") == 0


def test_another_verb_has_slots_of_its_own() -> None:
    requests, _ = full()
    assert result_of(requests.ask(99, "job")) == 99


def test_a_request_whose_peer_leaves_while_it_waits_takes_no_slot() -> None:
    requests, asked = full()
    asked[-2].close()
    for each in (*asked[:-2], asked[-1]):
        result_of(each)
    assert MOST_AT_ONCE not in requests.begun
    assert requests.slots.used("graph") == 0


def test_nor_one_whose_peer_leaves_just_when_there_is_a_slot() -> None:
    requests, asked = full()
    result_of(asked[0])
    asked[-2].close()
    for each in (*asked[1:-2], asked[-1]):
        result_of(each)
    assert MOST_AT_ONCE not in requests.begun
    assert requests.slots.used("graph") == 0


def test_a_request_that_is_given_up_leaves_the_slots_as_they_are() -> None:
    requests, asked = full()
    assert isinstance(requests.waits, PendingRead)
    requests.waits.give_up()
    result_of(asked[-1])
    for each in asked[:-1]:
        result_of(each)
    assert requests.slots.used("graph") == 0


def test_a_slot_is_free_again_after_an_error() -> None:
    requests = Requests()
    request = requests.ask(1)
    with pytest.raises(ValueError):
        request.throw(ValueError())
    assert requests.slots.used("graph") == 0


def test_very_many_graphs_are_not_held_at_once() -> None:
    harness = OperatorHarness()
    harness.submit(3_000)
    operations = harness.operations
    answers: list[list[object]] = [[] for _ in range(20)]
    running = [operations.in_steps("graph", {"function": "f"}, answer) for answer in answers]
    steps = {id(each): next(each) for each in running}
    assert sum(not isinstance(step, PendingRead) for step in steps.values()) == MOST_AT_ONCE
    assert next(operations.in_steps("functions", {}, []), None) is None  # which does not wait for graphs
    for each in running:
        for _ in each:
            pass
    assert all(len(answer) == 1 for answer in answers)
