"""WORKER_RESOURCES: a worker says how much it has, and gets jobs that require as much of what is free."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from switchgear.protocols.gearman.messages import Packet
from switchgear.testing import check_engine
from tests.protocols.gearman.harness import Harness, Talker
from tests.support.wire import Kind, request
from tests.support.wire import Packet as Heard

NO_JOB = Heard(Kind.NO_JOB, b"")


def submit(harness: Harness, requires: object) -> None:
    options = json.dumps({"requires": requires}).encode()
    harness.talker("client").send(request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", options, b"x"))


def worker_with(harness: Harness, resources: bytes) -> Talker:
    worker = harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"), request(Packet.WORKER_RESOURCES, resources))
    return worker


def grabbed(worker: Talker) -> Sequence[object]:
    worker.send(request(Kind.GRAB_JOB))
    return worker.heard()


def assigned(job_id: int) -> list[Heard]:
    return [Heard(Kind.JOB_ASSIGN, b"H:t:%d\0f\0x" % job_id)]


@pytest.mark.parametrize("requires", ["memory=4G", ["memory=4000M"], "cores=0.5, memory=4G", "memory=0"])
def test_a_worker_with_enough_gets_the_job(requires: object) -> None:
    harness = Harness()
    submit(harness, "memory=64G")
    submit(harness, requires)
    worker = worker_with(harness, b"memory=4G,cores=1")
    assert grabbed(worker) == assigned(2)
    assert grabbed(worker) == [NO_JOB]
    check_engine(harness.engine)


def test_a_worker_with_credit_is_pushed_what_there_is_room_for() -> None:
    harness = Harness()
    worker = worker_with(harness, b"memory=64G")
    worker.send(request(Packet.CREDIT, b"5", b"0"))
    for _ in range(2):
        submit(harness, "memory=48G")
    assert len(worker.heard()) == 1
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b""))
    assert len(worker.heard()) == 1
    check_engine(harness.engine)


def test_a_sleeping_worker_is_woken_when_it_says_that_it_has_more() -> None:
    harness = Harness()
    worker = worker_with(harness, b"memory=1G")
    worker.send(request(Kind.PRE_SLEEP))
    submit(harness, "memory=4G")
    assert worker.heard() == []
    worker.send(request(Packet.WORKER_RESOURCES, b"memory=4G"))
    assert worker.heard() == [Heard(Kind.NOOP, b"")]


@pytest.mark.parametrize(
    "resources", [b"gpu", b"memory=x", b"memory=-1", b"memory=1,memory=2", b"\xff=1", b"m=" + b"9" * 99]
)
def test_what_is_no_resource_is_refused(resources: bytes) -> None:
    worker = worker_with(Harness(), resources)
    (error,) = worker.heard()
    assert isinstance(error, Heard)
    assert error.body.startswith(b"INVALID_ARGUMENT\0WORKER_RESOURCES: ")


@pytest.mark.parametrize("requires", ["memory=lots", "memory=-1", ["memory=1", "memory=2"], "memory=9999999999P"])
def test_what_is_no_amount_cannot_be_required(requires: object) -> None:
    harness = Harness()
    submit(harness, requires)
    (error,) = harness.talker("client").heard()
    assert isinstance(error, Heard)
    assert error.body.startswith(b"INVALID_ARGUMENT\0options: requires is a list of tags and amounts: ")
