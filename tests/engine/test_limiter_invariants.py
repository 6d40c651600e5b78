"""Whatever goes wrong in the account of limits and key_queues is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.model import NORMAL, SECOND_US, KeyQueue, Limiter
from switchgear.model.key_queue_order import KeyQueueTurn
from switchgear.testing import BrokenInvariant, check_engine
from tests.engine.harness import Harness
from tests.engine.limiter_words import limit, limiter_of, submit_each


def busy_harness() -> Harness:
    """Key a is closed and has jobs, b is open and has jobs, c is idle and its bucket not full."""
    harness = Harness()
    limit(harness, concurrency=5, rate=(5, SECOND_US), key_concurrency=1, key_rate=(3, SECOND_US), fair=True)
    worker = harness.worker()
    for key in (b"c", b"a"):
        job = harness.submit(key=key)
        assert harness.engine.take(worker) is job
        if key == b"c":
            harness.engine.complete(worker, job.id, b"")
    submit_each(harness, b"a", b"b", b"b")
    check_engine(harness.engine)
    return harness


def key_queue(limiter: Limiter, key: bytes) -> KeyQueue:
    assert limiter.key_queues is not None
    return limiter.key_queues[key]


def forget_a_running_job(limiter: Limiter) -> None:
    key_queue(limiter, b"a").running = 0


def miscount_the_ready_ones_of_a_key(limiter: Limiter) -> None:
    key_queue(limiter, b"b").ready += 1


def miscount_those_of_a_priority(limiter: Limiter) -> None:
    limiter.ready[NORMAL] -= 1


def miscount_the_keys(limiter: Limiter) -> None:
    limiter.keys_waiting = 0


def open_a_closed_key_queue(limiter: Limiter) -> None:
    key_queue(limiter, b"a").is_open = True


def pass_over_a_key(limiter: Limiter) -> None:
    turn = key_queue(limiter, b"b").turns[NORMAL]
    assert turn is not None
    limiter.order[NORMAL].remove(turn)


def give_a_closed_key_a_turn(limiter: Limiter) -> None:
    closed = key_queue(limiter, b"a")
    turn = closed.turns[NORMAL] = KeyQueueTurn(closed, 0)
    limiter.order[NORMAL].add(turn)


def remember_a_key_for_nothing(limiter: Limiter) -> None:
    assert limiter.key_queues is not None
    limiter.key_queues[b"d"] = KeyQueue(limiter, b"d")


def stand_in_the_wrong_key_queue(limiter: Limiter) -> None:
    key_queue(limiter, b"a").queues, key_queue(limiter, b"b").queues = (
        key_queue(limiter, b"b").queues,
        key_queue(limiter, b"a").queues,
    )


def stand_beside_the_key_queues(limiter: Limiter) -> None:
    limiter.function.queues[NORMAL].append(key_queue(limiter, b"b").queues[NORMAL].popleft())


def never_look_at_an_idle_key_queue(limiter: Limiter) -> None:
    key_queue(limiter, b"c").check_us = 0


def never_look_at_an_empty_bucket(limiter: Limiter) -> None:
    limiter.full_at += 5 * SECOND_US


def expect_a_deadline_that_is_not_there(limiter: Limiter) -> None:
    limiter.check_us = 1


def keep_room_to_oneself(limiter: Limiter) -> None:
    limiter.has_room = True


def list_a_key_queue_under_another_key(limiter: Limiter) -> None:
    assert limiter.key_queues is not None
    limiter.key_queues[b"d"] = limiter.key_queues[b"b"]
    del limiter.key_queues[b"b"]


@pytest.mark.parametrize(
    "harm",
    [
        forget_a_running_job,
        miscount_the_ready_ones_of_a_key,
        miscount_those_of_a_priority,
        miscount_the_keys,
        open_a_closed_key_queue,
        pass_over_a_key,
        give_a_closed_key_a_turn,
        remember_a_key_for_nothing,
        stand_in_the_wrong_key_queue,
        stand_beside_the_key_queues,
        never_look_at_an_idle_key_queue,
        never_look_at_an_empty_bucket,
        expect_a_deadline_that_is_not_there,
        keep_room_to_oneself,
        list_a_key_queue_under_another_key,
    ],
    ids=lambda harm: harm.__name__,
)
def test_harm_is_noticed(harm: Callable[[Limiter], None]) -> None:
    harness = busy_harness()
    harm(limiter_of(harness))
    with pytest.raises(BrokenInvariant):
        check_engine(harness.engine)


def test_a_worker_with_credit_beside_a_job_that_may_run_is_noticed() -> None:
    harness = busy_harness()
    worker = harness.worker()
    worker.credits = 1
    harness.function().pushers[worker] = None
    with pytest.raises(BrokenInvariant, match="a worker with credit"):
        check_engine(harness.engine)
