"""`WorkerRegistry`, `WorkerReports`, `ResumedStarts`, `LostStarts`, `Timers`, `Requirements` and the lists of waiting
workers."""

from __future__ import annotations

import pytest

from switchgear.engine.deadlines import DeadlineKind
from switchgear.engine.lost_starts import LOST_START_BYTES
from switchgear.engine.requirements import MOST_DESCRIPTIONS, fits, groups_for
from switchgear.engine.timers import TIMER_BYTES
from switchgear.engine.waiting_workers import (
    add_pusher,
    add_sleeper,
    allowed_priorities,
    has_sleepers,
    leave_lists,
    remove_pusher,
    remove_sleeper,
    set_priorities,
    to_end_of_pushers,
)
from switchgear.errors import Refused
from switchgear.model import BEST_FIRST, DONE, FAILED, HIGH, LOW, READY, RUNNING, SCHEDULED, Cause, Job, Worker
from switchgear.states import LateReport
from switchgear.testing import RecordingPeer
from tests.engine.harness import state_of
from tests.engine.parts.parts import Parts, heard


def taken(parts: Parts, *, identity: object = None, timeout_us: int = 0) -> tuple[Job, Worker]:
    job = parts.submit()
    worker = parts.registered(identity=identity, timeout_us=timeout_us)
    assert parts.dispatcher.take(worker) is job
    return job, worker


# --- WorkerRegistry ---


def test_a_worker_is_counted_while_it_is_registered() -> None:
    parts = Parts()
    function = parts.function()
    before = parts.state.memory.registration_bytes
    worker = parts.registered()
    assert (list(parts.state.workers), list(function.workers), worker.order) == ([worker.id], [worker], [function])
    parts.workers.remove(worker, Cause.WORKER_LOST)
    assert (parts.state.workers, function.workers, worker.alive) == ({}, {}, False)
    assert parts.state.memory.registration_bytes == before


def test_the_jobs_of_a_worker_that_is_removed_go_back() -> None:
    parts = Parts()
    job, worker = taken(parts, identity="w")
    parts.workers.remove(worker, Cause.WORKER_LOST)
    assert (state_of(job), worker.running, len(parts.lost_starts)) == (READY, {}, 1)
    parts.workers.remove(worker, Cause.WORKER_LOST)  # once more, which changes nothing
    assert parts.function().ready == 1


def test_a_lost_job_is_given_back_to_a_worker_that_still_runs_it() -> None:
    parts = Parts()
    job, worker = taken(parts)
    parts.workers.remove(worker, Cause.WORKER_LOST)
    back = parts.registered()
    assert parts.resumed_starts.resume(back, job.id, 1) is job
    assert (state_of(job), job.worker, job.attempts) == (RUNNING, back, 1)
    assert parts.resumed_starts.resume(parts.registered(), job.id, 1) is None


def test_a_lease_that_is_renewed_is_looked_at_again_at_its_new_end() -> None:
    parts = Parts()
    worker = parts.registered()
    parts.workers.renew_lease(worker, 100)
    parts.state.now_us += 60
    parts.workers.renew_lease(worker, 100)
    assert parts.due(40) == [(DeadlineKind.LEASE, worker)]
    parts.workers.lease_ended(worker)
    assert worker.alive
    parts.state.now_us += 100
    assert parts.due(0) == [(DeadlineKind.LEASE, worker)]
    parts.workers.lease_ended(worker)
    assert (worker.alive, heard(worker)) == (False, [("expired", worker.id)])


def test_a_lease_that_is_suspended_does_not_end() -> None:
    parts = Parts()
    worker = parts.registered()
    parts.workers.renew_lease(worker, 100)
    parts.workers.suspend_lease(worker)
    assert (worker.lease_until_us, worker.lease_check_us) == (0, 0)


def test_a_ticket_is_used_by_a_job_or_times_out() -> None:
    parts = Parts()
    worker = parts.registered()
    until_us = parts.state.now_us + 50
    first, second = (parts.workers.grant_until(worker, until_us) for _ in range(2))
    parts.submit()
    assert list(worker.tickets or ()) == [second]
    parts.workers.wait_timed_out(worker, second)
    assert (worker.credits, heard(worker)[-1]) == (0, ("waited in vain", worker.id, second))
    assert first != second


def test_a_function_that_a_worker_cannot_do_any_more_wakes_it_no_more() -> None:
    parts = Parts()
    worker = parts.registered()
    parts.wakeups.sleep(worker)
    parts.workers.cannot_do(worker, parts.function())
    parts.submit()
    assert (heard(worker), worker.order) == ([], [])


def test_leases_and_tickets_move_with_the_clock() -> None:
    parts = Parts()
    worker = parts.registered()
    parts.workers.renew_lease(worker, 100)
    ticket = parts.workers.grant_until(worker, parts.state.now_us + 50)
    until_us = parts.state.now_us + 100
    parts.workers.shift(-30)
    assert (worker.lease_until_us, worker.lease_check_us) == (until_us - 30, until_us - 30)
    assert worker.tickets == {ticket: until_us - 50 - 30}


# --- WorkerReports ---


def test_a_report_ends_a_job() -> None:
    parts = Parts()
    job, worker = taken(parts)
    assert parts.reports.complete(worker, job.id, b"result") is job
    assert (state_of(job), job.result, worker.running, parts.function().running) == (DONE, b"result", {}, 0)
    assert parts.reports.complete(worker, job.id, b"again") is None


def test_a_failure_has_a_code_and_a_text() -> None:
    parts = Parts()
    job, worker = taken(parts)
    parts.reports.fail(worker, job.id, 7, b"no such image")
    assert (state_of(job), job.result_code, job.error) == (FAILED, 7, b"no such image")


@pytest.mark.parametrize("report", ["complete", "fail", "release", "progress", "renew_run", "retry_later"])
def test_a_report_on_another_start_is_not_the_workers(report: str) -> None:
    parts = Parts()
    job, worker = taken(parts)
    reports = parts.reports
    other = job.start_number + 1
    made = {
        "complete": lambda: reports.complete(worker, job.id, b"", other),
        "fail": lambda: reports.fail(worker, job.id, start_number=other),
        "release": lambda: reports.release(worker, job.id, other),
        "progress": lambda: reports.progress(worker, job.id, 1, 2, start_number=other),
        "renew_run": lambda: reports.renew_run(worker, job.id, 0, other),
        "retry_later": lambda: reports.retry_later(worker, job.id, 0, start_number=other),
    }[report]()
    assert (made, state_of(job), job.numerator) == (None, RUNNING, 0)


@pytest.mark.parametrize("report", ["data", "warning"])
def test_what_is_said_on_the_way_belongs_to_one_start(report: str) -> None:
    parts = Parts()
    job, worker = taken(parts)
    say = parts.reports.data if report == "data" else parts.reports.warning
    assert say(worker, job.id, b"late", job.start_number + 1) is None
    assert say(worker, job.id, b"part", job.start_number) is job
    assert (job.chunks or [job.warnings]) == [b"part"]


def test_a_job_that_is_tried_again_later_waits_for_its_time() -> None:
    parts = Parts()
    job, worker = taken(parts)
    parts.reports.retry_later(worker, job.id, 500, b"busy")
    assert (state_of(job), job.run_at_us, job.error) == (SCHEDULED, parts.state.now_us + 500, b"busy")


def test_a_job_that_is_released_spends_no_attempt_and_goes_last() -> None:
    parts = Parts()
    job, worker = taken(parts)
    other = parts.submit()
    parts.reports.release(worker, job.id)
    assert (job.attempts, parts.dispatcher.take(worker)) == (0, other)


def test_a_job_that_was_cancelled_is_the_workers_until_it_reports() -> None:
    parts = Parts()
    job, worker = taken(parts)
    parts.transitions.end(job, Cause.CANCELLED)
    assert parts.reports.data(worker, job.id, b"part") is job
    assert parts.reports.complete(worker, job.id, b"result") is job
    assert (job.result, worker.running) == (b"", {})


def test_the_first_result_counts_even_if_it_is_late() -> None:
    parts = Parts()
    job, _ = taken(parts, identity="slow", timeout_us=100)
    parts.attempts.revoke(job, Cause.TIMED_OUT)
    parts.transitions.requeue(job, Cause.TIMED_OUT)
    second = parts.registered()
    assert parts.dispatcher.take(second) is job
    assert parts.reports.late(job.id, "slow", 1, None) is LateReport.DROPPED
    assert parts.reports.late(job.id, "nobody", 1, b"stolen") is LateReport.UNKNOWN
    assert parts.reports.late(job.id, "slow", 1, b"late") is LateReport.ACCEPTED
    assert (state_of(job), job.result, heard(second)) == (DONE, b"late", [("revoke", second.id, job.id)])


# --- LostStarts ---


def test_a_start_is_remembered_by_its_job_and_its_worker() -> None:
    parts = Parts()
    job, worker = taken(parts, identity="w")
    parts.lost_starts.remember(worker, job)
    parts.lost_starts.remember(worker, job)
    assert (len(parts.lost_starts), parts.lost_starts.loser(job.id, "w")) == (1, worker.id)
    assert parts.lost_starts.is_known(job.id, "w", 0)
    assert not parts.lost_starts.is_known(job.id, "w", 2)
    assert not parts.lost_starts.is_known(job.id, "other", 1)
    before = parts.state.memory.registration_bytes
    parts.lost_starts.forget(job.id, "w")
    parts.lost_starts.forget(job.id, "w")
    assert parts.state.memory.registration_bytes == before - LOST_START_BYTES


def test_of_very_many_starts_the_oldest_are_forgotten() -> None:
    parts = Parts()
    parts.lost_starts.most = 2
    for _ in range(3):
        parts.lost_starts.remember(parts.registered(identity="w"), parts.job())
    assert [parts.lost_starts.is_known(job_id, "w", 0) for job_id in (1, 2, 3)] == [False, True, True]


# --- Timers ---


def test_a_timer_is_the_peers_until_it_fires_or_is_cancelled() -> None:
    parts = Parts()
    peer = RecordingPeer()
    fired, cancelled = (parts.timers.set(peer, parts.state.now_us + 10) for _ in range(2))
    assert parts.state.memory.registration_bytes == 2 * TIMER_BYTES
    parts.timers.cancel(cancelled)
    parts.timers.fire(fired)
    parts.timers.cancel(fired)
    assert (peer.timers, parts.state.memory.registration_bytes) == (None, 0)
    assert len(peer.take_heard()) == 1


def test_the_timers_of_a_peer_go_with_it() -> None:
    parts = Parts()
    peer = RecordingPeer()
    for _ in range(3):
        parts.timers.set(peer, parts.state.now_us + 10)
    parts.timers.cancel_all(peer)
    assert (peer.timers, parts.state.memory.registration_bytes) == (None, 0)


# --- Requirements ---


def test_jobs_that_require_tags_are_a_group_as_long_as_there_are_any() -> None:
    parts = Parts()
    jobs = [parts.submit(requires=b"gpu") for _ in range(2)]
    limiter = parts.function().limiter
    assert limiter is not None
    assert limiter.requiring[b"gpu"].unfinished == 2
    for job in jobs:
        parts.transitions.end(job, Cause.CANCELLED)
    assert (parts.function().limiter, parts.state.memory.limiter_bytes) == (None, 0)


def test_a_worker_fits_jobs_all_of_whose_tags_it_has() -> None:
    parts = Parts()
    plain, gpu, both = parts.submit(), parts.submit(requires=b"gpu"), parts.submit(requires=b"eu,gpu")
    worker = parts.registered()
    parts.workers.describe(worker, frozenset([b"gpu"]), None)
    assert [fits(worker, job) for job in (plain, gpu, both)] == [True, True, False]
    limiter = parts.function().limiter
    assert limiter is not None
    assert [group.requires for group in groups_for(limiter, worker)] == [b"", b"gpu"]


def test_there_are_only_so_many_sets_of_tags() -> None:
    parts = Parts()
    parts.requirements.most_groups = 1
    parts.submit(requires=b"a")
    with pytest.raises(Refused, match="jobs of this function have 1 different requirements already"):
        parts.requirements.refuse_group(parts.function(), b"b")
    workers = [parts.registered() for _ in range(MOST_DESCRIPTIONS)]
    for number, worker in enumerate(workers):
        parts.workers.describe(worker, frozenset([b"%d" % number]), None)
    other = parts.registered()
    with pytest.raises(Refused, match=f"workers have {MOST_DESCRIPTIONS} different sets of tags and resources already"):
        parts.workers.describe(other, frozenset([b"b"]), None)
    parts.requirements.forget(workers[0])
    parts.workers.describe(other, frozenset([b"b"]), None)


# --- waiting workers ---


def test_a_worker_of_all_priorities_is_in_one_list() -> None:
    parts = Parts()
    first, second = parts.registered(), parts.registered()
    function = parts.function()
    for worker in (first, second):
        add_pusher(worker)
        add_sleeper(worker, function)
    to_end_of_pushers(first)
    assert (list(function.pushers), list(function.sleepers)) == ([second, first], [first, second])
    remove_pusher(second)
    remove_sleeper(second)
    assert (list(function.pushers), list(function.sleepers)) == ([first], [first])
    leave_lists(first, function)
    assert (list(function.pushers), list(function.sleepers)) == ([], [])


def test_a_worker_of_some_priorities_is_in_a_list_for_each() -> None:
    parts = Parts()
    worker, function = parts.registered(), parts.function()
    assert allowed_priorities(worker, function) == BEST_FIRST
    set_priorities(worker, function, (HIGH, LOW))
    assert allowed_priorities(worker, function) == (HIGH, LOW)
    add_sleeper(worker, function)
    waiters = function.by_priority
    assert waiters is not None
    assert [priority for priority in BEST_FIRST if waiters.sleepers[priority]] == [HIGH, LOW]
    assert has_sleepers(function)
    remove_sleeper(worker)
    assert not has_sleepers(function)
    set_priorities(worker, function, ())
    assert (function.by_priority, worker.priorities) == (None, None)
