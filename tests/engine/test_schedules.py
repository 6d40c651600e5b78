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
from switchgear.testing import FakeClock, RecordingPeer, check_engine
from switchgear.timetable import Cron, Every
from tests.engine.harness import Harness

NONE, LATEST, ALL = CatchUp.NONE, CatchUp.LATEST, CatchUp.ALL
HOUR = 3600.0


def schedule(every: float = 60, name: bytes = b"nightly", **fields: Any) -> Schedule:
    timetable = fields.pop("timetable", None) or Every(round(every * SECOND_US))
    return Schedule(name, timetable, fields.pop("function_name", b"mail"), **fields)


def made(harness: Harness) -> list[Job]:
    """The unfinished jobs that schedules made."""
    return [job for job in harness.engine.jobs.values() if job.schedule]


def ticks(harness: Harness) -> list[float]:
    """For which ticks, in seconds from now."""
    return [(job.run_at_us - harness.now_us) / SECOND_US for job in made(harness)]


def counts(schedule: Schedule) -> tuple[int, int, int]:
    return schedule.fired, schedule.skipped, schedule.missed


def finish_all(harness: Harness) -> None:
    worker = harness.worker()
    harness.drain_with(worker)
    harness.engine.remove_worker(worker)


@pytest.fixture
def harness(make_harness: Callable[..., Harness]) -> Harness:
    """At a full minute, where ticks are easily counted."""
    return make_harness(clock=FakeClock(1_700_000_040 * SECOND_US))


class TestTicks:
    def test_one_job_for_each_however_often_it_is_declared(self, harness: Harness) -> None:
        for _ in range(5):
            harness.engine.set_schedule(schedule(60))
        harness.pass_seconds(59.999)
        assert made(harness) == []
        harness.pass_seconds(0.001)
        (job,) = made(harness)
        assert (job.state, job.function.name, job.schedule, job.origin) == (READY, b"mail", b"nightly", "schedule")
        assert job.delivery == Delivery.HANDLE
        assert job.run_at_us == harness.now_us
        finish_all(harness)
        harness.pass_seconds(60)
        assert len(made(harness)) == 1

    def test_a_job_is_given_what_the_schedule_says(self, harness: Harness) -> None:
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
        harness.engine.set_schedule(wanted)
        harness.pass_seconds(61)
        (job,) = made(harness)
        assert (job.payload, job.priority, job.timeout_us, job.attempts_limit) == (b"all", HIGH, 7, 2)
        assert (job.crash_limit, job.retention_us, job.key) == (4, 9, b"tenant")
        assert job.expires_us == harness.at(4), "counted from the tick"
        harness.pass_seconds(4)
        assert job.state is JobState.EXPIRED

    def test_it_remembers(self, harness: Harness) -> None:
        set_up = harness.engine.set_schedule(schedule(60))
        assert (set_up.next_us, set_up.last_us, set_up.last_job_id) == (harness.at(60), 0, 0)
        harness.pass_seconds(60)
        (job,) = made(harness)
        assert (set_up.next_us, set_up.last_us, set_up.last_job_id) == (harness.at(60), harness.now_us, job.id)
        assert counts(set_up) == (1, 0, 0)

    def test_an_operator_is_told(self, harness: Harness) -> None:
        harness.engine.set_schedule(schedule(60))
        harness.pass_seconds(60)
        harness.pass_seconds(60)
        harness.pass_seconds(600)
        heard = [event for event in harness.observer.heard if str(event[0]).startswith("schedule")]
        assert heard == [
            ("schedule fired", b"nightly", 1),
            ("schedule skipped", b"nightly"),
            ("schedule skipped", b"nightly"),
            ("schedule missed", b"nightly", 9),
        ]

    def test_by_the_clock_on_the_wall(self, harness: Harness) -> None:
        daily = harness.engine.set_schedule(schedule(timetable=Cron("0 3 * * *", "Europe/Berlin")))
        harness.pass_seconds((daily.next_us - harness.now_us) / SECOND_US)
        assert len(made(harness)) == 1

    def test_one_that_never_comes_is_refused(self, harness: Harness) -> None:
        with pytest.raises(ValueError, match="never comes"):
            harness.engine.set_schedule(schedule(timetable=Cron("0 0 */20 * 1L")))
        assert harness.engine.schedules == {}

    def test_there_are_not_more_than_fit(self) -> None:
        harness = Harness(schedules=1)
        harness.engine.set_schedule(schedule())
        harness.engine.set_schedule(schedule(30))
        with pytest.raises(Refused, match="1 schedules already"):
            harness.engine.set_schedule(schedule(name=b"another"))

    def test_many_ticks_at_one_moment_are_met_in_several_turns(self) -> None:
        harness = Harness(schedules=0)
        for number in range(2 * TICKS_AT_ONCE + 1):
            harness.engine.set_schedule(schedule(name=b"%d" % number))
        harness.pass_seconds(60)
        assert len(made(harness)) == TICKS_AT_ONCE
        harness.pass_seconds(0.001)
        assert len(made(harness)) == 2 * TICKS_AT_ONCE
        check_engine(harness.engine)
        harness.pass_seconds(0.001)
        assert len(made(harness)) == 2 * TICKS_AT_ONCE + 1
        harness.pass_seconds(1)
        assert len(made(harness)) == 2 * TICKS_AT_ONCE + 1


class TestDeclaringItAgain:
    def test_the_same_changes_nothing(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.engine.take_changed_schedules()
        harness.pass_seconds(30)
        assert harness.engine.set_schedule(schedule(60)) is known
        assert harness.engine.changed_schedules == {}

    def test_another_payload_leaves_the_ticks_alone(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(timetable=Every(100 * SECOND_US)))
        next_us = known.next_us
        harness.engine.take_changed_schedules()
        harness.engine.set_schedule(schedule(timetable=Every(100 * SECOND_US), payload=b"new", catch_up=ALL))
        assert (known.next_us, known.payload, known.catch_up) == (next_us, b"new", ALL)
        assert harness.engine.take_changed_schedules() == [known]

    def test_another_timetable_begins_now(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.pass_seconds(59)
        harness.engine.set_schedule(schedule(3600))
        assert known.next_us > harness.at(60)
        harness.pass_seconds(2)
        assert made(harness) == []

    def test_a_paused_one_stays_paused(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.engine.pause_schedule(known)
        harness.engine.set_schedule(schedule(30, payload=b"new"))
        harness.pass_seconds(600)
        assert known.paused
        assert made(harness) == []


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
        self, harness: Harness, catch_up: CatchUp, away_seconds: float, expected: list[float], missed: int
    ) -> None:
        harness.engine.set_schedule(schedule(60, catch_up=catch_up, overlap=True))
        harness.clock.advance(away_seconds)
        successor = restarted(harness)
        (after,) = successor.engine.schedules.values()
        assert ticks(successor) == expected
        assert after.missed == missed
        assert after.next_us > successor.now_us

    def test_after_the_clock_was_set_forward(
        self, harness: Harness, catch_up: CatchUp, away_seconds: float, expected: list[float], missed: int
    ) -> None:
        known = harness.engine.set_schedule(schedule(60, catch_up=catch_up, overlap=True))
        harness.set_clock(away_seconds)
        assert ticks(harness) == expected
        assert known.missed == missed


KEPT_FIELDS = (
    "state", "attempts", "revision", "kept", "schedule", "key", "run_at_us", "expires_us", "timeout_us",
    "attempts_limit", "crash_limit", "retention_us", "predecessors", "rank",
)  # fmt: skip


def copy_of(job: Job, harness: Harness) -> Job:
    function = harness.function(job.function.name)
    copy = Job(job.id, function, job.unique, job.payload, job.priority, job.delivery, job.created_us)
    for field in KEPT_FIELDS:
        setattr(copy, field, getattr(job, field))
    copy.moves = None if job.moves is None else list(job.moves)
    return copy


def restarted(harness: Harness) -> Harness:
    """The server was killed, and another goes on with what was kept, at the time that it is now."""
    harness.engine.take_changes()
    harness.engine.take_changed_schedules()
    successor = Harness(clock=harness.clock)
    kept = [replace(known, wake_us=0, next_us=0, refusal="") for known in harness.engine.schedules.values()]
    jobs = [copy_of(job, successor) for job in harness.engine.jobs.values()]
    successor.engine.restore(jobs, {}, harness.engine.next_job_id, kept)
    check_engine(successor.engine)
    return successor


class TestMadeUpForInTurn:
    """All ticks are made up for, and the jobs of the schedule do not overlap: each waits for the one before."""

    def test_they_run_one_after_the_other(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60, catch_up=ALL))
        harness.set_clock(200)
        assert [job.state for job in made(harness)] == [READY, WAITING, WAITING]
        first, second, third = made(harness)
        worker = harness.worker()
        assert harness.engine.take(worker) is first
        assert harness.engine.take(worker) is None
        harness.engine.fail(worker, first.id)  # which does not hold up the others
        assert harness.engine.take(worker) is second
        harness.engine.complete(worker, second.id, b"")
        assert harness.drain_with(worker) == [third.id]
        assert counts(known) == (3, 0, 0)

    def test_also_behind_the_one_that_was_unfinished_before(self, harness: Harness) -> None:
        harness.engine.set_schedule(schedule(60, catch_up=ALL))
        harness.pass_seconds(60)
        harness.set_clock(200)
        assert [job.state for job in made(harness)] == [READY, WAITING, WAITING, WAITING]

    def test_a_short_delay_is_not_made_up_for_twice(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(1, catch_up=ALL))
        harness.pass_seconds(3)
        assert counts(known) == (1, 2, 0)


class TestOverlap:
    def test_a_tick_is_skipped_while_the_last_job_is_unfinished(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        for _ in range(3):
            harness.pass_seconds(60)
        assert counts(known) == (1, 2, 0)
        worker = harness.worker()
        (job,) = made(harness)
        assert harness.engine.take(worker) is job
        harness.pass_seconds(60)
        assert counts(known) == (1, 3, 0)
        harness.engine.complete(worker, job.id, b"")
        harness.pass_seconds(60)
        assert counts(known) == (2, 3, 0)

    def test_unless_it_may(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60, overlap=True))
        for _ in range(3):
            harness.pass_seconds(60)
        assert counts(known) == (3, 0, 0)
        assert [job.state for job in made(harness)] == [READY] * 3

    def test_a_restart_knows_the_last_job(self, harness: Harness) -> None:
        harness.engine.set_schedule(schedule(60))
        harness.pass_seconds(60)
        successor = restarted(harness)
        successor.pass_seconds(60)
        (known,) = successor.engine.schedules.values()
        assert counts(known) == (1, 1, 0)


class TestPausing:
    def test_no_ticks_meanwhile_and_none_made_up_for(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60, catch_up=ALL))
        harness.engine.pause_schedule(known)
        harness.pass_seconds(600)
        harness.engine.resume_schedule(known)
        assert made(harness) == []
        assert known.next_us == harness.at(60)
        harness.pass_seconds(60)
        assert counts(known) == (1, 0, 0)

    def test_twice_is_once(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.engine.resume_schedule(known)
        harness.engine.pause_schedule(known)
        harness.engine.take_changed_schedules()
        harness.engine.pause_schedule(known)
        assert harness.engine.take_changed_schedules() == []

    def test_a_restart_does_not_resume(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.engine.pause_schedule(known)
        harness.clock.advance(600)
        successor = restarted(harness)
        successor.pass_seconds(600)
        assert made(successor) == []

    def test_removing(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.pass_seconds(60)
        harness.engine.take_changed_schedules()
        harness.engine.remove_schedule(known)
        harness.pass_seconds(600)
        assert len(made(harness)) == 1, "the jobs that it has made stay"
        assert known.removed
        assert harness.engine.take_changed_schedules() == [known]

    def test_one_of_the_same_name_is_a_new_one(self, harness: Harness) -> None:
        harness.engine.remove_schedule(harness.engine.set_schedule(schedule(60)))
        again = harness.engine.set_schedule(schedule(60))
        assert harness.engine.take_changed_schedules() == [again]
        assert not again.removed
        harness.pass_seconds(60)
        assert len(made(harness)) == 1


class TestRunningItNow:
    def test_apart_from_its_ticks(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60, payload=b"p"))
        next_us = known.next_us
        job = harness.engine.run_schedule_now(known)
        assert (job.payload, job.schedule, job.run_at_us, job.state) == (b"p", b"nightly", 0, READY)
        assert (known.next_us, known.last_job_id, known.fired) == (next_us, job.id, 1)

    def test_even_if_paused(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.engine.pause_schedule(known)
        assert harness.engine.run_schedule_now(known).state is READY

    def test_not_beside_its_last_job(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.engine.run_schedule_now(known)
        with pytest.raises(Refused, match="its last job is ready, and its jobs do not overlap"):
            harness.engine.run_schedule_now(known)
        finish_all(harness)
        harness.engine.run_schedule_now(known)


class TestRefusals:
    """The queue is full, the server drains, or its store has failed: the tick stays due for a while."""

    def test_it_is_tried_again(self, make_harness: Callable[..., Harness]) -> None:
        harness = make_harness(clock=FakeClock(1_700_000_040 * SECOND_US), jobs=1)
        harness.submit()
        known = harness.engine.set_schedule(schedule(60))
        harness.pass_seconds(60)
        assert made(harness) == []
        assert (known.refused, known.refusal) == (1, "Job queue is full")
        harness.pass_seconds(1)
        assert known.refused == 1, "once for a tick, however often it is tried"
        finish_all(harness)
        harness.pass_seconds(1)
        assert ticks(harness) == [-2]
        assert (counts(known), known.refusal) == ((1, 0, 0), "")

    @pytest.mark.parametrize(
        ("catch_up", "expected", "missed"), [(NONE, [], 3), (LATEST, [-20], 2), (ALL, [-140, -80, -20], 0)]
    )
    def test_if_it_takes_long_it_was_missed(
        self, harness: Harness, catch_up: CatchUp, expected: list[float], missed: int
    ) -> None:
        known = harness.engine.set_schedule(schedule(60, catch_up=catch_up, overlap=True))
        harness.engine.refusal = Refused(REFUSED_STORAGE, "disk full")
        for _ in range(200):
            harness.pass_seconds(1)
        harness.engine.refusal = None
        harness.pass_seconds(0)
        harness.pass_seconds(1)
        assert [tick + 1 for tick in ticks(harness)] == expected
        assert known.missed == missed
        assert known.refusal == ""

    def test_while_the_store_does_not_work_its_timetable_is_not_asked_again_and_again(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.engine.refusal = Refused(REFUSED_STORAGE, "disk full")
        harness.pass_seconds(60)
        with monkeypatch.context() as patch:
            patch.setattr(known, "timetable", None)
            for _ in range(5):
                harness.pass_seconds(1)
        assert (known.refused, known.refusal) == (1, "disk full")
        harness.engine.refusal = None
        harness.pass_seconds(1)
        assert counts(known) == (1, 0, 0)

    def test_a_clock_set_back_does_not_keep_it_waiting(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.engine.refusal = Refused(REFUSED_STORAGE, "disk full")
        harness.pass_seconds(60)
        harness.set_clock(-30)
        harness.engine.refusal = None
        harness.pass_seconds(31)
        assert counts(known) == (1, 0, 0)

    def test_what_a_draining_server_could_not_do_the_next_one_does(self, harness: Harness) -> None:
        harness.engine.set_schedule(schedule(60))
        harness.engine.drain()
        harness.pass_seconds(61)
        assert made(harness) == []
        assert ticks(restarted(harness)) == [-1]

    def test_a_tick_whose_job_would_have_expired_is_missed(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60, catch_up=ALL, overlap=True, expires_after_us=100 * SECOND_US))
        harness.set_clock(200)
        assert ticks(harness) == [-80, -20]
        assert counts(known) == (2, 0, 1)


class TestWithdrawnBecauseTheStoreFailed:
    def test_the_tick_is_due_again(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.pass_seconds(60)
        (job,) = made(harness)
        harness.engine.take_changed_schedules()
        assert harness.engine.withdraw(job)
        assert harness.engine.take_changed_schedules() == [known]
        assert (counts(known), known.last_job_id) == ((0, 0, 0), 0)
        harness.pass_seconds(1)
        assert ticks(harness) == [-1]

    def test_those_that_were_made_up_for_too(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60, catch_up=ALL))
        harness.set_clock(200)
        for job in reversed(made(harness)):
            assert harness.engine.withdraw(job)
        assert counts(known) == (0, 0, 0)
        harness.pass_seconds(1)
        assert ticks(harness) == [-141, -81, -21]

    def test_but_not_for_one_that_somebody_asked_for(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        assert harness.engine.withdraw(harness.engine.run_schedule_now(known))
        harness.pass_seconds(1)
        assert made(harness) == []
        assert known.fired == 0

    def test_nor_for_a_schedule_that_is_gone(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.pass_seconds(60)
        (job,) = made(harness)
        harness.engine.remove_schedule(known)
        assert harness.engine.withdraw(job)


class TestClocks:
    def test_set_back_a_little_brings_no_tick_again(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60, overlap=True))
        harness.pass_seconds(600)
        fired = known.fired
        harness.set_clock(-300)
        harness.pass_seconds(359)
        assert known.fired == fired
        harness.pass_seconds(1)
        assert known.fired == fired + 1

    def test_set_back_a_lot_was_wrong_before(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60, overlap=True))
        harness.set_clock(365 * 24 * HOUR)
        fired = known.fired
        harness.set_clock(-365 * 24 * HOUR)
        harness.pass_seconds(60)
        assert known.fired == fired + 1

    def test_also_if_that_was_while_the_server_was_down(self, harness: Harness) -> None:
        harness.engine.set_schedule(schedule(60))
        harness.clock.set_wall_clock(-24 * HOUR)
        harness.clock.follow_wall_clock()
        successor = restarted(harness)
        successor.pass_seconds(60)
        assert len(made(successor)) == 1

    def test_a_schedule_that_was_set_right_is_kept(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.engine.take_changed_schedules()
        harness.set_clock(-24 * HOUR)
        assert harness.engine.take_changed_schedules() == [known]


class TestKeeping:
    def test_a_tick_is_kept_with_its_job(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.engine.take_changed_schedules()
        harness.pass_seconds(60)
        (job,) = made(harness)
        assert harness.engine.take_changes()[0] == [job]
        assert harness.engine.take_changed_schedules() == [known]
        harness.pass_seconds(59)
        assert harness.engine.take_changed_schedules() == []

    def test_a_tick_that_was_kept_does_not_happen_again(self, harness: Harness) -> None:
        harness.engine.set_schedule(schedule(60, catch_up=ALL, overlap=True))
        harness.pass_seconds(60)
        successor = restarted(harness)
        assert len(made(successor)) == 1

    def test_a_worker_hears_of_its_job_when_that_is_kept(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        job = harness.engine.run_schedule_now(known)
        job.attempts_limit = 0
        assert harness.engine.start_must_be_kept(job)
        job.kept = True
        assert not harness.engine.start_must_be_kept(job)

    def test_what_is_restored_goes_on_where_it_was(self, harness: Harness) -> None:
        known = harness.engine.set_schedule(schedule(60))
        harness.pass_seconds(61)
        finish_all(harness)
        successor = restarted(harness)
        (after,) = successor.engine.schedules.values()
        apart = {"timetable", "reached_us"}
        assert [getattr(after, field.name) for field in fields(Schedule) if field.name not in apart] == [
            getattr(known, field.name) for field in fields(Schedule) if field.name not in apart
        ]
        successor.pass_seconds(59)
        assert len(made(successor)) == 1


def test_the_job_of_a_tick_is_begun_when_the_tick_is_stored(harness: Harness) -> None:
    """Otherwise a crash before the commit would make the tick due again, and its work would be done twice."""
    harness.engine.set_schedule(schedule(60))
    harness.engine.take_changes()
    harness.engine.is_durable = True
    peer = RecordingPeer()
    worker = harness.worker(peer=peer)
    harness.engine.grant(worker, 1)
    harness.pass_seconds(60)
    (job,) = worker.running.values()
    assert job.schedule == b"nightly"
    assert peer.unstored_batch == harness.engine.batch
