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
from tests.engine.house import House

GPU = frozenset({b"gpu"})
GPU_LARGE = frozenset({b"gpu", b"large"})


@pytest.fixture
def house() -> House:
    return House()


def submit(house: House, requires: bytes = b"", priority: int = NORMAL, key: bytes = b"", **options: int) -> Job:
    given = SubmitOptions(requires=requires, key=key, **options)  # type: ignore[arg-type]
    job = house.engine.submit(b"mail", b"", b"", priority, Delivery.HANDLE, None, given)
    check_engine(house.engine)
    return job


def worker(house: House, tags: frozenset[bytes] = frozenset()) -> Worker:
    found = house.engine.add_worker(RecordingPeer(), "test")
    house.engine.can_do(found, house.function())
    house.engine.describe_worker(found, tags)
    return found


def heard(worker: Worker) -> list[object]:
    assert isinstance(worker.peer, RecordingPeer)
    return list(worker.peer.heard)


def taken(house: House, worker: Worker) -> list[int]:
    """The jobs that the worker is given until there is none."""
    jobs: list[int] = []
    while (job := house.engine.take(worker)) is not None:
        jobs.append(job.id)
        check_engine(house.engine)
    return jobs


# --- pull ---


def test_a_worker_is_given_jobs_whose_tags_it_has(house: House) -> None:
    plain, gpu, both = submit(house), submit(house, b"gpu"), submit(house, b"gpu,large")
    assert taken(house, worker(house)) == [plain.id]
    assert taken(house, worker(house, GPU)) == [gpu.id]
    assert taken(house, worker(house, GPU_LARGE)) == [both.id]


def test_jobs_of_all_groups_come_in_their_order(house: House) -> None:
    first, second, third = submit(house, b"gpu"), submit(house), submit(house, b"gpu,large")
    fourth = submit(house, b"gpu")
    low, high = submit(house, b"gpu", LOW), submit(house, b"large", HIGH)
    expected = [high.id, first.id, second.id, third.id, fourth.id, low.id]
    assert taken(house, worker(house, GPU_LARGE)) == expected


def test_a_job_that_nobody_fits_does_not_block_those_behind_it(house: House) -> None:
    submit(house, b"tpu", HIGH)
    behind = submit(house)
    assert taken(house, worker(house, GPU)) == [behind.id]


def test_of_several_functions_one_is_chosen_that_has_a_job_for_the_worker(house: House) -> None:
    submit(house, b"gpu", HIGH)
    able = worker(house)
    other = house.submit(b"other")
    house.engine.can_do(able, house.function(b"other"))
    assert house.engine.take(able) is other


@pytest.mark.parametrize("order", ["registration", "round-robin"])
def test_in_any_order_of_functions(order: str) -> None:
    house = House(function_order=order)
    other = house.submit(b"other")
    able = house.engine.add_worker(RecordingPeer(), "test")
    house.engine.can_do(able, house.function(b"other"))
    house.engine.can_do(able, house.function())
    submit(house, b"gpu")
    assert house.engine.take(able) is other


def test_a_priority_can_be_asked_for(house: House) -> None:
    submit(house, b"gpu", HIGH)
    plain = submit(house, priority=HIGH)
    assert house.engine.take_of(worker(house), house.function(), HIGH) is plain
    assert house.engine.take_of(worker(house), house.function(), HIGH) is None


# --- sleep and be woken ---


def test_a_worker_can_sleep_while_there_are_only_jobs_it_does_not_fit(house: House) -> None:
    submit(house, b"gpu")
    assert house.engine.sleep(worker(house))
    assert not house.engine.sleep(worker(house, GPU))
    check_engine(house.engine)


def test_only_a_worker_that_fits_is_woken(house: House) -> None:
    plain, gpu = worker(house), worker(house, GPU)
    for each in (plain, gpu):
        assert house.engine.sleep(each)
    submit(house, b"gpu")
    assert (heard(plain), heard(gpu)) == ([], [("wake", gpu.id)])
    submit(house)
    assert heard(plain) == [("wake", plain.id)]


def test_of_those_that_fit_the_one_with_the_fewest_tags_is_woken(house: House) -> None:
    both, gpu = worker(house, GPU_LARGE), worker(house, GPU)
    for each in (both, gpu):
        house.engine.sleep(each)
    submit(house, b"gpu")
    assert (heard(both), heard(gpu)) == ([], [("wake", gpu.id)])


def test_nobody_is_woken_again_and_again_for_a_job_that_nobody_fits(house: House) -> None:
    plain = worker(house)
    house.engine.sleep(plain)
    submit(house, b"gpu")
    house.pass_seconds(3600)
    assert heard(plain) == []
    assert house.engine.next_deadline_us is None


def test_if_a_woken_worker_does_not_ask_others_that_fit_are_woken(house: House) -> None:
    workers = [worker(house, GPU), worker(house, GPU), worker(house)]
    for each in workers:
        house.engine.sleep(each)
    submit(house, b"gpu")
    house.pass_seconds(2)
    assert [len(heard(each)) for each in workers] == [1, 1, 0]


def test_a_woken_worker_that_leaves_passes_the_wakeup_on_to_one_that_fits(house: House) -> None:
    first, plain, second = worker(house, GPU), worker(house), worker(house, GPU)
    for each in (first, plain, second):
        house.engine.sleep(each)
    submit(house, b"gpu")
    house.engine.remove_worker(first)
    assert (heard(plain), heard(second)) == ([], [("wake", second.id)])


def test_a_wake_policy_sees_a_job_that_a_worker_fits(house: House) -> None:
    asked: list[tuple[int, list[int]]] = []

    def choose(job: Job, workers: tuple[Worker, ...]) -> list[Worker]:
        asked.append((job.id, [worker.id for worker in workers]))
        return list(workers)

    house.engine.wake_policy = choose  # type: ignore[assignment]
    plain = worker(house)
    house.engine.sleep(plain)
    submit(house, b"gpu")
    job = submit(house)
    assert asked == [(job.id, [plain.id])]
    assert heard(plain) == [("wake", plain.id)]


# --- credit ---


def test_a_job_is_pushed_to_a_worker_that_fits(house: House) -> None:
    plain, gpu = worker(house), worker(house, GPU)
    for each in (plain, gpu):
        house.engine.grant(each, 2)
    job = submit(house, b"gpu")
    assert heard(gpu) == [("assign", gpu.id, job.id)]
    assert heard(plain) == []
    assert plain.credits == 2


def test_credit_is_used_for_what_fits_and_the_rest_waits(house: House) -> None:
    waits, plain = submit(house, b"gpu"), submit(house)
    able = worker(house)
    house.engine.grant(able, 5)
    assert heard(able) == [("assign", able.id, plain.id)]
    later = submit(house)
    assert heard(able)[1:] == [("assign", able.id, later.id)]
    house.engine.describe_worker(able, GPU)
    assert heard(able)[2:] == [("assign", able.id, waits.id)]


def test_jobs_are_pushed_round_robin_to_those_that_fit(house: House) -> None:
    one, plain, two = worker(house, GPU), worker(house), worker(house, GPU)
    for each in (one, plain, two):
        house.engine.grant(each, 2)
    for _ in range(4):
        submit(house, b"gpu")
    assert [each.credits for each in (one, plain, two)] == [0, 2, 0]


def test_a_function_that_is_resumed_pushes_what_fits(house: House) -> None:
    house.engine.pause(house.function())
    submit(house, b"tpu")
    job = submit(house, b"gpu")
    able = worker(house, GPU)
    house.engine.grant(able, 3)
    house.engine.resume(house.function())
    assert heard(able) == [("assign", able.id, job.id)]


# --- tags that change ---


def test_a_sleeping_worker_that_gets_a_tag_is_woken_for_what_it_now_fits(house: House) -> None:
    able = worker(house)
    submit(house, b"gpu")
    assert house.engine.sleep(able)
    house.engine.describe_worker(able, GPU)
    assert heard(able) == [("wake", able.id)]


def test_a_job_that_runs_stays_with_a_worker_that_loses_its_tag(house: House) -> None:
    able = worker(house, GPU)
    job = submit(house, b"gpu")
    assert house.engine.take(able) is job
    house.engine.describe_worker(able, frozenset())
    assert house.engine.complete(able, job.id, b"done") is job
    assert job.state is DONE


def test_workers_have_so_many_different_sets_of_tags(house: House) -> None:
    for number in range(MOST_DESCRIPTIONS):
        last = worker(house, frozenset({b"tag-%d" % number}))
    one_more = worker(house)
    with pytest.raises(Refused, match="workers have 256 different sets of tags and resources already"):
        house.engine.describe_worker(one_more, GPU)
    house.engine.describe_worker(one_more, last.tags)
    house.engine.describe_worker(one_more, frozenset())
    house.engine.remove_worker(last)
    house.engine.describe_worker(one_more, GPU)
    assert one_more.tags == GPU


# --- how many groups there are ---


def test_a_submission_with_one_set_too_many_is_refused(house: House) -> None:
    house.engine.requirements.most_groups = 8
    jobs = [submit(house, b"tag-%d" % number) for number in range(8)]
    with pytest.raises(Refused, match="jobs of this function have 8 different requirements already"):
        submit(house, b"gpu")
    submit(house, b"tag-7")
    house.engine.cancel(jobs[0])
    submit(house, b"gpu")


def test_a_retry_with_one_set_too_many_is_refused(house: House) -> None:
    cancelled = submit(house, b"gpu")
    house.engine.cancel(cancelled)
    house.engine.requirements.most_groups = 8
    for number in range(8):
        submit(house, b"tag-%d" % number)
    with pytest.raises(Refused, match="different requirements"):
        house.engine.retry(cancelled)


def test_a_function_forgets_about_tags_when_no_unfinished_job_requires_any(house: House) -> None:
    job = submit(house, b"gpu")
    assert house.function().limiter is not None
    house.engine.cancel(job)
    assert house.function().limiter is None
    check_engine(house.engine)


def test_it_goes_on_with_its_limits(house: House) -> None:
    house.engine.set_policy(house.function(), Policy(concurrency=1))
    job = submit(house, b"gpu")
    house.engine.cancel(job)
    limiter = house.function().limiter
    assert limiter is not None
    assert limiter.policy == Policy(concurrency=1)


# --- with all else that decides about jobs ---


def test_a_job_that_comes_back_goes_to_workers_that_fit(house: House) -> None:
    job = submit(house, b"gpu")
    able = worker(house, GPU)
    assert house.engine.take(able) is job
    house.engine.remove_worker(able)
    check_engine(house.engine)
    assert taken(house, worker(house)) == []
    assert taken(house, worker(house, GPU)) == [job.id]


def test_scheduled_waiting_and_retried_jobs_keep_what_they_require(house: House) -> None:
    first = submit(house)
    waiting = house.engine.submit(
        b"mail", b"", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(requires=b"gpu", predecessors=(first.id,))
    )
    scheduled = submit(house, b"gpu", run_at_us=house.at(5))
    plain = worker(house)
    job = house.engine.take(plain)
    assert job is first
    house.engine.complete(plain, first.id, b"")
    house.pass_seconds(5)
    assert house.engine.take(plain) is None
    gpu = worker(house, GPU)
    assert taken(house, gpu) == [waiting.id, scheduled.id]
    house.engine.fail(gpu, waiting.id)
    house.engine.retry(waiting)
    assert house.engine.take(plain) is None
    assert taken(house, gpu) == [waiting.id]


def test_limits_count_jobs_of_all_groups(house: House) -> None:
    house.engine.set_policy(house.function(), Policy(concurrency=2))
    for requires in (b"gpu", b"", b"gpu"):
        submit(house, requires)
    gpu = worker(house, GPU)
    assert taken(house, gpu) == [1, 2]
    assert house.engine.sleep(gpu)
    plain = worker(house)
    house.engine.sleep(plain)
    house.engine.complete(gpu, 1, b"")
    assert (heard(gpu), heard(plain)) == ([("wake", gpu.id)], [])
    assert taken(house, gpu) == [3]


@pytest.mark.parametrize("fair", [False, True])
def test_limits_of_keys_count_jobs_of_all_groups(house: House, *, fair: bool) -> None:
    house.engine.set_policy(house.function(), Policy(key_concurrency=1, fair=fair))
    one, two, three = submit(house, b"gpu", key=b"a"), submit(house, key=b"a"), submit(house, b"gpu", key=b"b")
    gpu = worker(house, GPU)
    assert taken(house, gpu) == [one.id, three.id]
    house.engine.complete(gpu, one.id, b"")
    check_engine(house.engine)
    assert taken(house, gpu) == [two.id]


def test_keys_are_served_round_robin_over_all_groups(house: House) -> None:
    house.engine.set_policy(house.function(), Policy(fair=True))
    order = [(b"a", b"gpu"), (b"a", b""), (b"a", b"gpu"), (b"b", b""), (b"b", b"gpu"), (b"c", b"")]
    for key, requires in order:
        submit(house, requires, key=key)
    keys = [house.engine.jobs[job_id].key for job_id in taken(house, worker(house, GPU))]
    assert keys[:3] == [b"a", b"b", b"c"]
    assert sorted(keys[3:5]) == [b"a", b"b"]
    assert keys[5] == b"a"


def test_another_policy_keeps_the_groups(house: House) -> None:
    for requires in (b"gpu", b"", b"gpu"):
        submit(house, requires, key=b"k")
    for policy in (Policy(fair=True), Policy(concurrency=5), Policy()):
        house.engine.set_policy(house.function(), policy)
        check_engine(house.engine)
    assert taken(house, worker(house)) == [2]
    assert taken(house, worker(house, GPU)) == [1, 3]


def test_a_unique_key_joins_a_job_whatever_it_requires(house: House) -> None:
    options = SubmitOptions(requires=b"gpu")
    first = house.engine.submit(b"mail", b"key", b"", NORMAL, Delivery.HANDLE, None, options)
    assert house.engine.submit(b"mail", b"key", b"", NORMAL, Delivery.HANDLE, None, None) is first
    assert first.requires == b"gpu"


def test_long_queues_of_each_group_are_divided(house: House) -> None:
    house.engine.packed_queues.pack_from, house.engine.packed_queues.head_jobs = 8, 2
    house.engine.packed_queues.segment_jobs = 3
    jobs = [submit(house, requires) for _ in range(20) for requires in (b"gpu", b"")]
    house.engine.cancel(jobs[20])
    check_engine(house.engine)
    assert taken(house, worker(house, GPU)) == [job.id for job in jobs if job is not jobs[20]]


def test_the_cost_of_a_hand_out_does_not_depend_on_the_jobs_that_nobody_fits(house: House) -> None:
    for _ in range(1000):
        house.engine.submit(b"mail", b"", b"", HIGH, Delivery.HANDLE, None, SubmitOptions(requires=b"tpu"))
    job = submit(house, priority=LOW)
    function: Function = house.function()
    limiter = function.limiter
    assert limiter is not None
    assert [group.ready_of(HIGH) for group in limiter.groups] == [0, 1000]
    assert (function.ready_of(HIGH), function.ready_of(LOW), function.ready) == (1000, 1, 1001)
    assert taken(house, worker(house)) == [job.id]


# --- explanations ---


def test_the_missing_tag_is_named(house: House) -> None:
    job = submit(house, b"gpu,large,tpu")
    worker(house, GPU)
    worker(house, frozenset({b"large"}))
    (reason,) = house.engine.explain(job)
    assert reason.word == "missing_tag"
    assert reason.text == "none of 2 workers that can do 'mail' has the tag 'tpu'"
    assert reason.data == {"requires": ["gpu", "large", "tpu"], "missing": ["tpu"], "short": [], "workers": 2}


def test_tags_that_no_worker_has_together_are_named(house: House) -> None:
    job = submit(house, b"gpu,large")
    worker(house, GPU)
    worker(house, frozenset({b"large"}))
    (reason,) = house.engine.explain(job)
    assert reason.text == "none of 2 workers that can do 'mail' has all of the tags 'gpu', 'large'"


def test_only_workers_that_fit_are_counted(house: House) -> None:
    job = submit(house, b"gpu")
    worker(house)
    worker(house, GPU)
    (reason,) = house.engine.explain(job)
    assert (reason.word, reason.data["workers"]) == ("workers_absent", 1)
