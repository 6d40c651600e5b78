"""Who gets a job is decided by what workers say of themselves: by what jobs require, and by the operator's policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from switchgear.engine.engine import SubmitOptions
from switchgear.model import NORMAL, Delivery, Job, Worker
from switchgear.protocols.wmp.codec import GIVE, NO, READY, TAKE, WAKE
from tests.protocols.wmp.harness import WmpHarness, WmpWorker


def most_memory(job: Job, workers: Sequence[Worker]) -> Iterable[Worker]:
    return [max(workers, key=lambda worker: worker.headers.get("memory_gb", 0))]


def enough_memory(job: Job, workers: Sequence[Worker]) -> Iterable[Worker]:
    """The payload says how much the job needs."""
    needed = int(job.payload or b"0")
    return [worker for worker in workers if worker.headers.get("memory_gb", 0) >= needed]


def specialists(job: Job, workers: Sequence[Worker]) -> Iterable[Worker]:
    """Whoever can do little else."""
    return sorted(workers, key=lambda worker: len(worker.headers["roles"]))[:1]


def raises(job: Job, workers: Sequence[Worker]) -> Iterable[Worker]:
    raise KeyError("memory_gb")


def three(harness: WmpHarness) -> list[WmpWorker]:
    workers = [harness.worker(name) for name in ("small", "large", "d1/medium")]
    for worker, memory_gb in zip(workers, (1, 64, 8), strict=True):
        worker.say(READY, roles=["echo"], memory_gb=memory_gb)
    return workers


def heard_by(workers: list[WmpWorker]) -> list[bytes | None]:
    return [worker.hear_command() for worker in workers]


def test_a_policy_knows_what_workers_say_of_themselves_but_not_the_way_to_them() -> None:
    harness = WmpHarness()
    harness.worker("d2/d1/w1").say(READY, roles=["echo", b"shout"], lease=30, slots=2, site={"rack": 7})
    (worker,) = harness.engine.workers.values()
    assert worker.headers == {"roles": ["echo", b"shout"], "lease": 30, "slots": 2, "site": {"rack": 7}}
    assert worker.name == b"w1"


def test_the_one_with_the_most_memory_is_woken() -> None:
    harness = WmpHarness()
    harness.engine.wake_policy = most_memory
    workers = three(harness)
    harness.submit("echo")
    assert heard_by(workers) == [None, WAKE, None]
    harness.submit("echo")
    assert heard_by(workers) == [None, None, WAKE]


def test_all_that_suit_are_woken() -> None:
    harness = WmpHarness()
    harness.engine.wake_policy = enough_memory
    workers = three(harness)
    harness.submit("echo", b"8")
    assert heard_by(workers) == [None, WAKE, WAKE]


def test_those_with_the_fewest_roles_are_woken() -> None:
    harness = WmpHarness()
    harness.engine.wake_policy = specialists
    workers = [harness.worker("able"), harness.worker("special")]
    workers[0].say(READY, roles=["shout", "echo", "sing"])
    workers[1].say(READY, roles=["echo"])
    harness.submit("echo")
    assert heard_by(workers) == [None, WAKE]


def test_a_policy_that_picks_nobody_is_asked_again_until_somebody_suits() -> None:
    harness = WmpHarness()
    harness.engine.wake_policy = enough_memory
    workers = three(harness)
    job = harness.submit("echo", b"100")
    harness.pass_time(5)
    assert heard_by(workers) == [None, None, None]
    giant = harness.worker("giant")
    giant.say(READY, roles=["echo"], memory_gb=128)
    assert giant.hear_command() == WAKE
    giant.say(GIVE)
    assert giant.hear_command() == TAKE
    assert job.worker is not None


def test_a_policy_may_change_its_mind_as_time_goes_by() -> None:
    harness = WmpHarness()
    patient = True
    harness.engine.wake_policy = lambda job, workers: [] if patient else workers
    workers = three(harness)
    harness.submit("echo")
    harness.pass_time(3)
    assert heard_by(workers) == [None, None, None]
    patient = False
    harness.pass_time(1)
    assert heard_by(workers) == [WAKE, WAKE, WAKE]


def test_a_remembered_worker_that_says_something_new_is_looked_at_again() -> None:
    harness = WmpHarness()
    harness.engine.wake_policy = enough_memory
    worker = harness.worker("w1")
    worker.say(READY, roles=["echo"], memory_gb=4)
    harness.submit("echo", b"8")
    assert worker.hear() is None
    worker.say(READY, roles=["echo"], memory_gb=16)
    assert worker.hear_command() == WAKE
    assert worker.hear() is None


def test_a_policy_that_fails_is_counted_and_the_usual_choice_made() -> None:
    harness = WmpHarness()
    harness.engine.wake_policy = raises
    workers = three(harness)
    harness.submit("echo")
    assert heard_by(workers) == [WAKE, None, None]
    assert harness.telemetry.counts["wake_policy_failed"] == 1


def test_a_worker_that_asks_without_being_woken_is_judged_by_itself() -> None:
    harness = WmpHarness()
    harness.engine.wake_policy = enough_memory
    small, large, _ = three(harness)
    harness.submit("echo", b"64")
    assert large.hear_command() == WAKE
    small.say(GIVE)
    assert small.hear_command() == NO
    large.say(GIVE)
    assert large.hear_command() == TAKE


def test_a_job_that_nobody_has_memory_for_does_not_block_those_behind_it() -> None:
    harness = WmpHarness()
    harness.engine.wake_policy = enough_memory
    small, large, medium = three(harness)
    waits = harness.submit("echo", b"128")
    fits = harness.submit("echo", b"1")
    assert heard_by([small, large, medium]) == [WAKE, WAKE, WAKE]
    small.say(GIVE)
    assert small.hear_command() == TAKE
    assert fits.worker is not None
    assert waits.worker is None
    large.say(GIVE)
    assert large.hear_command() == NO


def test_what_a_worker_was_woken_for_is_what_it_is_given() -> None:
    harness = WmpHarness()
    harness.engine.wake_policy = enough_memory
    small, large, _ = three(harness)
    four, one = harness.submit("echo", b"64"), harness.submit("echo", b"1")
    assert heard_by([small, large]) == [WAKE, WAKE]
    small.say(GIVE)
    assert small.hear_command() == TAKE
    assert one.worker is not None
    large.say(GIVE)
    assert large.hear_command() == TAKE
    assert four.worker is not None


# --- without a policy: what jobs require, and what READY says ---


def require(harness: WmpHarness, requires: bytes) -> Job:
    options = SubmitOptions(requires=requires)
    job = harness.engine.submit(b"echo", b"", b"", NORMAL, Delivery.HANDLE, None, options)
    harness.turn()
    return job


def test_only_a_worker_with_the_resources_is_woken_and_given_the_job() -> None:
    harness = WmpHarness()
    small, large = harness.worker("small"), harness.worker("d1/large")
    small.say(READY, roles=["echo"], resources={"memory": "4G"})
    large.say(READY, roles=["echo"], resources="memory=64G", tags=["gpu"])
    require(harness, b"gpu,memory=64G")
    assert heard_by([small, large]) == [None, WAKE]
    fits = require(harness, b"memory=1G")
    assert heard_by([small]) == [WAKE]
    small.say(GIVE)
    assert small.hear_command() == TAKE
    assert fits.worker is not None


def test_a_worker_that_does_several_jobs_is_not_woken_for_more_than_it_has_room_for() -> None:
    harness = WmpHarness()
    worker = harness.worker("w1")
    worker.say(READY, roles=["echo"], slots=4, resources={"memory": 64_000_000_000})
    first, second = require(harness, b"memory=48G"), require(harness, b"memory=48G")
    assert worker.hear_command() == WAKE
    worker.say(GIVE)
    assert worker.hear_command() == TAKE
    worker.say(READY, roles=["echo"], slots=4, resources={"memory": 64_000_000_000})
    worker.say(GIVE)
    assert worker.hear_command() == NO
    assert (first.worker is not None, second.worker) == (True, None)


def test_a_remembered_worker_that_says_that_it_has_more_is_woken() -> None:
    harness = WmpHarness()
    worker = harness.worker("w1")
    worker.say(READY, roles=["echo"], resources={"memory": "4G"})
    require(harness, b"memory=8G")
    assert worker.hear() is None
    worker.say(READY, roles=["echo"], resources={"memory": "8G"})
    assert worker.hear_command() == WAKE


@pytest.mark.parametrize(
    "resources", [7, ["memory"], {"memory": -1}, {"memory": []}, "gpu", {"a b": 1}, {"memory": True}]
)
def test_resources_that_make_no_sense_are_bad_headers(resources: Any) -> None:
    harness = WmpHarness()
    harness.worker("w1").say(READY, roles=["echo"], resources=resources)
    assert harness.take_bad_input() == ["BAD_HEADER"]
    assert not harness.engine.workers
