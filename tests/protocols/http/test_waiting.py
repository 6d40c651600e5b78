"""Requests that wait for many jobs at once, and operator verbs by their names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.protocols.http.harness import Answer, HttpHarness


def submit(harness: HttpHarness, payload: str = "x", function: str = "f") -> str:
    handle: str = harness.ask("c", "POST", f"/v1/functions/{function}/jobs", payload.encode()).json["handle"]
    return handle


def wait_body(*jobs: tuple[str, list[Any] | None]) -> bytes:
    entries = [{"handle": handle} | ({} if seen is None else {"seen": seen}) for handle, seen in jobs]
    return json.dumps({"jobs": entries}).encode()


def take(harness: HttpHarness, function: str = "f") -> str:
    return harness.ask("w", "POST", f"/v1/functions/{function}/take").headers["switchgear-job"]


def finish(harness: HttpHarness, handle: str, result: bytes = b"done") -> None:
    report = {"Switchgear-Attempt": "1"}
    assert harness.ask("w", "PUT", f"/v1/jobs/{handle}/result", result, report).status == 204


def told(answer: Answer) -> dict[str, str]:
    assert answer.status == 200, answer
    return {job["handle"]: job["state"] for job in answer.json["jobs"]}


NOTHING = [0, 0, ""]


@pytest.mark.parametrize("ending", ["end", "time", "leaves"])
def test_what_a_waiting_client_has_named_is_counted(ending: str) -> None:
    harness = HttpHarness()
    handles = [submit(harness) for _ in range(100)]
    harness.heard("c")
    held_bytes = harness.engine.memory.held_bytes
    harness.send("s", "POST", "/v1/jobs/wait?wait=60", wait_body(*((handle, NOTHING) for handle in handles)))
    assert harness.engine.memory.held_bytes > held_bytes + 100 * 300
    assert harness.engine.memory.draft_bytes >= 100 * 250
    if ending == "end":
        finish(harness, take(harness))
        assert len(harness.heard("s")) == 1
    elif ending == "time":
        harness.pass_time(61)
        assert len(harness.heard("s")) == 1
    else:
        harness.leave("s")
    assert harness.engine.memory.draft_bytes == 0


def test_the_first_end_answers() -> None:
    harness = HttpHarness()
    handles = [submit(harness) for _ in range(3)]
    body = wait_body(*((handle, NOTHING) for handle in handles))
    harness.send("s", "POST", "/v1/jobs/wait?wait=60", body)
    assert harness.heard("s") == []
    taken = take(harness)
    assert harness.heard("s") == []  # that a job has been started is not told
    finish(harness, taken, b"\xff")
    (answer,) = harness.heard("s")
    (job,) = answer.json["jobs"]
    assert (job["handle"], job["state"], job["cause"]) == (taken, "done", "succeeded")
    assert job["result"] == {"base64": "/w=="}
    assert not harness.peer("s").session.subscriptions
    assert not harness.peer("s").session.timers


def test_what_ended_before_is_told_at_once() -> None:
    harness = HttpHarness()
    handle, other = submit(harness), submit(harness)
    finish(harness, take(harness))
    answer = harness.ask("s", "POST", "/v1/jobs/wait?wait=60", wait_body((handle, NOTHING), (other, NOTHING)))
    assert told(answer) == {handle: "done"}
    assert harness.ask("s", "POST", "/v1/jobs/wait", wait_body((other, NOTHING))).json == {"jobs": []}


def test_without_seen_the_state_is_told_at_once() -> None:
    harness = HttpHarness()
    handle = submit(harness)
    answer = harness.ask("s", "POST", "/v1/jobs/wait?wait=60", wait_body((handle, None), ("H:t:99", None), ("?", None)))
    assert told(answer) == {handle: "ready", "H:t:99": "unknown", "?": "unknown"}


def test_progress_is_told_until_it_was_seen() -> None:
    harness = HttpHarness()
    handle = submit(harness)
    take(harness)
    harness.send("s", "POST", "/v1/jobs/wait?wait=60", wait_body((handle, NOTHING)))
    figures = {"numerator": 1, "denominator": 4, "message": "begun"}
    harness.ask("w", "POST", f"/v1/jobs/{handle}/progress", json.dumps(figures).encode(), {"Switchgear-Attempt": "1"})
    (answer,) = harness.heard("s")
    (job,) = answer.json["jobs"]
    assert {name: job[name] for name in figures} == figures
    harness.send("s", "POST", "/v1/jobs/wait?wait=50", wait_body((handle, [1, 4, "begun"])))
    assert harness.heard("s") == []
    harness.pass_time(50)
    assert [answer.json for answer in harness.heard("s")] == [{"jobs": []}]
    assert told(harness.ask("s", "POST", "/v1/jobs/wait", wait_body((handle, NOTHING)))) == {handle: "running"}


def test_a_client_that_leaves() -> None:
    harness = HttpHarness()
    handle = submit(harness)
    harness.send("s", "POST", "/v1/jobs/wait?wait=60", wait_body((handle, NOTHING)))
    harness.leave("s")
    finish(harness, take(harness))
    assert harness.ask("c", "GET", f"/v1/jobs/{handle}").json["state"] == "done"


def test_many_jobs_in_steps() -> None:
    harness = HttpHarness()
    handles = [submit(harness) for _ in range(200)]
    harness.send("s", "POST", "/v1/jobs/wait?wait=60", wait_body(*((handle, NOTHING) for handle in handles)))
    for _ in range(30):
        harness.turn()
    finish(harness, take(harness))
    (answer,) = harness.heard("s")
    assert told(answer) == {handles[0]: "done"}


def test_long_results_come_in_several_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchgear.protocols.http.wait_requests.MOST_RESULT_BYTES", 1000)
    harness = HttpHarness()
    handles = [submit(harness) for _ in range(3)]
    for _ in handles:
        finish(harness, take(harness), b"x" * 800)
    body = wait_body(*((handle, NOTHING) for handle in handles))
    assert told(harness.ask("s", "POST", "/v1/jobs/wait", body)) == dict.fromkeys(handles[:2], "done")
    assert told(harness.ask("s", "POST", "/v1/jobs/wait", wait_body((handles[2], NOTHING)))) == {handles[2]: "done"}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b"{}", "/jobs"),
        (b'{"jobs": []}', "/jobs"),
        (b'{"jobs": [{"handle": 1}]}', "/jobs/0/handle"),
        (b'{"jobs": [{"handle": "1", "seen": [1]}]}', "/jobs/0/seen"),
    ],
)
def test_bad_bodies(body: bytes, pointer: str) -> None:
    answer = HttpHarness().ask("s", "POST", "/v1/jobs/wait", body)
    assert answer.code == "invalid_field"
    assert answer.json["errors"][0]["pointer"].startswith(pointer)


def test_too_many_jobs() -> None:
    harness = HttpHarness()
    harness.setup.packet_bytes = 100_000
    body = json.dumps({"jobs": [{"handle": "1"}] * 1001}).encode()
    assert harness.ask("s", "POST", "/v1/jobs/wait", body).code == "invalid_field"


def test_verbs_by_name() -> None:
    harness = HttpHarness()
    handle = submit(harness)
    (function,) = harness.ask("o", "POST", "/v1/verbs/functions").json
    assert (function["name"], function["ready"]) == ("f", 1)
    assert harness.ask("o", "POST", "/v1/verbs/pause", b'{"function": "f"}').json["paused"] is True
    answer = harness.ask("o", "POST", "/v1/verbs/cancel", json.dumps({"handle": handle}).encode())
    assert answer.json["cancelled"] == [handle]
    assert harness.ask("o", "POST", "/v1/verbs/job", b'{"handle": "H:t:77"}').code == "not_found"
    assert harness.ask("o", "POST", "/v1/verbs/cancel", b'{"colour": 1}').code == "invalid_field"
    assert harness.ask("o", "POST", "/v1/verbs/cancel", b"[]").code == "invalid_field"
    assert harness.ask("o", "POST", "/v1/verbs/cancel", b"{").code == "invalid_json"
    for unknown in ("nonsense", "shutdown"):
        assert harness.ask("o", "POST", f"/v1/verbs/{unknown}").code == "not_found"
