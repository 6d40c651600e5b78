"""Operators over HTTP: functions, schedules and the server, by the operator verbs."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.model import SECOND_US
from tests.protocols.http.harness import HttpHarness
from tests.protocols.http.test_submitting import submit


def test_functions() -> None:
    harness = HttpHarness()
    submit(harness)
    assert [function["name"] for function in harness.ask("c", "GET", "/v1/functions").json] == ["f"]
    assert harness.ask("c", "GET", "/v1/functions/f").json["ready"] == 1
    assert harness.ask("c", "GET", "/v1/functions/g").code == "not_found"


def test_changing_a_function() -> None:
    harness = HttpHarness()
    change = {"paused": True, "concurrency": 2, "rate": [10, 1.0], "fair": True}
    answer = harness.ask("c", "PATCH", "/v1/functions/f", change).json
    assert answer["paused"] is True
    assert answer["policy"] == {
        "concurrency": 2, "rate": [10, 1.0], "key_concurrency": 0, "key_rate": None, "fair": True,
    }  # fmt: skip
    assert harness.ask("c", "PATCH", "/v1/functions/f", {"paused": False, "rate": None}).json["policy"]["rate"] is None


@pytest.mark.parametrize("change", [{}, {"pause": True}, {"concurrency": -1}, {"rate": [1]}, {"rate": [-1, 1.0]}])
def test_a_wrong_change(change: dict[str, Any]) -> None:
    assert HttpHarness().ask("c", "PATCH", "/v1/functions/f", change).status == 422


def test_schedules() -> None:
    harness = HttpHarness()
    wanted = {"function": "f", "every_seconds": 60, "payload": "x", "options": {"priority": "high"}}
    assert harness.ask("c", "PUT", "/v1/schedules/nightly", wanted).json["name"] == "nightly"
    assert harness.ask("c", "GET", "/v1/schedules/nightly").json["options"]["priority"] == "high"
    assert [each["name"] for each in harness.ask("c", "GET", "/v1/schedules").json] == ["nightly"]
    assert harness.ask("c", "PUT", "/v1/schedules/nightly", {**wanted, "paused": True}).json["paused"] is True
    run = harness.ask("c", "POST", "/v1/schedules/nightly/run")
    assert (run.status, run.json["handle"]) == (201, "H:t:1")
    assert harness.ask("c", "DELETE", "/v1/schedules/nightly").status == 204
    assert harness.ask("c", "GET", "/v1/schedules/nightly").code == "not_found"
    assert harness.ask("c", "DELETE", "/v1/schedules/nightly").code == "not_found"


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"function": "f"},
        {"function": "f", "cron": "x"},
        {"function": "f", "every_seconds": 60, "options": {"a": 1}},
    ],
)
def test_a_wrong_schedule(wanted: dict[str, Any]) -> None:
    harness = HttpHarness()
    assert harness.ask("c", "PUT", "/v1/schedules/s", wanted).status == 422
    assert not harness.engine.schedules


def test_a_schedule_is_answered_when_it_is_stored() -> None:
    harness = HttpHarness(keeps=True)
    harness.send("c", "PUT", "/v1/schedules/s", b'{"function": "f", "every_seconds": 60}')
    assert harness.heard("c") == []
    harness.keep()
    assert [answer.status for answer in harness.heard("c")] == [200]


def test_the_overview() -> None:
    harness = HttpHarness()
    submit(harness)
    overview = harness.ask("c", "GET", "/v1/overview").json
    assert overview["jobs"]["ready"] == 1
    assert overview["oldest_ready"]["function"] == "f"
    assert harness.ask("c", "GET", "/v1/overview?x=1").status == 422


def test_changing_a_job() -> None:
    harness = HttpHarness()
    submit(harness)
    later = harness.engine.now_us / SECOND_US + 60
    answer = harness.ask("c", "PATCH", "/v1/jobs/H:t:1", {"priority": "high", "run_at": later}).json
    assert (answer["state"], answer["priority"], answer["run_at"]) == ("scheduled", "high", later)
    assert harness.ask("c", "PATCH", "/v1/jobs/1", {"run_at": None}).json["state"] == "ready"
    assert harness.ask("c", "PATCH", "/v1/jobs/1", {"run_at": 0, "priority": "low"}).json["priority"] == "low"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({}, ""),
        ({"priority": "huge"}, "/priority"),
        ({"priority": None}, "/priority"),
        ({"run_at": -1}, "/run_at"),
        ({"run_at": "now"}, "/run_at"),
        ({"run_at": 1e300}, "/run_at"),
        ({"timeout": 5}, "/timeout"),
    ],
)
def test_a_wrong_change_of_a_job(change: dict[str, Any], pointer: str) -> None:
    harness = HttpHarness()
    submit(harness)
    answer = harness.ask("c", "PATCH", "/v1/jobs/1", change)
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, pointer)


def test_a_job_that_runs_or_has_ended_is_not_changed() -> None:
    harness = HttpHarness()
    submit(harness)
    change = {"priority": "high"}
    assert harness.ask("c", "PATCH", "/v1/jobs/2", change).code == "job_not_found"
    taken = harness.ask("w", "POST", "/v1/functions/f/take")
    assert harness.ask("c", "PATCH", "/v1/jobs/1", change).code == "running"
    attempt = {"Switchgear-Attempt": taken.headers["switchgear-attempt"]}
    assert harness.ask("w", "PUT", "/v1/jobs/1/result", b"", attempt).status == 204
    answer = harness.ask("c", "PATCH", "/v1/jobs/1", change)
    assert (answer.status, answer.code) == (409, "job_ended")
