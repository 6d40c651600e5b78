"""Payloads and results that are sent as JSON piece by piece."""

from __future__ import annotations

import json
from typing import Any

import pytest

from switchgear.json_bytes import LONG_BYTES, bytes_of
from tests.protocols.http.harness import HttpHarness

LONG = [b"\0" * (LONG_BYTES + 1), b"\xff" * (2 * LONG_BYTES), "\u00e4".encode() * LONG_BYTES]


def submitted(harness: HttpHarness, payload: bytes) -> int:
    """A job with a long payload, which the harness takes over no wire."""
    engine = harness.engine
    engine.advance(harness.clock.now_us())
    return engine.submit(b"f", b"", payload, 1, 1).id


def value(shown: Any) -> bytes:
    return bytes_of(shown, "value")


def is_held(harness: HttpHarness) -> bool:
    """Whether a worker has the first job."""
    job = harness.engine.job(1)
    assert job is not None
    return job.worker is not None


@pytest.mark.parametrize("payload", LONG, ids=["nul", "no text", "text"])
def test_a_job_with_its_contents(payload: bytes) -> None:
    harness = HttpHarness()
    job_id = submitted(harness, payload)
    answer = harness.ask("c", "GET", f"/v1/jobs/{job_id}?contents=1")
    assert answer.status == 200
    assert answer.headers["transfer-encoding"] == "chunked"
    assert value(answer.json["payload"]) == payload
    assert harness.ask("c", "GET", "/livez").status == 200  # the connection goes on
    assert harness.engine.memory.draft_bytes == 0


@pytest.mark.parametrize("payload", LONG, ids=["nul", "no text", "text"])
def test_a_worker_that_polls(payload: bytes) -> None:
    harness = HttpHarness()
    worker = harness.ask("w", "POST", "/v1/workers", {"functions": ["f"]}).json["id"]
    submitted(harness, payload)
    job = harness.ask("w", "POST", f"/v1/workers/{worker}/poll").json["jobs"][0]
    assert value(job["payload"]) == payload
    harness.leave("w")
    assert is_held(harness)  # it was sent, and the worker has it


def test_a_worker_that_leaves_before_its_job_is_sent() -> None:
    harness = HttpHarness()
    worker = harness.ask("w", "POST", "/v1/workers", {"functions": ["f"]}).json["id"]
    submitted(harness, LONG[0])
    harness.peer("w").wire.when_taken = print  # type: ignore[method-assign, assignment]  # it does not read
    harness.send("w", "POST", f"/v1/workers/{worker}/poll")
    assert is_held(harness)
    harness.leave("w")
    assert not is_held(harness)


def test_a_client_that_leaves_in_the_middle() -> None:
    harness = HttpHarness()
    job_id = submitted(harness, LONG[0])
    peer = harness.peer("c")
    taken: list[Any] = []
    peer.wire.when_taken = taken.append  # type: ignore[method-assign, assignment]
    harness.send("c", "GET", f"/v1/jobs/{job_id}?contents=1")
    taken.pop()()  # it reads once
    harness.turn()
    assert peer.wire.written.startswith(b"HTTP/1.1 200")
    assert harness.engine.memory.draft_bytes == LONG_BYTES + 1
    harness.leave("c")
    assert harness.engine.memory.draft_bytes == 0


def test_without_memory_it_is_refused() -> None:
    harness = HttpHarness()
    job_id = submitted(harness, LONG[0])
    harness.engine.memory.limit_bytes = 1000
    answer = harness.ask("c", "GET", f"/v1/jobs/{job_id}?contents=1")
    assert answer.code == "limit"
    assert harness.engine.memory.draft_bytes == 0


def test_the_results_of_jobs_that_are_waited_for() -> None:
    harness = HttpHarness()
    harness.ask("c", "POST", "/v1/functions/f/jobs", b"")
    harness.ask("w", "POST", "/v1/functions/f/take")
    worker = harness.setup.shared.workers.by_job[1][0].worker
    harness.engine.complete(worker, 1, LONG[1])
    harness.turn()
    body = json.dumps({"jobs": [{"handle": "1"}]}).encode()
    (job,) = harness.ask("c", "POST", "/v1/jobs/wait", body).json["jobs"]
    assert value(job["result"]) == LONG[1]
