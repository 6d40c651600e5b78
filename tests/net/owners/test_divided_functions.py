"""`DividedFunctions` with a real engine, in which some of the shards are another node's."""

from __future__ import annotations

from collections import Counter

import pytest

from switchgear.engine.engine import Engine
from switchgear.engine.function_placement import FunctionPlacement, is_foreign
from switchgear.engine.submit_options import SubmitOptions
from switchgear.errors import Refused
from switchgear.model import Delivery, Function, Job, Peer, Schedule, Worker
from switchgear.net.owners.divided_functions import DividedFunctions, refuse_in_use
from switchgear.partitions import ShardCount, Shards, shard_number
from switchgear.policy import Policy
from switchgear.testing import RecordingPeer
from switchgear.timetable import Every

NORMAL = 1


class SomeShards(FunctionPlacement):
    """This engine has every function except those that are named, and divided ones."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.others: set[bytes] = set()
        self.divided = DividedFunctions(engine, self.is_ours)
        self.passed_on_to: list[bytes] = []

    def is_ours(self, name: bytes) -> bool:
        return name not in self.others and self.divided.shards.has_queue(name)

    def told_name(self, name: bytes) -> bytes:
        return self.divided.shards.base_of(name)

    def shards_here(self, function: Function) -> list[Function]:
        return list(self.divided.own_shards(function.name))

    def worker_registered(
        self, worker: Worker, function: Function, timeout_us: int, priorities: tuple[int, ...]
    ) -> None:
        self.divided.register(worker, function, timeout_us, priorities)

    def worker_deregistered(self, worker: Worker, function: Function) -> None:
        self.divided.deregister(worker, function)

    def submit(
        self,
        function: Function,
        unique: bytes,
        payload: bytes,
        priority: int,
        delivery: int,
        subscriber: Peer | None,
        options: SubmitOptions | None,
    ) -> Job:
        name = self.divided.queue_for(function.name, unique)
        if self.is_ours(name):
            return self.engine.submit(name, unique, payload, priority, delivery, subscriber, options)
        self.passed_on_to.append(name)
        raise Refused("elsewhere", "of another node")

    def watch(self, job: Job) -> None: ...


@pytest.fixture
def placement() -> SomeShards:
    engine = Engine()
    engine.advance(1)
    placement = SomeShards(engine)
    engine.placement = placement
    placement.others = {b"hot#3"}
    placement.divided.follow(Shards({b"hot": ShardCount(3, 3)}))
    return placement


def submit(engine: Engine, unique: bytes = b"") -> Job:
    return engine.submit(b"hot", unique, b"x", NORMAL, Delivery.HANDLE)


def test_jobs_without_a_key_stay_at_this_node(placement: SomeShards) -> None:
    names = Counter(submit(placement.engine).function.name for _ in range(10))
    assert names == {b"hot#1": 5, b"hot#2": 5}
    assert {function.told_name for function in placement.engine.functions.values()} == {b"hot"}


def test_a_key_decides_and_is_joined_in_its_shard(placement: SomeShards) -> None:
    keys = [b"k%d" % number for number in range(60)]
    for key in keys:
        name = b"hot#%d" % shard_number(key, 3)
        if name == b"hot#3":
            with pytest.raises(Refused):
                submit(placement.engine, key)
        else:
            job = submit(placement.engine, key)
            assert job.function.name == name
            assert submit(placement.engine, key) is job
    assert set(placement.passed_on_to) == {b"hot#3"}
    assert len(placement.passed_on_to) == sum(shard_number(key, 3) == 3 for key in keys)


def test_a_worker_of_the_function_has_the_jobs_of_the_shards_that_are_here(placement: SomeShards) -> None:
    engine = placement.engine
    jobs = {submit(engine).id for _ in range(6)}
    worker = engine.add_worker(RecordingPeer(), "gearman")
    hot = engine.function_named(b"hot")
    assert is_foreign(hot)
    engine.can_do(worker, hot, 7)
    assert [function.name for function in worker.order] == [b"hot", b"hot#1", b"hot#2"]
    assert set(worker.timeouts_us.values()) == {7}
    taken = [engine.take(worker) for _ in range(3)] + [engine.take_of(worker, hot, NORMAL) for _ in range(3)]
    assert {job.id for job in taken if job is not None} == jobs
    assert engine.take(worker) is None
    engine.cannot_do(worker, hot)
    assert worker.order == []


def test_workers_follow_when_shards_come(placement: SomeShards) -> None:
    engine = placement.engine
    worker = engine.add_worker(RecordingPeer(), "gearman")
    engine.can_do(worker, engine.function_named(b"hot"), 0, (NORMAL,))
    placement.others.clear()
    placement.divided.serve(placement.is_ours)
    shard = engine.functions[b"hot#3"]
    assert worker in shard.workers
    assert worker.priorities is not None
    assert worker.priorities[shard] == (NORMAL,)
    assert placement.divided.serves_base(worker, b"hot#3")
    assert not placement.divided.serves_base(worker, b"hot")


def test_a_divided_function_is_one_of_another_node_until_it_is_united(placement: SomeShards) -> None:
    engine = placement.engine
    other = engine.function_named(b"other")
    placement.divided.follow(Shards({b"hot": ShardCount(3, 3), b"other": ShardCount(2, 2)}))
    assert is_foreign(other)
    placement.divided.follow(Shards({b"hot": ShardCount(3, 3), b"other": ShardCount(1, 2)}))
    assert placement.is_ours(b"other")
    assert not placement.is_ours(b"other#1")
    assert placement.divided.queue_for(b"other#2", b"") == b"other"


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("job", "has 1 unfinished job"),
        ("key", "unique keys of f are held"),
        ("paused", "f is paused"),
        ("policy", "f has limits"),
        ("limits", "f has limits"),
        ("schedule", "f has schedules"),
        ("dwork", "f is the function of a dwork listener"),
    ],
)
def test_what_prevents_dividing(what: str, reason: str) -> None:
    engine = Engine()
    engine.advance(1)
    function = engine.function_named(b"f")
    schedules: list[Schedule] = []
    bound: list[bytes] = []
    refuse_in_use(function, 0, schedules, bound)
    if what == "job":
        engine.submit(b"f", b"", b"", NORMAL, Delivery.HANDLE)
    elif what == "key":
        engine.submit(b"f", b"u", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(unique_for_us=1_000_000))
        worker = engine.add_worker(RecordingPeer(), "gearman")
        engine.can_do(worker, function)
        job = engine.take(worker)
        assert job is not None
        engine.complete(worker, job.id, b"")
    elif what == "paused":
        engine.pause(function)
    elif what == "policy":
        engine.set_policy(function, Policy(concurrency=2))
    elif what == "limits":
        engine.set_limits(function, 1, 2, 3)
    elif what == "schedule":
        schedules.append(Schedule(b"s", Every(5_000_000), b"f"))
    else:
        bound.append(b"f")
    with pytest.raises(Refused, match=reason):
        refuse_in_use(function, 0, schedules, bound)
