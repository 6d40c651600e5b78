"""A function that nobody uses makes room for another when there are as many as may be."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import Refused
from switchgear.memory import FOR_WORKERS
from switchgear.model import NORMAL, SECOND_US, Delivery, Job
from switchgear.policy import Policy
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.house import House


def finished_job(house: House, name: bytes, **options: Any) -> Job:
    job = house.engine.submit(name, b"k", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(**options))
    house.engine.cancel(job)
    return job


def test_the_oldest_that_is_not_in_use_is_forgotten() -> None:
    house = House(functions=3)
    for name in (b"a", b"b", b"c"):
        finished_job(house, name)
        house.pass_seconds(1)
    house.engine.submit(b"a", b"", b"", NORMAL, Delivery.HANDLE)
    house.function(b"d")
    assert set(house.engine.functions) == {b"a", b"c", b"d"}
    check_engine(house.engine)


def test_strangers_that_make_up_names_lock_out_nobody() -> None:
    house = House(functions=100)
    house.engine.submit(b"mine", b"", b"", NORMAL, Delivery.HANDLE)
    for number in range(1000):
        finished_job(house, b"stranger %d" % number)
        house.pass_seconds(0.001)
    assert house.engine.functions[b"mine"].total == 1
    assert house.function(b"new").name == b"new"
    assert len(house.engine.functions) == 100
    check_engine(house.engine)


def unfinished(house: House) -> None:
    house.engine.submit(b"used", b"", b"", NORMAL, Delivery.HANDLE)


def has_worker(house: House) -> None:
    house.engine.can_do(house.engine.add_worker(RecordingPeer(), "test"), house.function(b"used"))


def paused(house: House) -> None:
    house.engine.pause(house.function(b"used"))


def limited(house: House) -> None:
    house.engine.set_limits(house.function(b"used"), 5, 5, 5)


def has_policy(house: House) -> None:
    house.engine.set_policy(house.function(b"used"), Policy(concurrency=2))


def has_order(house: House) -> None:
    house.function(b"used").released_first = True


def holds_key(house: House) -> None:
    finished_job(house, b"used", unique_for_us=3600 * SECOND_US)


@pytest.mark.parametrize("use", [unfinished, has_worker, paused, limited, has_policy, has_order, holds_key])
def test_one_that_is_in_use_or_has_settings_stays(use: Callable[[House], None]) -> None:
    house = House(functions=1)
    use(house)
    function = house.engine.functions[b"used"]
    house.pass_seconds(1)
    with pytest.raises(Refused, match="there are 1 functions already"):
        house.function(b"new")
    assert house.engine.functions == {b"used": function}


def test_one_that_was_just_asked_for_is_in_use() -> None:
    house = House(functions=1)
    house.function(b"a")
    with pytest.raises(Refused):
        house.function(b"b")


def test_whoever_comes_with_a_forgotten_function_gets_the_new_one() -> None:
    house = House(functions=1)
    old = house.function(b"a")
    house.pass_seconds(1)
    house.function(b"b")
    house.pass_seconds(1)
    worker = house.engine.add_worker(RecordingPeer(), "test")
    house.engine.can_do(worker, old)
    assert list(house.engine.functions) == [b"a"]
    assert house.engine.functions[b"a"] is not old
    assert worker in house.engine.functions[b"a"].workers
    check_engine(house.engine)


def test_a_job_of_a_forgotten_function_can_be_retried() -> None:
    house = House(functions=1)
    job = finished_job(house, b"a")
    house.pass_seconds(1)
    house.function(b"b")
    house.pass_seconds(1)
    house.engine.retry(job)
    assert house.engine.functions[b"a"].ready == 1
    check_engine(house.engine)


def test_functions_that_nobody_uses_do_not_lock_out_workers() -> None:
    house = House(functions=0)
    memory = house.engine.memory
    memory.limit_bytes = 1
    with suppress(Refused):
        for number in range(1000):
            house.function(b"stranger %d" % number)
    assert not memory.has_registration_room(1000, FOR_WORKERS)
    with pytest.raises(Refused):
        house.engine.refuse_registrations(1)  # they were named a moment ago, and may be about to be used
    house.pass_seconds(1)
    house.engine.refuse_registrations(1)
    assert memory.has_registration_room(1000, FOR_WORKERS)
    check_engine(house.engine)
