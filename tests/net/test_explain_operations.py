"""The verb `explain`, as a client hears it: handles, seconds and texts."""

from __future__ import annotations

import pytest

from switchgear.model import SECOND_US, Delivery, EdgePolicy, Job
from switchgear.net.operations.explain import ExplainOperations
from switchgear.protocols.pending_read import Reading
from tests.net.operator_harness import OperatorHarness
from tests.support.reads import at_once


def test_a_ready_job_without_a_worker() -> None:
    operator = OperatorHarness()
    operator.submit(function=b"g")
    assert operator.ask("explain", job_id=1) == {
        "handle": "H:t:1",
        "function": "g",
        "state": "ready",
        "reasons": [
            {"word": "no_worker", "text": "no worker that can do 'g' is connected", "data": {"function": "g"}},
        ],
    }


def test_jobs_that_it_waits_for_are_named_by_their_handles() -> None:
    operator = OperatorHarness()
    operator.submit()
    operator.submit(predecessors=(1,), edges=bytes([EdgePolicy.SKIP]))
    (reason,) = operator.ask("explain", job_id=2)["reasons"]
    assert reason == {
        "word": "waiting_for",
        "text": "waits for H:t:1, which is ready",
        "data": {"handle": "H:t:1", "state": "ready", "on_failure": "skip"},
    }


def test_times_are_in_seconds() -> None:
    operator = OperatorHarness()
    at_us = operator.engine.now_us + 5 * SECOND_US
    operator.submit(run_at_us=at_us)
    (reason,) = operator.ask("explain", job_id=1)["reasons"]
    assert reason["data"] == {"at": at_us / SECOND_US}


def test_a_running_job() -> None:
    operator = OperatorHarness()
    operator.submit()
    job = operator.take()
    operator.engine.progress(operator.worker, job.id, 1, 2, message=b"\xff")
    answer = operator.ask("explain", job_id=1)
    assert answer["state"] == "running"
    assert answer["reasons"][0]["data"]["message"] == {"base64": "/w=="}


def test_a_finished_job_from_the_store() -> None:
    operator = OperatorHarness()
    operator.submit()
    operator.finish(code=3, error=b"no such file")
    answer = operator.ask("explain", job_id=1)
    assert (answer["state"], answer["reasons"][0]["word"]) == ("failed", "failed")
    assert answer["reasons"][0]["text"].endswith("after 1 attempt: no such file")


def test_what_ended_a_job_that_was_let_down() -> None:
    operator = OperatorHarness()
    operator.submit()
    operator.submit(predecessors=(1,), edges=bytes([EdgePolicy.FAIL]))
    operator.finish(code=1)
    (reason,) = operator.ask("explain", job_id=2)["reasons"]
    assert (reason["data"]["cause"], reason["data"]["predecessors"]) == ("doomed", ["H:t:1"])
    assert reason["text"].endswith(": H:t:1, which it waited for, failed")
    assert operator.ask("job", job_id=2)["error"] == "H:t:1, which it waited for, failed"


def test_a_job_whose_end_is_not_kept_yet() -> None:
    """The store has it as it was before."""
    operator = OperatorHarness()
    (job,) = operator.submit()
    operations = ExplainOperations(operator.operations.context)
    operator.engine.cancel(job)
    stored = operator.engine.submit(b"f", b"", b"", 1, Delivery.HANDLE)
    operator.engine.jobs.remove(stored.id)

    def find(handle: str) -> Reading[Job]:
        yield from ()
        return stored

    operator.operations.context.named_job = find  # type: ignore[method-assign]
    assert at_once(operations.explain(str(stored.id)))["reasons"] == [
        {"word": "ending", "text": "it has just ended, and its end is being stored", "data": {}}
    ]


@pytest.mark.parametrize("job_id", [7, 10**18])
def test_an_unknown_job(job_id: int) -> None:
    with pytest.raises(LookupError, match="no such job"):
        OperatorHarness().ask("explain", job_id=job_id)


@pytest.mark.parametrize("arguments", [{}, {"number": "1"}, {"job_id": 1, "more": 2}], ids=str)
def test_arguments_that_make_no_sense(arguments: dict[str, object]) -> None:
    operator = OperatorHarness()
    operator.submit()
    with pytest.raises(ValueError, match="explain: "):
        operator.ask("explain", **arguments)
