"""Who gets a job is decided by what workers say of themselves: by what jobs require, and by the operator's policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from switchgear.engine.engine import SubmitOptions
from switchgear.model import NORMAL, Delivery, Job, Worker
from switchgear.protocols.wmp.codec import GIVE, NO, READY, TAKE, WAKE
from tests.protocols.wmp.house import WmpHouse, WmpWorker


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


def three(house: WmpHouse) -> list[WmpWorker]:
    workers = [house.worker(name) for name in ("small", "large", "d1/medium")]
    for worker, memory_gb in zip(workers, (1, 64, 8), strict=True):
        worker.say(READY, roles=["echo"], memory_gb=memory_gb)
    return workers


def heard_by(workers: list[WmpWorker]) -> list[bytes | None]:
    return [worker.hear_command() for worker in workers]


def test_a_policy_knows_what_workers_say_of_themselves_but_not_the_way_to_them() -> None:
    house = WmpHouse()
    house.worker("d2/d1/w1").say(READY, roles=["echo", b"shout"], lease=30, slots=2, site={"rack": 7})
    (worker,) = house.engine.workers.values()
    assert worker.headers == {"roles": ["echo", b"shout"], "lease": 30, "slots": 2, "site": {"rack": 7}}
    assert worker.name == b"w1"


def test_the_one_with_the_most_memory_is_woken() -> None:
    house = WmpHouse()
    house.engine.wake_policy = most_memory
    workers = three(house)
    house.submit("echo")
    assert heard_by(workers) == [None, WAKE, None]
    house.submit("echo")
    assert heard_by(workers) == [None, None, WAKE]


def test_all_that_suit_are_woken() -> None:
    house = WmpHouse()
    house.engine.wake_policy = enough_memory
    workers = three(house)
    house.submit("echo", b"8")
    assert heard_by(workers) == [None, WAKE, WAKE]


def test_those_with_the_fewest_roles_are_woken() -> None:
    house = WmpHouse()
    house.engine.wake_policy = specialists
    workers = [house.worker("able"), house.worker("special")]
    workers[0].say(READY, roles=["shout", "echo", "sing"])
    workers[1].say(READY, roles=["echo"])
    house.submit("echo")
    assert heard_by(workers) == [None, WAKE]


def test_a_policy_that_picks_nobody_is_asked_again_until_somebody_suits() -> None:
    house = WmpHouse()
    house.engine.wake_policy = enough_memory
    workers = three(house)
    job = house.submit("echo", b"100")
    house.pass_time(5)
    assert heard_by(workers) == [None, None, None]
    giant = house.worker("giant")
    giant.say(READY, roles=["echo"], memory_gb=128)
    assert giant.hear_command() == WAKE
    giant.say(GIVE)
    assert giant.hear_command() == TAKE
    assert job.worker is not None


def test_a_policy_may_change_its_mind_as_time_goes_by() -> None:
    house = WmpHouse()
    patient = True
    house.engine.wake_policy = lambda job, workers: [] if patient else workers
    workers = three(house)
    house.submit("echo")
    house.pass_time(3)
    assert heard_by(workers) == [None, None, None]
    patient = False
    house.pass_time(1)
    assert heard_by(workers) == [WAKE, WAKE, WAKE]


def test_a_remembered_worker_that_says_something_new_is_looked_at_again() -> None:
    house = WmpHouse()
    house.engine.wake_policy = enough_memory
    worker = house.worker("w1")
    worker.say(READY, roles=["echo"], memory_gb=4)
    house.submit("echo", b"8")
    assert worker.hear() is None
    worker.say(READY, roles=["echo"], memory_gb=16)
    assert worker.hear_command() == WAKE
    assert worker.hear() is None


def test_a_policy_that_fails_is_counted_and_the_usual_choice_made() -> None:
    house = WmpHouse()
    house.engine.wake_policy = raises
    workers = three(house)
    house.submit("echo")
    assert heard_by(workers) == [WAKE, None, None]
    assert house.telemetry.counts["wake_policy_failed"] == 1


def test_a_worker_that_asks_without_being_woken_is_judged_by_itself() -> None:
    house = WmpHouse()
    house.engine.wake_policy = enough_memory
    small, large, _ = three(house)
    house.submit("echo", b"64")
    assert large.hear_command() == WAKE
    small.say(GIVE)
    assert small.hear_command() == NO
    large.say(GIVE)
    assert large.hear_command() == TAKE


def test_a_job_that_nobody_has_memory_for_does_not_block_those_behind_it() -> None:
    house = WmpHouse()
    house.engine.wake_policy = enough_memory
    small, large, medium = three(house)
    waits = house.submit("echo", b"128")
    fits = house.submit("echo", b"1")
    assert heard_by([small, large, medium]) == [WAKE, WAKE, WAKE]
    small.say(GIVE)
    assert small.hear_command() == TAKE
    assert fits.worker is not None
    assert waits.worker is None
    large.say(GIVE)
    assert large.hear_command() == NO


def test_what_a_worker_was_woken_for_is_what_it_is_given() -> None:
    house = WmpHouse()
    house.engine.wake_policy = enough_memory
    small, large, _ = three(house)
    four, one = house.submit("echo", b"64"), house.submit("echo", b"1")
    assert heard_by([small, large]) == [WAKE, WAKE]
    small.say(GIVE)
    assert small.hear_command() == TAKE
    assert one.worker is not None
    large.say(GIVE)
    assert large.hear_command() == TAKE
    assert four.worker is not None


# --- without a policy: what jobs require, and what READY says ---


def require(house: WmpHouse, requires: bytes) -> Job:
    options = SubmitOptions(requires=requires)
    job = house.engine.submit(b"echo", b"", b"", NORMAL, Delivery.HANDLE, None, options)
    house.turn()
    return job


def test_only_a_worker_with_the_resources_is_woken_and_given_the_job() -> None:
    house = WmpHouse()
    small, large = house.worker("small"), house.worker("d1/large")
    small.say(READY, roles=["echo"], resources={"memory": "4G"})
    large.say(READY, roles=["echo"], resources="memory=64G", tags=["gpu"])
    require(house, b"gpu,memory=64G")
    assert heard_by([small, large]) == [None, WAKE]
    fits = require(house, b"memory=1G")
    assert heard_by([small]) == [WAKE]
    small.say(GIVE)
    assert small.hear_command() == TAKE
    assert fits.worker is not None


def test_a_worker_that_does_several_jobs_is_not_woken_for_more_than_it_has_room_for() -> None:
    house = WmpHouse()
    worker = house.worker("w1")
    worker.say(READY, roles=["echo"], slots=4, resources={"memory": 64_000_000_000})
    first, second = require(house, b"memory=48G"), require(house, b"memory=48G")
    assert worker.hear_command() == WAKE
    worker.say(GIVE)
    assert worker.hear_command() == TAKE
    worker.say(READY, roles=["echo"], slots=4, resources={"memory": 64_000_000_000})
    worker.say(GIVE)
    assert worker.hear_command() == NO
    assert (first.worker is not None, second.worker) == (True, None)


def test_a_remembered_worker_that_says_that_it_has_more_is_woken() -> None:
    house = WmpHouse()
    worker = house.worker("w1")
    worker.say(READY, roles=["echo"], resources={"memory": "4G"})
    require(house, b"memory=8G")
    assert worker.hear() is None
    worker.say(READY, roles=["echo"], resources={"memory": "8G"})
    assert worker.hear_command() == WAKE


@pytest.mark.parametrize(
    "resources", [7, ["memory"], {"memory": -1}, {"memory": []}, "gpu", {"a b": 1}, {"memory": True}]
)
def test_resources_that_make_no_sense_are_bad_headers(resources: Any) -> None:
    house = WmpHouse()
    house.worker("w1").say(READY, roles=["echo"], resources=resources)
    assert house.take_bad_input() == ["BAD_HEADER"]
    assert not house.engine.workers
