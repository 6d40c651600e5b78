"""Whatever goes wrong in the account of limits and lanes is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.model import NORMAL, SECOND_US, Gate, Lane
from switchgear.testing import BrokenInvariant, check_engine
from tests.engine.gate_words import gate_of, limit, submit_each
from tests.engine.house import House


def busy_house() -> House:
    """Key a is closed and has jobs, b is open and has jobs, c is idle and its bucket not full."""
    house = House()
    limit(house, concurrency=5, rate=(5, SECOND_US), key_concurrency=1, key_rate=(3, SECOND_US), fair=True)
    worker = house.worker()
    for key in (b"c", b"a"):
        job = house.submit(key=key)
        assert house.engine.take(worker) is job
        if key == b"c":
            house.engine.complete(worker, job.id, b"")
    submit_each(house, b"a", b"b", b"b")
    check_engine(house.engine)
    return house


def lane(gate: Gate, key: bytes) -> Lane:
    assert gate.lanes is not None
    return gate.lanes[key]


def forget_a_running_job(gate: Gate) -> None:
    lane(gate, b"a").running = 0


def miscount_the_ready_ones_of_a_key(gate: Gate) -> None:
    lane(gate, b"b").ready += 1


def miscount_those_of_a_priority(gate: Gate) -> None:
    gate.ready[NORMAL] -= 1


def miscount_the_keys(gate: Gate) -> None:
    gate.keys_waiting = 0


def open_a_closed_lane(gate: Gate) -> None:
    lane(gate, b"a").is_open = True


def pass_over_a_key(gate: Gate) -> None:
    del gate.turns[NORMAL][lane(gate, b"b")]


def give_a_closed_key_a_turn(gate: Gate) -> None:
    gate.turns[NORMAL][lane(gate, b"a")] = 0


def remember_a_key_for_nothing(gate: Gate) -> None:
    assert gate.lanes is not None
    gate.lanes[b"d"] = Lane(gate.function, b"d")


def stand_in_the_wrong_lane(gate: Gate) -> None:
    lane(gate, b"a").queues, lane(gate, b"b").queues = lane(gate, b"b").queues, lane(gate, b"a").queues


def stand_beside_the_lanes(gate: Gate) -> None:
    gate.function.queues[NORMAL].append(lane(gate, b"b").queues[NORMAL].popleft())


def never_look_at_an_idle_lane(gate: Gate) -> None:
    lane(gate, b"c").check_us = 0


def never_look_at_an_empty_bucket(gate: Gate) -> None:
    gate.full_at += 5 * SECOND_US


def expect_a_deadline_that_is_not_there(gate: Gate) -> None:
    gate.check_us = 1


def keep_room_to_oneself(gate: Gate) -> None:
    gate.has_room = True


def list_a_lane_under_another_key(gate: Gate) -> None:
    assert gate.lanes is not None
    gate.lanes[b"d"] = gate.lanes.pop(b"b")


@pytest.mark.parametrize(
    "harm",
    [
        forget_a_running_job,
        miscount_the_ready_ones_of_a_key,
        miscount_those_of_a_priority,
        miscount_the_keys,
        open_a_closed_lane,
        pass_over_a_key,
        give_a_closed_key_a_turn,
        remember_a_key_for_nothing,
        stand_in_the_wrong_lane,
        stand_beside_the_lanes,
        never_look_at_an_idle_lane,
        never_look_at_an_empty_bucket,
        expect_a_deadline_that_is_not_there,
        keep_room_to_oneself,
        list_a_lane_under_another_key,
    ],
    ids=lambda harm: harm.__name__,
)
def test_harm_is_noticed(harm: Callable[[Gate], None]) -> None:
    house = busy_house()
    harm(gate_of(house))
    with pytest.raises(BrokenInvariant):
        check_engine(house.engine)


def test_a_worker_with_credit_beside_a_job_that_may_run_is_noticed() -> None:
    house = busy_house()
    worker = house.worker()
    worker.credits = 1
    house.function().pushers[worker] = None
    with pytest.raises(BrokenInvariant, match="a worker with credit"):
        check_engine(house.engine)
