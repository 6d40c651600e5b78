"""The field `traceparent` of a job's hash: the trace context from the submitter to the worker, and across protocols."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import Refused
from switchgear.model import NORMAL, Delivery
from tests.protocols.gearmonkey.harness import MonkeyHarness, pop
from tests.support.resp_wire import OK, Error

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = TRACE.replace(b"b7", b"c8")


def push_traced(harness: MonkeyHarness, trace: bytes) -> int:
    job_id: int = harness.ask("client", "INCR", "uid:f")
    assert harness.ask("client", "HMSET", f"job:f:{job_id}", "input", "x", "traceparent", trace, "mine", "1") == OK
    assert harness.ask("client", "LPUSH", "queue:f:normal", job_id) == 1
    return job_id


def test_a_trace_goes_from_the_submitter_to_the_worker_and_stays_with_the_job() -> None:
    harness = MonkeyHarness()
    job_id = push_traced(harness, TRACE)
    job = harness.engine.job(job_id)
    assert job is not None
    assert job.trace == TRACE
    assert pop(harness) == job_id
    assert harness.ask("worker", "HMGET", f"job:f:{job_id}", "input", "traceparent", "mine") == [b"x", TRACE, b"1"]
    assert harness.ask("worker", "HSET", f"job:f:{job_id}", "traceparent", TRACE) == 0  # which changes nothing
    assert isinstance(harness.ask("worker", "HSET", f"job:f:{job_id}", "traceparent", OTHER), Error)
    assert harness.ask("worker", "HMSET", f"job:f:{job_id}", "status", "success", "output", "y") == OK
    assert harness.ask("client", "HGET", f"job:f:{job_id}", "traceparent") == TRACE
    assert harness.ask("client", "HGET", f"job:f:{job_id}", "mine") is None  # as other fields are not stored


def test_the_trace_of_a_job_of_another_protocol_is_shown() -> None:
    harness = MonkeyHarness()
    harness.engine.submit(b"f", b"", b"x", NORMAL, Delivery.HANDLE, options=SubmitOptions(trace=TRACE))
    job_id = pop(harness)
    fields = harness.ask("worker", "HGETALL", f"job:f:{job_id}")
    assert dict(zip(fields[::2], fields[1::2], strict=True)) == {
        b"status": b"busy",
        b"input": b"x",
        b"traceparent": TRACE,
    }


@pytest.mark.parametrize("word", [b"", b"mine", TRACE.upper(), TRACE + b"0"])
def test_another_value_is_a_field_like_any_other(word: bytes) -> None:
    harness = MonkeyHarness()
    job_id = push_traced(harness, word)
    job = harness.engine.job(job_id)
    assert job is not None
    assert job.trace == b""
    assert harness.ask("client", "HGET", f"job:f:{job_id}", "traceparent") == word
    assert pop(harness) == job_id
    assert harness.ask("worker", "HSET", f"job:f:{job_id}", "traceparent", OTHER) == 0
    assert harness.ask("client", "HGET", f"job:f:{job_id}", "traceparent") == OTHER


def test_a_job_that_could_not_be_stored_can_be_pushed_again_with_its_trace() -> None:
    harness = MonkeyHarness(keeps=True)
    job_id: int = harness.ask("client", "INCR", "uid:f")
    assert harness.ask("client", "HMSET", f"job:f:{job_id}", "input", "x", "traceparent", TRACE) == OK
    harness.tell("client", ("LPUSH", "queue:f:normal", job_id))
    harness.fail_to_keep(Refused("storage", "disk full"))
    assert harness.engine.job(job_id) is None
    harness.tell("client", ("LPUSH", "queue:f:normal", job_id))
    harness.keep()
    job = harness.engine.job(job_id)
    assert job is not None
    assert job.trace == TRACE
