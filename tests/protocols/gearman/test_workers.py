"""What workers say: conversations, promises, and payloads that only the store has."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.errors import Refused
from switchgear.model import DONE, FAILED, READY, Job
from tests.protocols.gearman.harness import Harness, Talker
from tests.protocols.gearman.transcript import MANNERS, Transcript, load, play
from tests.support.wire import Kind, Packet, request


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("transcript", load("workers"), ids=str)
def test_conversation(transcript: Transcript, manner: str) -> None:
    play(transcript, manner)


def submit(harness: Harness, count: int = 1) -> list[Job]:
    harness.talker("client").send(*(request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x") for _ in range(count)))
    return list(harness.engine.jobs.values())


def worker_of(harness: Harness) -> Talker:
    worker = harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"))
    return worker


@pytest.mark.parametrize(
    "report",
    [
        request(Kind.WORK_COMPLETE, b"H:t:1", b"done"),
        request(Kind.WORK_FAIL, b"H:t:1"),
        request(Kind.WORK_EXCEPTION, b"H:t:1", b"broken"),
    ],
)
def test_what_a_worker_hears_after_its_report_tells_that_the_report_is_kept(report: bytes) -> None:
    harness = Harness(keeps=True)
    submit(harness)
    worker = worker_of(harness)
    worker.send(request(Kind.GRAB_JOB))
    assert not worker.session.awaits_commit
    worker.session.receive(report + request(Kind.GRAB_JOB))
    assert worker.session.awaits_commit
    assert worker.session.promised_jobs == []


@pytest.mark.parametrize("grab", [Kind.GRAB_JOB, Kind.GRAB_JOB_UNIQ, Kind.GRAB_JOB_ALL])
@pytest.mark.parametrize(("attempts", "waits"), [(0, False), (1, True), (2, True)])
def test_an_attempt_that_counts_is_kept_before_it_is_made(grab: Kind, attempts: int, waits: bool) -> None:
    harness = Harness(keeps=True, settings=EngineSettings(attempts=attempts))
    submit(harness)
    worker = worker_of(harness)
    worker.session.receive(request(grab))
    assert worker.session.awaits_commit == waits


@pytest.mark.parametrize("grab", [Kind.GRAB_JOB, Kind.GRAB_JOB_UNIQ, Kind.GRAB_JOB_ALL])
def test_a_job_whose_payload_cannot_be_read_is_given_back(grab: Kind) -> None:
    harness = Harness(keeps=True)
    harness.read_error = Refused("storage", "disk broken")
    (job,) = submit(harness)
    job.payload = None
    worker = worker_of(harness)
    worker.send(request(grab))
    assert worker.heard() == [Packet(Kind.NO_JOB, b"")]
    assert job.state is READY
    assert job.attempts == 0
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b""))
    assert worker.heard() == [Packet(Kind.ERROR, b"JOB_NOT_FOUND\0Job given in work result not found")]


def test_a_job_whose_payload_is_lost_fails() -> None:
    harness = Harness(keeps=True)
    (job,) = submit(harness)
    job.payload = None
    worker = worker_of(harness)
    worker.send(request(Kind.GRAB_JOB))
    assert worker.heard() == [Packet(Kind.NO_JOB, b"")]
    assert job.state is FAILED
    assert job.error == b"the store has lost the payload of job 1"


def test_a_worker_can_be_stopped_from_hoarding() -> None:
    harness = Harness(settings=EngineSettings(jobs_per_worker=2))
    submit(harness, 3)
    worker = worker_of(harness)
    worker.send(*[request(Kind.GRAB_JOB)] * 3)
    assert [packet.type for packet in worker.heard() if isinstance(packet, Packet)] == [
        Kind.JOB_ASSIGN,
        Kind.JOB_ASSIGN,
        Kind.NO_JOB,
    ]


def test_the_parts_of_a_kept_result_are_put_together() -> None:
    harness = Harness(keeps=True)
    (job,) = submit(harness)
    worker = worker_of(harness)
    worker.send(request(Kind.GRAB_JOB), request(Kind.WORK_DATA, b"H:t:1", b"one "))
    worker.send(request(Kind.WORK_DATA, b"H:t:1", b"two "), request(Kind.WORK_COMPLETE, b"H:t:1", b"three"))
    assert job.result == b"one two three"


def test_progress_figures_never_exceed_what_a_store_can_keep() -> None:
    harness = Harness()
    (job,) = submit(harness)
    worker = worker_of(harness)
    worker.send(request(Kind.GRAB_JOB), request(Kind.WORK_STATUS, b"H:t:1", b"9" * 100, b"9" * 5000))
    assert 0 < job.numerator < 2**63
    assert 0 < job.denominator < 2**63


def test_a_name_given_later_is_the_workers_name() -> None:
    harness = Harness()
    worker = worker_of(harness)
    worker.send(request(Kind.SET_CLIENT_ID, b"late"))
    assert [other.name for other in harness.engine.workers.values()] == [b"late"]
    early = harness.talker("early")
    early.send(request(Kind.SET_CLIENT_ID, b"early"), request(Kind.CAN_DO, b"f"))
    assert [other.name for other in harness.engine.workers.values()] == [b"late", b"early"]


def test_an_idle_connection_is_no_worker() -> None:
    harness = Harness()
    talker = harness.talker("client")
    talker.send(request(Kind.SET_CLIENT_ID, b"me"), request(Kind.RESET_ABILITIES), request(Kind.CANT_DO, b"f"))
    assert not harness.engine.workers


# --- reports are read by guessing how long their handle is ---

RESULTS = [b"", b"\0", b"\0\0\0", b"a\0b", b"ab\0\0cd", b"\0" * 40]


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("order", [(12, 6), (6, 12), (12, 6, 11, 5, 10)])
def test_a_result_may_be_any_bytes_whatever_was_reported_before(order: tuple[int, ...], result: bytes) -> None:
    harness = Harness()
    submit(harness, 12)
    worker = worker_of(harness)
    worker.send(*[request(Kind.GRAB_JOB)] * 12)
    worker.heard()
    jobs = {job_id: harness.engine.jobs[job_id] for job_id in order}
    for job_id in order:
        worker.send(request(Kind.WORK_COMPLETE, b"H:t:%d" % job_id, result))
    assert worker.heard() == []
    assert [(job.state, job.result) for job in jobs.values()] == [(DONE, result)] * len(order)


def test_a_long_handle_of_somebody_else_spoils_nothing() -> None:
    harness = Harness()
    (job,) = submit(harness)
    worker = worker_of(harness)
    worker.send(request(Kind.GRAB_JOB), request(Kind.WORK_COMPLETE, b"H:another host:1", b"x"))
    worker.heard()
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"\0" * 64))
    assert worker.heard() == []
    assert (job.state, job.result) == (DONE, b"\0" * 64)
