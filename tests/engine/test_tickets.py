"""Credit that ends: a worker that waits for one job until some time, and is given it or told that there was none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.engine.deadlines import LEAST_STALE_FOR_SWEEP
from switchgear.model import READY, RUNNING, SECOND_US
from switchgear.testing import RecordingPeer
from tests.engine.harness import Harness, ids, peer_of, state_of

MakeHarness = Callable[..., Harness]


def test_a_job_that_is_there_is_assigned_at_once_and_there_is_no_ticket(harness: Harness) -> None:
    job = harness.submit()
    worker = harness.worker()
    assert harness.engine.grant_until(worker, harness.at(5)) == 0
    assert peer_of(worker).heard == [("assign", worker.id, job.id)]
    assert (worker.credits, len(worker.tickets or ())) == (0, 0)
    harness.pass_seconds(60)
    assert peer_of(worker).words() == ["assign"]


def test_a_job_that_comes_in_time_is_assigned(harness: Harness) -> None:
    worker = harness.worker()
    assert harness.engine.grant_until(worker, harness.at(5)) > 0
    harness.pass_seconds(4.999999)
    job = harness.submit()
    assert peer_of(worker).heard == [("assign", worker.id, job.id)]
    harness.pass_seconds(60)
    assert peer_of(worker).words() == ["assign"]


def test_if_no_job_comes_the_worker_is_told_at_the_time_and_gets_none_later(harness: Harness) -> None:
    worker = harness.worker()
    ticket = harness.engine.grant_until(worker, harness.at(5))
    harness.pass_seconds(4.999999)
    assert peer_of(worker).heard == []
    harness.pass_seconds(0.000001)
    assert peer_of(worker).heard == [("waited in vain", worker.id, ticket)]
    assert state_of(harness.submit()) is READY
    assert (worker.credits, list(harness.function().pushers)) == (0, [])


def test_one_without_any_patience_is_told_as_soon_as_time_is_looked_at(harness: Harness) -> None:
    worker = harness.worker()
    ticket = harness.engine.grant_until(worker, harness.now_us)
    harness.pass_seconds(0)
    assert peer_of(worker).heard == [("waited in vain", worker.id, ticket)]


def test_the_engine_says_when_a_ticket_ends(harness: Harness) -> None:
    harness.engine.grant_until(harness.worker(), harness.at(5))
    assert harness.engine.next_deadline_us == harness.at(5)


def test_those_who_wait_are_served_in_the_order_in_which_they_began_to(harness: Harness) -> None:
    first, second, third = (harness.worker() for _ in range(3))
    harness.engine.grant_until(first, harness.at(9))
    harness.engine.grant(second, 1)
    harness.engine.grant_until(third, harness.at(5))
    jobs = [harness.submit() for _ in range(4)]
    assert [job.worker for job in jobs] == [first, second, third, None]


def test_several_tickets_of_one_worker_are_used_in_the_order_in_which_it_got_them(harness: Harness) -> None:
    worker = harness.worker()
    first, second, third = (harness.engine.grant_until(worker, harness.at(seconds)) for seconds in (9, 5, 7))
    assert first < second < third
    harness.submit()
    harness.pass_seconds(60)
    assert peer_of(worker).heard[1:] == [("waited in vain", worker.id, second), ("waited in vain", worker.id, third)]


def test_a_ticket_that_ends_leaves_the_others_and_other_credit_as_they_are(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.grant(worker, 1)
    harness.engine.grant_until(worker, harness.at(9))
    harness.engine.grant_until(worker, harness.at(5))
    harness.pass_seconds(5)
    assert worker.credits == 2
    jobs = [harness.submit() for _ in range(3)]
    assert [job.state for job in jobs] == [RUNNING, RUNNING, READY]


def test_a_ticket_that_ends_does_not_cost_a_worker_its_turn(harness: Harness) -> None:
    first, second = harness.worker(), harness.worker()
    harness.engine.grant_until(first, harness.at(5))
    harness.engine.grant_until(first, harness.at(9))
    harness.engine.grant_until(second, harness.at(9))
    harness.pass_seconds(5)
    assert harness.submit().worker is first


def test_a_ticket_is_for_any_function_that_the_worker_can_do_then(harness: Harness) -> None:
    worker = harness.worker(b"one", b"two")
    harness.engine.grant_until(worker, harness.at(5))
    harness.engine.cannot_do(worker, harness.function(b"one"))
    harness.engine.can_do(worker, harness.function(b"three"))
    assert state_of(harness.submit(b"one")) is READY
    assert harness.submit(b"three").worker is worker


def test_while_nothing_is_handed_out_a_ticket_waits_and_ends(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.pause(harness.function())
    harness.engine.grant_until(worker, harness.at(5))
    late = harness.engine.grant_until(worker, harness.at(9))
    job = harness.submit()
    harness.pass_seconds(5)
    assert peer_of(worker).words() == ["waited in vain"]
    harness.engine.resume(harness.function())
    assert job.worker is worker
    harness.pass_seconds(60)
    assert ("waited in vain", worker.id, late) not in peer_of(worker).heard


def test_a_ticket_that_was_withdrawn_is_not_heard_of(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.grant_until(worker, harness.at(5))
    harness.engine.withdraw_credit(worker)
    harness.pass_seconds(60)
    assert peer_of(worker).heard == []
    assert state_of(harness.submit()) is READY


def test_a_new_ticket_after_a_withdrawal_is_another_one(harness: Harness) -> None:
    worker = harness.worker()
    first = harness.engine.grant_until(worker, harness.at(5))
    harness.engine.withdraw_credit(worker)
    second = harness.engine.grant_until(worker, harness.at(5))
    assert second != first
    harness.pass_seconds(5)
    assert peer_of(worker).heard == [("waited in vain", worker.id, second)]


def test_a_worker_that_is_gone_does_not_wait(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.grant_until(worker, harness.at(5))
    harness.engine.remove_worker(worker)
    harness.pass_seconds(60)
    assert peer_of(worker).heard == []
    assert state_of(harness.submit()) is READY


def test_one_whose_lease_ends_while_it_waits_is_told_that_and_nothing_else(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.renew_lease(worker, 2 * SECOND_US)
    harness.engine.grant_until(worker, harness.at(5))
    harness.pass_seconds(60)
    assert peer_of(worker).heard == [("expired", worker.id)]


def test_one_who_asks_after_its_end_waits_in_vain(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.remove_worker(worker)
    harness.submit()
    ticket = harness.engine.grant_until(worker, harness.at(5))
    harness.pass_seconds(5)
    assert peer_of(worker).heard == [("waited in vain", worker.id, ticket)]


@pytest.mark.parametrize("hours", [1, -1])
def test_patience_does_not_change_when_the_clock_is_set(harness: Harness, hours: int) -> None:
    worker = harness.worker()
    ticket = harness.engine.grant_until(worker, harness.at(5))
    harness.pass_seconds(2)
    harness.set_clock(hours * 3600)
    harness.pass_seconds(2.999999)
    assert peer_of(worker).heard == []
    harness.pass_seconds(0.000001)
    assert peer_of(worker).heard == [("waited in vain", worker.id, ticket)]


# --- a worker that holds as many jobs as it may ---


def test_a_ticket_beyond_what_a_worker_may_hold_waits_in_vain(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_worker=1)
    worker, _ = harness.running()
    ticket = harness.engine.grant_until(worker, harness.at(5))
    assert ticket > 0
    assert state_of(harness.submit()) is READY
    harness.pass_seconds(5)
    assert peer_of(worker).heard == [("waited in vain", worker.id, ticket)]
    assert worker.credits == 0


def test_one_that_has_room_again_is_served_for_its_oldest_ticket(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_worker=1)
    worker, job = harness.running()
    harness.engine.grant_until(worker, harness.at(5))
    harness.engine.complete(worker, job.id, b"")
    second = harness.engine.grant_until(worker, harness.at(9))
    assert harness.submit().worker is worker
    harness.pass_seconds(60)
    assert peer_of(worker).heard[1:] == [("waited in vain", worker.id, second)]
    assert worker.credits == 0


def test_more_tickets_than_a_worker_may_hold_jobs_all_end(make_harness: MakeHarness) -> None:
    harness = make_harness(jobs_per_worker=2)
    worker = harness.worker()
    tickets = [harness.engine.grant_until(worker, harness.at(5)) for _ in range(4)]
    assert worker.credits == 2
    jobs = [harness.submit() for _ in range(3)]
    assert list(worker.running) == ids(*jobs[:2])
    harness.pass_seconds(5)
    assert peer_of(worker).heard[2:] == [("waited in vain", worker.id, ticket) for ticket in tickets[2:]]
    assert worker.credits == 0


# --- the index stays small ---


@pytest.mark.parametrize("way", ["assigned", "withdrawn", "lost"])
def test_tickets_that_lost_their_meaning_do_not_fill_the_index(harness: Harness, way: str) -> None:
    worker = harness.worker()
    for _ in range(4 * LEAST_STALE_FOR_SWEEP):
        harness.engine.grant_until(worker, harness.at(86_400))
        if way == "assigned":
            harness.engine.complete(worker, harness.submit().id, b"")
        elif way == "withdrawn":
            harness.engine.withdraw_credit(worker)
        else:
            harness.engine.remove_worker(worker)
            worker = harness.worker(peer=RecordingPeer())
        harness.pass_seconds(0)
        assert len(harness.engine.deadlines) <= 2 * LEAST_STALE_FOR_SWEEP


def test_rebuilding_the_index_keeps_tickets(harness: Harness) -> None:
    patient, hasty = harness.worker(), harness.worker(b"other")
    ticket = harness.engine.grant_until(patient, harness.at(60))
    for _ in range(2 * LEAST_STALE_FOR_SWEEP):
        harness.engine.grant_until(hasty, harness.at(86_400))
        harness.engine.withdraw_credit(hasty)
        harness.pass_seconds(0)
    harness.pass_seconds(60)
    assert peer_of(patient).heard == [("waited in vain", patient.id, ticket)]
