"""The document's dialogues between a worker and the broker, step by step.  The numbers are those of the document."""

from __future__ import annotations

import pytest

from switchgear.model import DONE
from tests.protocols.pingpong.harness import PING, PONG, READY, Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()


# --- worker is ready ---


def test_ready_2_the_broker_adds_the_worker_to_the_queue_and_says_nothing(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    assert broker.ready_queue() == [b"w"]
    assert broker.heard_by_worker(b"w") == []


def test_ready_2_a_second_ready_does_not_make_the_worker_ready_twice(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    broker.worker_says(b"w", READY)
    broker.client_asks(b"c", b"one")
    broker.client_asks(b"c", b"two")
    assert broker.heard_by_worker(b"w") == [[b"", b"one"]]


# --- worker sends PING ---


def test_ping_2_the_broker_answers_at_once(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG]


def test_ping_2_a_worker_that_is_not_in_the_ready_queue_is_added(broker: Broker) -> None:
    broker.worker_says(b"w", PING)
    assert broker.ready_queue() == [b"w"]
    assert broker.heard_by_worker(b"w") == [PONG]


def test_ping_2_a_worker_that_is_in_the_ready_queue_keeps_its_place(broker: Broker) -> None:
    for worker in (b"first", b"second"):
        broker.worker_says(worker, READY)
    broker.worker_says(b"first", PING)
    assert broker.ready_queue() == [b"first", b"second"]


def test_ping_3_every_ping_is_answered_once_and_only_to_its_sender(broker: Broker) -> None:
    broker.worker_says(b"other", READY)
    for _ in range(3):
        broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG] * 3
    assert broker.heard_by_worker(b"other") == []


def test_ping_3_pong_comes_before_a_job_that_waited_for_a_worker(broker: Broker) -> None:
    broker.client_asks(b"c", b"job")
    broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG, [b"", b"job"]]


# --- broker assigns a job to a worker ---


def test_job_1_the_broker_takes_the_worker_from_the_queue_and_sends_the_job(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    broker.client_asks(b"c", b"job")
    assert broker.ready_queue() == []
    assert broker.heard_by_worker(b"w") == [[b"", b"job"]]


def test_job_1_the_worker_that_was_ready_first_is_sent_the_job(broker: Broker) -> None:
    for worker in (b"first", b"second"):
        broker.worker_says(worker, READY)
    broker.client_asks(b"c", b"job")
    assert broker.heard_by_worker(b"first") == [[b"", b"job"]]
    assert broker.heard_by_worker(b"second") == []


def test_job_1_jobs_wait_for_workers_in_their_order(broker: Broker) -> None:
    for payload in (b"one", b"two", b"three"):
        broker.client_asks(b"c", payload)
    for worker in (b"first", b"second", b"third"):
        broker.worker_says(worker, READY)
    heard = [broker.heard_by_worker(worker) for worker in (b"first", b"second", b"third")]
    assert heard == [[[b"", b"one"]], [[b"", b"two"]], [[b"", b"three"]]]


def test_job_4_the_broker_forwards_the_result_and_adds_the_worker_to_the_queue(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    broker.client_asks(b"c", b"job")
    broker.worker_says(b"w", [b"", b"result"])
    assert broker.heard_by_client(b"c") == [[b"", b"result"]]
    assert broker.ready_queue() == [b"w"]


def test_job_4_with_jobs_waiting_the_worker_gets_the_next_at_once(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    for payload in (b"one", b"two"):
        broker.client_asks(b"c", payload)
    broker.heard_by_worker(b"w")
    broker.worker_says(b"w", [b"", b"result of one"])
    assert broker.heard_by_worker(b"w") == [[b"", b"two"]]
    broker.worker_says(b"w", [b"", b"result of two"])
    assert broker.heard_by_client(b"c") == [[b"", b"result of one"], [b"", b"result of two"]]


@pytest.mark.parametrize("payload", [b"", b"PING", b"READY", b"\0\xff" * 1000])
def test_a_job_may_be_any_bytes(broker: Broker, payload: bytes) -> None:
    broker.worker_says(b"w", READY)
    broker.client_asks(b"c", payload)
    assert broker.heard_by_worker(b"w") == [[b"", payload]]


@pytest.mark.parametrize("result", [b"", b"PONG", b"FAILED", b"ping", b"\0\xff" * 1000])
def test_a_result_may_be_any_bytes(broker: Broker, result: bytes) -> None:
    broker.worker_says(b"w", READY)
    broker.client_asks(b"c", b"job")
    broker.worker_says(b"w", [b"", result])
    assert broker.heard_by_client(b"c") == [[b"", result]]


def test_the_word_pong_cannot_be_a_job_because_no_worker_would_take_it_for_one(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    broker.client_asks(b"c", b"PONG")
    ((*frames, text),) = broker.heard_by_client(b"c")
    assert frames == [b"", b"", b"FAILED"]
    assert b"PONG" in text
    assert broker.heard_by_worker(b"w") == []
    broker.client_asks(b"c", b"another")
    assert broker.heard_by_worker(b"w") == [[b"", b"another"]]


# --- the broker is one of many ways to the function ---


def test_a_job_of_somebody_else_is_run_by_a_worker(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    job = broker.submit(b"from elsewhere")
    assert broker.heard_by_worker(b"w") == [[b"", b"from elsewhere"]]
    broker.worker_says(b"w", [b"", b"result"])
    assert (job.state, job.result) == (DONE, b"result")


def test_workers_are_shown_by_their_identity(broker: Broker) -> None:
    for identity in (b"build-7", b"\0k\x8bEg"):
        broker.worker_says(identity, READY)
    assert [worker.name for worker in broker.engine.workers.values()] == [b"build-7", b"0x006b8b4567"]
