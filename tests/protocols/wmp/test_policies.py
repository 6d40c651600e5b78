"""Whom a manager wakes is the operator's choice, made by what workers say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from switchgear.model import Job, Worker
from switchgear.protocols.wmp.codec import GIVE, READY, TAKE, WAKE
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


def test_a_policy_decides_who_is_woken_not_who_may_ask() -> None:
    house = WmpHouse()
    house.engine.wake_policy = most_memory
    small, large, _ = three(house)
    house.submit("echo")
    assert large.hear_command() == WAKE
    small.say(GIVE)
    assert small.hear_command() == TAKE
