"""Jobs that require amounts of resources go to workers that have so much free, and use it up while they run."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import SubmitOptions
from switchgear.engine.requirements import MOST_GROUPS
from switchgear.model import HIGH, NORMAL, Delivery, Job, Worker
from switchgear.resources import resource_amounts
from switchgear.testing import RecordingPeer
from switchgear.testing.invariants import check_engine
from tests.engine.harness import Harness


@pytest.fixture
def harness() -> Harness:
    return Harness()


def submit(harness: Harness, requires: bytes = b"", priority: int = NORMAL, name: bytes = b"mail") -> Job:
    job = harness.engine.submit(name, b"", b"", priority, Delivery.HANDLE, None, SubmitOptions(requires=requires))
    check_engine(harness.engine)
    return job


def worker(
    harness: Harness, resources: str = "", tags: frozenset[bytes] = frozenset(), name: bytes = b"mail"
) -> Worker:
    found = harness.engine.add_worker(RecordingPeer(), "test")
    harness.engine.can_do(found, harness.function(name))
    harness.engine.describe_worker(found, tags, resource_amounts(resources))
    return found


def heard(worker: Worker) -> list[object]:
    assert isinstance(worker.peer, RecordingPeer)
    return list(worker.peer.heard)


# --- enough of it ---


def test_a_worker_is_given_jobs_for_which_it_has_enough(harness: Harness) -> None:
    submit(harness, b"memory=64G", HIGH)
    fits = submit(harness, b"memory=1G")
    able = worker(harness, "memory=4G")
    assert harness.engine.take(able) is fits
    assert harness.engine.take(able) is None


def test_exactly_enough_is_enough_of_everything(harness: Harness) -> None:
    job = submit(harness, b"cores=0.5,gpu,memory=64G")
    assert harness.engine.take(worker(harness, "memory=64G,cores=0.5")) is None
    assert harness.engine.take(worker(harness, "memory=64G,cores=0.499", frozenset({b"gpu"}))) is None
    assert harness.engine.take(worker(harness, "memory=64G,cores=0.5", frozenset({b"gpu"}))) is job


def test_a_resource_that_no_worker_has_heard_of_is_one_of_which_it_has_none(harness: Harness) -> None:
    submit(harness, b"licences=1")
    assert harness.engine.take(worker(harness, "memory=64G")) is None
    assert harness.engine.take(worker(harness)) is None


def test_a_hundred_thousand_jobs_that_nobody_fits_do_not_block_the_one_behind_them(harness: Harness) -> None:
    options = SubmitOptions(requires=b"memory=64G")
    for _ in range(100_000):
        harness.engine.submit(b"mail", b"", b"", NORMAL, Delivery.HANDLE, None, options)
    asleep = worker(harness, "memory=4G")
    assert harness.engine.sleep(asleep)
    fits = harness.engine.submit(b"mail", b"", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(requires=b"memory=1G"))
    assert heard(asleep) == [("wake", asleep.id)]
    assert harness.engine.take(asleep) is fits


def test_a_thousand_different_requirements_are_told_apart(harness: Harness) -> None:
    jobs = [
        harness.engine.submit(
            b"mail", b"", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(requires=b"memory=%d" % (number + 1))
        )
        for number in range(MOST_GROUPS)
    ]
    check_engine(harness.engine)
    able = worker(harness, "memory=10")
    assert harness.engine.take(able) is jobs[0]
    assert harness.engine.take(able) is jobs[1]
    assert [job.id for job in jobs if job.worker is able] == [1, 2]


# --- in use ---


def test_a_job_uses_what_it_requires_until_it_ends(harness: Harness) -> None:
    first, second, small = (
        submit(harness, b"memory=48G"),
        submit(harness, b"memory=48G"),
        submit(harness, b"memory=16G"),
    )
    able = worker(harness, "memory=64G")
    assert harness.engine.take(able) is first
    assert harness.engine.take(able) is small
    assert harness.engine.take(able) is None
    harness.engine.complete(able, small.id, b"")
    assert harness.engine.take(able) is None
    harness.engine.complete(able, first.id, b"")
    assert harness.engine.take(able) is second
    check_engine(harness.engine)


@pytest.mark.parametrize("end", ["complete", "fail", "release", "retry_later", "cancel_and_report"])
def test_however_a_job_ends_what_it_used_is_pushed_for(harness: Harness, end: str) -> None:
    able = worker(harness, "memory=64G")
    harness.engine.grant(able, 3)
    first = submit(harness, b"memory=48G")
    second = submit(harness, b"memory=40G", HIGH)
    assert heard(able) == [("assign", able.id, first.id)]
    if end == "complete":
        harness.engine.complete(able, first.id, b"")
    elif end == "fail":
        harness.engine.fail(able, first.id)
    elif end == "release":
        harness.engine.release(able, first.id)
    elif end == "retry_later":
        harness.engine.retry_later(able, first.id, 10)
    else:
        harness.engine.cancel(first)
        assert second.worker is None  # the worker may still be at it
        check_engine(harness.engine)
        harness.engine.complete(able, first.id, b"")
    assert second.worker is able
    check_engine(harness.engine)


@pytest.mark.parametrize("verb", ["fail", "release"])
def test_any_report_of_a_cancelled_job_frees_what_it_used(harness: Harness, verb: str) -> None:
    able = worker(harness, "memory=64G")
    first, second = submit(harness, b"memory=48G"), submit(harness, b"memory=48G")
    assert harness.engine.take(able) is first
    harness.engine.cancel(first)
    assert harness.engine.sleep(able)
    getattr(harness.engine, verb)(able, first.id)
    assert heard(able)[-1] == ("wake", able.id)
    assert harness.engine.take(able) is second


def test_a_sleeping_worker_with_several_slots_is_woken_when_there_is_room_again(harness: Harness) -> None:
    able = worker(harness, "memory=64G")
    first = submit(harness, b"memory=48G")
    assert harness.engine.take(able) is first
    assert harness.engine.sleep(able)
    submit(harness, b"memory=48G")
    assert heard(able) == []
    harness.engine.complete(able, first.id, b"")
    assert heard(able) == [("wake", able.id)]


def test_room_that_one_function_leaves_is_offered_to_the_others(harness: Harness) -> None:
    able = worker(harness, "memory=64G")
    harness.engine.can_do(able, harness.function(b"resize"))
    harness.engine.grant(able, 2)
    first = submit(harness, b"memory=48G")
    other = submit(harness, b"memory=48G", name=b"resize")
    assert other.worker is None
    harness.engine.complete(able, first.id, b"")
    assert other.worker is able
    assert harness.function().limiter is None
    check_engine(harness.engine)


def test_a_job_that_is_timed_out_leaves_room(harness: Harness) -> None:
    able = worker(harness, "memory=64G")
    harness.engine.can_do(able, harness.function(), 1_000_000)
    harness.engine.grant(able, 2)
    first = submit(harness, b"memory=48G")
    second = submit(harness, b"memory=48G")
    harness.pass_seconds(1)
    assert second.worker is able
    assert first.worker is None
    check_engine(harness.engine)


def test_a_job_comes_back_from_a_lost_worker_and_uses_the_next_one(harness: Harness) -> None:
    lost, other = worker(harness, "memory=64G"), worker(harness, "memory=64G")
    job = submit(harness, b"memory=48G")
    assert harness.engine.take(lost) is job
    harness.engine.grant(other, 1)
    harness.engine.remove_worker(lost)
    assert job.worker is other
    check_engine(harness.engine)


def test_a_cancelled_job_that_is_retried_on_the_same_worker_is_counted_once(harness: Harness) -> None:
    able = worker(harness, "memory=64G")
    job = submit(harness, b"memory=48G")
    assert harness.engine.take(able) is job
    harness.engine.cancel(job)
    harness.engine.retry(job)
    assert harness.engine.take(able) is None  # it is still at the first attempt
    harness.engine.release(able, job.id)
    assert harness.engine.take(able) is job
    check_engine(harness.engine)


# --- resources that change ---


def test_a_worker_may_say_that_it_has_more_while_it_sleeps(harness: Harness) -> None:
    able = worker(harness, "memory=4G")
    assert harness.engine.sleep(able)
    submit(harness, b"memory=8G")
    harness.engine.describe_worker(able, resources=resource_amounts("memory=8G"))
    assert heard(able) == [("wake", able.id)]


def test_what_runs_counts_when_a_worker_says_what_it_has_afterwards(harness: Harness) -> None:
    able = worker(harness, "memory=64G")
    job = submit(harness, b"memory=48G")
    assert harness.engine.take(able) is job
    harness.engine.describe_worker(able, resources={})
    harness.engine.describe_worker(able, resources=resource_amounts("memory=64G"))
    submit(harness, b"memory=48G")
    assert harness.engine.take(able) is None
    check_engine(harness.engine)


def test_a_worker_that_has_less_than_its_jobs_use_gets_no_more(harness: Harness) -> None:
    able = worker(harness, "memory=64G")
    job, small = submit(harness, b"memory=48G"), submit(harness, b"memory=1")
    assert harness.engine.take(able) is job
    harness.engine.describe_worker(able, resources=resource_amounts("memory=32G"))
    assert harness.engine.take(able) is None
    harness.engine.complete(able, job.id, b"")
    assert harness.engine.take(able) is small


# --- who is chosen ---


def test_the_worker_with_the_least_that_is_enough_is_woken(harness: Harness) -> None:
    large, small = worker(harness, "memory=64G"), worker(harness, "memory=8G")
    for each in (large, small):
        harness.engine.sleep(each)
    submit(harness, b"memory=4G")
    assert (heard(large), heard(small)) == ([], [("wake", small.id)])


def test_workers_that_offer_the_same_are_pushed_to_in_turn(harness: Harness) -> None:
    workers = [worker(harness, "memory=64G") for _ in range(3)]
    for each in workers:
        harness.engine.grant(each, 2)
    jobs = [submit(harness, b"memory=64G") for _ in range(3)]
    assert [job.worker for job in jobs] == workers


# --- explanations ---


def test_the_resource_that_nobody_has_enough_of_is_named_with_the_most_there_is(harness: Harness) -> None:
    job = submit(harness, b"gpu,memory=64G")
    worker(harness, "memory=16G", frozenset({b"gpu"}))
    worker(harness, "memory=32G")
    (reason,) = harness.engine.explain(job)
    assert reason.word == "missing_resource"
    assert reason.text == "none of 2 workers that can do 'mail' has 64G of 'memory' (the most is 32G)"
    assert reason.data["short"] == [{"resource": "memory", "required": 64 * 10**9, "most": 32 * 10**9}]


def test_tags_and_resources_that_are_missing_are_named_together(harness: Harness) -> None:
    job = submit(harness, b"cores=2,tpu")
    worker(harness, "memory=16G")
    (reason,) = harness.engine.explain(job)
    assert reason.word == "missing_tag"
    assert reason.text == (
        "none of 1 worker that can do 'mail' has the tag 'tpu', and none has 2 of 'cores' (none has any)"
    )


def test_what_no_single_worker_has_together_is_named(harness: Harness) -> None:
    job = submit(harness, b"gpu,memory=64G")
    worker(harness, tags=frozenset({b"gpu"}))
    worker(harness, "memory=64G")
    (reason,) = harness.engine.explain(job)
    assert reason.text == "none of 2 workers that can do 'mail' has all of gpu, memory=64G"


def test_resources_that_are_in_use_are_named(harness: Harness) -> None:
    able = worker(harness, "memory=64G")
    submit(harness, b"memory=48G")
    job = submit(harness, b"memory=48G")
    harness.engine.take(able)
    (reason,) = harness.engine.explain(job)
    assert reason.word == "resources_in_use"
    assert reason.text == "other jobs use too much 'memory' of 1 worker that could do it"
    assert reason.data == {"workers": 1, "most_free": {"memory": 16 * 10**9}}


# --- what jobs of others use ---


def test_what_jobs_elsewhere_use_is_not_free_until_they_end(harness: Harness) -> None:
    able = worker(harness, "memory=64G")
    harness.engine.use_elsewhere(able, ((b"memory", 48_000_000_000_000),))
    harness.engine.grant(able, 5)
    large = submit(harness, b"memory=20G")
    small = submit(harness, b"memory=10G")
    assert list(able.running.values()) == [small]
    (reason,) = harness.engine.explain(large, str)
    assert reason.word == "resources_in_use"
    assert reason.data["most_free"] == {"memory": 6_000_000_000}
    harness.engine.use_elsewhere(able, ())
    assert large.worker is able
    check_engine(harness.engine)


def test_a_job_that_another_worker_runs_leaves_room_for_more(harness: Harness) -> None:
    """The owner counts it at the worker to which it has given it; the other server knows better."""
    able = worker(harness, "memory=64G")
    harness.engine.grant(able, 5)
    first, second = (submit(harness, b"memory=48G") for _ in range(2))
    assert list(able.running.values()) == [first]
    harness.engine.use_elsewhere(able, ((b"memory", -48_000_000_000_000),))
    assert list(able.running.values()) == [first, second]
    harness.engine.describe_worker(able, frozenset(), resource_amounts("memory=32G"))  # what was said is forgotten
    assert able.offer is not None
    assert able.offer.free == {b"memory": -64_000_000_000_000}
    harness.engine.remove_worker(able)
    check_engine(harness.engine)


def test_a_copy_of_a_job_of_another_engine_requires_the_same(harness: Harness) -> None:
    """The worker that fits takes it, and not the first one."""
    function = harness.function(b"mail")
    plain, tagged = worker(harness), worker(harness, tags=frozenset({b"gpu"}))
    copy = Job(1 << 40, function, b"", b"", NORMAL, Delivery.WAIT, 0)
    copy.requires = b"gpu"
    copy.has_details = True
    harness.engine.borrow(copy, RecordingPeer())
    assert harness.engine.take(plain) is None
    assert harness.engine.take(tagged) is copy
    harness.engine.complete(tagged, copy.id, b"")
    assert function.limiter is None
    check_engine(harness.engine)
