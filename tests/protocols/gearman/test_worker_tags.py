"""WORKER_TAGS: a worker says what it has, and gets jobs that require it."""

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


def grabbed(worker: Talker) -> Sequence[object]:
    worker.send(request(Kind.GRAB_JOB))
    return worker.heard()


def assigned(job_id: int) -> list[Heard]:
    return [Heard(Kind.JOB_ASSIGN, b"H:t:%d\0f\0x" % job_id)]


@pytest.mark.parametrize("requires", ["gpu", ["gpu"], "large,gpu", ["large", "gpu", "gpu"]])
def test_a_worker_with_the_tags_gets_the_job(requires: object) -> None:
    harness = Harness()
    submit(harness, requires)
    plain, tagged = harness.talker("plain"), harness.talker("tagged")
    for worker in (plain, tagged):
        worker.send(request(Kind.CAN_DO, b"f"))
    tagged.send(request(Packet.WORKER_TAGS, b"gpu,large"))
    assert grabbed(plain) == [NO_JOB]
    assert grabbed(tagged) == assigned(1)
    check_engine(harness.engine)


def test_jobs_with_the_same_requirement_share_what_was_read_of_it() -> None:
    harness = Harness()
    for _ in range(3):
        submit(harness, "gpu")
    first, *others = harness.engine.jobs.values()
    assert first.requires == b"gpu"
    assert all(job.details is first.details for job in others)
    check_engine(harness.engine)


def test_tags_may_be_said_before_the_functions_and_survive_a_reset_of_abilities() -> None:
    harness = Harness()
    submit(harness, "gpu")
    worker = harness.talker("worker")
    worker.send(request(Packet.WORKER_TAGS, b"gpu"), request(Kind.CAN_DO, b"g"), request(Kind.RESET_ABILITIES))
    worker.send(request(Kind.CAN_DO, b"f"))
    assert grabbed(worker) == assigned(1)


def test_tags_can_be_taken_back() -> None:
    harness = Harness()
    submit(harness, "gpu")
    worker = harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"), request(Packet.WORKER_TAGS, b"gpu"), request(Packet.WORKER_TAGS, b""))
    assert grabbed(worker) == [NO_JOB]


def test_a_sleeping_worker_is_woken_only_for_what_it_fits() -> None:
    harness = Harness()
    worker = harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"), request(Kind.PRE_SLEEP))
    submit(harness, "gpu")
    assert worker.heard() == []
    worker.send(request(Packet.WORKER_TAGS, b"gpu"))
    assert worker.heard() == [Heard(Kind.NOOP, b"")]


def test_a_job_is_pushed_to_a_worker_that_fits() -> None:
    harness = Harness()
    plain, tagged = harness.talker("plain"), harness.talker("tagged")
    for worker in (plain, tagged):
        worker.send(request(Kind.CAN_DO, b"f"), request(Packet.CREDIT, b"1", b"0"))
    tagged.send(request(Packet.WORKER_TAGS, b"gpu"))
    submit(harness, "gpu")
    assert plain.heard() == []
    (pushed,) = tagged.heard()
    assert isinstance(pushed, Heard)
    assert pushed.type == Packet.JOB_PUSH


@pytest.mark.parametrize("tags", [b"a b", b"x" * 65, b"\xff", b",".join(b"%d" % number for number in range(17))])
def test_what_is_no_tag_is_refused(tags: bytes) -> None:
    harness = Harness()
    worker = harness.talker("worker")
    worker.send(request(Packet.WORKER_TAGS, tags))
    (error,) = worker.heard()
    assert isinstance(error, Heard)
    assert error.body.startswith(b"INVALID_ARGUMENT\0WORKER_TAGS: ")


@pytest.mark.parametrize("requires", ["a b", ["a,b"], [""], ["x" * 65]])
def test_what_is_no_tag_cannot_be_required(requires: object) -> None:
    harness = Harness()
    submit(harness, requires)
    (error,) = harness.talker("client").heard()
    assert isinstance(error, Heard)
    assert error.body.startswith(
        b"INVALID_ARGUMENT\0options: requires is a list of tags and amounts: a tag has 1 to 64 bytes"
    )


def test_tags_that_are_no_text_are_refused_in_plain_words() -> None:
    worker = Harness().talker("worker")
    worker.send(request(Packet.WORKER_TAGS, b"\xff"))
    (error,) = worker.heard()
    assert isinstance(error, Heard)
    assert error.body == b"INVALID_ARGUMENT\0WORKER_TAGS: tags are UTF-8"
