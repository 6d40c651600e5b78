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
from tests.engine.harness import Harness


def finished_job(harness: Harness, name: bytes, **options: Any) -> Job:
    job = harness.engine.submit(name, b"k", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(**options))
    harness.engine.cancel(job)
    return job


def test_the_oldest_that_is_not_in_use_is_forgotten() -> None:
    harness = Harness(functions=3)
    for name in (b"a", b"b", b"c"):
        finished_job(harness, name)
        harness.pass_seconds(1)
    harness.engine.submit(b"a", b"", b"", NORMAL, Delivery.HANDLE)
    harness.function(b"d")
    assert set(harness.engine.functions) == {b"a", b"c", b"d"}
    check_engine(harness.engine)


def test_strangers_that_make_up_names_lock_out_nobody() -> None:
    harness = Harness(functions=100)
    harness.engine.submit(b"mine", b"", b"", NORMAL, Delivery.HANDLE)
    for number in range(1000):
        finished_job(harness, b"stranger %d" % number)
        harness.pass_seconds(0.001)
    assert harness.engine.functions[b"mine"].total == 1
    assert harness.function(b"new").name == b"new"
    assert len(harness.engine.functions) == 100
    check_engine(harness.engine)


def unfinished(harness: Harness) -> None:
    harness.engine.submit(b"used", b"", b"", NORMAL, Delivery.HANDLE)


def has_worker(harness: Harness) -> None:
    harness.engine.can_do(harness.engine.add_worker(RecordingPeer(), "test"), harness.function(b"used"))


def paused(harness: Harness) -> None:
    harness.engine.pause(harness.function(b"used"))


def limited(harness: Harness) -> None:
    harness.engine.set_limits(harness.function(b"used"), 5, 5, 5)


def has_policy(harness: Harness) -> None:
    harness.engine.set_policy(harness.function(b"used"), Policy(concurrency=2))


def has_order(harness: Harness) -> None:
    harness.function(b"used").released_first = True


def holds_key(harness: Harness) -> None:
    finished_job(harness, b"used", unique_for_us=3600 * SECOND_US)


@pytest.mark.parametrize("use", [unfinished, has_worker, paused, limited, has_policy, has_order, holds_key])
def test_one_that_is_in_use_or_has_settings_stays(use: Callable[[Harness], None]) -> None:
    harness = Harness(functions=1)
    use(harness)
    function = harness.engine.functions[b"used"]
    harness.pass_seconds(1)
    with pytest.raises(Refused, match="there are 1 functions already"):
        harness.function(b"new")
    assert harness.engine.functions == {b"used": function}


def test_one_that_was_just_asked_for_is_in_use() -> None:
    harness = Harness(functions=1)
    harness.function(b"a")
    with pytest.raises(Refused):
        harness.function(b"b")


def test_whoever_comes_with_a_forgotten_function_gets_the_new_one() -> None:
    harness = Harness(functions=1)
    old = harness.function(b"a")
    harness.pass_seconds(1)
    harness.function(b"b")
    harness.pass_seconds(1)
    worker = harness.engine.add_worker(RecordingPeer(), "test")
    harness.engine.can_do(worker, old)
    assert list(harness.engine.functions) == [b"a"]
    assert harness.engine.functions[b"a"] is not old
    assert worker in harness.engine.functions[b"a"].workers
    check_engine(harness.engine)


def test_a_job_of_a_forgotten_function_can_be_retried() -> None:
    harness = Harness(functions=1)
    job = finished_job(harness, b"a")
    harness.pass_seconds(1)
    harness.function(b"b")
    harness.pass_seconds(1)
    harness.engine.retry(job)
    assert harness.engine.functions[b"a"].ready == 1
    check_engine(harness.engine)


def test_functions_that_nobody_uses_do_not_lock_out_workers() -> None:
    harness = Harness(functions=0)
    memory = harness.engine.memory
    memory.limit_bytes = 1
    with suppress(Refused):
        for number in range(1000):
            harness.function(b"stranger %d" % number)
    assert not memory.has_registration_room(1000, FOR_WORKERS)
    with pytest.raises(Refused):
        harness.engine.refuse_registrations(1)  # they were named a moment ago, and may be about to be used
    harness.pass_seconds(1)
    harness.engine.refuse_registrations(1)
    assert memory.has_registration_room(1000, FOR_WORKERS)
    check_engine(harness.engine)
