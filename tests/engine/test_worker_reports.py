"""What workers report: results, failures, progress, attempts, and reports that come late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.model import (
    CANCELLED,
    DONE,
    FAILED,
    READY,
    RUNNING,
    SCHEDULED,
    SECOND_US,
    WAITING,
    Cause,
    Delivery,
    Job,
    JobState,
)
from switchgear.testing import RecordingPeer
from tests.engine.harness import Harness, causes, ids, peer_of, state_of

MakeHarness = Callable[..., Harness]

# --- the end of a job ---


def test_a_completed_job_has_its_result(harness: Harness) -> None:
    worker, job = harness.running()
    assert harness.engine.complete(worker, job.id, b"42") is job
    assert state_of(job) is DONE
    assert (job.result_code, job.result, job.error, job.worker) == (0, b"42", None, None)
    assert job.id not in harness.engine.jobs
    assert (harness.function().total, harness.function().running, harness.function().done) == (0, 0, 1)


def test_a_failed_job_has_its_code_and_what_the_worker_said(harness: Harness) -> None:
    worker, job = harness.running()
    assert harness.engine.fail(worker, job.id, 7, b"no such mailbox", b"some output") is job
    assert state_of(job) is FAILED
    assert (job.result_code, job.result, job.error) == (7, b"some output", b"no such mailbox")
    assert not job.is_dead
    assert harness.function().failed == 1


def test_a_worker_may_have_nothing_to_say_about_a_failure(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.fail(worker, job.id)
    assert (job.result_code, job.error) == (1, None)


# --- a job done by somebody who does not hold it ---


def test_a_ready_job_can_be_settled_by_somebody_who_was_not_given_it(harness: Harness) -> None:
    client = RecordingPeer()
    job = harness.submit(watcher=client)
    assert harness.engine.complete_unowned(job, b"42")
    assert (job.state, job.result, job.attempts) == (DONE, b"42", 0)
    assert client.heard == [("finished", job.id, DONE)]
    assert harness.engine.take(harness.worker()) is None


def test_a_running_job_can_be_settled_and_its_worker_is_told_to_stop(harness: Harness) -> None:
    client = RecordingPeer()
    worker, job = harness.running(watcher=client)
    successor = harness.submit(b"other", after=(job,))
    assert harness.engine.complete_unowned(job, b"42")
    assert (job.state, job.result, job.worker) == (DONE, b"42", None)
    assert (harness.function().total, harness.function().running, harness.function().done) == (0, 0, 1)
    assert peer_of(worker).heard == [("revoke", worker.id, job.id)]
    assert client.heard == [("finished", job.id, DONE)]
    assert state_of(successor) is READY


def test_the_first_result_counts(harness: Harness) -> None:
    worker, job = harness.running()
    assert harness.engine.complete_unowned(job, b"first")
    assert not harness.engine.complete_unowned(job, b"second")
    assert harness.engine.complete(worker, job.id, b"third") is job
    assert job.result == b"first"
    assert harness.function().done == 1


def test_a_settled_job_has_nothing_of_what_its_worker_said(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.progress(worker, job.id, 1, 2, 3, b"half")
    harness.engine.data(worker, job.id, b"half a res")
    harness.engine.complete_unowned(job, b"a whole result")
    assert (job.result, job.numerator, job.denominator, job.progress_text) == (b"a whole result", 0, 0, b"")


def test_the_limit_of_a_settled_job_means_nothing_any_more(harness: Harness) -> None:
    worker, job = harness.running(timeout_us=SECOND_US)
    harness.engine.complete_unowned(job)
    harness.pass_seconds(1)
    assert peer_of(worker).words() == ["revoke"]
    assert causes(job)[-1] is Cause.SETTLED


def test_the_end_of_a_settled_job_has_to_be_kept(harness: Harness) -> None:
    _, job = harness.running(delivery=Delivery.WAIT, watcher=RecordingPeer())
    harness.engine.complete_unowned(job, b"42")
    assert harness.engine.take_changes()[0] == [job]


@pytest.mark.parametrize("state", [WAITING, SCHEDULED, DONE, CANCELLED])
def test_no_other_job_can_be_settled(harness: Harness, state: JobState) -> None:
    if state is WAITING:
        job = harness.submit(after=(harness.submit(b"other"),))
    elif state is SCHEDULED:
        job = harness.submit(run_at_us=harness.at(1))
    else:
        job = harness.ended(state)
    assert not harness.engine.complete_unowned(job, b"42")
    assert (job.state, job.result) == (state, b"")


def test_a_copy_of_a_job_cannot_be_settled(harness: Harness) -> None:
    job = harness.submit()
    copy = Job(job.id, job.function, b"", b"", job.priority, job.delivery, job.created_us)
    assert not harness.engine.complete_unowned(copy)
    assert state_of(job) is READY


# --- reports of those who do not hold the job ---

REPORTS: dict[str, Callable[..., object]] = {
    "complete": lambda engine, worker, job_id: engine.complete(worker, job_id, b""),
    "fail": lambda engine, worker, job_id: engine.fail(worker, job_id),
    "retry later": lambda engine, worker, job_id: engine.retry_later(worker, job_id, 1),
    "hand back": lambda engine, worker, job_id: engine.release(worker, job_id),
    "progress": lambda engine, worker, job_id: engine.progress(worker, job_id, 1, 2),
    "data": lambda engine, worker, job_id: engine.data(worker, job_id, b"part"),
    "warning": lambda engine, worker, job_id: engine.warning(worker, job_id, b"oh"),
    "renew run": lambda engine, worker, job_id: engine.renew_run(worker, job_id),
}
LAST_WORDS = ("complete", "fail", "retry later", "hand back")


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_on_a_job_that_the_worker_does_not_hold_changes_nothing(harness: Harness, report: str) -> None:
    client = RecordingPeer()
    _, job = harness.running(watcher=client)
    log = list(job.log)
    assert REPORTS[report](harness.engine, harness.worker(), job.id) is None
    assert REPORTS[report](harness.engine, harness.worker(), 999) is None
    assert job.log == log
    assert client.heard == []


@pytest.mark.parametrize("report", LAST_WORDS)
def test_a_second_report_is_not_taken(harness: Harness, report: str) -> None:
    worker, job = harness.running()
    harness.engine.complete(worker, job.id, b"first")
    assert REPORTS[report](harness.engine, worker, job.id) is None
    assert (job.state, job.result) == (DONE, b"first")


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("end", [CANCELLED, DONE])
def test_the_late_report_of_a_cancelled_or_settled_job_is_taken_and_changes_nothing(
    harness: Harness, report: str, end: JobState
) -> None:
    client = RecordingPeer()
    worker, job = harness.running(watcher=client)
    harness.engine.cancel(job) if end is CANCELLED else harness.engine.complete_unowned(job)
    client.take_heard()
    assert REPORTS[report](harness.engine, worker, job.id) is job
    assert (job.state, job.result, job.chunks, job.warnings) == (end, b"", None, b"")
    assert client.heard == []
    assert (job.id in worker.running) == (report not in LAST_WORDS)


def test_a_cancelled_job_that_is_retried_belongs_to_its_new_worker(harness: Harness) -> None:
    first, job = harness.running()
    harness.engine.cancel(job)
    harness.engine.retry(job)
    second = harness.worker()
    assert harness.engine.take(second) is job
    assert harness.engine.complete(first, job.id, b"late") is job
    assert state_of(job) is RUNNING
    harness.engine.remove_worker(first)
    assert state_of(job) is RUNNING
    harness.engine.complete(second, job.id, b"good")
    assert job.result == b"good"


@pytest.mark.parametrize("report", ["complete", "fail", "retry_later", "release"])
def test_a_report_that_names_a_cancelled_start_frees_the_worker_even_if_the_job_has_started_again(
    harness: Harness, report: str
) -> None:
    first, job = harness.running()
    start_number = job.start_number
    harness.engine.cancel(job)
    harness.engine.retry(job)
    second = harness.worker()
    assert harness.engine.take(second) is job
    arguments: dict[str, tuple[object, ...]] = {"complete": (b"late",), "retry_later": (1,)}
    answer = getattr(harness.engine, report)(first, job.id, *arguments.get(report, ()), start_number=start_number)
    assert answer is job
    assert not first.running
    assert (state_of(job), job.worker) == (RUNNING, second)


def test_a_dead_worker_that_held_a_cancelled_job_does_not_bring_it_back(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.cancel(job)
    harness.engine.remove_worker(worker)
    assert state_of(job) is CANCELLED


# --- attempts ---


def lose(harness: Harness, times: int) -> None:
    for _ in range(times):
        worker = harness.worker()
        assert harness.engine.take(worker) is not None
        harness.engine.remove_worker(worker)


def test_a_lost_job_is_tried_again_until_its_attempts_are_spent(make_harness: MakeHarness) -> None:
    harness = make_harness(attempts=3)
    client = RecordingPeer()
    job = harness.submit(watcher=client)
    lose(harness, 2)
    assert (job.state, job.attempts) == (READY, 2)
    lose(harness, 1)
    assert (job.state, job.attempts) == (FAILED, 3)
    assert job.is_dead
    assert (job.result_code, job.error) == (255, b"worker lost in attempt 3, the last one")
    assert client.heard == [("finished", job.id, FAILED)]
    assert harness.observer.heard[-1] == ("died", job.id)
    assert (harness.function().requeued, harness.function().failed) == (2, 1)


def test_a_job_may_have_a_limit_of_its_own(make_harness: MakeHarness) -> None:
    harness = make_harness(attempts=3)
    once, patient = harness.submit(attempts_limit=1), harness.submit(b"other", attempts_limit=0)
    lose(harness, 1)
    assert once.is_dead
    for _ in range(10):
        worker = harness.worker(b"other")
        assert harness.engine.take(worker) is patient
        harness.engine.remove_worker(worker)
    assert state_of(patient) is READY


def test_no_limit_at_all_is_a_setting_too(make_harness: MakeHarness) -> None:
    harness = make_harness(attempts=0)
    job = harness.submit()
    lose(harness, 10)
    assert state_of(job) is READY


def test_handing_back_spends_no_attempt(make_harness: MakeHarness) -> None:
    harness = make_harness(attempts=1)
    worker, job = harness.running()
    for _ in range(3):
        assert harness.engine.release(worker, job.id) is job
        assert (job.state, job.attempts) == (READY, 0)
        assert harness.engine.take(worker) is job
    assert worker.running == {job.id: job}
    assert causes(job).count(Cause.GIVEN_BACK) == 3


def test_a_worker_that_says_goodbye_may_hand_back_all_it_has(make_harness: MakeHarness) -> None:
    harness = make_harness(attempts=1)
    worker, job = harness.running()
    harness.engine.remove_worker(worker, Cause.GIVEN_BACK)
    assert (job.state, job.attempts) == (READY, 0)


def test_a_worker_may_ask_for_another_attempt_after_a_pause(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.progress(worker, job.id, 1, 2, 3, b"half")
    harness.engine.data(worker, job.id, b"half a result")
    assert harness.engine.retry_later(worker, job.id, 10 * SECOND_US, b"mailbox is locked") is job
    assert (job.state, job.run_at_us, job.error) == (SCHEDULED, harness.at(10), b"mailbox is locked")
    assert (job.numerator, job.denominator, job.time_left_s, job.progress_text) == (0, 0, -1, b"")
    assert worker.running == {}
    harness.pass_seconds(10)
    assert harness.engine.take(worker) is job
    harness.engine.complete(worker, job.id, b"whole")
    assert job.result == b"whole"


def test_of_what_was_said_between_attempts_only_the_beginning_is_remembered(make_harness: MakeHarness) -> None:
    """The job waits in memory, and what a worker says may be long."""
    harness = make_harness(warning_bytes=8)
    worker, job = harness.running()
    harness.engine.retry_later(worker, job.id, 0, b"OSError: and a long story")
    assert job.error == b"OSError:"


def test_on_the_last_attempt_asking_for_another_is_failing(make_harness: MakeHarness) -> None:
    harness = make_harness(attempts=2)
    worker, job = harness.running()
    harness.engine.retry_later(worker, job.id, 0)
    harness.pass_seconds(1)
    harness.engine.take(worker)
    assert harness.engine.retry_later(worker, job.id, 0, b"still locked") is job
    assert (job.state, job.error) == (FAILED, b"still locked")
    assert not job.is_dead


def test_what_a_lost_attempt_said_is_forgotten(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.progress(worker, job.id, 3, 4, 5, b"three of four")
    harness.engine.data(worker, job.id, b"part")
    harness.engine.remove_worker(worker)
    assert (job.numerator, job.denominator, job.time_left_s, job.progress_text) == (0, 0, -1, b"")
    assert (job.chunks, job.collected_bytes) == (None, 0)


# --- on the way ---


def test_progress_has_figures_time_left_and_the_workers_own_words(harness: Harness) -> None:
    worker, job = harness.running()
    assert harness.engine.progress(worker, job.id, 3, 4, 60, b"3/4") is job
    assert (job.numerator, job.denominator, job.time_left_s, job.progress_text) == (3, 4, 60, b"3/4")
    harness.engine.progress(worker, job.id, 4, 4)
    assert (job.time_left_s, job.progress_text) == (-1, b"")


def test_the_end_of_many_warnings_is_kept(make_harness: MakeHarness) -> None:
    harness = make_harness(warning_bytes=5)
    worker, job = harness.running()
    harness.engine.warning(worker, job.id, b"abc")
    harness.engine.warning(worker, job.id, b"def")
    assert job.warnings == b"bcdef"


def test_parts_of_a_result_become_its_beginning(harness: Harness) -> None:
    worker, job = harness.running()
    for part in (b"one ", b"two "):
        assert harness.engine.data(worker, job.id, part) is job
    harness.engine.complete(worker, job.id, b"three")
    assert job.result == b"one two three"
    assert job.chunks is None


@pytest.mark.parametrize(("collects", "kept"), [(True, b"one two"), (False, b"two")])
def test_parts_for_a_waiting_client_are_collected_only_if_it_cannot_take_them_singly(
    harness: Harness, collects: bool, kept: bytes
) -> None:
    seen: list[bytes] = []

    class Client(RecordingPeer):
        def job_finished(self, job):  # type: ignore[no-untyped-def]
            seen.append(job.whole_result if collects else job.result)

    client = Client(collects_data=collects)
    worker, job = harness.running(delivery=Delivery.WAIT, watcher=client)
    harness.engine.data(worker, job.id, b"one ")
    harness.engine.complete(worker, job.id, b"two")
    assert client.heard == [("data", job.id, b"one ")]
    assert (seen, job.result) == ([kept], kept)


def test_too_long_a_result_is_cut_not_pieced_together(make_harness: MakeHarness) -> None:
    harness = make_harness(collected_bytes=10)
    worker, job = harness.running()
    for part in (b"12345678", b"too long", b"9"):
        harness.engine.data(worker, job.id, part)
    assert job.chunks == [b"12345678"]


def test_collecting_costs_the_same_for_each_part(harness: Harness) -> None:
    worker, job = harness.running()
    for _ in range(20_000):  # adding up what is there each time would take minutes
        harness.engine.data(worker, job.id, b"0123456789")
    assert job.collected_bytes == 200_000


# --- the worker goes ---


def test_what_a_lost_worker_held_goes_back_in_the_order_in_which_it_was_taken(harness: Harness) -> None:
    worker = harness.worker()
    jobs = [harness.submit() for _ in range(3)]
    for _ in jobs:
        harness.engine.take(worker)
    harness.engine.remove_worker(worker)
    assert harness.engine.workers == {}
    assert harness.drain_with(harness.worker()) == ids(*jobs)
    assert [news for news in harness.observer.heard if news[0] == "requeued"] == [
        ("requeued", job.id, Cause.WORKER_LOST) for job in jobs
    ]


def test_a_worker_can_be_removed_twice(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.remove_worker(worker)
    harness.engine.remove_worker(worker)
    assert causes(job).count(Cause.WORKER_LOST) == 1


def test_a_worker_that_is_gone_gets_nothing(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.remove_worker(worker)
    job = harness.submit()
    harness.engine.can_do(worker, harness.function())
    harness.engine.grant(worker, 1)
    assert harness.engine.take(worker) is None
    assert state_of(job) is READY
    assert peer_of(worker).heard == []
