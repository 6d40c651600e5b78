"""What an operator can ask: lists that page, jobs in every state, and arguments that make no sense."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

from switchgear.errors import Refused, StorageError
from switchgear.model import (
    HIGH,
    NORMAL,
    READY,
    SECOND_US,
    Delivery,
    EdgePolicy,
    Function,
    Job,
    JobState,
    UniqueScope,
)
from switchgear.net.operations import unfinished_jobs
from switchgear.protocols.pending_read import Reading
from switchgear.storage.base import JobQuery
from switchgear.version import VERSION
from tests.net.operator_harness import OperatorHarness

# --- looking ---


def test_server() -> None:
    operator = OperatorHarness()
    operator.operations.context.connections = lambda: 7
    operator.submit(2)
    operator.harness.clock.advance(5)
    answer = operator.ask("server")
    assert answer["version"] == VERSION
    assert answer["pid"] == os.getpid()
    assert answer["uptime_seconds"] == 5.0
    assert answer["store"] == "memory:"
    assert answer["storage_error"] == ""
    assert answer["connections"] == 7
    assert (answer["jobs"], answer["functions"], answer["workers"]) == (2, 1, 1)
    assert answer["draining"] is False
    operator.engine.drain()
    operator.harness.storage_error = StorageError("disk full")
    answer = operator.ask("server")
    assert answer["draining"] is True
    assert answer["storage_error"] == "disk full"


def test_functions() -> None:
    operator = OperatorHarness()
    operator.submit(4)
    operator.submit(1, function=b"\xff", run_at_us=operator.engine.now_us + SECOND_US)
    operator.finish()
    operator.finish(code=3)
    operator.take()
    operator.engine.advance(operator.harness.clock.advance(2.5))
    f, odd = operator.ask("functions")
    assert f["name"] == "f"
    assert (f["total"], f["ready"], f["running"], f["waiting_or_scheduled"], f["workers"]) == (2, 1, 1, 0, 1)
    assert (f["submitted"], f["done"], f["failed"], f["cancelled"]) == (4, 1, 1, 0)
    assert f["limits"] == [0, 0, 0]
    assert f["paused"] is False
    assert f["oldest_ready_seconds"] == 2.5
    assert odd["name"] == {"base64": "/w=="}


def test_the_oldest_ready_job_of_a_queue_that_was_emptied_and_filled_again() -> None:
    operator = OperatorHarness()
    operator.submit(2000)
    operator.ask("bulk", action="cancel", function="f")
    for job_id in range(1, 6):
        operator.ask("retry", job_id=job_id)
    operator.engine.advance(operator.harness.clock.advance(2.5))
    (f,) = operator.ask("functions")
    assert (f["ready"], f["oldest_ready_seconds"]) == (5, 2.5)


def test_workers() -> None:
    operator = OperatorHarness()
    operator.submit()
    operator.take()
    (worker,) = operator.ask("workers")
    assert worker["name"] == "hand"
    assert worker["protocol"] == "gearman"
    assert worker["address"] == "10.0.0.1:40001"
    assert worker["functions"] == ["f"]
    assert worker["running"] == ["H:t:1"]
    assert worker["asleep"] is False
    assert worker["connected_at"] == operator.engine.now_us / SECOND_US


def test_a_job_in_all_detail() -> None:
    operator = OperatorHarness()
    now = operator.engine.now_us
    operator.submit()
    operator.submit(
        unique=b"key",
        name=b"mine",
        predecessors=(1,),
        attempts_limit=5,
        timeout_us=1_500_000,
        expires_us=now + 9 * SECOND_US,
        run_at_us=now + SECOND_US,
        origin="test",
        key=b"tenant",
        label=b"of the test",
        crash_limit=3,
        edges=bytes([EdgePolicy.FAIL]),
        unique_scope=UniqueScope.QUEUED,
        unique_for_us=4 * SECOND_US,
        retention_us=SECOND_US // 2,
        schedule=b"nightly",
    )
    answer = operator.ask("job", job_id=2)
    assert answer == {
        "handle": "H:t:2",
        "id": 2,
        "function": "f",
        "state": "waiting",
        "dead": False,
        "priority": "normal",
        "delivery": "handle",
        "unique": "key",
        "name": "mine",
        "attempts": 0,
        "attempts_limit": 5,
        "created_at": now / SECOND_US,
        "run_at": now / SECOND_US + 1,
        "expires_at": now / SECOND_US + 9,
        "finished_at": None,
        "timeout": 1.5,
        "numerator": 0,
        "denominator": 0,
        "time_left": None,
        "result_code": 0,
        "error": None,
        "predecessors": ["H:t:1"],
        "predecessor_count": 1,
        "on_failure": ["fail"],
        "origin": "test",
        "key": "tenant",
        "label": "of the test",
        "requires": [],
        "trace": "",
        "losses": 0,
        "crash_limit": 3,
        "unique_scope": "queued",
        "unique_until": now / SECOND_US + 4,
        "retention": 0.5,
        "message": "",
        "schedule": "nightly",
        "payload": "payload",
        "payload_bytes": 7,
        "result": "",
        "warnings": "",
        "log": [{"cause": "submitted_waiting", "at": now / SECOND_US}],
        "attempt_history": [],
    }


def test_of_very_many_predecessors_only_some_are_named() -> None:
    operator = OperatorHarness()
    for _ in range(2_000):
        operator.submit()
    operator.submit(1, predecessors=tuple(range(1, 2_001)), edges=bytes([EdgePolicy.FAIL]) * 2_000)
    shown, [listed] = operator.ask("job", job_id=2_001), operator.ask("jobs", limit=1)["jobs"]
    assert shown["predecessor_count"] == listed["predecessor_count"] == 2_000
    assert shown["predecessors"][-1] == "H:t:1000"
    assert shown["on_failure"] == ["fail"] * 1_000
    assert listed["predecessors"][-1] == "H:t:100"
    assert listed["on_failure"] == ["fail"] * 100


def test_a_job_that_failed() -> None:
    operator = OperatorHarness()
    operator.submit()
    operator.finish(code=3, error=b"\xffbroken")
    answer = operator.ask("job", job_id=1)
    assert answer["state"] == "failed"
    assert answer["dead"] is False
    assert answer["result_code"] == 3
    assert answer["error"] == {"base64": "/2Jyb2tlbg=="}
    assert [entry["cause"] for entry in answer["log"]] == ["submitted", "taken", "ended_badly"]


def unreadable(job_ids: Sequence[int]) -> Reading[dict[int, bytes]]:
    raise Refused("storage", "disk broken")


def test_a_job_whose_payload_cannot_be_read_is_shown_without() -> None:
    operator = OperatorHarness()
    operator.submit()
    operator.engine.jobs[1].payload = None
    operator.harness.read_payloads = unreadable  # type: ignore[method-assign]
    assert operator.ask("job", job_id=1)["payload"] == ""


def test_payload_keys_are_shown_as_their_submitter_wrote_them() -> None:
    operator = OperatorHarness()
    operator.submit(unique=b"-\0digest")
    assert operator.ask("job", job_id=1)["unique"] == "-"


# --- lists ---


def test_jobs_are_listed_newest_first_whatever_became_of_them() -> None:
    operator = OperatorHarness()
    operator.submit(5)
    operator.finish()
    operator.finish(code=1)
    operator.take()
    answer = operator.ask("jobs")
    assert [(job["id"], job["state"]) for job in answer["jobs"]] == [
        (5, "ready"),
        (4, "ready"),
        (3, "running"),
        (2, "failed"),
        (1, "done"),
    ]
    assert answer["next_before_id"] is None


def test_filters() -> None:
    operator = OperatorHarness()
    operator.submit(2)
    operator.submit(1, function=b"g", unique=b"key")
    operator.submit(1, function=b"g", name=b"mine")
    operator.finish()
    assert operator.ids(function="g") == [4, 3]
    assert operator.ids(unique="key") == [3]
    assert operator.ids(name="mine") == [4]
    assert operator.ids(states=["done"]) == [1]
    assert operator.ids(states=["READY", "done"], function="f") == [2, 1]
    assert operator.ids(states=["running"]) == []
    assert operator.ids(function="unknown") == []
    assert operator.ids(states=[], function=None) == [4, 3, 2, 1]
    assert operator.ids(limit=2) == [4, 3]
    assert operator.ids(before_id=3) == [2, 1]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_give_every_job_once(limit: int) -> None:
    operator = OperatorHarness()
    operator.submit(12)
    for _ in range(3):
        operator.finish()
    operator.finish(code=1)
    operator.take()
    assert operator.all_pages(limit=limit) == list(range(12, 0, -1))


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_give_retried_jobs_in_their_place(limit: int) -> None:
    operator = OperatorHarness()
    operator.submit(8)
    for _ in range(3):
        operator.finish(code=1)
    operator.submit(2)
    for job_id in (1, 3):
        operator.ask("retry", job_id=job_id)
    operator.submit(2)
    assert operator.all_pages(limit=limit) == list(range(12, 0, -1))
    assert operator.all_pages(limit=limit, states=["ready"]) == [12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 1]


class LaggingStore:
    """Puts what a store that lags behind has in front of what the real one finds."""

    def __init__(self, operator: OperatorHarness, rows: list[Job]) -> None:
        self.rows = rows
        self.real = operator.harness.store.find
        operator.harness.store.find = self  # type: ignore[method-assign]

    async def __call__(self, query: JobQuery) -> list[Job]:
        stale = [job for job in self.rows if (not query.states or job.state in query.states)]
        stale = [job for job in stale if not query.before_id or job.id < query.before_id]
        return sorted([*stale, *(await self.real(query))], key=lambda job: -job.id)[: query.limit]


def row(job_id: int, state: JobState) -> Job:
    job = Job(job_id, Function(b"f"), b"", None, NORMAL, Delivery.HANDLE, 0)
    job.state = state
    return job


def test_the_engine_has_the_last_word_on_what_is_unfinished() -> None:
    operator = OperatorHarness()
    operator.submit(3)
    operator.take()
    LaggingStore(operator, [row(1, READY), row(2, READY), row(3, READY)])
    assert operator.ids(states=["ready"]) == [3, 2]
    assert operator.ids(states=["running"]) == [1]
    assert [job["state"] for job in operator.ask("jobs")["jobs"]] == ["ready", "ready", "running"]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_what_only_a_lagging_store_takes_for_unfinished_is_over(limit: int) -> None:
    operator = OperatorHarness()
    operator.submit(6)
    LaggingStore(operator, [row(job_id, READY) for job_id in range(1, 10)])
    operator.engine.next_job_id = 10
    assert operator.all_pages(limit=limit) == [6, 5, 4, 3, 2, 1]


def test_a_search_among_many_jobs_takes_as_many_steps_as_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished_jobs, "SCANNED_PER_STEP", 5)
    operator = OperatorHarness()
    operator.submit(1, function=b"rare")
    operator.submit(10)
    assert operator.ids(function="rare") == [1]
    assert operator.ids(function="f", limit=3) == [11, 10, 9]


def test_no_more_than_a_thousand_at_a_time() -> None:
    operator = OperatorHarness()
    operator.submit(1001)
    answer = operator.ask("jobs", limit=5000)
    assert len(answer["jobs"]) == 1000
    assert answer["next_before_id"] == 2


# --- acting ---


def test_cancel() -> None:
    operator = OperatorHarness()
    operator.submit()
    operator.submit(1, predecessors=(1,))
    operator.submit(1, predecessors=(2,))
    assert operator.ask("cancel", job_id=3) == {"cancelled": ["H:t:3"]}
    assert operator.ask("cancel", job_id=1, cascade=True) == {"cancelled": ["H:t:1", "H:t:2"]}
    with pytest.raises(LookupError, match="H:t:1 is cancelled: there is nothing to cancel"):
        operator.ask("cancel", job_id=1)


def test_retry_a_job_that_failed() -> None:
    operator = OperatorHarness()
    operator.submit()
    operator.finish(code=1, error=b"broken")
    assert operator.ask("retry", job_id=1) == {"retried": ["H:t:1"]}
    job = operator.engine.jobs[1]
    assert (job.state, job.attempts, job.error) == (READY, 0, None)
    with pytest.raises(Refused):
        operator.ask("retry", job_id=1)


@pytest.mark.parametrize("arguments", [{"job_id": 1}, {"all_dead": True}])
def test_a_server_that_takes_nothing_retries_nothing_and_says_so(arguments: dict[str, Any]) -> None:
    operator = OperatorHarness(attempts=1)
    operator.submit()
    operator.kill()
    operator.engine.drain()
    with pytest.raises(Refused, match="server is shutting down"):
        operator.ask("retry", **arguments)


def test_pause_and_resume() -> None:
    operator = OperatorHarness()
    operator.submit()
    assert operator.ask("pause", function="f") == {"function": "f", "paused": True}
    operator.engine.can_do(operator.worker, operator.engine.functions[b"f"])
    assert operator.engine.take(operator.worker) is None
    assert operator.ask("resume", function="f") == {"function": "f", "paused": False}
    assert operator.engine.take(operator.worker) is not None
    assert operator.ask("pause", function="new") == {"function": "new", "paused": True}


def test_priorities_by_name() -> None:
    operator = OperatorHarness()
    operator.engine.submit(b"f", b"", b"", HIGH, Delivery.WAIT)
    assert operator.ask("job", job_id=1)["priority"] == "high"
    assert operator.ask("job", job_id=1)["delivery"] == "wait"
