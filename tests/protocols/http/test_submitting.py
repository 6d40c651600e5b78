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
from tests.protocols.http.house import Answer, HttpHouse


def submit(house: HttpHouse, **fields: Any) -> Answer:
    return house.ask("client", "POST", "/v1/jobs", {"function": "f", **fields})


def take(house: HttpHouse, function: str = "f") -> Answer:
    answer = house.ask("worker", "POST", f"/v1/functions/{function}/take")
    assert answer.status == 200, answer
    return answer


def finish(house: HttpHouse, taken: Answer, result: bytes) -> None:
    handle, attempt = taken.headers["switchgear-job"], taken.headers["switchgear-attempt"]
    house.send("worker", "PUT", f"/v1/jobs/{handle}/result", result, {"Switchgear-Attempt": attempt})


def fail(house: HttpHouse, taken: Answer, error: str) -> None:
    handle, attempt = taken.headers["switchgear-job"], taken.headers["switchgear-attempt"]
    body = json.dumps({"error": error}).encode()
    house.send("worker", "POST", f"/v1/jobs/{handle}/fail", body, {"Switchgear-Attempt": attempt})


def lines(*submissions: dict[str, Any] | str) -> bytes:
    return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in submissions).encode()


def errors(answer: Answer) -> list[str]:
    found: list[dict[str, str]] = answer.json["errors"]
    return [error["pointer"] for error in found]


# --- one job ---


def test_a_job_as_json() -> None:
    house = HttpHouse()
    answer = submit(house, payload="hello")
    assert (answer.status, answer.json) == (201, {"handle": "H:t:1", "id": 1, "joined": False})
    assert answer.headers["location"] == "/v1/jobs/H:t:1"
    assert take(house).body == b"hello"


def test_a_body_that_is_the_payload() -> None:
    house = HttpHouse()
    answer = house.ask("client", "POST", "/v1/functions/a%2Fb%20c/jobs", b"\0\xff")
    assert answer.status == 201
    assert take(house, "a%2Fb%20c").body == b"\0\xff"
    assert b"a/b c" in house.engine.functions


def test_bytes_in_json_and_arguments_of_a_task() -> None:
    house = HttpHouse()
    submit(house, payload={"base64": base64.b64encode(b"\0\xff").decode()})
    submit(house, args={"name": "world"})
    submit(house)
    assert [take(house).body for _ in range(3)] == [b"\0\xff", b'{"name": "world"}', b""]


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
        house = HttpHouse()
        submit(house)
        if is_json:
            answer = submit(house, **given)
        else:
            answer = house.ask("client", "POST", f"/v1/functions/f/jobs?{in_query}", b"")
        assert answer.status == 201, answer.body
        job = house.engine.job(2)
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
        (b'{"function": "f", "payload": {"base32": "?"}}', 422, ["/payload/base32"]),
        (b'{"function": "' + b"f" * 65 + b'"}', 422, ["/function"]),
        (b'{"function": "f", "unique": "' + b"u" * 65 + b'"}', 422, ["/unique"]),
        (b'{"function": "f\\u0000"}', 422, ["/function"]),
        (b'{"function": "f", "wait": true}', 422, ["/wait"]),
    ],
)
def test_a_wrong_field_is_pointed_to(body: bytes, status: int, pointers: list[str]) -> None:
    house = HttpHouse()
    answer = house.ask("client", "POST", "/v1/jobs", body)
    assert answer.status == status, answer.body
    assert answer.code in ("invalid_json", "invalid_field")
    assert errors(answer) == pointers
    assert house.engine.job_count() == 0


def test_a_wrong_option_in_the_query() -> None:
    answer = HttpHouse().ask("client", "POST", "/v1/functions/f/jobs?priority=huge", b"")
    assert (answer.status, answer.json["errors"][0]["parameter"]) == (422, "priority")


def test_json_that_is_nested_too_deep() -> None:
    body = b'{"function": "f", "args": ' + b"[" * 4000 + b"]" * 4000 + b"}"
    assert HttpHouse().ask("client", "POST", "/v1/jobs", body).status in (201, 400)


def test_a_list_of_very_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitting, "LONG_JSON_BYTES", 100)
    monkeypatch.setattr(submitting, "MOST_LIST_VALUES", 10)
    answer = submit(HttpHouse(), after=["H:t:1"] * 30)
    assert (answer.status, answer.code) == (413, "too_many_values")
    assert submit(HttpHouse(), payload="," * 500).status == 201


def test_a_queue_that_is_full() -> None:
    house = HttpHouse(settings=EngineSettings(jobs=1))
    assert submit(house).status == 201
    answer = submit(house)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "full", "1")


def test_a_server_that_drains_takes_nothing() -> None:
    house = HttpHouse()
    house.engine.drain()
    answer = submit(house)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "draining", "1")


def test_a_unique_key() -> None:
    house = HttpHouse()
    assert submit(house, unique="k").status == 201
    again = submit(house, unique="k")
    assert (again.status, again.json) == (200, {"handle": "H:t:1", "id": 1, "joined": True})
    rejected = submit(house, unique="k", unique_policy="reject")
    assert (rejected.status, rejected.code) == (409, "unique")


# --- what is promised ---


def test_an_answer_waits_until_its_job_is_stored() -> None:
    house = HttpHouse(keeps=True)
    house.send("client", "POST", "/v1/functions/f/jobs", b"x")
    house.send("client", "GET", "/livez")
    assert house.heard("client") == []
    house.keep()
    assert [answer.status for answer in house.heard("client")] == [201, 200]


def test_a_job_that_could_not_be_stored_is_refused() -> None:
    house = HttpHouse(keeps=True)
    house.send("client", "POST", "/v1/functions/f/jobs", b"x")
    house.send("client", "POST", "/v1/jobs", b'{"function": "f"}', {"Connection": "close"})
    house.fail_to_keep(Refused(REFUSED_STORAGE, "disk full"))
    first, second = house.heard("client")
    assert (first.status, first.code, first.headers["retry-after"]) == (503, "storage", "1")
    assert (second.status, second.headers["connection"]) == (503, "close")
    assert house.engine.job_count() == 0


def test_a_client_that_waits_for_a_job_that_could_not_be_stored() -> None:
    house = HttpHouse(keeps=True)
    house.send("client", "POST", "/v1/functions/f/jobs", b"x", {"Prefer": "wait=100"})
    house.fail_to_keep(Refused(REFUSED_STORAGE, "disk full"))
    (answer,) = house.heard("client")
    assert (answer.status, answer.code) == (503, "storage")
    assert house.engine.job_count() == 0
    assert house.ask("client", "GET", "/livez").status == 200


def test_only_those_lines_of_a_batch_are_refused_whose_jobs_could_not_be_stored() -> None:
    house = HttpHouse(keeps=True)
    house.send("client", "POST", "/v1/jobs/batch", lines({"function": "f"}, "?", {"function": "g"}))
    house.send("worker", "POST", "/v1/functions/g/take?wait=1")  # which has the job, so it cannot be withdrawn
    house.fail_to_keep(Refused(REFUSED_STORAGE, "disk full"))
    house.keep()
    (answer,) = house.heard("client")
    first, second, third = answer.lines
    assert (first["line"], first["problem"]["code"]) == (1, "storage")
    assert (second["line"], second["problem"]["code"]) == (2, "invalid_json")
    assert (third["line"], third["handle"]) == (3, "H:t:2")


# --- waiting ---


def test_a_client_that_waits_for_the_result() -> None:
    house = HttpHouse()
    house.send("client", "POST", "/v1/functions/f/jobs", b"abc", {"Prefer": "respond-async, wait=30"})
    finish(house, take(house), b"cba")
    (answer,) = house.heard("client")
    assert (answer.status, answer.body) == (200, b"cba")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment"
    assert (answer.headers["switchgear-job"], answer.headers["switchgear-state"]) == ("H:t:1", "done")
    assert house.ask("client", "GET", "/livez").status == 200  # the connection goes on


def test_a_client_that_waits_as_json_is_told_all_about_the_job() -> None:
    house = HttpHouse()
    house.send("client", "POST", "/v1/jobs", b'{"function": "f"}', {"Prefer": "wait=30"})
    finish(house, take(house), b"cba")
    (answer,) = house.heard("client")
    assert (answer.status, answer.json["state"], answer.json["result"]) == (200, "done", "cba")


def test_the_end_of_a_job_is_told_when_it_is_stored() -> None:
    house = HttpHouse(keeps=True)
    house.send("client", "POST", "/v1/jobs", b'{"function": "f"}', {"Prefer": "wait=30"})
    house.keep()
    house.send("worker", "POST", "/v1/functions/f/take")
    house.keep()
    (taken,) = house.heard("worker")
    finish(house, taken, b"cba")
    assert house.heard("client") == house.heard("worker") == []
    house.keep()
    (answer,) = house.heard("client")
    assert (answer.json["state"], answer.json["result"]) == ("done", "cba")
    assert [report.status for report in house.heard("worker")] == [204]


def test_a_client_that_waits_for_a_job_that_fails() -> None:
    house = HttpHouse()
    house.send("client", "POST", "/v1/functions/f/jobs", b"", {"Prefer": "wait=30"})
    fail(house, take(house), "no paper")
    (answer,) = house.heard("client")
    assert (answer.status, answer.code, answer.json["detail"]) == (502, "job_failed", "no paper")
    assert answer.headers["switchgear-state"] == "failed"


def test_a_client_that_does_not_wait_long_enough() -> None:
    house = HttpHouse()
    house.send("client", "POST", "/v1/functions/f/jobs", b"", {"Prefer": "wait=3"})
    house.pass_time(2.9)
    assert house.heard("client") == []
    house.pass_time(0.2)
    (answer,) = house.heard("client")
    assert (answer.status, answer.headers["location"]) == (202, "/v1/jobs/H:t:1")
    assert answer.headers["preference-applied"] == "wait"
    assert house.engine.job_count() == 1
    finish(house, take(house), b"late")
    assert house.ask("client", "GET", "/v1/jobs/1/result").body == b"late"


def test_a_preference_that_cannot_be_read() -> None:
    answer = HttpHouse().ask("client", "POST", "/v1/functions/f/jobs", b"", {"Prefer": "wait=soon"})
    assert (answer.status, answer.json["errors"][0]["header"]) == (400, "Prefer")


# --- Idempotency-Key ---


def idempotent(house: HttpHouse, key: str, body: bytes = b"x", target: str = "/v1/functions/f/jobs") -> Answer:
    return house.ask("client", "POST", target, body, {"Idempotency-Key": key})


def test_a_repeated_request_is_answered_with_the_same_job() -> None:
    house = HttpHouse()
    assert idempotent(house, '"k-1"').status == 201
    again = idempotent(house, "k-1")
    assert (again.status, again.json["handle"], again.json["joined"]) == (200, "H:t:1", True)
    finish(house, take(house), b"done")
    house.heard("worker")
    assert idempotent(house, "k-1").json["handle"] == "H:t:1"
    house.pass_time(86_401)
    assert idempotent(house, "k-1").json["handle"] == "H:t:2"


def test_a_repeated_request_that_waits_is_told_the_end() -> None:
    house = HttpHouse()
    idempotent(house, "k")
    finish(house, take(house), b"done")
    headers = {"Idempotency-Key": "k", "Prefer": "wait=1"}
    assert house.ask("client", "POST", "/v1/functions/f/jobs", b"x", headers).body == b"done"


@pytest.mark.parametrize(
    ("body", "target"), [(b"y", "/v1/functions/f/jobs"), (b"x", "/v1/functions/f/jobs?priority=high")]
)
def test_the_same_key_for_another_request_is_refused(body: bytes, target: str) -> None:
    house = HttpHouse()
    idempotent(house, "k")
    answer = idempotent(house, "k", body, target)
    assert (answer.status, answer.json["errors"][0]["header"]) == (422, "Idempotency-Key")
    assert house.engine.job_count() == 1


@pytest.mark.parametrize("key", ['""', "x" * 256, "a\tb"])
def test_a_key_that_is_none(key: str) -> None:
    assert idempotent(HttpHouse(), key).json["errors"][0]["header"] == "Idempotency-Key"


def test_a_key_beside_a_unique_key() -> None:
    answer = idempotent(HttpHouse(), "k", target="/v1/functions/f/jobs?unique=u")
    assert (answer.status, answer.json["errors"][0]["header"]) == (422, "Idempotency-Key")


# --- batches ---


def test_a_batch() -> None:
    house = HttpHouse()
    body = (
        lines({"function": "f"}, {"function": "f", "priority": "x"}, "", {"function": "f", "after": ["H:t:1"]}) + b"\n"
    )
    answer = house.ask("client", "POST", "/v1/jobs/batch", body)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    first, second, third, fourth = answer.lines
    assert first == {"line": 1, "handle": "H:t:1", "id": 1, "joined": False}
    assert second["problem"]["errors"][0]["pointer"] == "/priority"
    assert third["problem"]["code"] == "invalid_json"
    assert fourth["handle"] == "H:t:2"


def test_a_batch_of_many_lines() -> None:
    house = HttpHouse()
    answer = house.ask("client", "POST", "/v1/jobs/batch", b'{"function":"f"}\n' * 500)
    assert [line["id"] for line in answer.lines] == list(range(1, 501))


def test_an_atomic_batch() -> None:
    house = HttpHouse()
    submit(house)
    body = lines(
        {"function": "f", "name": "a", "priority": "high", "run_at": 4e9},
        {"function": "g", "after": ["H:t:1"], "on_failure": "run"},
    )
    answer = house.ask("client", "POST", "/v1/jobs/batch?atomic=1", body)
    assert [line["handle"] for line in answer.lines] == ["H:t:2", "H:t:3"]
    second, third = house.engine.job(2), house.engine.job(3)
    assert second is not None
    assert third is not None
    assert (second.name, second.priority, second.run_at_us) == (b"a", 0, 4 * 10**15)
    assert (third.function.name, third.predecessors) == (b"g", (1,))


@pytest.mark.parametrize(
    "wrong", [{"function": "f", "unique": "k"}, {"function": ""}, {"function": "f", "after": ["H:t:77"]}]
)
def test_an_atomic_batch_with_a_wrong_line_submits_nothing(wrong: dict[str, Any]) -> None:
    house = HttpHouse()
    answer = house.ask("client", "POST", "/v1/jobs/batch?atomic=1", lines({"function": "f"}, wrong))
    assert answer.status == 422
    assert [line["line"] for line in answer.lines] == [2]
    assert house.engine.job_count() == 0


def test_an_atomic_batch_that_does_not_fit_submits_nothing() -> None:
    house = HttpHouse(settings=EngineSettings(jobs=2))
    answer = house.ask("client", "POST", "/v1/jobs/batch?atomic=1", lines(*[{"function": "f"}] * 3))
    assert (answer.status, answer.code) == (429, "full")
    assert house.engine.job_count() == 0


def test_an_atomic_batch_is_refused_as_a_whole_if_it_cannot_be_stored() -> None:
    house = HttpHouse(keeps=True)
    house.send("client", "POST", "/v1/jobs/batch?atomic=1", lines(*[{"function": "f"}] * 3))
    house.fail_to_keep(Refused(REFUSED_STORAGE, "disk full"))
    (answer,) = house.heard("client")
    assert (answer.status, answer.code) == (503, "storage")
    assert house.engine.job_count() == 0


def test_batches_of_wrong_sizes() -> None:
    house = HttpHouse()
    assert house.ask("client", "POST", "/v1/jobs/batch", b"").code == "batch_size"
    assert house.ask("client", "POST", "/v1/jobs/batch?atomic=1", b"{}\n" * 1001).status == 413


def test_a_job_waits_for_very_many_others() -> None:
    house = HttpHouse()
    house.setup.packet_bytes = 10_000_000
    jobs = [house.engine.submit(b"f", b"", b"", NORMAL, Delivery.HANDLE).id for _ in range(3_000)]
    after = [f"H:t:{job_id}" for job_id in jobs]
    wide = {"function": "g", "after": after, "on_failure": "run"}
    answer = house.ask("c", "POST", "/v1/jobs", wide)
    assert (answer.status, answer.json) == (201, {"handle": "H:t:3001", "id": 3001, "joined": False})
    assert len(house.engine.jobs[3001].predecessors) == 3_000
    answer = house.ask("c", "POST", "/v1/jobs", {**wide, "unique": "k"})
    assert (answer.status, answer.json["joined"]) == (201, False)
    answer = house.ask("c", "POST", "/v1/jobs", {**wide, "unique": "k"})
    assert (answer.status, answer.json["joined"]) == (200, True)
    answer = house.ask("c", "POST", "/v1/jobs", {"function": "g", "after": [*after, "H:t:99999"]})
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "/after")
    answer = house.ask("c", "POST", "/v1/jobs/batch", json.dumps(wide).encode())
    assert answer.lines[0]["joined"] is False
