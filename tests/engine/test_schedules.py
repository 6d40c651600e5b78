"""Jobs that are made again and again: ticks, ticks that were missed, jobs that overlap, and clocks that are set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from switchgear.engine.schedules import MOST_MADE_UP_FOR, TICKS_AT_ONCE
from switchgear.errors import Refused
from switchgear.model import HIGH, READY, SECOND_US, WAITING, CatchUp, Delivery, Job, JobState, Schedule
from switchgear.refusals import REFUSED_STORAGE
from switchgear.testing import FakeClock, check_engine
from switchgear.timetable import Cron, Every
from tests.engine.house import House

NONE, LATEST, ALL = CatchUp.NONE, CatchUp.LATEST, CatchUp.ALL
HOUR = 3600.0


def schedule(every: float = 60, name: bytes = b"nightly", **fields: Any) -> Schedule:
    timetable = fields.pop("timetable", None) or Every(round(every * SECOND_US))
    return Schedule(name, timetable, fields.pop("function_name", b"mail"), **fields)


def made(house: House) -> list[Job]:
    """The unfinished jobs that schedules made."""
    return [job for job in house.engine.jobs.values() if job.schedule]


def ticks(house: House) -> list[float]:
    """For which ticks, in seconds from now."""
    return [(job.run_at_us - house.now_us) / SECOND_US for job in made(house)]


def counts(schedule: Schedule) -> tuple[int, int, int]:
    return schedule.fired, schedule.skipped, schedule.missed


def finish_all(house: House) -> None:
    worker = house.worker()
    house.drain_with(worker)
    house.engine.remove_worker(worker)


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    """At a full minute, where ticks are easily counted."""
    return make_house(clock=FakeClock(1_700_000_040 * SECOND_US))


class TestTicks:
    def test_one_job_for_each_however_often_it_is_declared(self, house: House) -> None:
        for _ in range(5):
            house.engine.set_schedule(schedule(60))
        house.pass_seconds(59.999)
        assert made(house) == []
        house.pass_seconds(0.001)
        (job,) = made(house)
        assert (job.state, job.function.name, job.schedule, job.origin) == (READY, b"mail", b"nightly", "schedule")
        assert job.delivery == Delivery.HANDLE
        assert job.run_at_us == house.now_us
        finish_all(house)
        house.pass_seconds(60)
        assert len(made(house)) == 1

    def test_a_job_is_given_what_the_schedule_says(self, house: House) -> None:
        wanted = schedule(
            60,
            payload=b"all",
            priority=HIGH,
            expires_after_us=5 * SECOND_US,
            timeout_us=7,
            attempts_limit=2,
            crash_limit=4,
            retention_us=9,
            key=b"tenant",
        )
        house.engine.set_schedule(wanted)
        house.pass_seconds(61)
        (job,) = made(house)
        assert (job.payload, job.priority, job.timeout_us, job.attempts_limit) == (b"all", HIGH, 7, 2)
        assert (job.crash_limit, job.retention_us, job.key) == (4, 9, b"tenant")
        assert job.expires_us == house.at(4), "counted from the tick"
        house.pass_seconds(4)
        assert job.state is JobState.EXPIRED

    def test_it_remembers(self, house: House) -> None:
        set_up = house.engine.set_schedule(schedule(60))
        assert (set_up.next_us, set_up.last_us, set_up.last_job_id) == (house.at(60), 0, 0)
        house.pass_seconds(60)
        (job,) = made(house)
        assert (set_up.next_us, set_up.last_us, set_up.last_job_id) == (house.at(60), house.now_us, job.id)
        assert counts(set_up) == (1, 0, 0)

    def test_an_operator_is_told(self, house: House) -> None:
        house.engine.set_schedule(schedule(60))
        house.pass_seconds(60)
        house.pass_seconds(60)
        house.pass_seconds(600)
        heard = [event for event in house.observer.heard if str(event[0]).startswith("schedule")]
        assert heard == [
            ("schedule fired", b"nightly", 1),
            ("schedule skipped", b"nightly"),
            ("schedule skipped", b"nightly"),
            ("schedule missed", b"nightly", 9),
        ]

    def test_by_the_clock_on_the_wall(self, house: House) -> None:
        daily = house.engine.set_schedule(schedule(timetable=Cron("0 3 * * *", "Europe/Berlin")))
        house.pass_seconds((daily.next_us - house.now_us) / SECOND_US)
        assert len(made(house)) == 1

    def test_one_that_never_comes_is_refused(self, house: House) -> None:
        with pytest.raises(ValueError, match="never comes"):
            house.engine.set_schedule(schedule(timetable=Cron("0 0 */20 * 1L")))
        assert house.engine.schedules == {}

    def test_there_are_not_more_than_fit(self) -> None:
        house = House(schedules=1)
        house.engine.set_schedule(schedule())
        house.engine.set_schedule(schedule(30))
        with pytest.raises(Refused, match="1 schedules already"):
            house.engine.set_schedule(schedule(name=b"another"))

    def test_many_ticks_at_one_moment_are_met_in_several_turns(self) -> None:
        house = House(schedules=0)
        for number in range(2 * TICKS_AT_ONCE + 1):
            house.engine.set_schedule(schedule(name=b"%d" % number))
        house.pass_seconds(60)
        assert len(made(house)) == TICKS_AT_ONCE
        house.pass_seconds(0.001)
        assert len(made(house)) == 2 * TICKS_AT_ONCE
        check_engine(house.engine)
        house.pass_seconds(0.001)
        assert len(made(house)) == 2 * TICKS_AT_ONCE + 1
        house.pass_seconds(1)
        assert len(made(house)) == 2 * TICKS_AT_ONCE + 1


class TestDeclaringItAgain:
    def test_the_same_changes_nothing(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.engine.take_changed_schedules()
        house.pass_seconds(30)
        assert house.engine.set_schedule(schedule(60)) is known
        assert house.engine.changed_schedules == {}

    def test_another_payload_leaves_the_ticks_alone(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(timetable=Every(100 * SECOND_US)))
        next_us = known.next_us
        house.engine.take_changed_schedules()
        house.engine.set_schedule(schedule(timetable=Every(100 * SECOND_US), payload=b"new", catch_up=ALL))
        assert (known.next_us, known.payload, known.catch_up) == (next_us, b"new", ALL)
        assert house.engine.take_changed_schedules() == [known]

    def test_another_timetable_begins_now(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.pass_seconds(59)
        house.engine.set_schedule(schedule(3600))
        assert known.next_us > house.at(60)
        house.pass_seconds(2)
        assert made(house) == []

    def test_a_paused_one_stays_paused(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.engine.pause_schedule(known)
        house.engine.set_schedule(schedule(30, payload=b"new"))
        house.pass_seconds(600)
        assert known.paused
        assert made(house) == []


@pytest.mark.parametrize(
    ("catch_up", "away_seconds", "expected", "missed"),
    [
        # ticks at 60, 120, 180 ...; the server is away from 0 on
        (NONE, 60.0, [0], 0),
        (NONE, 65.0, [-5], 0),
        (NONE, 75.0, [], 1),
        (NONE, 185.0, [-5], 2),
        (NONE, 200.0, [], 3),
        (LATEST, 75.0, [-15], 0),
        (LATEST, 200.0, [-20], 2),
        (LATEST, 365 * 24 * HOUR + 15, [-15], MOST_MADE_UP_FOR - 1),
        (ALL, 75.0, [-15], 0),
        (ALL, 200.0, [-140, -80, -20], 0),
        (ALL, 365 * 24 * HOUR, [-60.0 * n for n in reversed(range(MOST_MADE_UP_FOR))], 0),
    ],
    ids=lambda value: getattr(value, "name", "") if not isinstance(value, float) else f"after {value:g} s",
)
class TestCatchingUp:
    def test_after_a_restart(
        self, house: House, catch_up: CatchUp, away_seconds: float, expected: list[float], missed: int
    ) -> None:
        house.engine.set_schedule(schedule(60, catch_up=catch_up, overlap=True))
        house.clock.advance(away_seconds)
        successor = restarted(house)
        (after,) = successor.engine.schedules.values()
        assert ticks(successor) == expected
        assert after.missed == missed
        assert after.next_us > successor.now_us

    def test_after_the_clock_was_set_forward(
        self, house: House, catch_up: CatchUp, away_seconds: float, expected: list[float], missed: int
    ) -> None:
        known = house.engine.set_schedule(schedule(60, catch_up=catch_up, overlap=True))
        house.set_clock(away_seconds)
        assert ticks(house) == expected
        assert known.missed == missed


KEPT_FIELDS = (
    "state", "attempts", "revision", "kept", "schedule", "key", "run_at_us", "expires_us", "timeout_us",
    "attempts_limit", "crash_limit", "retention_us", "predecessors", "rank",
)  # fmt: skip


def copy_of(job: Job, house: House) -> Job:
    function = house.function(job.function.name)
    copy = Job(job.id, function, job.unique, job.payload, job.priority, job.delivery, job.created_us)
    for field in KEPT_FIELDS:
        setattr(copy, field, getattr(job, field))
    copy.moves = None if job.moves is None else list(job.moves)
    return copy


def restarted(house: House) -> House:
    """The server was killed, and another goes on with what was kept, at the time that it is now."""
    house.engine.take_changes()
    house.engine.take_changed_schedules()
    successor = House(clock=house.clock)
    kept = [replace(known, wake_us=0, next_us=0, refusal="") for known in house.engine.schedules.values()]
    jobs = [copy_of(job, successor) for job in house.engine.jobs.values()]
    successor.engine.restore(jobs, {}, house.engine.next_job_id, kept)
    check_engine(successor.engine)
    return successor


class TestMadeUpForInTurn:
    """All ticks are made up for, and the jobs of the schedule do not overlap: each waits for the one before."""

    def test_they_run_one_after_the_other(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60, catch_up=ALL))
        house.set_clock(200)
        assert [job.state for job in made(house)] == [READY, WAITING, WAITING]
        first, second, third = made(house)
        worker = house.worker()
        assert house.engine.take(worker) is first
        assert house.engine.take(worker) is None
        house.engine.fail(worker, first.id)  # which does not hold up the others
        assert house.engine.take(worker) is second
        house.engine.complete(worker, second.id, b"")
        assert house.drain_with(worker) == [third.id]
        assert counts(known) == (3, 0, 0)

    def test_also_behind_the_one_that_was_unfinished_before(self, house: House) -> None:
        house.engine.set_schedule(schedule(60, catch_up=ALL))
        house.pass_seconds(60)
        house.set_clock(200)
        assert [job.state for job in made(house)] == [READY, WAITING, WAITING, WAITING]

    def test_a_short_delay_is_not_made_up_for_twice(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(1, catch_up=ALL))
        house.pass_seconds(3)
        assert counts(known) == (1, 2, 0)


class TestOverlap:
    def test_a_tick_is_skipped_while_the_last_job_is_unfinished(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        for _ in range(3):
            house.pass_seconds(60)
        assert counts(known) == (1, 2, 0)
        worker = house.worker()
        (job,) = made(house)
        assert house.engine.take(worker) is job
        house.pass_seconds(60)
        assert counts(known) == (1, 3, 0)
        house.engine.complete(worker, job.id, b"")
        house.pass_seconds(60)
        assert counts(known) == (2, 3, 0)

    def test_unless_it_may(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60, overlap=True))
        for _ in range(3):
            house.pass_seconds(60)
        assert counts(known) == (3, 0, 0)
        assert [job.state for job in made(house)] == [READY] * 3

    def test_a_restart_knows_the_last_job(self, house: House) -> None:
        house.engine.set_schedule(schedule(60))
        house.pass_seconds(60)
        successor = restarted(house)
        successor.pass_seconds(60)
        (known,) = successor.engine.schedules.values()
        assert counts(known) == (1, 1, 0)


class TestPausing:
    def test_no_ticks_meanwhile_and_none_made_up_for(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60, catch_up=ALL))
        house.engine.pause_schedule(known)
        house.pass_seconds(600)
        house.engine.resume_schedule(known)
        assert made(house) == []
        assert known.next_us == house.at(60)
        house.pass_seconds(60)
        assert counts(known) == (1, 0, 0)

    def test_twice_is_once(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.engine.resume_schedule(known)
        house.engine.pause_schedule(known)
        house.engine.take_changed_schedules()
        house.engine.pause_schedule(known)
        assert house.engine.take_changed_schedules() == []

    def test_a_restart_does_not_resume(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.engine.pause_schedule(known)
        house.clock.advance(600)
        successor = restarted(house)
        successor.pass_seconds(600)
        assert made(successor) == []

    def test_removing(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.pass_seconds(60)
        house.engine.take_changed_schedules()
        house.engine.remove_schedule(known)
        house.pass_seconds(600)
        assert len(made(house)) == 1, "the jobs that it has made stay"
        assert known.removed
        assert house.engine.take_changed_schedules() == [known]

    def test_one_of_the_same_name_is_a_new_one(self, house: House) -> None:
        house.engine.remove_schedule(house.engine.set_schedule(schedule(60)))
        again = house.engine.set_schedule(schedule(60))
        assert house.engine.take_changed_schedules() == [again]
        assert not again.removed
        house.pass_seconds(60)
        assert len(made(house)) == 1


class TestRunningItNow:
    def test_apart_from_its_ticks(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60, payload=b"p"))
        next_us = known.next_us
        job = house.engine.run_schedule_now(known)
        assert (job.payload, job.schedule, job.run_at_us, job.state) == (b"p", b"nightly", 0, READY)
        assert (known.next_us, known.last_job_id, known.fired) == (next_us, job.id, 1)

    def test_even_if_paused(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.engine.pause_schedule(known)
        assert house.engine.run_schedule_now(known).state is READY

    def test_not_beside_its_last_job(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.engine.run_schedule_now(known)
        with pytest.raises(Refused, match="its last job is ready, and its jobs do not overlap"):
            house.engine.run_schedule_now(known)
        finish_all(house)
        house.engine.run_schedule_now(known)


class TestRefusals:
    """The queue is full, the server drains, or its store has failed: the tick stays due for a while."""

    def test_it_is_tried_again(self, make_house: Callable[..., House]) -> None:
        house = make_house(clock=FakeClock(1_700_000_040 * SECOND_US), jobs=1)
        house.submit()
        known = house.engine.set_schedule(schedule(60))
        house.pass_seconds(60)
        assert made(house) == []
        assert (known.refused, known.refusal) == (1, "Job queue is full")
        house.pass_seconds(1)
        assert known.refused == 1, "once for a tick, however often it is tried"
        finish_all(house)
        house.pass_seconds(1)
        assert ticks(house) == [-2]
        assert (counts(known), known.refusal) == ((1, 0, 0), "")

    @pytest.mark.parametrize(
        ("catch_up", "expected", "missed"), [(NONE, [], 3), (LATEST, [-20], 2), (ALL, [-140, -80, -20], 0)]
    )
    def test_if_it_takes_long_it_was_missed(
        self, house: House, catch_up: CatchUp, expected: list[float], missed: int
    ) -> None:
        known = house.engine.set_schedule(schedule(60, catch_up=catch_up, overlap=True))
        house.engine.refusal = Refused(REFUSED_STORAGE, "disk full")
        for _ in range(200):
            house.pass_seconds(1)
        house.engine.refusal = None
        house.pass_seconds(0)
        house.pass_seconds(1)
        assert [tick + 1 for tick in ticks(house)] == expected
        assert known.missed == missed
        assert known.refusal == ""

    def test_while_the_store_does_not_work_its_timetable_is_not_asked_again_and_again(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.engine.refusal = Refused(REFUSED_STORAGE, "disk full")
        house.pass_seconds(60)
        with monkeypatch.context() as patch:
            patch.setattr(known, "timetable", None)
            for _ in range(5):
                house.pass_seconds(1)
        assert (known.refused, known.refusal) == (1, "disk full")
        house.engine.refusal = None
        house.pass_seconds(1)
        assert counts(known) == (1, 0, 0)

    def test_a_clock_set_back_does_not_keep_it_waiting(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.engine.refusal = Refused(REFUSED_STORAGE, "disk full")
        house.pass_seconds(60)
        house.set_clock(-30)
        house.engine.refusal = None
        house.pass_seconds(31)
        assert counts(known) == (1, 0, 0)

    def test_what_a_draining_server_could_not_do_the_next_one_does(self, house: House) -> None:
        house.engine.set_schedule(schedule(60))
        house.engine.drain()
        house.pass_seconds(61)
        assert made(house) == []
        assert ticks(restarted(house)) == [-1]

    def test_a_tick_whose_job_would_have_expired_is_missed(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60, catch_up=ALL, overlap=True, expires_after_us=100 * SECOND_US))
        house.set_clock(200)
        assert ticks(house) == [-80, -20]
        assert counts(known) == (2, 0, 1)


class TestWithdrawnBecauseTheStoreFailed:
    def test_the_tick_is_due_again(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.pass_seconds(60)
        (job,) = made(house)
        house.engine.take_changed_schedules()
        assert house.engine.withdraw(job)
        assert house.engine.take_changed_schedules() == [known]
        assert (counts(known), known.last_job_id) == ((0, 0, 0), 0)
        house.pass_seconds(1)
        assert ticks(house) == [-1]

    def test_those_that_were_made_up_for_too(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60, catch_up=ALL))
        house.set_clock(200)
        for job in reversed(made(house)):
            assert house.engine.withdraw(job)
        assert counts(known) == (0, 0, 0)
        house.pass_seconds(1)
        assert ticks(house) == [-141, -81, -21]

    def test_but_not_for_one_that_somebody_asked_for(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        assert house.engine.withdraw(house.engine.run_schedule_now(known))
        house.pass_seconds(1)
        assert made(house) == []
        assert known.fired == 0

    def test_nor_for_a_schedule_that_is_gone(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.pass_seconds(60)
        (job,) = made(house)
        house.engine.remove_schedule(known)
        assert house.engine.withdraw(job)


class TestClocks:
    def test_set_back_a_little_brings_no_tick_again(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60, overlap=True))
        house.pass_seconds(600)
        fired = known.fired
        house.set_clock(-300)
        house.pass_seconds(359)
        assert known.fired == fired
        house.pass_seconds(1)
        assert known.fired == fired + 1

    def test_set_back_a_lot_was_wrong_before(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60, overlap=True))
        house.set_clock(365 * 24 * HOUR)
        fired = known.fired
        house.set_clock(-365 * 24 * HOUR)
        house.pass_seconds(60)
        assert known.fired == fired + 1

    def test_also_if_that_was_while_the_server_was_down(self, house: House) -> None:
        house.engine.set_schedule(schedule(60))
        house.clock.set_wall_clock(-24 * HOUR)
        house.clock.follow_wall_clock()
        successor = restarted(house)
        successor.pass_seconds(60)
        assert len(made(successor)) == 1

    def test_a_schedule_that_was_set_right_is_kept(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.engine.take_changed_schedules()
        house.set_clock(-24 * HOUR)
        assert house.engine.take_changed_schedules() == [known]


class TestKeeping:
    def test_a_tick_is_kept_with_its_job(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.engine.take_changed_schedules()
        house.pass_seconds(60)
        (job,) = made(house)
        assert house.engine.take_changes()[0] == [job]
        assert house.engine.take_changed_schedules() == [known]
        house.pass_seconds(59)
        assert house.engine.take_changed_schedules() == []

    def test_a_tick_that_was_kept_does_not_happen_again(self, house: House) -> None:
        house.engine.set_schedule(schedule(60, catch_up=ALL, overlap=True))
        house.pass_seconds(60)
        successor = restarted(house)
        assert len(made(successor)) == 1

    def test_a_worker_hears_of_its_job_when_that_is_kept(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        job = house.engine.run_schedule_now(known)
        job.attempts_limit = 0
        assert house.engine.start_must_be_kept(job)
        job.kept = True
        assert not house.engine.start_must_be_kept(job)

    def test_what_is_restored_goes_on_where_it_was(self, house: House) -> None:
        known = house.engine.set_schedule(schedule(60))
        house.pass_seconds(61)
        finish_all(house)
        successor = restarted(house)
        (after,) = successor.engine.schedules.values()
        apart = {"timetable", "reached_us"}
        assert [getattr(after, field.name) for field in fields(Schedule) if field.name not in apart] == [
            getattr(known, field.name) for field in fields(Schedule) if field.name not in apart
        ]
        successor.pass_seconds(59)
        assert len(made(successor)) == 1
