"""How long a unique key is a job's own, and what a submission does that finds it taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
from tests.engine.house import House, causes, peer_of, state_of
from tests.engine.restarts import restarted

JOIN, REJECT, REPLACE = UniquePolicy
QUEUED = UniqueScope.QUEUED

HOUR = 3600


def holder(house: House) -> Job | None:
    """The job that has the key."""
    check_engine(house.engine)
    return house.function().uniques.get(b"k")


# --- until it is started ---


def test_a_queued_job_is_joined_and_a_running_one_is_not(house: House) -> None:
    job = house.submit(unique=b"k", unique_scope=QUEUED)
    assert house.submit(unique=b"k") is job
    assert house.engine.take(house.worker()) is job
    assert holder(house) is None
    assert house.submit(unique=b"k", unique_scope=QUEUED) is not job


@pytest.mark.parametrize("state", [WAITING, SCHEDULED, READY])
def test_whatever_it_waits_for_it_has_its_key(house: House, state: JobState) -> None:
    job = house.submit(
        unique=b"k",
        unique_scope=QUEUED,
        after=(house.submit(b"other"),) if state is WAITING else (),
        run_at_us=house.at(9) if state is SCHEDULED else 0,
    )
    assert state_of(job) is state
    assert house.submit(unique=b"k") is job


def test_a_job_pushed_to_its_worker_never_has_it(house: House) -> None:
    worker = house.worker()
    house.engine.grant(worker, 2)
    first = house.submit(unique=b"k", unique_scope=QUEUED)
    assert house.submit(unique=b"k", unique_scope=QUEUED) is not first
    assert holder(house) is None


def comes_back(how: str) -> Callable[[House, Job], None]:
    def act(house: House, job: Job) -> None:
        assert job.worker is not None
        if how == "lost":
            house.engine.remove_worker(job.worker)
        elif how == "handed back":
            house.engine.release(job.worker, job.id)
        elif how == "to be retried":
            house.engine.retry_later(job.worker, job.id, SECOND_US)
        elif how == "timed out":
            house.pass_seconds(5)
        else:
            house.engine.add_predecessors(job, (house.submit(b"other").id,))

    return act


WAYS_BACK = ["lost", "handed back", "to be retried", "timed out", "held back"]


@pytest.mark.parametrize("way", WAYS_BACK)
def test_a_job_that_comes_back_takes_its_key_again(house: House, way: str) -> None:
    _, job = house.running(unique=b"k", unique_scope=QUEUED, timeout_us=5 * SECOND_US)
    comes_back(way)(house, job)
    assert holder(house) is job


@pytest.mark.parametrize("way", WAYS_BACK)
def test_if_another_has_it_by_then_the_job_lives_without(house: House, way: str) -> None:
    _, job = house.running(unique=b"k", unique_scope=QUEUED, timeout_us=5 * SECOND_US)
    other = house.submit(unique=b"k", run_at_us=house.at(HOUR))
    comes_back(way)(house, job)
    assert (holder(house), job.unique) == (other, b"")
    house.engine.cancel(other)
    assert holder(house) is None
    house.engine.cancel(job)
    check_engine(house.engine)


def test_a_restart_takes_keys_back_unless_another_has_them(house: House) -> None:
    first, second = (house.running(name, unique=b"k", unique_scope=QUEUED)[1] for name in (b"mail", b"resize"))
    other = house.submit(unique=b"k")
    again, copies = restarted(house, first, second, other)
    assert again.function().uniques == {b"k": copies[other.id]}
    assert again.function(b"resize").uniques == {b"k": copies[second.id]}
    assert copies[first.id].unique == b""


# --- for a time ---


def held(house: House, seconds: float = HOUR, **submission: object) -> Job:
    """A job that is done, and holds its key for so long after its submission."""
    job = house.submit(unique=b"k", unique_for_us=round(seconds * SECOND_US), **submission)  # type: ignore[arg-type]
    house.drain_with(house.worker())
    assert state_of(job) is DONE
    return job


def test_a_key_may_outlive_its_job(house: House) -> None:
    job = held(house, 10)
    house.pass_seconds(9.9)
    assert house.submit(unique=b"k") is job
    house.pass_seconds(0.1)
    assert holder(house) is None
    assert state_of(house.submit(unique=b"k")) is READY


def test_nobody_is_told_once_more_of_a_job_that_has_ended(house: House) -> None:
    job = held(house)
    client = RecordingPeer()
    assert house.submit(unique=b"k", watcher=client, delivery=Delivery.WAIT) is job
    assert (client.heard, client.subscriptions, job.subscribers) == ([], {}, None)


def test_a_job_that_takes_longer_has_its_key_until_its_end(house: House) -> None:
    worker, job = house.running(unique=b"k", unique_for_us=SECOND_US)
    house.pass_seconds(5)
    assert holder(house) is job
    house.engine.complete(worker, job.id, b"")
    assert holder(house) is None


def test_a_queued_job_that_holds_its_key_has_it_while_it_runs(house: House) -> None:
    _, job = house.running(unique=b"k", unique_scope=QUEUED, unique_for_us=10 * SECOND_US)
    assert holder(house) is job
    house.pass_seconds(10)
    assert holder(house) is None


def test_one_that_is_still_queued_then_keeps_it(house: House) -> None:
    job = house.submit(unique=b"k", unique_scope=QUEUED, unique_for_us=SECOND_US)
    house.pass_seconds(5)
    assert holder(house) is job
    house.engine.take(house.worker())
    assert holder(house) is None


@pytest.mark.parametrize("end", [FAILED, CANCELLED])
def test_a_job_that_ended_badly_holds_it_too(house: House, end: JobState) -> None:
    job = house.ended(end, unique=b"k", unique_for_us=10 * SECOND_US)
    assert holder(house) is job
    house.pass_seconds(10)
    assert holder(house) is None


def test_without_a_key_there_is_nothing_to_hold(house: House) -> None:
    house.submit(unique_for_us=SECOND_US, unique_scope=QUEUED)
    assert len(house.engine.deadlines) == 0


def test_held_keys_leave_nothing_behind(house: House) -> None:
    worker = house.worker()
    for number in range(5000):
        house.submit(unique=b"%d" % number, unique_for_us=SECOND_US)
    house.drain_with(worker)
    house.pass_seconds(1)
    for _ in range(4):
        house.pass_seconds(0)  # so many end in one turn
    assert (house.function().uniques, len(house.engine.deadlines)) == ({}, 0)


def test_a_submission_that_is_undone_holds_nothing(house: House) -> None:
    job = house.submit(unique=b"k", unique_for_us=SECOND_US)
    assert house.engine.withdraw(job)
    assert holder(house) is None
    house.pass_seconds(1)


def test_a_function_in_which_a_key_is_held_is_not_forgotten(house: House) -> None:
    worker, job = house.running(unique=b"k", unique_for_us=10 * SECOND_US)
    house.engine.complete(worker, job.id, b"")
    house.engine.remove_worker(worker)
    assert not house.engine.drop_function(house.function())
    house.pass_seconds(10)
    assert house.engine.drop_function(house.function())


@pytest.mark.parametrize("is_copy", [False, True], ids=["itself", "a copy"])
def test_a_job_that_holds_its_key_can_be_retried(house: House, is_copy: bool) -> None:
    job = house.ended(FAILED, unique=b"k", unique_for_us=10 * SECOND_US)
    if is_copy:
        _, copies = restarted(house, job)
        job = copies[job.id]
        job.payload = b""  # as it is read from the store again
    house.engine.retry(job)
    assert holder(house) is job
    house.pass_seconds(10)
    assert holder(house) is job
    house.drain_with(house.worker())
    assert holder(house) is None


def test_a_copy_that_does_not_know_of_the_end_of_its_hold(house: House) -> None:
    job = house.ended(FAILED, unique=b"k", unique_for_us=SECOND_US)
    _, copies = restarted(house, job)
    house.engine.advance(house.now_us + 5 * SECOND_US)
    copies[job.id].payload = b""  # as it is read from the store again
    house.engine.retry(copies[job.id])
    house.drain_with(house.worker())
    assert holder(house) is None


def test_a_held_key_survives_a_restart(house: House) -> None:
    job = held(house, 10)
    again, copies = restarted(house, job, seconds=3)
    assert again.submit(unique=b"k") is copies[job.id]
    again.pass_seconds(7)
    assert holder(again) is None


def test_one_whose_time_came_meanwhile_does_not(house: House) -> None:
    again, _ = restarted(house, held(house, 10), seconds=10)
    assert holder(again) is None


@pytest.mark.parametrize(("seconds", "has_it"), [(3, True), (11, False)], ids=["in time", "too late"])
def test_so_does_that_of_an_unfinished_job(house: House, seconds: float, has_it: bool) -> None:
    _, job = house.running(unique=b"k", unique_scope=QUEUED, unique_for_us=10 * SECOND_US)
    other = house.submit(b"resize", unique=b"k", unique_for_us=10 * SECOND_US)
    again, copies = restarted(house, job, other, seconds=seconds)
    assert bool(copies[job.id].unique_until_us) is has_it
    assert holder(again) is copies[job.id]  # it waits again, so the key is its own anyway
    again.engine.take(again.worker())
    assert (holder(again) is copies[job.id]) is has_it


# --- a key that is taken ---


@pytest.mark.parametrize("running", [False, True], ids=["queued", "running"])
def test_a_submission_may_be_rejected(house: House, running: bool) -> None:
    job = house.running(unique=b"k")[1] if running else house.submit(unique=b"k")
    words = f"job {job.id}, which is {'running' if running else 'ready'}, has the unique key"
    with pytest.raises(Refused, match=f'^{words} "k"$') as refused:
        house.submit(unique=b"k", unique_policy=REJECT)
    assert refused.value.reason == REFUSED_UNIQUE
    assert refused.value.told("H:t:{}".format).startswith(f"H:t:{job.id}, which is")
    assert house.function().total == 1


def test_it_is_rejected_by_a_held_key_too(house: House) -> None:
    job = held(house)
    with pytest.raises(Refused, match=f"job {job.id}, which is done"):
        house.submit(unique=b"k", unique_policy=REJECT)


def test_it_is_taken_if_the_key_is_free(house: House) -> None:
    for policy in UniquePolicy:
        job = house.submit(unique=b"k", unique_policy=policy)
        assert house.drain_with(house.worker()) == [job.id]


@pytest.mark.parametrize("state", [WAITING, SCHEDULED, READY])
def test_a_queued_job_may_be_replaced(house: House, state: JobState) -> None:
    old = house.submit(
        unique=b"k",
        payload=b"old",
        after=(house.submit(b"other"),) if state is WAITING else (),
        run_at_us=house.at(9) if state is SCHEDULED else 0,
    )
    new = house.submit(unique=b"k", payload=b"new", unique_policy=REPLACE)
    assert (state_of(old), causes(old)[-1]) == (CANCELLED, Cause.REPLACED)
    assert (state_of(new), holder(house)) == (READY, new)


def test_the_worker_of_one_that_runs_is_told_to_stop(house: House) -> None:
    client = RecordingPeer()
    worker, old = house.running(unique=b"k", watcher=client)
    new = house.submit(unique=b"k", unique_policy=REPLACE)
    assert peer_of(worker).heard == [("revoke", worker.id, old.id)]
    assert client.heard == [("finished", old.id, CANCELLED)]
    assert house.engine.complete(worker, old.id, b"late") is old
    assert (state_of(old), old.result, holder(house)) == (CANCELLED, b"", new)


def test_a_held_key_is_taken_over(house: House) -> None:
    old = held(house, 10)
    new = house.submit(unique=b"k", unique_policy=REPLACE)
    assert (state_of(old), holder(house)) == (DONE, new)
    house.pass_seconds(10)
    assert holder(house) is new
    assert house.drain_with(house.worker()) == [new.id]
    assert holder(house) is None


def test_after_a_restart_the_last_one_holds_the_key(house: House) -> None:
    first = held(house)
    house.engine.take_changes()
    second = house.submit(unique=b"k", unique_policy=REPLACE)
    assert house.engine.take_changes()[0] == [first, second]  # the store must not believe that the first still holds it
    house.drain_with(house.worker())
    again, _ = restarted(house, first, second)
    assert holder(again) is None


def test_what_waits_for_the_replaced_job_meets_its_edge(house: House) -> None:
    old = house.submit(unique=b"k")
    waits = house.submit(b"other", after=(old,))
    fails = house.submit(b"other", after=(old,), edges=bytes([EdgePolicy.FAIL]))
    house.submit(unique=b"k", unique_policy=REPLACE)
    assert (state_of(waits), state_of(fails)) == (WAITING, FAILED)


def test_the_new_job_may_have_the_name_of_the_old_one(house: House) -> None:
    house.submit(unique=b"k", name=b"Anna")
    new = house.submit(unique=b"k", name=b"Anna", unique_policy=REPLACE)
    assert dict(house.engine.names.items()) == {b"Anna": new}


def test_a_full_queue_takes_one_in_place_of_another(house: House) -> None:
    house.engine.set_limits(house.function(), 1, 1, 1)
    house.submit(unique=b"k")
    new = house.submit(unique=b"k", unique_policy=REPLACE)
    assert house.drain_with(house.worker()) == [new.id]


@pytest.mark.parametrize("reason", ["name", "id", "full", "edges"])
def test_a_submission_that_is_refused_replaces_nothing(house: House, reason: str) -> None:
    old = house.submit(unique=b"k")
    house.submit(name=b"Anna")
    options: dict[str, dict[str, object]] = {
        "name": {"name": b"Anna"},
        "id": {"job_id": 999},
        "full": {},
        "edges": {"predecessors": (1, 2), "edges": b"\1"},
    }
    if reason == "full":
        house.engine.set_limits(house.function(), 1, 1, 1)
    with pytest.raises(ValueError if reason == "edges" else Refused) as refused:
        house.submit(unique=b"k", unique_policy=REPLACE, **options[reason])  # type: ignore[arg-type]
    if isinstance(refused.value, Refused):
        assert refused.value.reason == (REFUSED_FULL if reason == "full" else REFUSED_CONFLICT)
    assert (state_of(old), holder(house)) == (READY, old)


def test_a_job_may_be_replaced_by_one_that_waits_for_it(house: House) -> None:
    """Which makes little sense, and must do no harm."""
    old = house.submit(unique=b"k")
    new = house.submit(unique=b"k", unique_policy=REPLACE, after=(old,), edges=bytes([EdgePolicy.RUN]))
    assert (state_of(new), holder(house)) == (READY, new)
    assert RUNNING not in (state_of(old), state_of(new))


# --- how many ---


def test_so_many_keys_are_held_as_there_is_memory_for() -> None:
    house = House(memory_bytes=3 * 8 * 1024)
    for number in range(3):
        house.engine.cancel(house.submit(unique=b"%d" % number, unique_for_us=60 * SECOND_US))
    with pytest.raises(Refused, match="3 unique keys are held for a time") as refused:
        house.submit(unique=b"3", unique_for_us=60 * SECOND_US, name=b"Anna", expires_us=house.at(1))
    assert refused.value.reason == "full"
    assert (len(house.engine.names), len(house.engine.deadlines)) == (0, 3)
    house.submit(unique=b"3")
    house.pass_seconds(61)
    house.submit(unique=b"4", unique_for_us=60 * SECOND_US)
