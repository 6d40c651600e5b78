"""How long a unique key is a job's own, and what a submission does that finds it taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.engine.sliced_work import UNITS_PER_TURN
from switchgear.errors import Refused
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
    EdgePolicy,
    Job,
    JobState,
    UniquePolicy,
    UniqueScope,
)
from switchgear.refusals import REFUSED_CONFLICT, REFUSED_FULL, REFUSED_UNIQUE
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.harness import Harness, causes, peer_of, state_of
from tests.engine.restarts import restarted

JOIN, REJECT, REPLACE = UniquePolicy
QUEUED = UniqueScope.QUEUED

HOUR = 3600


def holder(harness: Harness) -> Job | None:
    """The job that has the key."""
    check_engine(harness.engine)
    return harness.function().uniques.get(b"k")


# --- until it is started ---


def test_a_queued_job_is_joined_and_a_running_one_is_not(harness: Harness) -> None:
    job = harness.submit(unique=b"k", unique_scope=QUEUED)
    assert harness.submit(unique=b"k") is job
    assert harness.engine.take(harness.worker()) is job
    assert holder(harness) is None
    assert harness.submit(unique=b"k", unique_scope=QUEUED) is not job


@pytest.mark.parametrize("state", [WAITING, SCHEDULED, READY])
def test_whatever_it_waits_for_it_has_its_key(harness: Harness, state: JobState) -> None:
    job = harness.submit(
        unique=b"k",
        unique_scope=QUEUED,
        after=(harness.submit(b"other"),) if state is WAITING else (),
        run_at_us=harness.at(9) if state is SCHEDULED else 0,
    )
    assert state_of(job) is state
    assert harness.submit(unique=b"k") is job


def test_a_job_pushed_to_its_worker_never_has_it(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.grant(worker, 2)
    first = harness.submit(unique=b"k", unique_scope=QUEUED)
    assert harness.submit(unique=b"k", unique_scope=QUEUED) is not first
    assert holder(harness) is None


def comes_back(how: str) -> Callable[[Harness, Job], None]:
    def act(harness: Harness, job: Job) -> None:
        assert job.worker is not None
        if how == "lost":
            harness.engine.remove_worker(job.worker)
        elif how == "handed back":
            harness.engine.release(job.worker, job.id)
        elif how == "to be retried":
            harness.engine.retry_later(job.worker, job.id, SECOND_US)
        elif how == "timed out":
            harness.pass_seconds(5)
        else:
            harness.engine.add_predecessors(job, (harness.submit(b"other").id,))

    return act


WAYS_BACK = ["lost", "handed back", "to be retried", "timed out", "held back"]


@pytest.mark.parametrize("way", WAYS_BACK)
def test_a_job_that_comes_back_takes_its_key_again(harness: Harness, way: str) -> None:
    _, job = harness.running(unique=b"k", unique_scope=QUEUED, timeout_us=5 * SECOND_US)
    comes_back(way)(harness, job)
    assert holder(harness) is job


@pytest.mark.parametrize("way", WAYS_BACK)
def test_if_another_has_it_by_then_the_job_lives_without(harness: Harness, way: str) -> None:
    _, job = harness.running(unique=b"k", unique_scope=QUEUED, timeout_us=5 * SECOND_US)
    other = harness.submit(unique=b"k", run_at_us=harness.at(HOUR))
    comes_back(way)(harness, job)
    assert (holder(harness), job.unique) == (other, b"")
    harness.engine.cancel(other)
    assert holder(harness) is None
    harness.engine.cancel(job)
    check_engine(harness.engine)


def test_a_restart_takes_keys_back_unless_another_has_them(harness: Harness) -> None:
    first, second = (harness.running(name, unique=b"k", unique_scope=QUEUED)[1] for name in (b"mail", b"resize"))
    other = harness.submit(unique=b"k")
    again, copies = restarted(harness, first, second, other)
    assert again.function().uniques == {b"k": copies[other.id]}
    assert again.function(b"resize").uniques == {b"k": copies[second.id]}
    assert copies[first.id].unique == b""


# --- for a time ---


def held(harness: Harness, seconds: float = HOUR, **submission: object) -> Job:
    """A job that is done, and holds its key for so long after its submission."""
    job = harness.submit(unique=b"k", unique_for_us=round(seconds * SECOND_US), **submission)  # type: ignore[arg-type]
    harness.drain_with(harness.worker())
    assert state_of(job) is DONE
    return job


def test_a_key_may_outlive_its_job(harness: Harness) -> None:
    job = held(harness, 10)
    harness.pass_seconds(9.9)
    assert harness.submit(unique=b"k") is job
    harness.pass_seconds(0.1)
    assert holder(harness) is None
    assert state_of(harness.submit(unique=b"k")) is READY


def test_nobody_is_told_once_more_of_a_job_that_has_ended(harness: Harness) -> None:
    job = held(harness)
    client = RecordingPeer()
    assert harness.submit(unique=b"k", watcher=client, delivery=Delivery.WAIT) is job
    assert (client.heard, client.subscriptions, job.subscribers) == ([], {}, None)


def test_a_job_that_takes_longer_has_its_key_until_its_end(harness: Harness) -> None:
    worker, job = harness.running(unique=b"k", unique_for_us=SECOND_US)
    harness.pass_seconds(5)
    assert holder(harness) is job
    harness.engine.complete(worker, job.id, b"")
    assert holder(harness) is None


def test_a_queued_job_that_holds_its_key_has_it_while_it_runs(harness: Harness) -> None:
    _, job = harness.running(unique=b"k", unique_scope=QUEUED, unique_for_us=10 * SECOND_US)
    assert holder(harness) is job
    harness.pass_seconds(10)
    assert holder(harness) is None


def test_one_that_is_still_queued_then_keeps_it(harness: Harness) -> None:
    job = harness.submit(unique=b"k", unique_scope=QUEUED, unique_for_us=SECOND_US)
    harness.pass_seconds(5)
    assert holder(harness) is job
    harness.engine.take(harness.worker())
    assert holder(harness) is None


@pytest.mark.parametrize("end", [FAILED, CANCELLED])
def test_a_job_that_ended_badly_holds_it_too(harness: Harness, end: JobState) -> None:
    job = harness.ended(end, unique=b"k", unique_for_us=10 * SECOND_US)
    assert holder(harness) is job
    harness.pass_seconds(10)
    assert holder(harness) is None


def test_without_a_key_there_is_nothing_to_hold(harness: Harness) -> None:
    harness.submit(unique_for_us=SECOND_US, unique_scope=QUEUED)
    assert len(harness.engine.deadlines) == 0


def test_held_keys_leave_nothing_behind(harness: Harness) -> None:
    worker = harness.worker()
    for number in range(5000):
        harness.submit(unique=b"%d" % number, unique_for_us=SECOND_US)
    harness.drain_with(worker)
    harness.pass_seconds(1)
    for _ in range(5000 // UNITS_PER_TURN):
        harness.pass_seconds(0)
    assert (harness.function().uniques, len(harness.engine.deadlines)) == ({}, 0)


def test_a_submission_that_is_undone_holds_nothing(harness: Harness) -> None:
    job = harness.submit(unique=b"k", unique_for_us=SECOND_US)
    assert harness.engine.withdraw(job)
    assert holder(harness) is None
    harness.pass_seconds(1)


def test_a_function_in_which_a_key_is_held_is_not_forgotten(harness: Harness) -> None:
    worker, job = harness.running(unique=b"k", unique_for_us=10 * SECOND_US)
    harness.engine.complete(worker, job.id, b"")
    harness.engine.remove_worker(worker)
    assert not harness.engine.drop_function(harness.function())
    harness.pass_seconds(10)
    assert harness.engine.drop_function(harness.function())


@pytest.mark.parametrize("is_copy", [False, True], ids=["itself", "a copy"])
def test_a_job_that_holds_its_key_can_be_retried(harness: Harness, is_copy: bool) -> None:
    job = harness.ended(FAILED, unique=b"k", unique_for_us=10 * SECOND_US)
    if is_copy:
        _, copies = restarted(harness, job)
        job = copies[job.id]
        job.payload = b""  # as it is read from the store again
    harness.engine.retry(job)
    assert holder(harness) is job
    harness.pass_seconds(10)
    assert holder(harness) is job
    harness.drain_with(harness.worker())
    assert holder(harness) is None


def test_a_copy_that_does_not_know_of_the_end_of_its_hold(harness: Harness) -> None:
    job = harness.ended(FAILED, unique=b"k", unique_for_us=SECOND_US)
    _, copies = restarted(harness, job)
    harness.engine.advance(harness.now_us + 5 * SECOND_US)
    copies[job.id].payload = b""  # as it is read from the store again
    harness.engine.retry(copies[job.id])
    harness.drain_with(harness.worker())
    assert holder(harness) is None


def test_a_held_key_survives_a_restart(harness: Harness) -> None:
    job = held(harness, 10)
    again, copies = restarted(harness, job, seconds=3)
    assert again.submit(unique=b"k") is copies[job.id]
    again.pass_seconds(7)
    assert holder(again) is None


def test_one_whose_time_came_meanwhile_does_not(harness: Harness) -> None:
    again, _ = restarted(harness, held(harness, 10), seconds=10)
    assert holder(again) is None


@pytest.mark.parametrize(("seconds", "has_it"), [(3, True), (11, False)], ids=["in time", "too late"])
def test_so_does_that_of_an_unfinished_job(harness: Harness, seconds: float, has_it: bool) -> None:
    _, job = harness.running(unique=b"k", unique_scope=QUEUED, unique_for_us=10 * SECOND_US)
    other = harness.submit(b"resize", unique=b"k", unique_for_us=10 * SECOND_US)
    again, copies = restarted(harness, job, other, seconds=seconds)
    assert bool(copies[job.id].unique_until_us) is has_it
    assert holder(again) is copies[job.id]  # it waits again, so the key is its own anyway
    again.engine.take(again.worker())
    assert (holder(again) is copies[job.id]) is has_it


# --- a key that is taken ---


@pytest.mark.parametrize("running", [False, True], ids=["queued", "running"])
def test_a_submission_may_be_rejected(harness: Harness, running: bool) -> None:
    job = harness.running(unique=b"k")[1] if running else harness.submit(unique=b"k")
    words = f"job {job.id}, which is {'running' if running else 'ready'}, has the unique key"
    with pytest.raises(Refused, match=f'^{words} "k"$') as refused:
        harness.submit(unique=b"k", unique_policy=REJECT)
    assert refused.value.reason == REFUSED_UNIQUE
    assert refused.value.told("H:t:{}".format).startswith(f"H:t:{job.id}, which is")
    assert harness.function().total == 1


def test_it_is_rejected_by_a_held_key_too(harness: Harness) -> None:
    job = held(harness)
    with pytest.raises(Refused, match=f"job {job.id}, which is done"):
        harness.submit(unique=b"k", unique_policy=REJECT)


def test_it_is_taken_if_the_key_is_free(harness: Harness) -> None:
    for policy in UniquePolicy:
        job = harness.submit(unique=b"k", unique_policy=policy)
        assert harness.drain_with(harness.worker()) == [job.id]


@pytest.mark.parametrize("state", [WAITING, SCHEDULED, READY])
def test_a_queued_job_may_be_replaced(harness: Harness, state: JobState) -> None:
    old = harness.submit(
        unique=b"k",
        payload=b"old",
        after=(harness.submit(b"other"),) if state is WAITING else (),
        run_at_us=harness.at(9) if state is SCHEDULED else 0,
    )
    new = harness.submit(unique=b"k", payload=b"new", unique_policy=REPLACE)
    assert (state_of(old), causes(old)[-1]) == (CANCELLED, Cause.REPLACED)
    assert (state_of(new), holder(harness)) == (READY, new)


def test_the_worker_of_one_that_runs_is_told_to_stop(harness: Harness) -> None:
    client = RecordingPeer()
    worker, old = harness.running(unique=b"k", watcher=client)
    new = harness.submit(unique=b"k", unique_policy=REPLACE)
    assert peer_of(worker).heard == [("revoke", worker.id, old.id)]
    assert client.heard == [("finished", old.id, CANCELLED)]
    assert harness.engine.complete(worker, old.id, b"late") is old
    assert (state_of(old), old.result, holder(harness)) == (CANCELLED, b"", new)


def test_a_held_key_is_taken_over(harness: Harness) -> None:
    old = held(harness, 10)
    new = harness.submit(unique=b"k", unique_policy=REPLACE)
    assert (state_of(old), holder(harness)) == (DONE, new)
    harness.pass_seconds(10)
    assert holder(harness) is new
    assert harness.drain_with(harness.worker()) == [new.id]
    assert holder(harness) is None


def test_after_a_restart_the_last_one_holds_the_key(harness: Harness) -> None:
    first = held(harness)
    harness.engine.take_changes()
    second = harness.submit(unique=b"k", unique_policy=REPLACE)
    assert harness.engine.take_changes()[0] == [
        first,
        second,
    ]  # the store must not believe that the first still holds it
    harness.drain_with(harness.worker())
    again, _ = restarted(harness, first, second)
    assert holder(again) is None


def test_what_waits_for_the_replaced_job_meets_its_edge(harness: Harness) -> None:
    old = harness.submit(unique=b"k")
    waits = harness.submit(b"other", after=(old,))
    fails = harness.submit(b"other", after=(old,), edges=bytes([EdgePolicy.FAIL]))
    harness.submit(unique=b"k", unique_policy=REPLACE)
    assert (state_of(waits), state_of(fails)) == (WAITING, FAILED)


def test_the_new_job_may_have_the_name_of_the_old_one(harness: Harness) -> None:
    harness.submit(unique=b"k", name=b"Anna")
    new = harness.submit(unique=b"k", name=b"Anna", unique_policy=REPLACE)
    assert dict(harness.engine.names.items()) == {b"Anna": new}


def test_a_full_queue_takes_one_in_place_of_another(harness: Harness) -> None:
    harness.engine.set_limits(harness.function(), 1, 1, 1)
    harness.submit(unique=b"k")
    new = harness.submit(unique=b"k", unique_policy=REPLACE)
    assert harness.drain_with(harness.worker()) == [new.id]


@pytest.mark.parametrize("reason", ["name", "id", "full", "edges"])
def test_a_submission_that_is_refused_replaces_nothing(harness: Harness, reason: str) -> None:
    old = harness.submit(unique=b"k")
    harness.submit(name=b"Anna")
    options: dict[str, dict[str, object]] = {
        "name": {"name": b"Anna"},
        "id": {"job_id": 999},
        "full": {},
        "edges": {"predecessors": (1, 2), "edges": b"\1"},
    }
    if reason == "full":
        harness.engine.set_limits(harness.function(), 1, 1, 1)
    with pytest.raises(ValueError if reason == "edges" else Refused) as refused:
        harness.submit(unique=b"k", unique_policy=REPLACE, **options[reason])  # type: ignore[arg-type]
    if isinstance(refused.value, Refused):
        assert refused.value.reason == (REFUSED_FULL if reason == "full" else REFUSED_CONFLICT)
    assert (state_of(old), holder(harness)) == (READY, old)


def test_a_job_may_be_replaced_by_one_that_waits_for_it(harness: Harness) -> None:
    """Which makes little sense, and must do no harm."""
    old = harness.submit(unique=b"k")
    new = harness.submit(unique=b"k", unique_policy=REPLACE, after=(old,), edges=bytes([EdgePolicy.RUN]))
    assert (state_of(new), holder(harness)) == (READY, new)
    assert RUNNING not in (state_of(old), state_of(new))


# --- how many ---


def test_so_many_keys_are_held_as_there_is_memory_for() -> None:
    harness = Harness(memory_bytes=3 * 8 * 1024)
    for number in range(3):
        harness.engine.cancel(harness.submit(unique=b"%d" % number, unique_for_us=60 * SECOND_US))
    with pytest.raises(Refused, match="3 unique keys are held for a time") as refused:
        harness.submit(unique=b"3", unique_for_us=60 * SECOND_US, name=b"Anna", expires_us=harness.at(1))
    assert refused.value.reason == "full"
    assert (len(harness.engine.names), len(harness.engine.deadlines)) == (0, 3)
    harness.submit(unique=b"3")
    harness.pass_seconds(61)
    harness.submit(unique=b"4", unique_for_us=60 * SECOND_US)
