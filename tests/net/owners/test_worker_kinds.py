"""What a node tells owners about its workers, and what an owner makes of it."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import SubmitOptions
from switchgear.model import HIGH, NORMAL, Delivery, Job, Worker
from switchgear.net.owners.messages import Room
from switchgear.net.owners.node_workers import NodeWorkers
from switchgear.net.owners.worker_kinds import PLAIN, kind_of, kinds_of
from switchgear.resources import resource_amounts
from switchgear.testing import RecordingPeer
from switchgear.testing.invariants import check_engine
from tests.engine.harness import Harness

GB = 1_000_000_000_000  # thousandths of bytes


@pytest.fixture
def harness() -> Harness:
    return Harness()


def worker(harness: Harness, tags: str = "", resources: str = "", priorities: tuple[int, ...] = ()) -> Worker:
    made = harness.engine.add_worker(RecordingPeer(), "test")
    harness.engine.can_do(made, harness.function(b"mail"), 0, priorities)
    harness.engine.describe_worker(made, frozenset(tags.encode().split()), resource_amounts(resources))
    return made


def submit(harness: Harness, requires: bytes = b"", priority: int = NORMAL) -> Job:
    return harness.engine.submit(b"mail", b"", b"", priority, Delivery.HANDLE, None, SubmitOptions(requires=requires))


def test_workers_with_the_same_tags_and_priorities_are_of_one_kind(harness: Harness) -> None:
    function = harness.function(b"mail")
    for _ in range(3):
        harness.engine.grant(worker(harness, "gpu large"), 2)
    harness.engine.grant(worker(harness), 1)
    worker(harness, "gpu", priorities=(HIGH,))
    large = worker(harness, "gpu", "memory=64G")
    kinds = kinds_of(function)
    figures = sorted((kind.count, kind.idle) for kind in kinds.values())
    assert figures == [(1, 1), (1, 1), (1, 1), (3, 6)]
    assert kinds[PLAIN].count == 1
    assert kind_of(large, function) == b"%d" % large.id
    limited = next(kind for kind in kinds.values() if kind.worker.priorities)
    assert limited.offered(function, ()).priorities == [HIGH]


def test_what_is_used_elsewhere_is_all_but_the_jobs_of_the_owner(harness: Harness) -> None:
    function = harness.function(b"mail")
    large = worker(harness, "gpu", "memory=64G")
    own = submit(harness, b"memory=10G")
    given = submit(harness, b"memory=20G")
    assert harness.engine.take(large) is own
    assert harness.engine.take(large) is given
    kind = kinds_of(function)[b"%d" % large.id]
    offered = kind.offered(function, [given])
    assert (offered.tags, offered.resources) == ([b"gpu"], [(b"memory", 64 * GB)])
    assert offered.elsewhere == [(b"memory", 10 * GB)]
    other = submit(harness, b"memory=40G")  # it was given to this worker, and runs on another one
    assert kind.offered(function, [given, other]).elsewhere == [(b"memory", -30 * GB)]


class Owner:
    """An owner to which a node tells about its workers."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.peer = RecordingPeer()
        self.workers = NodeWorkers(self.harness.engine, self.peer, b"bob", lambda name: True)
        self.lent: list[int] = []

    def told(self, node: Harness, room: int, seen: int = 0) -> None:
        for name, kind in kinds_of(node.function(b"mail")).items():
            self.workers.told(Room(b"mail", room, seen, name, kind.offered(node.function(b"mail"), ())))
        check_engine(self.harness.engine)

    def given(self) -> list[tuple[bytes, int]]:
        """The kinds of the workers that were given jobs, with the jobs."""
        found = [
            (self.workers.lend(worker, job.id, b"mail"), job.id)
            for worker in self.harness.engine.workers.values()
            for job in worker.running.values()
            if self.workers.borrower(job.id) is None
        ]
        return sorted(found)


def test_an_owner_gives_what_fits_and_no_more_than_there_is_room(harness: Harness) -> None:
    owner = Owner()
    tagged, plain, limited = worker(harness, "gpu"), worker(harness), worker(harness, priorities=(HIGH,))
    function = harness.function(b"mail")
    owner.told(harness, 1)
    jobs = [submit(owner.harness, b"gpu").id for _ in range(3)]
    assert owner.given() == [(kind_of(tagged, function), jobs[0])]
    low = submit(owner.harness).id
    assert owner.given() == [(kind_of(plain, function), low)]
    urgent = submit(owner.harness, priority=HIGH).id
    assert owner.given() == [(kind_of(limited, function), urgent)]
    owner.told(harness, 1)  # which the node has sent before it has seen them
    assert owner.given() == []
    owner.told(harness, 1, seen=1)
    assert owner.given() == [(kind_of(tagged, function), jobs[1])]


def test_a_kind_that_is_no_more_is_forgotten_when_its_jobs_have_ended(harness: Harness) -> None:
    owner = Owner()
    large = worker(harness, "", "memory=64G")
    name = kind_of(large, harness.function(b"mail"))
    owner.told(harness, 1)
    job = submit(owner.harness, b"memory=1G")
    assert owner.given() == [(name, job.id)]
    owner.workers.told(Room(b"mail", -1, 0, name))
    reporter = owner.workers.reporter(job.id)
    assert reporter is not None
    owner.harness.engine.complete(reporter, job.id, b"")
    owner.workers.tidy(reporter, job.id)
    assert not owner.harness.engine.workers
    check_engine(owner.harness.engine)


def test_a_node_that_is_gone_takes_its_workers_with_it(harness: Harness) -> None:
    owner = Owner()
    for tags in ("", "gpu", "large"):
        worker(harness, tags)
    owner.told(harness, 1)
    job = submit(owner.harness, b"large")
    assert len(owner.given()) == 1
    owner.workers.remove()
    assert not owner.harness.engine.workers
    assert job.worker is None
    check_engine(owner.harness.engine)


def test_an_explanation_counts_the_workers_of_the_node(harness: Harness) -> None:
    owner = Owner()
    for _ in range(4):
        worker(harness, "gpu")
    owner.told(harness, 1)
    job = submit(owner.harness, b"large")
    (reason,) = owner.harness.engine.explain(job, str)
    assert reason.data["workers"] == 4
