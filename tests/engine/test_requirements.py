"""Jobs that require tags are given only to workers that have them, in whatever way these get jobs."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import SubmitOptions
from switchgear.engine.requirements import MOST_DESCRIPTIONS
from switchgear.errors import Refused
from switchgear.model import DONE, HIGH, LOW, NORMAL, Delivery, Function, Job, Worker
from switchgear.policy import Policy
from switchgear.testing import RecordingPeer
from switchgear.testing.invariants import check_engine
from tests.engine.harness import Harness

GPU = frozenset({b"gpu"})
GPU_LARGE = frozenset({b"gpu", b"large"})


@pytest.fixture
def harness() -> Harness:
    return Harness()


def submit(harness: Harness, requires: bytes = b"", priority: int = NORMAL, key: bytes = b"", **options: int) -> Job:
    given = SubmitOptions(requires=requires, key=key, **options)  # type: ignore[arg-type]
    job = harness.engine.submit(b"mail", b"", b"", priority, Delivery.HANDLE, None, given)
    check_engine(harness.engine)
    return job


def worker(harness: Harness, tags: frozenset[bytes] = frozenset()) -> Worker:
    found = harness.engine.add_worker(RecordingPeer(), "test")
    harness.engine.can_do(found, harness.function())
    harness.engine.describe_worker(found, tags)
    return found


def heard(worker: Worker) -> list[object]:
    assert isinstance(worker.peer, RecordingPeer)
    return list(worker.peer.heard)


def taken(harness: Harness, worker: Worker) -> list[int]:
    """The jobs that the worker is given until there is none."""
    jobs: list[int] = []
    while (job := harness.engine.take(worker)) is not None:
        jobs.append(job.id)
        check_engine(harness.engine)
    return jobs


# --- pull ---


def test_a_worker_is_given_jobs_whose_tags_it_has(harness: Harness) -> None:
    plain, gpu, both = submit(harness), submit(harness, b"gpu"), submit(harness, b"gpu,large")
    assert taken(harness, worker(harness)) == [plain.id]
    assert taken(harness, worker(harness, GPU)) == [gpu.id]
    assert taken(harness, worker(harness, GPU_LARGE)) == [both.id]


def test_jobs_of_all_groups_come_in_their_order(harness: Harness) -> None:
    first, second, third = submit(harness, b"gpu"), submit(harness), submit(harness, b"gpu,large")
    fourth = submit(harness, b"gpu")
    low, high = submit(harness, b"gpu", LOW), submit(harness, b"large", HIGH)
    expected = [high.id, first.id, second.id, third.id, fourth.id, low.id]
    assert taken(harness, worker(harness, GPU_LARGE)) == expected


def test_a_job_that_nobody_fits_does_not_block_those_behind_it(harness: Harness) -> None:
    submit(harness, b"tpu", HIGH)
    behind = submit(harness)
    assert taken(harness, worker(harness, GPU)) == [behind.id]


def test_of_several_functions_one_is_chosen_that_has_a_job_for_the_worker(harness: Harness) -> None:
    submit(harness, b"gpu", HIGH)
    able = worker(harness)
    other = harness.submit(b"other")
    harness.engine.can_do(able, harness.function(b"other"))
    assert harness.engine.take(able) is other


@pytest.mark.parametrize("order", ["registration", "round-robin"])
def test_in_any_order_of_functions(order: str) -> None:
    harness = Harness(function_order=order)
    other = harness.submit(b"other")
    able = harness.engine.add_worker(RecordingPeer(), "test")
    harness.engine.can_do(able, harness.function(b"other"))
    harness.engine.can_do(able, harness.function())
    submit(harness, b"gpu")
    assert harness.engine.take(able) is other


def test_a_priority_can_be_asked_for(harness: Harness) -> None:
    submit(harness, b"gpu", HIGH)
    plain = submit(harness, priority=HIGH)
    assert harness.engine.take_of(worker(harness), harness.function(), HIGH) is plain
    assert harness.engine.take_of(worker(harness), harness.function(), HIGH) is None


# --- sleep and be woken ---


def test_a_worker_can_sleep_while_there_are_only_jobs_it_does_not_fit(harness: Harness) -> None:
    submit(harness, b"gpu")
    assert harness.engine.sleep(worker(harness))
    assert not harness.engine.sleep(worker(harness, GPU))
    check_engine(harness.engine)


def test_only_a_worker_that_fits_is_woken(harness: Harness) -> None:
    plain, gpu = worker(harness), worker(harness, GPU)
    for each in (plain, gpu):
        assert harness.engine.sleep(each)
    submit(harness, b"gpu")
    assert (heard(plain), heard(gpu)) == ([], [("wake", gpu.id)])
    submit(harness)
    assert heard(plain) == [("wake", plain.id)]


def test_of_those_that_fit_the_one_with_the_fewest_tags_is_woken(harness: Harness) -> None:
    both, gpu = worker(harness, GPU_LARGE), worker(harness, GPU)
    for each in (both, gpu):
        harness.engine.sleep(each)
    submit(harness, b"gpu")
    assert (heard(both), heard(gpu)) == ([], [("wake", gpu.id)])


def test_nobody_is_woken_again_and_again_for_a_job_that_nobody_fits(harness: Harness) -> None:
    plain = worker(harness)
    harness.engine.sleep(plain)
    submit(harness, b"gpu")
    harness.pass_seconds(3600)
    assert heard(plain) == []
    assert harness.engine.next_deadline_us is None


def test_if_a_woken_worker_does_not_ask_others_that_fit_are_woken(harness: Harness) -> None:
    workers = [worker(harness, GPU), worker(harness, GPU), worker(harness)]
    for each in workers:
        harness.engine.sleep(each)
    submit(harness, b"gpu")
    harness.pass_seconds(2)
    assert [len(heard(each)) for each in workers] == [1, 1, 0]


def test_a_woken_worker_that_leaves_passes_the_wakeup_on_to_one_that_fits(harness: Harness) -> None:
    first, plain, second = worker(harness, GPU), worker(harness), worker(harness, GPU)
    for each in (first, plain, second):
        harness.engine.sleep(each)
    submit(harness, b"gpu")
    harness.engine.remove_worker(first)
    assert (heard(plain), heard(second)) == ([], [("wake", second.id)])


def test_a_wake_policy_sees_a_job_that_a_worker_fits(harness: Harness) -> None:
    asked: list[tuple[int, list[int]]] = []

    def choose(job: Job, workers: tuple[Worker, ...]) -> list[Worker]:
        asked.append((job.id, [worker.id for worker in workers]))
        return list(workers)

    harness.engine.wake_policy = choose  # type: ignore[assignment]
    plain = worker(harness)
    harness.engine.sleep(plain)
    submit(harness, b"gpu")
    job = submit(harness)
    assert asked == [(job.id, [plain.id])]
    assert heard(plain) == [("wake", plain.id)]


# --- credit ---


def test_a_job_is_pushed_to_a_worker_that_fits(harness: Harness) -> None:
    plain, gpu = worker(harness), worker(harness, GPU)
    for each in (plain, gpu):
        harness.engine.grant(each, 2)
    job = submit(harness, b"gpu")
    assert heard(gpu) == [("assign", gpu.id, job.id)]
    assert heard(plain) == []
    assert plain.credits == 2


def test_credit_is_used_for_what_fits_and_the_rest_waits(harness: Harness) -> None:
    waits, plain = submit(harness, b"gpu"), submit(harness)
    able = worker(harness)
    harness.engine.grant(able, 5)
    assert heard(able) == [("assign", able.id, plain.id)]
    later = submit(harness)
    assert heard(able)[1:] == [("assign", able.id, later.id)]
    harness.engine.describe_worker(able, GPU)
    assert heard(able)[2:] == [("assign", able.id, waits.id)]


def test_jobs_are_pushed_round_robin_to_those_that_fit(harness: Harness) -> None:
    one, plain, two = worker(harness, GPU), worker(harness), worker(harness, GPU)
    for each in (one, plain, two):
        harness.engine.grant(each, 2)
    for _ in range(4):
        submit(harness, b"gpu")
    assert [each.credits for each in (one, plain, two)] == [0, 2, 0]


def test_a_function_that_is_resumed_pushes_what_fits(harness: Harness) -> None:
    harness.engine.pause(harness.function())
    submit(harness, b"tpu")
    job = submit(harness, b"gpu")
    able = worker(harness, GPU)
    harness.engine.grant(able, 3)
    harness.engine.resume(harness.function())
    assert heard(able) == [("assign", able.id, job.id)]


# --- tags that change ---


def test_a_sleeping_worker_that_gets_a_tag_is_woken_for_what_it_now_fits(harness: Harness) -> None:
    able = worker(harness)
    submit(harness, b"gpu")
    assert harness.engine.sleep(able)
    harness.engine.describe_worker(able, GPU)
    assert heard(able) == [("wake", able.id)]


def test_a_job_that_runs_stays_with_a_worker_that_loses_its_tag(harness: Harness) -> None:
    able = worker(harness, GPU)
    job = submit(harness, b"gpu")
    assert harness.engine.take(able) is job
    harness.engine.describe_worker(able, frozenset())
    assert harness.engine.complete(able, job.id, b"done") is job
    assert job.state is DONE


def test_workers_have_so_many_different_sets_of_tags(harness: Harness) -> None:
    for number in range(MOST_DESCRIPTIONS):
        last = worker(harness, frozenset({b"tag-%d" % number}))
    one_more = worker(harness)
    with pytest.raises(Refused, match="workers have 256 different sets of tags and resources already"):
        harness.engine.describe_worker(one_more, GPU)
    harness.engine.describe_worker(one_more, last.tags)
    harness.engine.describe_worker(one_more, frozenset())
    harness.engine.remove_worker(last)
    harness.engine.describe_worker(one_more, GPU)
    assert one_more.tags == GPU


# --- how many groups there are ---


def test_a_submission_with_one_set_too_many_is_refused(harness: Harness) -> None:
    harness.engine.requirements.most_groups = 8
    jobs = [submit(harness, b"tag-%d" % number) for number in range(8)]
    with pytest.raises(Refused, match="jobs of this function have 8 different requirements already"):
        submit(harness, b"gpu")
    submit(harness, b"tag-7")
    harness.engine.cancel(jobs[0])
    submit(harness, b"gpu")


def test_a_retry_with_one_set_too_many_is_refused(harness: Harness) -> None:
    cancelled = submit(harness, b"gpu")
    harness.engine.cancel(cancelled)
    harness.engine.requirements.most_groups = 8
    for number in range(8):
        submit(harness, b"tag-%d" % number)
    with pytest.raises(Refused, match="different requirements"):
        harness.engine.retry(cancelled)


def test_a_function_forgets_about_tags_when_no_unfinished_job_requires_any(harness: Harness) -> None:
    job = submit(harness, b"gpu")
    assert harness.function().limiter is not None
    harness.engine.cancel(job)
    assert harness.function().limiter is None
    check_engine(harness.engine)


def test_it_goes_on_with_its_limits(harness: Harness) -> None:
    harness.engine.set_policy(harness.function(), Policy(concurrency=1))
    job = submit(harness, b"gpu")
    harness.engine.cancel(job)
    limiter = harness.function().limiter
    assert limiter is not None
    assert limiter.policy == Policy(concurrency=1)


# --- with all else that decides about jobs ---


def test_a_job_that_comes_back_goes_to_workers_that_fit(harness: Harness) -> None:
    job = submit(harness, b"gpu")
    able = worker(harness, GPU)
    assert harness.engine.take(able) is job
    harness.engine.remove_worker(able)
    check_engine(harness.engine)
    assert taken(harness, worker(harness)) == []
    assert taken(harness, worker(harness, GPU)) == [job.id]


def test_scheduled_waiting_and_retried_jobs_keep_what_they_require(harness: Harness) -> None:
    first = submit(harness)
    waiting = harness.engine.submit(
        b"mail", b"", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(requires=b"gpu", predecessors=(first.id,))
    )
    scheduled = submit(harness, b"gpu", run_at_us=harness.at(5))
    plain = worker(harness)
    job = harness.engine.take(plain)
    assert job is first
    harness.engine.complete(plain, first.id, b"")
    harness.pass_seconds(5)
    assert harness.engine.take(plain) is None
    gpu = worker(harness, GPU)
    assert taken(harness, gpu) == [waiting.id, scheduled.id]
    harness.engine.fail(gpu, waiting.id)
    harness.engine.retry(waiting)
    assert harness.engine.take(plain) is None
    assert taken(harness, gpu) == [waiting.id]


def test_limits_count_jobs_of_all_groups(harness: Harness) -> None:
    harness.engine.set_policy(harness.function(), Policy(concurrency=2))
    for requires in (b"gpu", b"", b"gpu"):
        submit(harness, requires)
    gpu = worker(harness, GPU)
    assert taken(harness, gpu) == [1, 2]
    assert harness.engine.sleep(gpu)
    plain = worker(harness)
    harness.engine.sleep(plain)
    harness.engine.complete(gpu, 1, b"")
    assert (heard(gpu), heard(plain)) == ([("wake", gpu.id)], [])
    assert taken(harness, gpu) == [3]


@pytest.mark.parametrize("fair", [False, True])
def test_limits_of_keys_count_jobs_of_all_groups(harness: Harness, *, fair: bool) -> None:
    harness.engine.set_policy(harness.function(), Policy(key_concurrency=1, fair=fair))
    one, two, three = submit(harness, b"gpu", key=b"a"), submit(harness, key=b"a"), submit(harness, b"gpu", key=b"b")
    gpu = worker(harness, GPU)
    assert taken(harness, gpu) == [one.id, three.id]
    harness.engine.complete(gpu, one.id, b"")
    check_engine(harness.engine)
    assert taken(harness, gpu) == [two.id]


def test_keys_are_served_round_robin_over_all_groups(harness: Harness) -> None:
    harness.engine.set_policy(harness.function(), Policy(fair=True))
    order = [(b"a", b"gpu"), (b"a", b""), (b"a", b"gpu"), (b"b", b""), (b"b", b"gpu"), (b"c", b"")]
    for key, requires in order:
        submit(harness, requires, key=key)
    keys = [harness.engine.jobs[job_id].key for job_id in taken(harness, worker(harness, GPU))]
    assert keys[:3] == [b"a", b"b", b"c"]
    assert sorted(keys[3:5]) == [b"a", b"b"]
    assert keys[5] == b"a"


def test_another_policy_keeps_the_groups(harness: Harness) -> None:
    for requires in (b"gpu", b"", b"gpu"):
        submit(harness, requires, key=b"k")
    for policy in (Policy(fair=True), Policy(concurrency=5), Policy()):
        harness.engine.set_policy(harness.function(), policy)
        check_engine(harness.engine)
    assert taken(harness, worker(harness)) == [2]
    assert taken(harness, worker(harness, GPU)) == [1, 3]


def test_a_unique_key_joins_a_job_whatever_it_requires(harness: Harness) -> None:
    options = SubmitOptions(requires=b"gpu")
    first = harness.engine.submit(b"mail", b"key", b"", NORMAL, Delivery.HANDLE, None, options)
    assert harness.engine.submit(b"mail", b"key", b"", NORMAL, Delivery.HANDLE, None, None) is first
    assert first.requires == b"gpu"


def test_long_queues_of_each_group_are_divided(harness: Harness) -> None:
    harness.engine.packed_queues.pack_from, harness.engine.packed_queues.head_jobs = 8, 2
    harness.engine.packed_queues.segment_jobs = 3
    jobs = [submit(harness, requires) for _ in range(20) for requires in (b"gpu", b"")]
    harness.engine.cancel(jobs[20])
    check_engine(harness.engine)
    assert taken(harness, worker(harness, GPU)) == [job.id for job in jobs if job is not jobs[20]]


def test_the_cost_of_a_hand_out_does_not_depend_on_the_jobs_that_nobody_fits(harness: Harness) -> None:
    for _ in range(1000):
        harness.engine.submit(b"mail", b"", b"", HIGH, Delivery.HANDLE, None, SubmitOptions(requires=b"tpu"))
    job = submit(harness, priority=LOW)
    function: Function = harness.function()
    limiter = function.limiter
    assert limiter is not None
    assert [group.ready_of(HIGH) for group in limiter.groups] == [0, 1000]
    assert (function.ready_of(HIGH), function.ready_of(LOW), function.ready) == (1000, 1, 1001)
    assert taken(harness, worker(harness)) == [job.id]


# --- explanations ---


def test_the_missing_tag_is_named(harness: Harness) -> None:
    job = submit(harness, b"gpu,large,tpu")
    worker(harness, GPU)
    worker(harness, frozenset({b"large"}))
    (reason,) = harness.engine.explain(job)
    assert reason.word == "missing_tag"
    assert reason.text == "none of 2 workers that can do 'mail' has the tag 'tpu'"
    assert reason.data == {"requires": ["gpu", "large", "tpu"], "missing": ["tpu"], "short": [], "workers": 2}


def test_tags_that_no_worker_has_together_are_named(harness: Harness) -> None:
    job = submit(harness, b"gpu,large")
    worker(harness, GPU)
    worker(harness, frozenset({b"large"}))
    (reason,) = harness.engine.explain(job)
    assert reason.text == "none of 2 workers that can do 'mail' has all of the tags 'gpu', 'large'"


def test_only_workers_that_fit_are_counted(harness: Harness) -> None:
    job = submit(harness, b"gpu")
    worker(harness)
    worker(harness, GPU)
    (reason,) = harness.engine.explain(job)
    assert (reason.word, reason.data["workers"]) == ("workers_absent", 1)
