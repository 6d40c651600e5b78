"""Submissions: as JSON, as a body, in batches; waiting for the end; and keys that make a repetition harmless."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.errors import Refused
from switchgear.job_options import JOB_OPTIONS
from switchgear.model import NORMAL, Delivery
from switchgear.protocols.http import submitting
from switchgear.refusals import REFUSED_STORAGE
from tests.protocols.http.harness import Answer, HttpHarness


def submit(harness: HttpHarness, **fields: Any) -> Answer:
    return harness.ask("client", "POST", "/v1/jobs", {"function": "f", **fields})


def take(harness: HttpHarness, function: str = "f") -> Answer:
    answer = harness.ask("worker", "POST", f"/v1/functions/{function}/take")
    assert answer.status == 200, answer
    return answer


def finish(harness: HttpHarness, taken: Answer, result: bytes) -> None:
    handle, attempt = taken.headers["switchgear-job"], taken.headers["switchgear-attempt"]
    harness.send("worker", "PUT", f"/v1/jobs/{handle}/result", result, {"Switchgear-Attempt": attempt})


def fail(harness: HttpHarness, taken: Answer, error: str) -> None:
    handle, attempt = taken.headers["switchgear-job"], taken.headers["switchgear-attempt"]
    body = json.dumps({"error": error}).encode()
    harness.send("worker", "POST", f"/v1/jobs/{handle}/fail", body, {"Switchgear-Attempt": attempt})


def lines(*submissions: dict[str, Any] | str) -> bytes:
    return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in submissions).encode()


def errors(answer: Answer) -> list[str]:
    found: list[dict[str, str]] = answer.json["errors"]
    return [error["pointer"] for error in found]


# --- one job ---


def test_a_job_as_json() -> None:
    harness = HttpHarness()
    answer = submit(harness, payload="hello")
    assert (answer.status, answer.json) == (201, {"handle": "H:t:1", "id": 1, "joined": False})
    assert answer.headers["location"] == "/v1/jobs/H:t:1"
    assert take(harness).body == b"hello"


def test_a_body_that_is_the_payload() -> None:
    harness = HttpHarness()
    answer = harness.ask("client", "POST", "/v1/functions/a%2Fb%20c/jobs", b"\0\xff")
    assert answer.status == 201
    assert take(harness, "a%2Fb%20c").body == b"\0\xff"
    assert b"a/b c" in harness.engine.functions


def test_bytes_in_json_and_arguments_of_a_task() -> None:
    harness = HttpHarness()
    submit(harness, payload={"base64": base64.b64encode(b"\0\xff").decode()})
    submit(harness, args={"name": "world"})
    submit(harness)
    assert [take(harness).body for _ in range(3)] == [b"\0\xff", b'{"name": "world"}', b""]


@pytest.mark.parametrize("option", [option for option in JOB_OPTIONS if option.name not in ("wait", "watch")])
def test_every_job_option_can_be_given_both_ways(option: Any) -> None:
    if option.name == "on_failure":
        return  # goes with `after`
    given = {option.name: option.example}
    if option.name == "after":
        given = {"after": ["H:t:1"], "on_failure": "run"}
    if option.name.startswith("unique_"):
        given["unique"] = "k"
    in_query = "&".join(f"{name}={','.join(v) if isinstance(v, list) else v}" for name, v in given.items())
    jobs = []
    for is_json in (True, False):
        harness = HttpHarness()
        submit(harness)
        if is_json:
            answer = submit(harness, **given)
        else:
            answer = harness.ask("client", "POST", f"/v1/functions/f/jobs?{in_query}", b"")
        assert answer.status == 201, answer.body
        job = harness.engine.job(2)
        assert job is not None
        jobs.append(job)
    for field in ("predecessors", "edges", "name", "key", "priority", "run_at_us", "expires_us", "timeout_us",
                  "attempts_limit", "crash_limit", "unique_scope", "retention_us", "requires", "reducer"):  # fmt: skip
        assert getattr(jobs[0], field) == getattr(jobs[1], field), field
    if option.field not in ("unique_policy", "unique_for_us", "predecessors"):
        assert getattr(jobs[0], option.field) != option.default


@pytest.mark.parametrize(
    ("body", "status", "pointers"),
    [
        (b"", 400, [""]),
        (b"{", 400, [""]),
        (b"[]", 422, [""]),
        (b"\xff", 400, [""]),
        (b"{}", 422, ["/function"]),
        (b'{"function": ""}', 422, ["/function"]),
        (b'{"function": "f", "prio": 1}', 422, ["/prio"]),
        (b'{"function": "f", "priority": 1}', 422, ["/priority"]),
        (b'{"function": "f", "priority": "huge"}', 422, ["/priority"]),
        (b'{"function": "f", "run_at": -1}', 422, ["/run_at"]),
        (b'{"function": "f", "after": ["H:t:9"]}', 422, ["/after"]),
        (b'{"function": "f", "after": [7]}', 422, ["/after/0"]),
        (b'{"function": "f", "unique_for": 3}', 422, ["/unique_for"]),
        (b'{"function": "f", "payload": "a", "args": {}}', 422, ["/args"]),
        (b'{"function": "f", "args": 3}', 422, ["/args"]),
        (b'{"function": "f", "payload": {"base64": "?"}}', 422, ["/payload/base64"]),
        (b'{"function": "f", "payload": {"base64": "AAAA="}}', 422, ["/payload/base64"]),
        (b'{"function": "f", "payload": {"base64": "AAAA=="}}', 422, ["/payload/base64"]),
        (b'{"function": "f", "payload": {"base64": "AA="}}', 422, ["/payload/base64"]),
        (b'{"function": "f", "args": ["\xff"]}', 400, ["/args"]),
        (b'{"function": "f", "payload": {"base32": "?"}}', 422, ["/payload/base32"]),
        (b'{"function": "' + b"f" * 65 + b'"}', 422, ["/function"]),
        (b'{"function": "f", "unique": "' + b"u" * 65 + b'"}', 422, ["/unique"]),
        (b'{"function": "f\\u0000"}', 422, ["/function"]),
        (b'{"function": "f", "wait": true}', 422, ["/wait"]),
    ],
)
def test_a_wrong_field_is_pointed_to(body: bytes, status: int, pointers: list[str]) -> None:
    harness = HttpHarness()
    answer = harness.ask("client", "POST", "/v1/jobs", body)
    assert answer.status == status, answer.body
    assert answer.code in ("invalid_json", "invalid_field")
    assert errors(answer) == pointers
    assert harness.engine.job_count() == 0


def test_a_wrong_option_in_the_query() -> None:
    answer = HttpHarness().ask("client", "POST", "/v1/functions/f/jobs?priority=huge", b"")
    assert (answer.status, answer.json["errors"][0]["parameter"]) == (422, "priority")


def test_json_that_is_nested_too_deep() -> None:
    body = b'{"function": "f", "args": ' + b"[" * 4000 + b"]" * 4000 + b"}"
    assert HttpHarness().ask("client", "POST", "/v1/jobs", body).status in (201, 400)


def test_a_list_of_very_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitting, "LONG_JSON_BYTES", 100)
    monkeypatch.setattr(submitting, "MOST_LIST_VALUES", 10)
    answer = submit(HttpHarness(), after=["H:t:1"] * 30)
    assert (answer.status, answer.code) == (413, "too_many_values")
    assert submit(HttpHarness(), payload="," * 500).status == 201


def test_a_queue_that_is_full() -> None:
    harness = HttpHarness(settings=EngineSettings(jobs=1))
    assert submit(harness).status == 201
    answer = submit(harness)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "full", "1")


def test_a_server_that_drains_takes_nothing() -> None:
    harness = HttpHarness()
    harness.engine.drain()
    answer = submit(harness)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "draining", "1")


def test_a_unique_key() -> None:
    harness = HttpHarness()
    assert submit(harness, unique="k").status == 201
    again = submit(harness, unique="k")
    assert (again.status, again.json) == (200, {"handle": "H:t:1", "id": 1, "joined": True})
    rejected = submit(harness, unique="k", unique_policy="reject")
    assert (rejected.status, rejected.code) == (409, "unique")


# --- what is promised ---


def test_an_answer_waits_until_its_job_is_stored() -> None:
    harness = HttpHarness(keeps=True)
    harness.send("client", "POST", "/v1/functions/f/jobs", b"x")
    harness.send("client", "GET", "/livez")
    assert harness.heard("client") == []
    harness.keep()
    assert [answer.status for answer in harness.heard("client")] == [201, 200]


def test_a_job_that_could_not_be_stored_is_refused() -> None:
    harness = HttpHarness(keeps=True)
    harness.send("client", "POST", "/v1/functions/f/jobs", b"x")
    harness.send("client", "POST", "/v1/jobs", b'{"function": "f"}', {"Connection": "close"})
    harness.fail_to_keep(Refused(REFUSED_STORAGE, "disk full"))
    first, second = harness.heard("client")
    assert (first.status, first.code, first.headers["retry-after"]) == (503, "storage", "1")
    assert (second.status, second.headers["connection"]) == (503, "close")
    assert harness.engine.job_count() == 0


def test_a_client_that_waits_for_a_job_that_could_not_be_stored() -> None:
    harness = HttpHarness(keeps=True)
    harness.send("client", "POST", "/v1/functions/f/jobs", b"x", {"Prefer": "wait=100"})
    harness.fail_to_keep(Refused(REFUSED_STORAGE, "disk full"))
    (answer,) = harness.heard("client")
    assert (answer.status, answer.code) == (503, "storage")
    assert harness.engine.job_count() == 0
    assert harness.ask("client", "GET", "/livez").status == 200


def test_only_those_lines_of_a_batch_are_refused_whose_jobs_could_not_be_stored() -> None:
    harness = HttpHarness(keeps=True)
    harness.send("client", "POST", "/v1/jobs/batch", lines({"function": "f"}, "?", {"function": "g"}))
    harness.send("worker", "POST", "/v1/functions/g/take?wait=1")  # which has the job, so it cannot be withdrawn
    harness.fail_to_keep(Refused(REFUSED_STORAGE, "disk full"))
    harness.keep()
    (answer,) = harness.heard("client")
    first, second, third = answer.lines
    assert (first["line"], first["problem"]["code"]) == (1, "storage")
    assert (second["line"], second["problem"]["code"]) == (2, "invalid_json")
    assert (third["line"], third["handle"]) == (3, "H:t:2")


# --- waiting ---


def test_a_client_that_waits_for_the_result() -> None:
    harness = HttpHarness()
    harness.send("client", "POST", "/v1/functions/f/jobs", b"abc", {"Prefer": "respond-async, wait=30"})
    finish(harness, take(harness), b"cba")
    (answer,) = harness.heard("client")
    assert (answer.status, answer.body) == (200, b"cba")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment"
    assert (answer.headers["switchgear-job"], answer.headers["switchgear-state"]) == ("H:t:1", "done")
    assert harness.ask("client", "GET", "/livez").status == 200  # the connection goes on


def test_a_client_that_waits_as_json_is_told_all_about_the_job() -> None:
    harness = HttpHarness()
    harness.send("client", "POST", "/v1/jobs", b'{"function": "f"}', {"Prefer": "wait=30"})
    finish(harness, take(harness), b"cba")
    (answer,) = harness.heard("client")
    assert (answer.status, answer.json["state"], answer.json["result"]) == (200, "done", "cba")


def test_the_end_of_a_job_is_told_when_it_is_stored() -> None:
    harness = HttpHarness(keeps=True)
    harness.send("client", "POST", "/v1/jobs", b'{"function": "f"}', {"Prefer": "wait=30"})
    harness.keep()
    harness.send("worker", "POST", "/v1/functions/f/take")
    harness.keep()
    (taken,) = harness.heard("worker")
    finish(harness, taken, b"cba")
    assert harness.heard("client") == harness.heard("worker") == []
    harness.keep()
    (answer,) = harness.heard("client")
    assert (answer.json["state"], answer.json["result"]) == ("done", "cba")
    assert [report.status for report in harness.heard("worker")] == [204]


def test_a_client_that_waits_for_a_job_that_fails() -> None:
    harness = HttpHarness()
    harness.send("client", "POST", "/v1/functions/f/jobs", b"", {"Prefer": "wait=30"})
    fail(harness, take(harness), "no paper")
    (answer,) = harness.heard("client")
    assert (answer.status, answer.code, answer.json["detail"]) == (502, "job_failed", "no paper")
    assert answer.headers["switchgear-state"] == "failed"


def test_a_client_that_does_not_wait_long_enough() -> None:
    harness = HttpHarness()
    harness.send("client", "POST", "/v1/functions/f/jobs", b"", {"Prefer": "wait=3"})
    harness.pass_time(2.9)
    assert harness.heard("client") == []
    harness.pass_time(0.2)
    (answer,) = harness.heard("client")
    assert (answer.status, answer.headers["location"]) == (202, "/v1/jobs/H:t:1")
    assert answer.headers["preference-applied"] == "wait"
    assert harness.engine.job_count() == 1
    finish(harness, take(harness), b"late")
    assert harness.ask("client", "GET", "/v1/jobs/1/result").body == b"late"


def test_a_preference_that_cannot_be_read() -> None:
    answer = HttpHarness().ask("client", "POST", "/v1/functions/f/jobs", b"", {"Prefer": "wait=soon"})
    assert (answer.status, answer.json["errors"][0]["header"]) == (400, "Prefer")


# --- Idempotency-Key ---


def idempotent(harness: HttpHarness, key: str, body: bytes = b"x", target: str = "/v1/functions/f/jobs") -> Answer:
    return harness.ask("client", "POST", target, body, {"Idempotency-Key": key})


def test_a_repeated_request_is_answered_with_the_same_job() -> None:
    harness = HttpHarness()
    assert idempotent(harness, '"k-1"').status == 201
    again = idempotent(harness, "k-1")
    assert (again.status, again.json["handle"], again.json["joined"]) == (200, "H:t:1", True)
    finish(harness, take(harness), b"done")
    harness.heard("worker")
    assert idempotent(harness, "k-1").json["handle"] == "H:t:1"
    harness.pass_time(86_401)
    assert idempotent(harness, "k-1").json["handle"] == "H:t:2"


def test_a_repeated_request_that_waits_is_told_the_end() -> None:
    harness = HttpHarness()
    idempotent(harness, "k")
    finish(harness, take(harness), b"done")
    headers = {"Idempotency-Key": "k", "Prefer": "wait=1"}
    assert harness.ask("client", "POST", "/v1/functions/f/jobs", b"x", headers).body == b"done"


@pytest.mark.parametrize(
    ("body", "target"), [(b"y", "/v1/functions/f/jobs"), (b"x", "/v1/functions/f/jobs?priority=high")]
)
def test_the_same_key_for_another_request_is_refused(body: bytes, target: str) -> None:
    harness = HttpHarness()
    idempotent(harness, "k")
    answer = idempotent(harness, "k", body, target)
    assert (answer.status, answer.json["errors"][0]["header"]) == (422, "Idempotency-Key")
    assert harness.engine.job_count() == 1


@pytest.mark.parametrize("key", ['""', "x" * 256, "a\tb"])
def test_a_key_that_is_none(key: str) -> None:
    assert idempotent(HttpHarness(), key).json["errors"][0]["header"] == "Idempotency-Key"


@pytest.mark.parametrize("query", ["", "?atomic=1"])
def test_a_batch_with_a_key_is_refused(query: str) -> None:
    """Whoever sends one would repeat the batch, and have its jobs twice."""
    harness = HttpHarness()
    answer = idempotent(harness, "k", lines({"function": "f"}), f"/v1/jobs/batch{query}")
    assert (answer.status, answer.json["errors"][0]["header"]) == (422, "Idempotency-Key")
    assert harness.engine.job_count() == 0


def test_a_key_beside_a_unique_key() -> None:
    answer = idempotent(HttpHarness(), "k", target="/v1/functions/f/jobs?unique=u")
    assert (answer.status, answer.json["errors"][0]["header"]) == (422, "Idempotency-Key")


# --- batches ---


def test_a_batch() -> None:
    harness = HttpHarness()
    body = (
        lines({"function": "f"}, {"function": "f", "priority": "x"}, "", {"function": "f", "after": ["H:t:1"]}) + b"\n"
    )
    answer = harness.ask("client", "POST", "/v1/jobs/batch", body)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    first, second, third, fourth = answer.lines
    assert first == {"line": 1, "handle": "H:t:1", "id": 1, "joined": False}
    assert second["problem"]["errors"][0]["pointer"] == "/priority"
    assert third["problem"]["code"] == "invalid_json"
    assert fourth["handle"] == "H:t:2"


def test_a_batch_of_many_lines() -> None:
    harness = HttpHarness()
    answer = harness.ask("client", "POST", "/v1/jobs/batch", b'{"function":"f"}\n' * 500)
    assert [line["id"] for line in answer.lines] == list(range(1, 501))


def test_an_atomic_batch() -> None:
    harness = HttpHarness()
    submit(harness)
    body = lines(
        {"function": "f", "name": "a", "priority": "high", "run_at": 4e9},
        {"function": "g", "after": ["H:t:1"], "on_failure": "run"},
    )
    answer = harness.ask("client", "POST", "/v1/jobs/batch?atomic=1", body)
    assert [line["handle"] for line in answer.lines] == ["H:t:2", "H:t:3"]
    second, third = harness.engine.job(2), harness.engine.job(3)
    assert second is not None
    assert third is not None
    assert (second.name, second.priority, second.run_at_us) == (b"a", 0, 4 * 10**15)
    assert (third.function.name, third.predecessors) == (b"g", (1,))


@pytest.mark.parametrize(
    "wrong", [{"function": "f", "unique": "k"}, {"function": ""}, {"function": "f", "after": ["H:t:77"]}]
)
def test_an_atomic_batch_with_a_wrong_line_submits_nothing(wrong: dict[str, Any]) -> None:
    harness = HttpHarness()
    answer = harness.ask("client", "POST", "/v1/jobs/batch?atomic=1", lines({"function": "f"}, wrong))
    assert answer.status == 422
    assert [line["line"] for line in answer.lines] == [2]
    assert harness.engine.job_count() == 0


def test_an_atomic_batch_that_does_not_fit_submits_nothing() -> None:
    harness = HttpHarness(settings=EngineSettings(jobs=2))
    answer = harness.ask("client", "POST", "/v1/jobs/batch?atomic=1", lines(*[{"function": "f"}] * 3))
    assert (answer.status, answer.code) == (429, "full")
    assert harness.engine.job_count() == 0


def test_an_atomic_batch_is_refused_as_a_whole_if_it_cannot_be_stored() -> None:
    harness = HttpHarness(keeps=True)
    harness.send("client", "POST", "/v1/jobs/batch?atomic=1", lines(*[{"function": "f"}] * 3))
    harness.fail_to_keep(Refused(REFUSED_STORAGE, "disk full"))
    (answer,) = harness.heard("client")
    assert (answer.status, answer.code) == (503, "storage")
    assert harness.engine.job_count() == 0


def test_batches_of_wrong_sizes() -> None:
    harness = HttpHarness()
    assert harness.ask("client", "POST", "/v1/jobs/batch", b"").code == "batch_size"
    assert harness.ask("client", "POST", "/v1/jobs/batch", b"{}\n" * 10_001).status == 413


# --- graphs ---


def test_the_jobs_of_an_atomic_batch_wait_for_each_other() -> None:
    harness = HttpHarness()
    submit(harness)
    body = lines(
        {"function": "f"},
        {"function": "g", "after": ["#1", "H:t:1"], "on_failure": ["wait", "run"]},
        {"function": "h", "after": ["#1", "#2"]},
    )
    answer = harness.ask("client", "POST", "/v1/jobs/batch?atomic=1", body)
    assert [line["handle"] for line in answer.lines] == ["H:t:2", "H:t:3", "H:t:4"]
    assert [harness.engine.jobs[job_id].predecessors for job_id in (3, 4)] == [(2, 1), (2, 3)]


@pytest.mark.parametrize("word", ["#2", "#3", "#0", "#", "#x", "#-1"])
def test_a_line_waits_for_lines_before_it(word: str) -> None:
    harness = HttpHarness()
    body = lines({"function": "f"}, {"function": "g", "after": [word]})
    answer = harness.ask("client", "POST", "/v1/jobs/batch?atomic=1", body)
    assert answer.status == 422
    assert answer.lines[0]["problem"]["errors"][0]["pointer"] == "/after"
    assert harness.engine.job_count() == 0
    assert harness.ask("client", "POST", "/v1/jobs/batch", lines({"function": "f"}, {"function": "g", "after": ["#1"]}))
    assert harness.engine.job_count() == 1


def test_a_long_atomic_batch() -> None:
    harness = HttpHarness()
    harness.setup.packet_bytes = 10_000_000
    jobs: list[dict[str, Any]] = [{"function": "f", "payload": str(number)} for number in range(3_000)]
    jobs.append({"function": "g", "after": [f"#{number}" for number in range(1, 3_001)]})
    answer = harness.ask("client", "POST", "/v1/jobs/batch?atomic=1", lines(*jobs))
    assert [line["id"] for line in answer.lines] == list(range(1, 3_002))
    assert len(harness.engine.jobs[3_001].predecessors) == 3_000
    wrong = harness.ask("client", "POST", "/v1/jobs/batch?atomic=1", lines(*jobs, {"function": ""}))
    assert (wrong.status, [line["line"] for line in wrong.lines]) == (422, [3_002])
    assert harness.engine.job_count() == 3_001
    assert not harness.engine.is_graph_under_way


def test_handles_are_reserved_for_a_batch() -> None:
    harness = HttpHarness()
    reserved = harness.ask("client", "POST", "/v1/jobs/handles", {"count": 2})
    assert (reserved.status, reserved.json) == (201, {"first": "H:t:1", "count": 2})
    submit(harness)
    body = lines({"function": "f"}, {"function": "g", "after": ["H:t:1"], "payload": "H:t:1"})
    answer = harness.ask("other connection", "POST", "/v1/jobs/batch?atomic=1&first=H:t:1", body)
    assert [line["handle"] for line in answer.lines] == ["H:t:1", "H:t:2"]
    assert harness.engine.jobs[2].predecessors == (1,)
    again = harness.ask("client", "POST", "/v1/jobs/batch?atomic=1&first=H:t:1", body)
    assert (again.status, again.code) == (404, "reservation_not_found")


@pytest.mark.parametrize("first", ["H:t:77", "H:other:1", "nonsense"])
def test_handles_that_an_earlier_server_reserved(first: str) -> None:
    body = lines({"function": "f"})
    answer = HttpHarness().ask("client", "POST", f"/v1/jobs/batch?atomic=1&first={first}", body)
    assert (answer.status, answer.code) == (404, "reservation_not_found")


def test_reserved_handles_that_do_not_fit() -> None:
    harness = HttpHarness()
    for wrong in ({"count": 0}, {"count": 10**7}, {}, {"count": 1, "more": 1}):
        assert harness.ask("client", "POST", "/v1/jobs/handles", wrong).status == 422
    harness.ask("client", "POST", "/v1/jobs/handles", {"count": 2})
    body = lines({"function": "f"})
    assert harness.ask("client", "POST", "/v1/jobs/batch?first=H:t:1", body).code == "invalid_parameter"
    assert harness.ask("client", "POST", "/v1/jobs/batch?atomic=1&first=H:t:1", body).code == "batch_size"
    assert harness.engine.job_count() == 0


def test_reservations_are_bounded() -> None:
    harness = HttpHarness()
    for _ in range(1_001):
        harness.ask("client", "POST", "/v1/jobs/handles", {"count": 1})
    body = lines({"function": "f"})
    assert harness.ask("client", "POST", "/v1/jobs/batch?atomic=1&first=H:t:1", body).status == 404
    assert harness.ask("client", "POST", "/v1/jobs/batch?atomic=1&first=H:t:2", body).status == 200


def test_a_job_waits_for_others_by_their_numbers() -> None:
    harness = HttpHarness()
    submit(harness)
    assert submit(harness, after=["1"]).status == 201
    assert harness.ask("client", "POST", "/v1/functions/f/jobs?after=1,H:t:2", b"").status == 201
    assert [harness.engine.jobs[job_id].predecessors for job_id in (2, 3)] == [(1,), (1, 2)]
    assert submit(harness, after=["4"]).status == 422


def test_a_job_waits_for_very_many_others() -> None:
    harness = HttpHarness()
    harness.setup.packet_bytes = 10_000_000
    jobs = [harness.engine.submit(b"f", b"", b"", NORMAL, Delivery.HANDLE).id for _ in range(3_000)]
    after = [f"H:t:{job_id}" for job_id in jobs]
    wide = {"function": "g", "after": after, "on_failure": "run"}
    answer = harness.ask("c", "POST", "/v1/jobs", wide)
    assert (answer.status, answer.json) == (201, {"handle": "H:t:3001", "id": 3001, "joined": False})
    assert len(harness.engine.jobs[3001].predecessors) == 3_000
    answer = harness.ask("c", "POST", "/v1/jobs", {**wide, "unique": "k"})
    assert (answer.status, answer.json["joined"]) == (201, False)
    answer = harness.ask("c", "POST", "/v1/jobs", {**wide, "unique": "k"})
    assert (answer.status, answer.json["joined"]) == (200, True)
    answer = harness.ask("c", "POST", "/v1/jobs", {"function": "g", "after": [*after, "H:t:99999"]})
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "/after")
    answer = harness.ask("c", "POST", "/v1/jobs/batch", json.dumps(wide).encode())
    assert answer.lines[0]["joined"] is False
