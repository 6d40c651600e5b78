"""Why a job is where it is, in words for people and figures for programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.engine.explain import MOST_NAMED, Reason, span
from switchgear.engine.lifecycle import MOVES
from switchgear.errors import Refused
from switchgear.model import FAILED, FINAL_STATES, SECOND_US, Cause, Delivery, EdgePolicy, Job, UniquePolicy
from switchgear.policy import Policy
from switchgear.refusals import REFUSED_STORAGE
from switchgear.testing import RecordingPeer
from tests.engine.harness import Harness

FAIL, SKIP = bytes([EdgePolicy.FAIL]), bytes([EdgePolicy.SKIP])


def words(harness: Harness, job: Job) -> list[str]:
    return [reason.word for reason in harness.engine.explain(job)]


def only(harness: Harness, job: Job) -> Reason:
    (reason,) = harness.engine.explain(job)
    return reason


# --- ready ---


def test_no_worker(harness: Harness) -> None:
    reason = only(harness, harness.submit())
    assert reason == Reason("no_worker", "no worker that can do 'mail' is connected", {"function": b"mail"})


def test_busy_workers(harness: Harness) -> None:
    harness.running()
    job = harness.submit()
    harness.submit()
    harness.worker()
    reason = only(harness, job)
    assert reason.word == "workers_busy"
    assert reason.text == "1 of 2 workers that can do it are busy; 2 jobs of 'mail' are ready"
    assert reason.data == {"workers": 2, "busy": 1, "full": 0, "ready": 2}


def test_workers_that_do_not_ask(harness: Harness) -> None:
    harness.worker()
    reason = only(harness, harness.submit())
    assert reason.word == "workers_absent"
    assert reason.text == "none of 1 worker that can do it has asked for a job; 1 job of 'mail' is ready"


def test_a_worker_that_sleeps_and_has_not_come_yet(harness: Harness) -> None:
    for _ in range(2):
        harness.engine.sleep(harness.worker())
    assert words(harness, harness.submit()) == ["about_to_run"]


def test_paused(harness: Harness) -> None:
    harness.worker()
    harness.engine.pause(harness.function())
    reason = only(harness, harness.submit())
    assert (reason.word, reason.text) == ("paused", "the function 'mail' is paused")


def test_a_server_that_drains(harness: Harness) -> None:
    harness.worker()
    job = harness.submit()
    harness.engine.drain()
    assert words(harness, job) == ["draining"]


def test_a_store_that_fails(harness: Harness) -> None:
    harness.worker()
    job = harness.submit()
    harness.engine.refusal = Refused(REFUSED_STORAGE, "storage failed: disk full")
    harness.engine.stop_handing_out()
    reason = only(harness, job)
    assert (reason.word, reason.text) == ("storage", "no jobs are assigned: storage failed: disk full")


def test_several_reasons_at_once(harness: Harness) -> None:
    job = harness.submit()
    harness.engine.pause(harness.function())
    harness.engine.drain()
    assert words(harness, job) == ["draining", "paused", "no_worker"]


LIMITS = {
    "concurrency": Policy(concurrency=1),
    "rate": Policy(rate=(1, 10 * SECOND_US)),
    "key_concurrency": Policy(key_concurrency=1),
    "key_rate": Policy(key_rate=(1, 10 * SECOND_US)),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_reached(harness: Harness, limit: str) -> None:
    harness.engine.set_policy(harness.function(), LIMITS[limit])
    harness.running(key=b"tenant")
    reason = only(harness, harness.submit(key=b"tenant"))
    assert (reason.word, reason.data["limit"], reason.data["key"]) == ("limit", limit, b"tenant")
    if "rate" in limit:
        assert reason.data["opens_us"] == harness.at(10)
        assert reason.text.endswith("were started lately as may be; the next may be in 10.0 s")
    else:
        assert reason.text.endswith("run as may run at once")


def test_one_that_was_lost_before(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.remove_worker(worker)
    no_worker, lost = harness.engine.explain(job)
    assert no_worker.word == "no_worker"
    assert lost.text == "it was started 1 time; last time: worker lost"
    assert lost.data == {"attempts": 1, "losses": 1, "cause": "worker_lost"}


# --- scheduled ---


def test_scheduled(harness: Harness) -> None:
    reason = only(harness, harness.submit(run_at_us=harness.at(35)))
    assert reason == Reason("scheduled", "scheduled to run in 35.0 s", {"at_us": harness.at(35)})


def test_to_be_retried_later(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.retry_later(worker, job.id, 90 * SECOND_US, b"OSError: no route to host\n\nTraceback ...")
    reason = only(harness, job)
    assert reason.word == "retry_later"
    assert reason.text == "attempt 1 failed, the next one is due in 90.0 s: OSError: no route to host"
    assert (reason.data["at_us"], reason.data["attempts"]) == (harness.at(90), 1)


# --- running ---


def test_running(harness: Harness) -> None:
    worker, job = harness.running()
    worker.name = b"alpha"
    harness.pass_seconds(3)
    harness.engine.progress(worker, job.id, 3, 10, message=b"resizing\nand more")
    reason = only(harness, job)
    assert reason.text == "runs on worker 'alpha' for 3.0 s, attempt 1, 3 of 10: resizing"
    assert reason.data == {
        "since_us": harness.at(-3),
        "attempt": 1,
        "worker_id": worker.id,
        "worker": b"alpha",
        "protocol": "test",
        "numerator": 3,
        "denominator": 10,
        "message": b"resizing\nand more",
    }


def test_running_on_a_worker_without_a_name(harness: Harness) -> None:
    worker, job = harness.running()
    assert only(harness, job).text == f"runs on worker {worker.id} for 0.0 s, attempt 1"


# --- waiting ---


def test_each_job_that_it_waits_for_and_those_in_vain_first(harness: Harness) -> None:
    done, ready, failed = harness.ended(FAILED), harness.submit(b"other"), harness.ended(FAILED)
    harness.engine.retry(done)
    harness.drain_with(harness.worker())
    job = harness.submit(b"other", after=(done, ready, failed), edges=bytes([EdgePolicy.WAIT, EdgePolicy.FAIL, 0]))
    reasons = harness.engine.explain(job, name=lambda job_id: f"H:{job_id}")
    assert [reason.text for reason in reasons] == [
        f"waits for H:{failed.id}, which failed; retry that one, or cancel this",
        f"waits for H:{ready.id}, which is ready",
    ]
    assert [reason.data for reason in reasons] == [
        {"job_id": failed.id, "state": "failed", "on_failure": "wait"},
        {"job_id": ready.id, "state": "ready", "on_failure": "fail"},
    ]


def test_of_very_many_some_are_named(harness: Harness) -> None:
    others = tuple(harness.submit(b"other") for _ in range(MOST_NAMED + 5))
    reasons = harness.engine.explain(harness.submit(after=others))
    assert [reason.word for reason in reasons] == ["waiting_for"] * MOST_NAMED + ["waiting_for_more"]
    assert (reasons[-1].text, reasons[-1].data) == ("waits for 5 more", {"count": 5})


# --- ended ---


def done(harness: Harness) -> Job:
    worker, job = harness.running()
    harness.engine.complete(worker, job.id, b"")
    return job


def settled(harness: Harness) -> Job:
    job = harness.submit()
    harness.engine.complete_unowned(job)
    return job


def failed(harness: Harness) -> Job:
    worker, job = harness.running()
    harness.engine.fail(worker, job.id, 1, b"ValueError: no\n\nTraceback")
    return job


def dead(harness: Harness) -> Job:
    worker, job = harness.running(crash_limit=1)
    harness.engine.remove_worker(worker)
    return job


def cancelled(harness: Harness) -> Job:
    job = harness.submit()
    harness.engine.cancel(job)
    return job


def abandoned(harness: Harness) -> Job:
    client = RecordingPeer()
    job = harness.submit(delivery=Delivery.WAIT, watcher=client)
    harness.engine.unsubscribe(client)
    return job


def expired(harness: Harness) -> Job:
    job = harness.submit(expires_us=harness.at(0))
    harness.pass_seconds(0)
    return job


def let_down(edge: bytes) -> Callable[[Harness], Job]:
    def way(harness: Harness) -> Job:
        other = harness.submit()
        job = harness.submit(after=(other,), edges=edge)
        harness.engine.cancel(other)
        return job

    return way


def replaced(harness: Harness) -> Job:
    job = harness.submit(unique=b"k")
    harness.submit(unique=b"k", unique_policy=UniquePolicy.REPLACE)
    return job


because_of = "because a predecessor did not succeed, 0.0 s ago: job 1, which it waited for, was cancelled"
ENDS: dict[Cause, tuple[Callable[[Harness], Job], str, str]] = {
    Cause.SUCCEEDED: (done, "done", "done, 0.0 s ago, after 1 attempt"),
    Cause.SETTLED: (settled, "done", "done; reported by a peer that did not hold it, 0.0 s ago"),
    Cause.ENDED_BADLY: (
        failed,
        "failed",
        "failed; its worker reported a failure, 0.0 s ago, after 1 attempt: ValueError: no",
    ),
    Cause.EXHAUSTED: (
        dead,
        "dead",
        "dead: its attempts are used up, 0.0 s ago, after 1 attempt: "
        "worker lost in attempt 1; lost once, the most allowed",
    ),
    Cause.CANCELLED: (cancelled, "cancelled", "cancelled on request, 0.0 s ago"),
    Cause.ABANDONED: (abandoned, "cancelled", "cancelled, because its only submitter disconnected, 0.0 s ago"),
    Cause.EXPIRED: (expired, "expired", "expired; it was not started in time, 0.0 s ago"),
    Cause.SKIPPED: (let_down(SKIP), "cancelled", f"cancelled, {because_of}"),
    Cause.DOOMED: (let_down(FAIL), "failed", f"failed, {because_of}"),
    Cause.REPLACED: (replaced, "cancelled", "cancelled; replaced by another job with its unique key, 0.0 s ago"),
}


@pytest.mark.parametrize("cause", ENDS, ids=lambda cause: cause.name)
def test_every_end(harness: Harness, cause: Cause) -> None:
    make, word, text = ENDS[cause]
    job = make(harness)
    assert job.log[-1][0] is cause
    reason = only(harness, job)
    assert (reason.word, reason.text) == (word, text)
    assert (reason.data["cause"], reason.data["at_us"]) == (cause.name.lower(), job.finished_us)
    if cause in (Cause.SKIPPED, Cause.DOOMED):
        assert reason.data["predecessors"] == list(job.predecessors)


def test_every_way_to_end_is_explained() -> None:
    assert {cause for cause, _, state in MOVES if state in FINAL_STATES} == ENDS.keys()


# --- words ---


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (-5, "0.0 s"),
        (119.9, "119.9 s"),
        (120, "2 min"),
        (7199, "2 h"),
        (7200, "2 h"),
        (86400 * 2, "48 h"),
        (86400 * 3, "3 days"),
        (86400 * 365 * 10**6, "365000000 days"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(round(seconds * SECOND_US)) == text


def test_a_long_error_is_cut(harness: Harness) -> None:
    worker, job = harness.running()
    harness.engine.fail(worker, job.id, 1, b"x" * 1000)
    assert only(harness, job).text.endswith("x" * 200 + "…")
