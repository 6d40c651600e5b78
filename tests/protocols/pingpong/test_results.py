"""Whose result counts."""

from __future__ import annotations

import pytest

from switchgear.engine import one_job_workers
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
    failed,
    late,
    lose,
)


@pytest.fixture
def broker() -> Broker:
    return Broker()


# --- results that come late ---


def test_a_late_result_counts_while_the_job_waits_for_another_worker(broker: Broker) -> None:
    late(broker)
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]
    assert broker.ready_queue() == [b"w"]
    assert broker.bad_input == []
    assert broker.debtors() == []


def test_the_first_result_wins_and_the_client_gets_one_answer(broker: Broker) -> None:
    late(broker)
    broker.worker_says(b"other", READY)
    assert broker.heard_by_worker(b"other") == [JOB]
    broker.worker_says(b"w", [b"", b"late, but first"])
    broker.worker_says(b"other", [b"", b"second"])
    assert broker.heard_by_client(b"c") == [[b"", b"late, but first"]]
    assert broker.ready_queue() == [b"w", b"other"]
    assert broker.bad_input == []  # nobody is to blame


def test_a_result_for_a_job_that_another_has_done_is_dropped_and_counted(broker: Broker) -> None:
    late(broker)
    broker.worker_says(b"other", READY)
    broker.worker_says(b"other", [b"", b"first"])
    broker.worker_says(b"w", [b"", b"too late"])
    assert broker.heard_by_client(b"c") == [[b"", b"first"]]
    assert broker.bad_input == ["LATE_RESULT"]
    assert broker.ready_queue() == [b"other", b"w"]


def test_a_late_result_after_a_cancelled_job_is_counted_like_any_other(broker: Broker) -> None:
    at_work(broker)
    broker.do(broker.engine.cancel, broker.only_job())
    broker.worker_says(b"w", RESULT)
    broker.client_asks(b"c", b"job")
    broker.pass_time(1)
    broker.worker_says(b"w", READY)
    broker.do(broker.engine.cancel, broker.only_job())
    broker.worker_says(b"w", RESULT)
    assert broker.bad_input == ["LATE_RESULT"]


@pytest.mark.parametrize("word", [PING, LEAVE], ids=["PING", "LEAVE"])
def test_a_worker_that_cannot_be_told_a_word_still_owes_its_result(broker: Broker, word: list[bytes]) -> None:
    late(broker)
    lose(broker.backend, b"w")
    broker.worker_says(b"w", word)
    come_back(broker.backend, b"w")
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]


def test_a_worker_that_owes_a_result_and_was_ready_and_expired_may_still_send_it(broker: Broker) -> None:
    late(broker)
    broker.do(broker.engine.pause, broker.only_job().function)
    claim_twice(broker, PING)
    assert broker.ready_queue() == [b"w"]
    broker.pass_time(3)
    assert broker.ready_queue() == []
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]
    assert broker.ready_queue() == [b"w"]


def test_a_worker_that_owes_a_result_and_is_ready_may_still_send_it(broker: Broker) -> None:
    late(broker)
    broker.do(broker.engine.pause, broker.only_job().function)
    claim_twice(broker, PING)
    assert broker.ready_queue() == [b"w"]
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_client(b"c") == [RESULT]
    assert broker.ready_queue() == [b"w"]
    broker.worker_says(b"w", RESULT)
    assert broker.bad_input == ["UNEXPECTED"]


def test_a_result_is_owed_only_once(broker: Broker) -> None:
    late(broker)
    broker.worker_says(b"w", RESULT)
    broker.worker_says(b"w", [b"", b"and another"])
    assert broker.heard_by_client(b"c") == [RESULT]
    assert broker.bad_input == ["UNEXPECTED"]


def test_a_result_from_a_worker_that_was_never_sent_a_job_is_not_an_answer(broker: Broker) -> None:
    broker.client_asks(b"c", b"job")
    broker.worker_says(b"stranger", RESULT)
    assert broker.bad_input == ["UNEXPECTED"]
    assert broker.heard_by_client(b"c") == []
    assert broker.heard_by_worker(b"stranger") == []


def test_only_so_many_debts_are_remembered(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_job_workers, "MOST_OWING", 2)
    for number in range(3):
        at_work(broker, b"w%d" % number, b"job %d" % number)
    broker.pass_time(60)
    for number in range(3):
        broker.worker_says(b"w%d" % number, [b"", b"result %d" % number])
    assert broker.heard_by_client(b"c") == [[b"", b"result 1"], [b"", b"result 2"]]
    assert broker.bad_input == ["UNEXPECTED"]


# --- a job that is over before its worker is done ---


def test_a_worker_whose_job_was_cancelled_is_at_work_until_its_result_which_is_dropped(broker: Broker) -> None:
    at_work(broker)
    broker.do(broker.engine.cancel, broker.only_job())
    assert broker.heard_by_client(b"c") == [failed("cancelled")]
    broker.client_asks(b"d", b"next")
    broker.pass_time(30)
    broker.worker_says(b"w", PING)
    assert broker.heard_by_worker(b"w") == [PONG]  # and no job, since it may be at work
    broker.worker_says(b"w", RESULT)
    assert broker.heard_by_worker(b"w") == [[b"", b"next"]]
    assert broker.heard_by_client(b"c") == []
    assert broker.heard_by_client(b"d") == []
    assert broker.bad_input == []


@pytest.mark.parametrize(
    ("word", "seconds", "is_believed"),
    [(READY, 0.999, False), (READY, 1, True), (PING, 59.499, False), (PING, 60, True)],
    ids=["early READY", "READY", "early PING", "PING"],
)
def test_when_a_worker_is_believed_to_have_lost_its_cancelled_job(
    broker: Broker, word: list[bytes], seconds: float, is_believed: bool
) -> None:
    at_work(broker)
    broker.do(broker.engine.cancel, broker.only_job())
    broker.pass_time(seconds)
    broker.worker_says(b"w", word)
    broker.pass_time(0.5)
    broker.worker_says(b"w", PING)
    assert broker.ready_queue() == ([b"w"] if is_believed else [])


def test_without_a_timeout_only_a_ready_is_believed() -> None:
    broker = Broker(resend_seconds=0)
    at_work(broker)
    broker.do(broker.engine.cancel, broker.only_job())
    broker.pass_time(1_000_000)
    claim_twice(broker, PING)
    assert broker.ready_queue() == []
    claim_twice(broker, READY)
    assert broker.ready_queue() == [b"w"]


def test_workers_that_vanish_with_cancelled_jobs_are_no_workers_any_more(broker: Broker) -> None:
    for number in range(5):
        at_work(broker, b"w%d" % number, b"job")
    for job in list(broker.engine.jobs.values()):
        broker.do(broker.engine.cancel, job)
    assert not broker.engine.workers
