"""Who is alive, and who is at work."""

from __future__ import annotations

import pytest

from switchgear.model import DONE
from switchgear.model import READY as JOB_READY
from switchgear.protocols.pingpong.broker import PingPongSetup
from tests.protocols.pingpong.harness import (
    JOB,
    PING,
    PONG,
    READY,
    RESULT,
    Broker,
    at_work,
    claim_twice,
    failed,
)


@pytest.fixture
def broker() -> Broker:
    return Broker()


# --- worker timeout ---


def test_a_worker_in_the_ready_queue_that_is_silent_for_too_long_is_removed(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    broker.pass_time(2.999)
    assert broker.ready_queue() == [b"w"]
    broker.pass_time(0.001)
    assert broker.ready_queue() == []
    broker.client_asks(b"c", b"job")
    assert broker.heard_by_worker(b"w") == []


@pytest.mark.parametrize(
    "frames",
    [PING, READY, [b"", b"what nobody asked for"], [b"", b"too", b"many"], [b"no delimiter"]],
    ids=["PING", "READY", "unexpected", "too many frames", "no delimiter"],
)
def test_any_message_updates_the_expiration(broker: Broker, frames: list[bytes]) -> None:
    broker.worker_says(b"w", READY)
    broker.pass_time(2)
    broker.worker_says(b"w", frames)
    broker.pass_time(2.999)
    assert broker.ready_queue() == [b"w"]
    broker.pass_time(0.001)
    assert broker.ready_queue() == []


def test_a_result_updates_the_expiration(broker: Broker) -> None:
    at_work(broker)
    broker.pass_time(2)
    broker.worker_says(b"w", RESULT)
    broker.pass_time(2.999)
    assert broker.ready_queue() == [b"w"]
    broker.pass_time(0.001)
    assert broker.ready_queue() == []


def test_a_worker_at_work_does_not_expire_however_silent_it_is(broker: Broker) -> None:
    at_work(broker)
    broker.pass_time(59)
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]
    assert broker.ready_queue() == [b"w"]


def test_a_worker_that_is_given_a_job_in_its_last_moment_does_not_expire(broker: Broker) -> None:
    """The job of one worker comes back, and goes to another, while the lease of that one has run out already."""
    at_work(broker, b"slow")
    broker.pass_time(58)
    broker.worker_says(b"other", READY)  # so its lease ends 1 s after the job of the first comes back
    broker.jump(10)  # ... and both are met together
    assert broker.heard_by_worker(b"other") == [JOB]
    assert broker.is_at_work(b"other")
    assert broker.only_job().attempts == 2


def test_an_expired_worker_that_pings_is_ready_again(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    broker.pass_time(10)
    broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG]
    assert broker.ready_queue() == [b"w"]


def test_a_broker_that_was_restarted_takes_workers_at_their_ping() -> None:
    restarted = Broker()
    restarted.client_asks(b"c", b"job")
    restarted.worker_says(b"unknown", PING)
    assert restarted.heard_by_worker(b"unknown") == [PONG, JOB]


def test_without_expiration_a_silent_worker_stays_ready() -> None:
    broker = Broker(expire_seconds=0)
    broker.worker_says(b"w", READY)
    broker.pass_time(1_000_000)
    assert broker.ready_queue() == [b"w"]


# --- the race: a word that crosses a job ---


def test_a_ping_that_crosses_a_job_is_answered_and_does_not_make_the_worker_ready_twice(broker: Broker) -> None:
    at_work(broker)
    broker.client_asks(b"d", b"second job")
    broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG]
    assert broker.ready_queue() == []
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]
    assert broker.heard_by_client(b"d") == []
    assert broker.heard_by_worker(b"w") == [[b"", b"second job"]]


def test_a_ping_however_late_does_not_take_the_job_from_a_worker(broker: Broker) -> None:
    at_work(broker)
    broker.pass_time(30)
    broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG]
    assert broker.is_at_work(b"w")


def test_a_ready_that_crosses_a_job_means_nothing(broker: Broker) -> None:
    at_work(broker)
    broker.pass_time(0.999)
    broker.worker_says(b"w", READY)
    assert broker.is_at_work(b"w")
    assert broker.heard_by_worker(b"w") == []


def test_a_ready_later_than_that_means_that_the_worker_has_started_anew_without_the_job(broker: Broker) -> None:
    at_work(broker)
    broker.worker_says(b"other", READY)
    broker.pass_time(1)
    broker.worker_says(b"w", READY)
    assert broker.heard_by_worker(b"other") == [JOB]
    assert broker.only_job().attempts == 2
    broker.worker_says(b"other", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]


@pytest.mark.parametrize("word", [READY, PING], ids=["READY", "PING"])
def test_it_is_ready_with_its_next_word_unless_that_follows_on_the_heels_of_the_first(
    broker: Broker, word: list[bytes]
) -> None:
    at_work(broker)
    broker.pass_time(1)
    broker.worker_says(b"w", READY)
    broker.pass_time(0.499)
    broker.worker_says(b"w", word)
    assert broker.ready_queue() == []
    assert JOB not in broker.heard_by_worker(b"w")
    broker.pass_time(0.001)
    broker.worker_says(b"w", word)
    assert broker.heard_by_worker(b"w")[-1] == JOB
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]
    assert broker.ready_queue() == [b"w"]


def test_a_worker_that_loses_its_job_again_and_again_makes_it_fail(broker: Broker) -> None:
    at_work(broker)
    for _ in range(6):
        broker.pass_time(1)
        broker.worker_says(b"w", READY)
    assert broker.heard_by_client(b"c") == [failed("worker lost in attempt 3, the last one")]
    assert broker.ready_queue() == [b"w"]


def test_a_clock_that_was_set_back_does_not_make_a_ready_unheard(broker: Broker) -> None:
    at_work(broker)
    broker.pass_time(2)
    broker.harness.clock.set_wall_clock(-3600)
    broker.do(broker.engine.clock_moved, broker.harness.clock.follow_wall_clock())
    broker.worker_says(b"w", READY)
    broker.harness.clock.set_wall_clock(-3600)
    broker.do(broker.engine.clock_moved, broker.harness.clock.follow_wall_clock())
    broker.worker_says(b"w", READY)
    assert broker.heard_by_worker(b"w") == [JOB]


# --- a broker that was held up reads everything late ---


def test_an_old_ping_is_not_taken_for_a_new_one(broker: Broker) -> None:
    """All this has arrived while the broker could not look: a PING that crossed the job, and the result."""
    at_work(broker)
    broker.client_asks(b"d", b"second")
    broker.jump(100)
    for _ in range(3):
        broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG] * 3
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]
    assert broker.heard_by_worker(b"w") == [[b"", b"second"]]


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["at work", "cancelled"])
def test_an_old_ready_is_not_taken_for_a_new_one(broker: Broker, is_cancelled: bool) -> None:
    at_work(broker)
    broker.client_asks(b"d", b"second")
    if is_cancelled:
        broker.do(broker.engine.cancel, next(iter(broker.engine.jobs.values())))
    answer = failed("cancelled") if is_cancelled else RESULT
    broker.jump(2)
    for _ in range(3):
        broker.worker_says(b"w", READY)
    assert broker.heard_by_worker(b"w") == []
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [answer]
    assert broker.heard_by_worker(b"w") == [[b"", b"second"]]


# --- a job whose worker never answers ---


def test_a_job_is_sent_again_to_another_worker_after_a_timeout(broker: Broker) -> None:
    at_work(broker)
    broker.pass_time(58)
    broker.worker_says(b"other", READY)
    broker.pass_time(1.999)
    assert broker.heard_by_worker(b"other") == []
    broker.pass_time(0.001)
    assert broker.heard_by_worker(b"other") == [JOB]
    broker.worker_says(b"other", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]


def test_the_worker_that_did_not_answer_is_not_ready(broker: Broker) -> None:
    at_work(broker)
    broker.pass_time(60)
    assert broker.only_job().state is JOB_READY
    assert broker.ready_queue() == []
    assert not broker.engine.workers


@pytest.mark.parametrize("word", [READY, PING], ids=["READY", "PING"])
def test_it_is_ready_again_when_it_says_so_twice(broker: Broker, word: list[bytes]) -> None:
    at_work(broker)
    broker.pass_time(60)
    broker.worker_says(b"w", word)
    assert broker.ready_queue() == []
    broker.pass_time(1)
    broker.worker_says(b"w", word)
    assert broker.heard_by_worker(b"w")[-1] == JOB


def test_a_ping_that_may_have_crossed_the_job_means_nothing_even_when_the_time_for_the_job_is_shorter() -> None:
    broker = Broker(resend_seconds=0.2)
    at_work(broker)
    for _ in range(3):
        broker.pass_time(0.3)
        broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG] * 3
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]


def test_after_the_last_attempt_the_client_is_told(broker: Broker) -> None:
    broker.client_asks(b"c", b"job")
    for worker in (b"first", b"second", b"third"):
        broker.worker_says(worker, READY)
        assert broker.heard_by_worker(worker) == [JOB]
        broker.pass_time(60)
    assert broker.heard_by_client(b"c") == [failed("timed out in attempt 3, the last one")]


def test_by_default_a_worker_keeps_its_job_while_its_connection_lives() -> None:
    assert PingPongSetup().resend_us == 0
    broker = Broker(resend_seconds=0)
    at_work(broker)
    broker.pass_time(1000)
    broker.worker_says(b"other", READY)
    broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"other") == []
    broker.backend.session.peer_gone(b"w")
    broker.harness.turn()
    assert broker.heard_by_worker(b"other") == [JOB], "the connection is closed, so it goes to another at once"


def test_without_a_timeout_a_job_is_not_sent_again() -> None:
    broker = Broker(resend_seconds=0)
    at_work(broker)
    broker.pass_time(1_000_000)
    broker.worker_says(b"other", READY)
    assert broker.heard_by_worker(b"other") == []
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]


def test_a_submitters_own_limit_comes_first(broker: Broker) -> None:
    job = broker.submit(b"job")
    job.has_details = True
    job.timeout_us = 5_000_000
    broker.worker_says(b"w", READY)
    broker.pass_time(5)
    assert job.state is JOB_READY
    broker.worker_says(b"w", PING)  # it may well be at work still, by its own measure
    assert broker.ready_queue() == []
    broker.worker_says(b"w", RESULT)
    assert (job.state, job.result) == (DONE, b"result")


def test_a_submitters_own_limit_may_be_longer(broker: Broker) -> None:
    job = broker.submit(b"job")
    job.has_details = True
    job.timeout_us = 120_000_000
    broker.worker_says(b"w", READY)
    broker.pass_time(60)
    claim_twice(broker, PING)
    assert broker.is_at_work(b"w")
    assert broker.heard_by_worker(b"w") == [JOB, PONG, PONG]
