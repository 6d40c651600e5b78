"""RESUME_JOB: a worker that lost its connection comes back, and goes on with its jobs."""

from __future__ import annotations

import pytest

from switchgear.model import RUNNING
from switchgear.protocols.gearman.messages import Packet
from switchgear.testing import check_engine
from tests.protocols.gearman.harness import Harness, Talker
from tests.support.wire import Kind, request
from tests.support.wire import Packet as Heard

HANDLE = b"H:t:1"


def submit(harness: Harness) -> None:
    options = b'{"crash_limit":3}'
    harness.talker("client").send(request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", options, b"x"))


def worker(harness: Harness) -> Talker:
    worker = harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"))
    return worker


def resume(worker: Talker, handle: bytes = HANDLE, attempt: bytes = b"1") -> list[object]:
    worker.send(request(Packet.RESUME_JOB, handle, attempt))
    return list(worker.heard())


def answer(word: bytes, handle: bytes = HANDLE) -> list[object]:
    return [Heard(Packet.RESUME_RES, handle + b"\0" + word)]


def interrupted(harness: Harness) -> None:
    """A job that a worker has begun, and lost."""
    submit(harness)
    first = worker(harness)
    first.send(request(Packet.CREDIT, b"1", b"0"))
    (push,) = first.heard()
    assert isinstance(push, Heard)
    assert push.type == Packet.JOB_PUSH
    first.leave()


def test_the_job_is_the_workers_again() -> None:
    harness = Harness()
    interrupted(harness)
    back = worker(harness)
    assert resume(back) == answer(b"resumed")
    job = harness.engine.job(1)
    assert job is not None
    assert (job.state, job.attempts, job.losses) == (RUNNING, 1, 0)
    back.send(request(Kind.WORK_COMPLETE, HANDLE, b"r"))
    assert back.heard() == []
    assert harness.engine.job(1) is None
    check_engine(harness.engine)


def test_it_uses_no_credit_and_is_told_to_stop_like_any_other() -> None:
    harness = Harness()
    interrupted(harness)
    back = worker(harness)
    assert resume(back) == answer(b"resumed")
    job = harness.engine.job(1)
    assert job is not None
    harness.engine.cancel(job)
    harness.end_turn()
    assert back.heard() == [Heard(Packet.REVOKE, HANDLE + b"\0cancelled")]


def test_it_is_refused_when_another_worker_has_the_job() -> None:
    harness = Harness()
    interrupted(harness)
    other = worker(harness)
    other.send(request(Kind.GRAB_JOB))
    assert len(other.heard()) == 1
    assert resume(worker(harness)) == answer(b"refused")


@pytest.mark.parametrize("handle", [b"H:t:77", b"H:other:1", b"nonsense"])
def test_it_is_refused_for_an_unknown_job(handle: bytes) -> None:
    harness = Harness()
    assert resume(worker(harness), handle) == answer(b"refused", handle)


def test_a_connection_that_can_do_nothing_is_refused() -> None:
    harness = Harness()
    interrupted(harness)
    assert resume(harness.talker("worker")) == answer(b"refused")


@pytest.mark.parametrize("attempt", [b"", b"-1", b"x", b"1.5"])
def test_an_attempt_is_a_number(attempt: bytes) -> None:
    harness = Harness()
    interrupted(harness)
    (error,) = resume(worker(harness), attempt=attempt)
    assert isinstance(error, Heard)
    assert error.type == Kind.ERROR
    assert b"RESUME_JOB: the attempt" in error.body
