"""Workers over HTTP: a job, its lease and its reports; a report on an attempt that is over has no effect."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.engine.engine import EngineSettings
from tests.protocols.http.house import Answer, HttpHouse
from tests.protocols.http.test_submitting import finish, submit, take


def report(
    house: HttpHouse, taken: Answer, what: str, body: dict[str, Any] | bytes = b"", method: str = "POST"
) -> Answer:
    handle, attempt = taken.headers["switchgear-job"], taken.headers["switchgear-attempt"]
    return house.ask("reporter", method, f"/v1/jobs/{handle}/{what}", body, {"Switchgear-Attempt": attempt})


def state(house: HttpHouse, number: int = 1) -> str:
    word: str = house.ask("looker", "GET", f"/v1/jobs/{number}").json["state"]
    return word


# --- one job at a time ---


def test_there_is_no_job() -> None:
    house = HttpHouse()
    assert house.ask("w", "POST", "/v1/functions/f/take").status == 204
    assert not house.engine.workers


def test_a_job_is_waited_for() -> None:
    house = HttpHouse()
    house.send("w", "POST", "/v1/functions/f/take?wait=30")
    assert [worker["protocol"] for worker in house.ask("c", "GET", "/v1/workers").json] == ["http"]
    submit(house, payload="x")
    (answer,) = house.heard("w")
    assert (answer.status, answer.body) == (200, b"x")
    assert (answer.headers["switchgear-job"], answer.headers["switchgear-attempt"]) == ("H:t:1", "1")


def test_a_job_is_waited_for_in_vain() -> None:
    house = HttpHouse()
    house.send("w", "POST", "/v1/functions/f/take?wait=3")
    house.pass_time(3)
    assert [answer.status for answer in house.heard("w")] == [204]
    assert not house.engine.workers
    submit(house)
    assert state(house) == "ready"


def test_the_life_of_a_worker_is_its_lease_and_not_its_connection() -> None:
    house = HttpHouse()
    submit(house)
    taken = take(house)
    house.leave("worker")
    assert state(house) == "running"
    assert report(house, taken, "result", b"r", "PUT").status == 204
    assert state(house) == "done"
    assert not house.engine.workers


def test_a_worker_that_is_not_heard_of_loses_its_job() -> None:
    house = HttpHouse()
    submit(house)
    house.send("w", "POST", "/v1/functions/f/take?lease=10&wait=5")
    (taken,) = house.heard("w")
    house.pass_time(9.9)
    assert state(house) == "running"
    house.pass_time(0.2)
    assert state(house) == "ready"
    late = report(house, taken, "result", b"r", "PUT")
    assert (late.status, late.code) == (409, "not_held")
    assert state(house) == "ready"


def test_the_lease_begins_with_the_job_and_not_with_the_request() -> None:
    house = HttpHouse()
    house.send("w", "POST", "/v1/functions/f/take?lease=10&wait=100")
    house.pass_time(50)
    submit(house)
    assert len(house.heard("w")) == 1
    house.pass_time(9.9)
    assert state(house) == "running"
    house.pass_time(0.2)
    assert state(house) == "ready"


def test_progress_renews_the_lease_and_tells_whether_the_job_was_cancelled() -> None:
    house = HttpHouse()
    submit(house)
    taken = house.ask("w", "POST", "/v1/functions/f/take?lease=10")
    for _ in range(5):
        house.pass_time(9)
        answer = report(house, taken, "progress", {"numerator": 1, "denominator": 3, "message": "at it"})
        assert answer.json == {"cancelled": False, "lease": 10.0}
    job = house.ask("c", "GET", "/v1/jobs/1").json
    assert (job["state"], job["numerator"], job["denominator"], job["message"]) == ("running", 1, 3, "at it")
    assert report(house, taken, "progress", {"numerator": 2}).json["cancelled"] is False
    assert report(house, taken, "progress").json["cancelled"] is False
    job = house.ask("c", "GET", "/v1/jobs/1").json
    assert (job["numerator"], job["denominator"], job["message"]) == (2, 3, "at it")  # what is not said stays
    house.ask("c", "DELETE", "/v1/jobs/1")
    assert report(house, taken, "progress").json["cancelled"] is True
    done = report(house, taken, "result", b"r", "PUT")
    assert (done.status, done.code) == (409, "cancelled")
    assert state(house) == "cancelled"
    assert not house.engine.workers


def test_an_earlier_attempt_is_fenced_off() -> None:
    house = HttpHouse()
    submit(house)
    first = house.ask("w", "POST", "/v1/functions/f/take?lease=1")
    house.pass_time(2)
    second = house.ask("w", "POST", "/v1/functions/f/take")
    for what, method in (("result", "PUT"), ("fail", "POST"), ("progress", "POST"), ("release", "POST")):
        assert report(house, first, what, method=method).status == 409
    assert report(house, second, "result", b"second", "PUT").status == 204
    assert house.ask("c", "GET", "/v1/jobs/1/result").body == b"second"
    assert report(house, second, "result", b"third", "PUT").status == 409


def test_a_job_of_another_protocols_worker_is_not_to_be_reported_on() -> None:
    from switchgear.testing import RecordingPeer

    house = HttpHouse()
    submit(house)
    worker = house.engine.add_worker(RecordingPeer(), "gearman")
    house.engine.can_do(worker, house.engine.function_named(b"f"))
    assert house.engine.take(worker) is not None
    answer = house.ask("c", "PUT", "/v1/jobs/1/result", b"", {"Switchgear-Attempt": "1"})
    assert answer.code == "not_held"


def test_failing_for_good_and_for_a_while() -> None:
    house = HttpHouse()
    submit(house)
    assert report(house, take(house), "fail", {"error": "no paper", "retry_in": 5}).status == 204
    assert state(house) == "scheduled"
    house.pass_time(5)
    assert report(house, take(house), "fail", {"error": {"base64": "/w=="}}).status == 204
    job = house.ask("c", "GET", "/v1/jobs/1").json
    assert (job["state"], job["error"], job["attempts"]) == ("failed", {"base64": "/w=="}, 2)


def test_releasing_costs_no_attempt() -> None:
    house = HttpHouse()
    submit(house)
    assert report(house, take(house), "release").status == 204
    job = house.ask("c", "GET", "/v1/jobs/1").json
    assert (job["state"], job["attempts"]) == ("ready", 0)
    assert not house.engine.workers


def test_a_report_names_its_attempt() -> None:
    house = HttpHouse()
    submit(house)
    take(house)
    answer = house.ask("c", "PUT", "/v1/jobs/1/result", b"")
    assert (answer.status, answer.json["errors"][0]["header"]) == (428, "Switchgear-Attempt")
    assert house.ask("c", "PUT", "/v1/jobs/1/result", b"", {"Switchgear-Attempt": "one"}).status == 400
    assert state(house) == "running"


@pytest.mark.parametrize(
    ("what", "body", "pointer"),
    [
        ("fail", {"eror": "x"}, "/eror"),
        ("fail", {"retry_in": -1}, "/retry_in"),
        ("fail", {"error": {"base64": "?"}}, "/error"),
        ("progress", {"numerator": "1"}, "/numerator"),
        ("progress", {"denominator": -1}, "/denominator"),
    ],
)
def test_a_wrong_report_has_no_effect(what: str, body: dict[str, Any], pointer: str) -> None:
    house = HttpHouse()
    submit(house)
    answer = report(house, take(house), what, body)
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, pointer)
    assert state(house) == "running"


def test_a_worker_that_leaves_while_it_waits_gets_no_job() -> None:
    house = HttpHouse()
    house.send("w", "POST", "/v1/functions/f/take?wait=100")
    house.leave("w")
    submit(house)
    assert state(house) == "ready"


def test_a_worker_that_leaves_before_its_job_was_sent_gives_it_back() -> None:
    house = HttpHouse(keeps=True)
    house.send("c", "POST", "/v1/functions/f/jobs", b"")
    house.keep()
    house.send("w", "POST", "/v1/functions/f/take")
    assert house.heard("w") == []  # the start is not stored yet
    house.leave("w")
    house.keep()
    job = house.engine.job(1)
    assert job is not None
    assert (job.state.name, job.attempts) == ("READY", 0)
    assert not house.engine.workers


def test_a_worker_that_leaves_after_its_job_was_sent_keeps_it() -> None:
    house = HttpHouse(keeps=True)
    house.send("c", "POST", "/v1/functions/f/jobs", b"")
    house.keep()
    house.send("w", "POST", "/v1/functions/f/take")
    house.keep()
    (taken,) = house.heard("w")
    house.leave("w")
    assert state(house) == "running"
    finish(house, taken, b"r")
    house.keep()
    assert state(house) == "done"


@pytest.mark.parametrize("query", ["lease=0", "lease=604801", "wait=601", "wait=x", "leese=3"])
def test_wrong_parameters(query: str) -> None:
    house = HttpHouse()
    assert house.ask("w", "POST", f"/v1/functions/f/take?{query}").status == 422
    assert not house.engine.workers


# --- registered workers ---


def register(house: HttpHouse, **fields: Any) -> str:
    answer = house.ask("w", "POST", "/v1/workers", {"functions": ["f", "g"], **fields})
    assert answer.status == 201, answer.body
    assert answer.headers["location"] == f"/v1/workers/{answer.json['id']}"
    worker_id: str = answer.json["id"]
    return worker_id


def test_a_registered_worker_polls_for_several_functions() -> None:
    house = HttpHouse()
    worker = register(house, name="robot", tags=["gpu"])
    (listed,) = house.ask("c", "GET", "/v1/workers").json
    assert (listed["name"], listed["functions"], listed["tags"]) == ("robot", ["f", "g"], ["gpu"])
    submit(house, payload="1")
    submit(house, function="g", payload="2", requires="gpu")
    jobs = house.ask("w", "POST", f"/v1/workers/{worker}/poll?max=10").json["jobs"]
    assert {(job["function"], job["payload"], job["attempt"]) for job in jobs} == {("f", "1", 1), ("g", "2", 1)}
    for job in jobs:
        answer = house.ask("w", "PUT", f"/v1/jobs/{job['handle']}/result", b"", {"Switchgear-Attempt": "1"})
        assert answer.status == 204
    assert house.ask("w", "POST", f"/v1/workers/{worker}/poll").json == {"jobs": []}
    assert house.ask("w", "DELETE", f"/v1/workers/{worker}").status == 204
    assert not house.engine.workers


def test_a_registered_worker_has_resources() -> None:
    house = HttpHouse()
    worker = register(house, resources={"cpu": 2})
    for _ in range(3):
        submit(house, requires="cpu=1")
    jobs = house.ask("w", "POST", f"/v1/workers/{worker}/poll?max=10").json["jobs"]
    assert len(jobs) == 2


def test_a_registered_worker_waits() -> None:
    house = HttpHouse()
    worker = register(house)
    house.send("w", "POST", f"/v1/workers/{worker}/poll?wait=5")
    assert house.ask("other", "POST", f"/v1/workers/{worker}/poll?wait=5").code == "already_polling"
    submit(house)
    assert [job["handle"] for answer in house.heard("w") for job in answer.json["jobs"]] == ["H:t:1"]
    house.send("w", "POST", f"/v1/workers/{worker}/poll?wait=5")
    house.pass_time(5)
    assert [answer.json for answer in house.heard("w")] == [{"jobs": []}]


def test_a_registered_worker_that_is_not_heard_of() -> None:
    house = HttpHouse()
    worker = register(house, lease=10)
    submit(house)
    house.ask("w", "POST", f"/v1/workers/{worker}/poll")
    house.pass_time(11)
    assert state(house) == "ready"
    assert house.ask("w", "POST", f"/v1/workers/{worker}/poll").code == "worker_not_found"
    late = house.ask("w", "PUT", "/v1/jobs/1/result", b"", {"Switchgear-Attempt": "1"})
    assert late.code == "not_held"


def test_polling_and_reporting_renew_the_lease() -> None:
    house = HttpHouse()
    worker = register(house, lease=10)
    for _ in range(3):
        house.pass_time(9)
        assert house.ask("w", "POST", f"/v1/workers/{worker}/poll").status == 200
    house.send("w", "POST", f"/v1/workers/{worker}/poll?wait=100")
    house.pass_time(100)
    assert [answer.status for answer in house.heard("w")] == [200]
    house.pass_time(9)
    assert house.ask("w", "POST", f"/v1/workers/{worker}/poll").status == 200


def test_a_worker_that_is_deregistered_while_it_waits() -> None:
    house = HttpHouse()
    worker = register(house)
    house.send("w", "POST", f"/v1/workers/{worker}/poll?wait=100")
    assert house.ask("c", "DELETE", f"/v1/workers/{worker}").status == 204
    assert [answer.json for answer in house.heard("w")] == [{"jobs": []}]
    assert house.ask("w", "GET", "/livez").status == 200


def test_a_worker_has_only_so_many_jobs() -> None:
    house = HttpHouse(settings=EngineSettings(jobs_per_worker=2))
    worker = register(house)
    for _ in range(3):
        submit(house)
    assert len(house.ask("w", "POST", f"/v1/workers/{worker}/poll?max=10").json["jobs"]) == 2
    answer = house.ask("w", "POST", f"/v1/workers/{worker}/poll")
    assert (answer.status, answer.code) == (429, "too_many_jobs")


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({}, "/functions"),
        ({"functions": []}, "/functions"),
        ({"functions": [""]}, "/functions/0"),
        ({"functions": ["f"], "lease": 0}, "/lease"),
        ({"functions": ["f"], "tags": ["a b"]}, "/tags"),
        ({"functions": ["f"], "resources": {"cpu": -1}}, "/resources"),
        ({"functions": ["f" * 65]}, "/functions/0"),
    ],
)
def test_a_wrong_registration(fields: dict[str, Any], pointer: str) -> None:
    house = HttpHouse()
    answer = house.ask("w", "POST", "/v1/workers", fields)
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, pointer)
    assert not house.engine.workers
