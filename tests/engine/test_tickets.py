"""Credit that ends: a worker that waits for one job until some time, and is given it or told that there was none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.engine.deadlines import LEAST_STALE_FOR_SWEEP
from switchgear.model import READY, RUNNING, SECOND_US
from switchgear.testing import RecordingPeer
from tests.engine.house import House, ids, peer_of, state_of

MakeHouse = Callable[..., House]


def test_a_job_that_is_there_is_assigned_at_once_and_there_is_no_ticket(house: House) -> None:
    job = house.submit()
    worker = house.worker()
    assert house.engine.grant_until(worker, house.at(5)) == 0
    assert peer_of(worker).heard == [("assign", worker.id, job.id)]
    assert (worker.credits, len(worker.tickets or ())) == (0, 0)
    house.pass_seconds(60)
    assert peer_of(worker).words() == ["assign"]


def test_a_job_that_comes_in_time_is_assigned(house: House) -> None:
    worker = house.worker()
    assert house.engine.grant_until(worker, house.at(5)) > 0
    house.pass_seconds(4.999999)
    job = house.submit()
    assert peer_of(worker).heard == [("assign", worker.id, job.id)]
    house.pass_seconds(60)
    assert peer_of(worker).words() == ["assign"]


def test_if_no_job_comes_the_worker_is_told_at_the_time_and_gets_none_later(house: House) -> None:
    worker = house.worker()
    ticket = house.engine.grant_until(worker, house.at(5))
    house.pass_seconds(4.999999)
    assert peer_of(worker).heard == []
    house.pass_seconds(0.000001)
    assert peer_of(worker).heard == [("waited in vain", worker.id, ticket)]
    assert state_of(house.submit()) is READY
    assert (worker.credits, list(house.function().pushers)) == (0, [])


def test_one_without_any_patience_is_told_as_soon_as_time_is_looked_at(house: House) -> None:
    worker = house.worker()
    ticket = house.engine.grant_until(worker, house.now_us)
    house.pass_seconds(0)
    assert peer_of(worker).heard == [("waited in vain", worker.id, ticket)]


def test_the_engine_says_when_a_ticket_ends(house: House) -> None:
    house.engine.grant_until(house.worker(), house.at(5))
    assert house.engine.next_deadline_us == house.at(5)


def test_those_who_wait_are_served_in_the_order_in_which_they_began_to(house: House) -> None:
    first, second, third = (house.worker() for _ in range(3))
    house.engine.grant_until(first, house.at(9))
    house.engine.grant(second, 1)
    house.engine.grant_until(third, house.at(5))
    jobs = [house.submit() for _ in range(4)]
    assert [job.worker for job in jobs] == [first, second, third, None]


def test_several_tickets_of_one_worker_are_used_in_the_order_in_which_it_got_them(house: House) -> None:
    worker = house.worker()
    first, second, third = (house.engine.grant_until(worker, house.at(seconds)) for seconds in (9, 5, 7))
    assert first < second < third
    house.submit()
    house.pass_seconds(60)
    assert peer_of(worker).heard[1:] == [("waited in vain", worker.id, second), ("waited in vain", worker.id, third)]


def test_a_ticket_that_ends_leaves_the_others_and_other_credit_as_they_are(house: House) -> None:
    worker = house.worker()
    house.engine.grant(worker, 1)
    house.engine.grant_until(worker, house.at(9))
    house.engine.grant_until(worker, house.at(5))
    house.pass_seconds(5)
    assert worker.credits == 2
    jobs = [house.submit() for _ in range(3)]
    assert [job.state for job in jobs] == [RUNNING, RUNNING, READY]


def test_a_ticket_that_ends_does_not_cost_a_worker_its_turn(house: House) -> None:
    first, second = house.worker(), house.worker()
    house.engine.grant_until(first, house.at(5))
    house.engine.grant_until(first, house.at(9))
    house.engine.grant_until(second, house.at(9))
    house.pass_seconds(5)
    assert house.submit().worker is first


def test_a_ticket_is_for_any_function_that_the_worker_can_do_then(house: House) -> None:
    worker = house.worker(b"one", b"two")
    house.engine.grant_until(worker, house.at(5))
    house.engine.cannot_do(worker, house.function(b"one"))
    house.engine.can_do(worker, house.function(b"three"))
    assert state_of(house.submit(b"one")) is READY
    assert house.submit(b"three").worker is worker


def test_while_nothing_is_handed_out_a_ticket_waits_and_ends(house: House) -> None:
    worker = house.worker()
    house.engine.pause(house.function())
    house.engine.grant_until(worker, house.at(5))
    late = house.engine.grant_until(worker, house.at(9))
    job = house.submit()
    house.pass_seconds(5)
    assert peer_of(worker).words() == ["waited in vain"]
    house.engine.resume(house.function())
    assert job.worker is worker
    house.pass_seconds(60)
    assert ("waited in vain", worker.id, late) not in peer_of(worker).heard


def test_a_ticket_that_was_withdrawn_is_not_heard_of(house: House) -> None:
    worker = house.worker()
    house.engine.grant_until(worker, house.at(5))
    house.engine.withdraw_credit(worker)
    house.pass_seconds(60)
    assert peer_of(worker).heard == []
    assert state_of(house.submit()) is READY


def test_a_new_ticket_after_a_withdrawal_is_another_one(house: House) -> None:
    worker = house.worker()
    first = house.engine.grant_until(worker, house.at(5))
    house.engine.withdraw_credit(worker)
    second = house.engine.grant_until(worker, house.at(5))
    assert second != first
    house.pass_seconds(5)
    assert peer_of(worker).heard == [("waited in vain", worker.id, second)]


def test_a_worker_that_is_gone_does_not_wait(house: House) -> None:
    worker = house.worker()
    house.engine.grant_until(worker, house.at(5))
    house.engine.remove_worker(worker)
    house.pass_seconds(60)
    assert peer_of(worker).heard == []
    assert state_of(house.submit()) is READY


def test_one_whose_lease_ends_while_it_waits_is_told_that_and_nothing_else(house: House) -> None:
    worker = house.worker()
    house.engine.renew_lease(worker, 2 * SECOND_US)
    house.engine.grant_until(worker, house.at(5))
    house.pass_seconds(60)
    assert peer_of(worker).heard == [("expired", worker.id)]


def test_one_who_asks_after_its_end_waits_in_vain(house: House) -> None:
    worker = house.worker()
    house.engine.remove_worker(worker)
    house.submit()
    ticket = house.engine.grant_until(worker, house.at(5))
    house.pass_seconds(5)
    assert peer_of(worker).heard == [("waited in vain", worker.id, ticket)]


@pytest.mark.parametrize("hours", [1, -1])
def test_patience_does_not_change_when_the_clock_is_set(house: House, hours: int) -> None:
    worker = house.worker()
    ticket = house.engine.grant_until(worker, house.at(5))
    house.pass_seconds(2)
    house.set_clock(hours * 3600)
    house.pass_seconds(2.999999)
    assert peer_of(worker).heard == []
    house.pass_seconds(0.000001)
    assert peer_of(worker).heard == [("waited in vain", worker.id, ticket)]


# --- a worker that holds as many jobs as it may ---


def test_a_ticket_beyond_what_a_worker_may_hold_waits_in_vain(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_worker=1)
    worker, _ = house.running()
    ticket = house.engine.grant_until(worker, house.at(5))
    assert ticket > 0
    assert state_of(house.submit()) is READY
    house.pass_seconds(5)
    assert peer_of(worker).heard == [("waited in vain", worker.id, ticket)]
    assert worker.credits == 0


def test_one_that_has_room_again_is_served_for_its_oldest_ticket(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_worker=1)
    worker, job = house.running()
    house.engine.grant_until(worker, house.at(5))
    house.engine.complete(worker, job.id, b"")
    second = house.engine.grant_until(worker, house.at(9))
    assert house.submit().worker is worker
    house.pass_seconds(60)
    assert peer_of(worker).heard[1:] == [("waited in vain", worker.id, second)]
    assert worker.credits == 0


def test_more_tickets_than_a_worker_may_hold_jobs_all_end(make_house: MakeHouse) -> None:
    house = make_house(jobs_per_worker=2)
    worker = house.worker()
    tickets = [house.engine.grant_until(worker, house.at(5)) for _ in range(4)]
    assert worker.credits == 2
    jobs = [house.submit() for _ in range(3)]
    assert list(worker.running) == ids(*jobs[:2])
    house.pass_seconds(5)
    assert peer_of(worker).heard[2:] == [("waited in vain", worker.id, ticket) for ticket in tickets[2:]]
    assert worker.credits == 0


# --- the index stays small ---


@pytest.mark.parametrize("way", ["assigned", "withdrawn", "lost"])
def test_tickets_that_lost_their_meaning_do_not_fill_the_index(house: House, way: str) -> None:
    worker = house.worker()
    for _ in range(4 * LEAST_STALE_FOR_SWEEP):
        house.engine.grant_until(worker, house.at(86_400))
        if way == "assigned":
            house.engine.complete(worker, house.submit().id, b"")
        elif way == "withdrawn":
            house.engine.withdraw_credit(worker)
        else:
            house.engine.remove_worker(worker)
            worker = house.worker(peer=RecordingPeer())
        house.pass_seconds(0)
        assert len(house.engine.deadlines) <= 2 * LEAST_STALE_FOR_SWEEP


def test_rebuilding_the_index_keeps_tickets(house: House) -> None:
    patient, hasty = house.worker(), house.worker(b"other")
    ticket = house.engine.grant_until(patient, house.at(60))
    for _ in range(2 * LEAST_STALE_FOR_SWEEP):
        house.engine.grant_until(hasty, house.at(86_400))
        house.engine.withdraw_credit(hasty)
        house.pass_seconds(0)
    house.pass_seconds(60)
    assert peer_of(patient).heard == [("waited in vain", patient.id, ticket)]
