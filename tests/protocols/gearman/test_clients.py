"""What clients say: conversations, and the promises that answers make."""

from __future__ import annotations

import pytest

from switchgear.model import Delivery
from switchgear.protocols.gearman.messages import Packet
from tests.protocols.gearman.harness import Harness
from tests.protocols.gearman.transcript import MANNERS, Transcript, load, play
from tests.support.wire import Kind, request
from tests.support.wire import Packet as Heard


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("transcript", load("clients"), ids=str)
def test_conversation(transcript: Transcript, manner: str) -> None:
    play(transcript, manner)


BACKGROUND = (
    request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x"),
    request(Kind.SUBMIT_JOB_HIGH_BG, b"f", b"", b"x"),
    request(Kind.SUBMIT_JOB_LOW_BG, b"f", b"", b"x"),
    request(Kind.SUBMIT_JOB_EPOCH, b"f", b"", b"0", b"x"),
    request(Kind.SUBMIT_REDUCE_JOB_BACKGROUND, b"f", b"", b"sum", b"", b"x"),
    request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", b"{}", b"x"),
)
FOREGROUND = (
    request(Kind.SUBMIT_JOB, b"f", b"", b"x"),
    request(Kind.SUBMIT_JOB_HIGH, b"f", b"", b"x"),
    request(Kind.SUBMIT_JOB_LOW, b"f", b"", b"x"),
    request(Kind.SUBMIT_REDUCE_JOB, b"f", b"", b"sum", b"", b"x"),
    request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", b'{"wait": true}', b"x"),
)


@pytest.mark.parametrize("packet", BACKGROUND)
def test_the_answer_to_a_background_submission_promises_the_job(packet: bytes) -> None:
    harness = Harness(keeps=True)
    session = harness.talker("client").session
    session.receive(request(Kind.ECHO_REQ, b"before") + packet)
    (job,) = harness.engine.jobs.values()
    assert job.delivery == Delivery.HANDLE
    assert session.awaits_commit
    assert session.promised_jobs == [(1, job)]  # its place among the answers
    assert harness.marked == [session]


@pytest.mark.parametrize("packet", FOREGROUND)
def test_the_answer_to_a_foreground_submission_promises_nothing(packet: bytes) -> None:
    harness = Harness(keeps=True)
    session = harness.talker("client").session
    session.receive(packet)
    (job,) = harness.engine.jobs.values()
    assert job.delivery == Delivery.WAIT
    assert session.subscriptions == {job.id: job}
    assert not session.awaits_commit


@pytest.mark.parametrize("packet", [*BACKGROUND, *FOREGROUND])
def test_without_a_durable_store_nothing_is_promised(packet: bytes) -> None:
    harness = Harness()
    session = harness.talker("client").session
    session.receive(packet)
    assert not session.awaits_commit
    assert session.promised_jobs == []


def test_who_joins_a_job_that_is_being_kept_is_promised_it_too() -> None:
    harness = Harness(keeps=True)
    first, second = harness.talker("first").session, harness.talker("second").session
    first.receive(request(Kind.SUBMIT_JOB, b"f", b"key", b"x"))
    assert not first.awaits_commit
    second.receive(request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"x"))
    (job,) = harness.engine.jobs.values()
    assert second.promised_jobs == [(0, job)]
    assert job.delivery == Delivery.HANDLE


def test_the_result_of_a_kept_job_is_told_after_it_is_kept() -> None:
    harness = Harness(keeps=True)
    client, worker = harness.talker("client"), harness.talker("worker")
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"x"), request(Kind.SUBMIT_JOB, b"f", b"key", b"x"))
    worker.send(request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB))
    assert not client.session.awaits_commit
    worker.session.receive(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"))
    assert client.session.out
    assert client.session.awaits_commit


def test_the_result_of_a_foreground_job_waits_for_nobody() -> None:
    harness = Harness(keeps=True)
    client, worker = harness.talker("client"), harness.talker("worker")
    client.send(request(Kind.SUBMIT_JOB, b"f", b"", b"x"))
    worker.send(request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB))
    worker.session.receive(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"))
    assert client.session.out
    assert not client.session.awaits_commit
    assert not worker.session.awaits_commit


def test_a_refused_submission_changes_nothing() -> None:
    harness = Harness(keeps=True)
    client = harness.talker("client")
    harness.engine.drain()
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x"), request(Kind.SUBMIT_JOB, b"f", b"", b"x"))
    assert client.heard() == [Heard(Kind.ERROR, b"QUEUE_ERROR\0server is shutting down")] * 2
    assert client.session.promised_jobs == []
    assert not harness.engine.jobs
    assert harness.bad_input == []


def test_handles_may_be_long() -> None:
    harness = Harness()
    harness.setup.handle_prefix = prefix = b"H:" + b"h" * 64 + b":"
    client, worker = harness.talker("client"), harness.talker("worker")
    client.send(request(Kind.SUBMIT_JOB, b"f", b"", b"x"), request(Kind.SUBMIT_JOB, b"f", b"", b"y"))
    first, second = prefix + b"1", prefix + b"2"
    assert client.heard() == [Heard(Kind.JOB_CREATED, first), Heard(Kind.JOB_CREATED, second)]
    worker.send(request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB), request(Kind.GRAB_JOB))
    assert [m.body.split(b"\0")[0] for m in worker.heard() if isinstance(m, Heard)] == [first, second]
    worker.send(request(Kind.WORK_FAIL, first), request(Kind.WORK_EXCEPTION, second, b"x"))
    worker.send(request(Kind.WORK_FAIL, second))  # what some workers say after an exception
    assert worker.heard() == []
    assert client.heard() == [Heard(Kind.WORK_FAIL, first), Heard(Kind.WORK_FAIL, second)]


# --- submissions are read by guessing that they are like the one before ---

BODIES = [
    (b"f", b"key", b"payload"),
    (b"f", b"yek", b"payload"),
    (b"f", b"", b"payload"),
    (b"f", b"", b"\0\0\0payload"),
    (b"f", b"ke", b"\0y"),
    (b"f", b"longer key", b""),
    (b"g", b"key", b"\0"),
    (b"", b"key", b"no function"),
    (b"fun", b"key", b"\0\0\0\0\0"),
    (b"f", b"k", b"ey\0payload"),
]


@pytest.mark.parametrize("first", BODIES)
@pytest.mark.parametrize("second", BODIES)
def test_a_submission_is_read_the_same_whatever_was_submitted_before(
    first: tuple[bytes, bytes, bytes], second: tuple[bytes, bytes, bytes]
) -> None:
    harness = Harness()
    harness.talker("client").send(request(Kind.SUBMIT_JOB_BG, *first), request(Kind.SUBMIT_JOB_BG, *second))
    found = [(job.function.name, job.unique, job.payload) for job in harness.engine.jobs.values()]
    is_joined = first[:2] == second[:2] and first[1]
    assert found == ([first] if is_joined else [first, second])
