"""Workers that go, cannot be reached, or cannot be sent their jobs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.errors import Refused
from switchgear.model import CANCELLED, DONE, FAILED, Cause, Delivery, Job, Peer
from tests.protocols.pingpong.harness import (
    JOB,
    LEAVE,
    PING,
    PONG,
    READY,
    RESULT,
    Broker,
    at_work,
    claim_twice,
    come_back,
    late,
    lose,
)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def stored(broker: Broker) -> Job:
    """A job that is stored and waits for a worker: its start will be a change of its own."""
    job = broker.submit(b"job")
    broker.harness.keep()
    return job


# --- workers that cannot be reached ---


def test_a_job_that_cannot_be_delivered_goes_to_another_worker_and_costs_no_attempt(broker: Broker) -> None:
    broker.worker_says(b"gone", READY)
    broker.worker_says(b"other", READY)
    lose(broker.backend, b"gone")
    broker.client_asks(b"c", b"job")
    assert broker.heard_by_worker(b"other") == [JOB]
    assert broker.only_job().attempts == 1
    assert [worker.name for worker in broker.engine.workers.values()] == [b"other"]
    assert broker.only_job().log[-2][0] is Cause.GIVEN_BACK


def test_a_worker_that_could_not_be_reached_owes_nothing(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    lose(broker.backend, b"w")
    broker.client_asks(b"c", b"job")
    come_back(broker.backend, b"w")
    broker.worker_says(b"w", RESULT)
    assert broker.bad_input == ["UNEXPECTED"]
    broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG, JOB]


def test_a_job_cancelled_before_it_is_known_to_be_undelivered(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    lose(broker.backend, b"w")
    client = Peer()
    broker.harness.soon(lambda: broker.engine.cancel(broker.only_job()))  # ahead of the bad news
    broker.submit(b"job", Delivery.WAIT, client)
    come_back(broker.backend, b"w")
    broker.worker_says(b"w", PING)
    assert broker.ready_queue() == [b"w"]


def test_a_pong_that_cannot_be_delivered_does_not_matter(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    lose(broker.backend, b"w")
    broker.worker_says(b"w", PING)
    assert broker.ready_queue() == [b"w"]


# --- workers that say goodbye ---


def test_an_idle_worker_that_leaves_gets_no_more_jobs(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    broker.worker_says(b"w", LEAVE)
    assert broker.heard_by_worker(b"w") == [LEAVE]
    assert not broker.engine.workers
    broker.client_asks(b"c", b"job")
    assert broker.heard_by_worker(b"w") == []


def test_a_worker_that_leaves_while_at_work_is_waited_for_and_gets_no_other_job(broker: Broker) -> None:
    at_work(broker)
    broker.client_asks(b"d", b"next")
    broker.worker_says(b"w", LEAVE)
    assert broker.heard_by_worker(b"w") == [LEAVE]
    broker.pass_time(10)
    broker.worker_says(b"w", PING)
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]
    assert broker.heard_by_worker(b"w") == [PONG]
    assert not broker.engine.workers


def test_a_worker_that_leaves_and_whose_job_is_taken_from_it_may_still_answer(broker: Broker) -> None:
    at_work(broker)
    broker.worker_says(b"w", LEAVE)
    broker.pass_time(60)
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]
    assert not broker.engine.workers


def test_a_worker_that_owes_a_result_and_leaves_may_still_answer(broker: Broker) -> None:
    late(broker)
    broker.do(broker.engine.pause, broker.only_job().function)
    claim_twice(broker, PING)
    assert broker.ready_queue() == [b"w"]
    broker.worker_says(b"w", LEAVE)
    assert broker.heard_by_worker(b"w") == [PONG, PONG, LEAVE]
    assert broker.ready_queue() == []
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]
    assert not broker.engine.workers


@pytest.mark.parametrize("word", [READY, PING], ids=["READY", "PING"])
def test_who_left_may_come_back(broker: Broker, word: list[bytes]) -> None:
    broker.worker_says(b"w", READY)
    broker.worker_says(b"w", LEAVE)
    broker.worker_says(b"w", word)
    assert broker.ready_queue() == [b"w"]
    broker.client_asks(b"c", b"job")
    broker.worker_says(b"w", RESULT)
    assert broker.ready_queue() == [b"w"]


def test_who_was_to_leave_after_its_job_and_lost_it_may_come_back(broker: Broker) -> None:
    at_work(broker)
    broker.worker_says(b"w", LEAVE)
    broker.pass_time(60)
    claim_twice(broker, READY)
    broker.worker_says(b"w", RESULT)
    assert broker.ready_queue() == [b"w"]


def test_a_worker_may_leave_before_it_is_found_that_its_job_cannot_be_sent(broker: Broker) -> None:
    broker.client_asks(b"c", b"PONG")
    broker.backend.send_in_one_turn([b"w", *READY], [b"w", *LEAVE])
    assert broker.heard_by_worker(b"w") == [LEAVE]
    assert not broker.engine.workers


def test_a_stranger_may_say_goodbye(broker: Broker) -> None:
    broker.worker_says(b"stranger", LEAVE)
    assert broker.heard_by_worker(b"stranger") == [LEAVE]
    assert broker.bad_input == []


def test_the_answer_to_a_goodbye_does_not_overtake_a_job_that_waits_for_the_store() -> None:
    broker = Broker(keeps=True, settings=EngineSettings(attempts=1))
    stored(broker)
    broker.worker_says(b"w", READY)
    broker.worker_says(b"w", LEAVE)
    assert broker.heard_by_worker(b"w") == []
    broker.harness.keep()
    assert broker.heard_by_worker(b"w") == [JOB, LEAVE]


def test_a_goodbye_whose_answer_cannot_be_delivered_is_one_nevertheless(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    lose(broker.backend, b"w")
    broker.worker_says(b"w", LEAVE)
    assert not broker.engine.workers


# --- with a durable store ---


def test_the_last_attempt_is_remembered_before_the_job_is_sent() -> None:
    broker = Broker(keeps=True, settings=EngineSettings(attempts=1))
    job = stored(broker)
    broker.worker_says(b"w", READY)
    broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG]  # which promises nothing
    broker.harness.keep()
    assert broker.heard_by_worker(b"w") == [JOB]
    broker.worker_says(b"w", RESULT)
    assert job.state is DONE


@pytest.mark.parametrize(
    "take_back",
    [
        lambda broker, job: broker.do(broker.engine.cancel, job),
        lambda broker, job: broker.do(broker.engine.complete_unowned, job),
    ],
    ids=["cancelled", "done by another"],
)
def test_a_job_that_is_over_before_it_is_sent_is_not_sent(take_back: Callable[..., None]) -> None:
    broker = Broker(keeps=True, expire_seconds=0, settings=EngineSettings(attempts=1))
    job = stored(broker)
    broker.worker_says(b"w", READY)
    take_back(broker, job)
    assert job.state in (CANCELLED, DONE)
    broker.harness.keep()
    assert broker.heard_by_worker(b"w") == [PONG]  # in its place
    assert broker.ready_queue() == [b"w"]
    assert not broker.is_at_work(b"w")


def test_who_leaves_before_its_job_is_sent_and_then_is_not_sent_it_has_left() -> None:
    broker = Broker(keeps=True, settings=EngineSettings(attempts=1))
    job = stored(broker)
    broker.worker_says(b"w", READY)
    broker.worker_says(b"w", LEAVE)
    broker.do(broker.engine.cancel, job)
    assert not broker.engine.workers
    broker.harness.keep()
    assert broker.heard_by_worker(b"w") == [PONG, LEAVE]


def test_a_job_whose_payload_is_lost_fails_and_the_worker_gets_the_next(broker: Broker) -> None:
    lost, good = broker.submit(b"lost"), broker.submit(b"good")
    lost.payload = None
    broker.worker_says(b"w", READY)
    assert lost.state is FAILED
    assert broker.heard_by_worker(b"w") == [[b"", b"good"]]
    assert broker.is_at_work(b"w")
    broker.worker_says(b"w", RESULT)
    assert good.state is DONE


def test_a_job_cancelled_before_it_could_be_sent_leaves_its_worker_ready(broker: Broker) -> None:
    job = broker.submit(b"PONG")
    broker.harness.soon(lambda: broker.engine.cancel(job))  # ahead of the failure
    broker.engine.advance(broker.harness.clock.now_us())
    broker.worker_says(b"w", READY)
    assert broker.ready_queue() == [b"w"]


# --- when the server stops, or is full ---


def test_a_result_that_comes_when_all_jobs_were_given_back_still_counts(broker: Broker) -> None:
    at_work(broker)
    broker.engine.drain()
    for worker in list(broker.engine.workers.values()):
        broker.do(broker.engine.remove_worker, worker, Cause.GIVEN_BACK)
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]
    broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG]


def test_where_there_is_no_room_for_the_function_workers_hear_pong_and_get_nothing() -> None:
    broker = Broker(settings=EngineSettings(functions=1))
    broker.engine.function_named(b"another")
    broker.worker_says(b"w", READY)
    broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG]
    assert broker.bad_input == ["REFUSED", "REFUSED"]
    with pytest.raises(Refused):
        broker.engine.function_named(b"pingpong")
