"""Workers over HTTP: a job, its lease and its reports; a report on an attempt that is over has no effect."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.engine.requirements import MOST_DESCRIPTIONS
from switchgear.joblog.recorder import described_worker
from tests.protocols.http.harness import Answer, HttpHarness
from tests.protocols.http.test_submitting import finish, submit, take


def report(
    harness: HttpHarness, taken: Answer, what: str, body: dict[str, Any] | bytes = b"", method: str = "POST"
) -> Answer:
    handle, attempt = taken.headers["switchgear-job"], taken.headers["switchgear-attempt"]
    return harness.ask("reporter", method, f"/v1/jobs/{handle}/{what}", body, {"Switchgear-Attempt": attempt})


def state(harness: HttpHarness, number: int = 1) -> str:
    word: str = harness.ask("looker", "GET", f"/v1/jobs/{number}").json["state"]
    return word


# --- one job at a time ---


def test_there_is_no_job() -> None:
    harness = HttpHarness()
    assert harness.ask("w", "POST", "/v1/functions/f/take").status == 204
    assert not harness.engine.workers


def test_a_job_is_waited_for() -> None:
    harness = HttpHarness()
    harness.send("w", "POST", "/v1/functions/f/take?wait=30")
    assert [worker["protocol"] for worker in harness.ask("c", "GET", "/v1/workers").json] == ["http"]
    submit(harness, payload="x")
    (answer,) = harness.heard("w")
    assert (answer.status, answer.body) == (200, b"x")
    assert (answer.headers["switchgear-job"], answer.headers["switchgear-attempt"]) == ("H:t:1", "1")


def test_a_job_is_waited_for_in_vain() -> None:
    harness = HttpHarness()
    harness.send("w", "POST", "/v1/functions/f/take?wait=3")
    harness.pass_time(3)
    assert [answer.status for answer in harness.heard("w")] == [204]
    assert not harness.engine.workers
    submit(harness)
    assert state(harness) == "ready"


def test_the_life_of_a_worker_is_its_lease_and_not_its_connection() -> None:
    harness = HttpHarness()
    submit(harness)
    taken = take(harness)
    harness.leave("worker")
    assert state(harness) == "running"
    assert report(harness, taken, "result", b"r", "PUT").status == 204
    assert state(harness) == "done"
    assert not harness.engine.workers


def test_a_worker_that_is_not_heard_of_loses_its_job() -> None:
    harness = HttpHarness()
    submit(harness)
    harness.send("w", "POST", "/v1/functions/f/take?lease=10&wait=5")
    (taken,) = harness.heard("w")
    harness.pass_time(9.9)
    assert state(harness) == "running"
    harness.pass_time(0.2)
    assert state(harness) == "ready"
    late = report(harness, taken, "result", b"r", "PUT")
    assert (late.status, late.code) == (409, "not_held")
    assert state(harness) == "ready"


def test_the_lease_begins_with_the_job_and_not_with_the_request() -> None:
    harness = HttpHarness()
    harness.send("w", "POST", "/v1/functions/f/take?lease=10&wait=100")
    harness.pass_time(50)
    submit(harness)
    assert len(harness.heard("w")) == 1
    harness.pass_time(9.9)
    assert state(harness) == "running"
    harness.pass_time(0.2)
    assert state(harness) == "ready"


def test_progress_renews_the_lease_and_tells_whether_the_job_was_cancelled() -> None:
    harness = HttpHarness()
    submit(harness)
    taken = harness.ask("w", "POST", "/v1/functions/f/take?lease=10")
    for _ in range(5):
        harness.pass_time(9)
        answer = report(harness, taken, "progress", {"numerator": 1, "denominator": 3, "message": "at it"})
        assert answer.json == {"cancelled": False, "lease": 10.0}
    job = harness.ask("c", "GET", "/v1/jobs/1").json
    assert (job["state"], job["numerator"], job["denominator"], job["message"]) == ("running", 1, 3, "at it")
    assert report(harness, taken, "progress", {"numerator": 2}).json["cancelled"] is False
    assert report(harness, taken, "progress").json["cancelled"] is False
    job = harness.ask("c", "GET", "/v1/jobs/1").json
    assert (job["numerator"], job["denominator"], job["message"]) == (2, 3, "at it")  # what is not said stays
    harness.ask("c", "DELETE", "/v1/jobs/1")
    assert report(harness, taken, "progress").json["cancelled"] is True
    done = report(harness, taken, "result", b"r", "PUT")
    assert (done.status, done.code) == (409, "cancelled")
    assert state(harness) == "cancelled"
    assert not harness.engine.workers


def test_a_worker_comes_from_the_address_of_its_request() -> None:
    harness = HttpHarness()
    harness.peer("worker").wire.host = "10.0.0.7"
    submit(harness)
    take(harness)
    (worker,) = harness.engine.workers.values()
    assert described_worker(worker) == ("http", "worker 1", "10.0.0.7")
    robot = register(harness, name="robot")
    assert described_worker(harness.engine.workers[2]) == ("http", "robot", "127.0.0.1")
    harness.peer("w").wire.host = "10.0.0.8"
    harness.ask("w", "POST", f"/v1/workers/{robot}/poll")
    assert described_worker(harness.engine.workers[2]) == ("http", "robot", "10.0.0.8")


def test_a_connection_that_takes_one_job_after_the_other_is_one_worker() -> None:
    harness = HttpHarness()
    for number in range(1, 4):
        submit(harness)
        finish(harness, take(harness), b"r")
        assert [answer.status for answer in harness.heard("worker")] == [204]
        assert state(harness, number) == "done"
        assert list(harness.engine.workers) == [1]
    harness.pass_time(1_000)  # it has no job that its lease could be about
    submit(harness)
    taken = harness.ask("worker", "POST", "/v1/functions/f/take?lease=10")
    assert list(harness.engine.workers) == [1]
    harness.pass_time(11)
    assert state(harness, 4) == "ready"
    assert not harness.engine.workers
    finish(harness, taken, b"r")
    assert [answer.code for answer in harness.heard("worker")] == ["not_held"]


def test_workers_of_a_connection_leave_with_it() -> None:
    harness = HttpHarness()
    for function in ("f", "g"):
        submit(harness, function=function)
        finish(harness, take(harness, function), b"r")
        harness.heard("worker")
    assert len(harness.engine.workers) == 2
    assert harness.ask("worker", "POST", "/v1/functions/f/take").status == 204  # there is nothing more to do
    assert len(harness.engine.workers) == 1
    harness.leave("worker")
    assert not harness.engine.workers


def test_a_job_that_one_connection_took_and_another_reports_on_leaves_no_worker() -> None:
    harness = HttpHarness()
    submit(harness)
    taken = take(harness)
    submit(harness)
    other = harness.ask("reporter", "POST", "/v1/functions/f/take")
    assert report(harness, taken, "result", b"r", "PUT").status == 204
    assert [worker.running for worker in harness.engine.workers.values()] == [{2: harness.engine.job(2)}]
    assert report(harness, other, "result", b"r", "PUT").status == 204
    harness.leave("reporter")
    assert not harness.engine.workers


def test_an_earlier_attempt_is_fenced_off() -> None:
    harness = HttpHarness()
    submit(harness)
    first = harness.ask("w", "POST", "/v1/functions/f/take?lease=1")
    harness.pass_time(2)
    second = harness.ask("w", "POST", "/v1/functions/f/take")
    for what, method in (("result", "PUT"), ("fail", "POST"), ("progress", "POST"), ("release", "POST")):
        assert report(harness, first, what, method=method).status == 409
    assert report(harness, second, "result", b"second", "PUT").status == 204
    assert harness.ask("c", "GET", "/v1/jobs/1/result").body == b"second"
    assert report(harness, second, "result", b"third", "PUT").status == 409


def test_a_job_of_another_protocols_worker_is_not_to_be_reported_on() -> None:
    from switchgear.testing import RecordingPeer

    harness = HttpHarness()
    submit(harness)
    worker = harness.engine.add_worker(RecordingPeer(), "gearman")
    harness.engine.can_do(worker, harness.engine.function_named(b"f"))
    assert harness.engine.take(worker) is not None
    answer = harness.ask("c", "PUT", "/v1/jobs/1/result", b"", {"Switchgear-Attempt": "1"})
    assert answer.code == "not_held"


def test_failing_for_good_and_for_a_while() -> None:
    harness = HttpHarness()
    submit(harness)
    assert report(harness, take(harness), "fail", {"error": "no paper", "retry_in": 5}).status == 204
    assert state(harness) == "scheduled"
    harness.pass_time(5)
    assert report(harness, take(harness), "fail", {"error": {"base64": "/w=="}}).status == 204
    job = harness.ask("c", "GET", "/v1/jobs/1").json
    assert (job["state"], job["error"], job["attempts"]) == ("failed", {"base64": "/w=="}, 2)


def test_releasing_costs_no_attempt() -> None:
    harness = HttpHarness()
    submit(harness)
    assert report(harness, take(harness), "release").status == 204
    job = harness.ask("c", "GET", "/v1/jobs/1").json
    assert (job["state"], job["attempts"]) == ("ready", 0)
    assert not harness.engine.workers


def test_a_report_names_its_attempt() -> None:
    harness = HttpHarness()
    submit(harness)
    take(harness)
    answer = harness.ask("c", "PUT", "/v1/jobs/1/result", b"")
    assert (answer.status, answer.json["errors"][0]["header"]) == (428, "Switchgear-Attempt")
    assert harness.ask("c", "PUT", "/v1/jobs/1/result", b"", {"Switchgear-Attempt": "one"}).status == 400
    assert state(harness) == "running"


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
    harness = HttpHarness()
    submit(harness)
    answer = report(harness, take(harness), what, body)
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, pointer)
    assert state(harness) == "running"


def test_a_worker_that_leaves_while_it_waits_gets_no_job() -> None:
    harness = HttpHarness()
    harness.send("w", "POST", "/v1/functions/f/take?wait=100")
    harness.leave("w")
    submit(harness)
    assert state(harness) == "ready"


def test_a_worker_that_leaves_before_its_job_was_sent_gives_it_back() -> None:
    harness = HttpHarness(keeps=True)
    harness.send("c", "POST", "/v1/functions/f/jobs", b"")
    harness.keep()
    harness.send("w", "POST", "/v1/functions/f/take")
    assert harness.heard("w") == []  # the start is not stored yet
    harness.leave("w")
    harness.keep()
    job = harness.engine.job(1)
    assert job is not None
    assert (job.state.name, job.attempts) == ("READY", 0)
    assert not harness.engine.workers


def test_a_worker_that_leaves_after_its_job_was_sent_keeps_it() -> None:
    harness = HttpHarness(keeps=True)
    harness.send("c", "POST", "/v1/functions/f/jobs", b"")
    harness.keep()
    harness.send("w", "POST", "/v1/functions/f/take")
    harness.keep()
    (taken,) = harness.heard("w")
    harness.leave("w")
    assert state(harness) == "running"
    finish(harness, taken, b"r")
    harness.keep()
    assert state(harness) == "done"


@pytest.mark.parametrize("query", ["lease=0", "lease=604801", "wait=601", "wait=x", "leese=3"])
def test_wrong_parameters(query: str) -> None:
    harness = HttpHarness()
    assert harness.ask("w", "POST", f"/v1/functions/f/take?{query}").status == 422
    assert not harness.engine.workers


# --- registered workers ---


def register(harness: HttpHarness, **fields: Any) -> str:
    answer = harness.ask("w", "POST", "/v1/workers", {"functions": ["f", "g"], **fields})
    assert answer.status == 201, answer.body
    assert answer.headers["location"] == f"/v1/workers/{answer.json['id']}"
    worker_id: str = answer.json["id"]
    return worker_id


def test_a_registered_worker_polls_for_several_functions() -> None:
    harness = HttpHarness()
    worker = register(harness, name="robot", tags=["gpu"])
    (listed,) = harness.ask("c", "GET", "/v1/workers").json
    assert (listed["name"], listed["functions"], listed["tags"]) == ("robot", ["f", "g"], ["gpu"])
    submit(harness, payload="1")
    submit(harness, function="g", payload="2", requires="gpu")
    jobs = harness.ask("w", "POST", f"/v1/workers/{worker}/poll?max=10").json["jobs"]
    assert {(job["function"], job["payload"], job["attempt"]) for job in jobs} == {("f", "1", 1), ("g", "2", 1)}
    for job in jobs:
        answer = harness.ask("w", "PUT", f"/v1/jobs/{job['handle']}/result", b"", {"Switchgear-Attempt": "1"})
        assert answer.status == 204
    assert harness.ask("w", "POST", f"/v1/workers/{worker}/poll").json == {"jobs": [], "revoked": []}
    assert harness.ask("w", "DELETE", f"/v1/workers/{worker}").status == 204
    assert not harness.engine.workers


def test_a_registered_worker_has_resources() -> None:
    harness = HttpHarness()
    worker = register(harness, resources={"cpu": 2})
    for _ in range(3):
        submit(harness, requires="cpu=1")
    jobs = harness.ask("w", "POST", f"/v1/workers/{worker}/poll?max=10").json["jobs"]
    assert len(jobs) == 2


def test_a_registered_worker_waits() -> None:
    harness = HttpHarness()
    worker = register(harness)
    harness.send("w", "POST", f"/v1/workers/{worker}/poll?wait=5")
    harness.send("other", "POST", f"/v1/workers/{worker}/poll?wait=5")
    assert [answer.json for answer in harness.heard("w")] == [{"jobs": [], "revoked": []}]  # the later one counts
    submit(harness)
    assert [job["handle"] for answer in harness.heard("other") for job in answer.json["jobs"]] == ["H:t:1"]
    harness.send("w", "POST", f"/v1/workers/{worker}/poll?wait=5")
    harness.pass_time(5)
    assert [answer.json for answer in harness.heard("w")] == [{"jobs": [], "revoked": []}]


def test_a_registered_worker_that_is_not_heard_of() -> None:
    harness = HttpHarness()
    worker = register(harness, lease=10)
    submit(harness)
    harness.ask("w", "POST", f"/v1/workers/{worker}/poll")
    harness.pass_time(11)
    assert state(harness) == "ready"
    assert harness.ask("w", "POST", f"/v1/workers/{worker}/poll").code == "worker_not_found"
    late = harness.ask("w", "PUT", "/v1/jobs/1/result", b"", {"Switchgear-Attempt": "1"})
    assert late.code == "not_held"


def test_polling_and_reporting_renew_the_lease() -> None:
    harness = HttpHarness()
    worker = register(harness, lease=10)
    for _ in range(3):
        harness.pass_time(9)
        assert harness.ask("w", "POST", f"/v1/workers/{worker}/poll").status == 200
    harness.send("w", "POST", f"/v1/workers/{worker}/poll?wait=100")
    harness.pass_time(100)
    assert [answer.status for answer in harness.heard("w")] == [200]
    harness.pass_time(9)
    assert harness.ask("w", "POST", f"/v1/workers/{worker}/poll").status == 200


def test_a_worker_that_is_deregistered_while_it_waits() -> None:
    harness = HttpHarness()
    worker = register(harness)
    harness.send("w", "POST", f"/v1/workers/{worker}/poll?wait=100")
    assert harness.ask("c", "DELETE", f"/v1/workers/{worker}").status == 204
    assert [answer.json for answer in harness.heard("w")] == [{"jobs": [], "revoked": []}]
    assert harness.ask("w", "GET", "/livez").status == 200


def test_a_worker_has_only_so_many_jobs() -> None:
    harness = HttpHarness(settings=EngineSettings(jobs_per_worker=2))
    worker = register(harness)
    for _ in range(3):
        submit(harness)
    assert len(harness.ask("w", "POST", f"/v1/workers/{worker}/poll?max=10").json["jobs"]) == 2
    answer = harness.ask("w", "POST", f"/v1/workers/{worker}/poll")
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
        ({"functions": ["f"], "timeouts": {"f": -1}}, "/timeouts"),
    ],
)
def test_a_wrong_registration(fields: dict[str, Any], pointer: str) -> None:
    harness = HttpHarness()
    answer = harness.ask("w", "POST", "/v1/workers", fields)
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, pointer)
    assert not harness.engine.workers


def test_a_registered_worker_is_told_which_jobs_to_stop() -> None:
    harness = HttpHarness()
    worker = register(harness, lease=100, timeouts={"f": 5})
    submit(harness)
    submit(harness)
    first, second = harness.ask("w", "POST", f"/v1/workers/{worker}/poll?max=2").json["jobs"]
    assert (first["timeout"], first["attempts"], first["losses"], first["unique"]) == (5.0, 1, 0, "")
    harness.send("w", "POST", f"/v1/workers/{worker}/poll?max=0&wait=50")
    assert harness.ask("c", "DELETE", f"/v1/jobs/{first['handle']}").status == 200
    (answer,) = harness.heard("w")
    assert answer.json == {"jobs": [], "revoked": [{"handle": "H:t:1", "attempt": 1, "reason": "cancelled"}]}
    report = {"Switchgear-Attempt": "1"}
    assert harness.ask("w", "POST", "/v1/jobs/1/fail", b"{}", report).code == "cancelled"
    harness.pass_time(6)
    answer = harness.ask("w", "POST", f"/v1/workers/{worker}/poll?max=0&wait=50")
    assert answer.json["revoked"] == [{"handle": second["handle"], "attempt": 1, "reason": "timed_out"}]
    harness.ask("w", "POST", "/v1/jobs/2/release", b"", report)
    (again,) = harness.ask("w", "POST", f"/v1/workers/{worker}/poll?max=5").json["jobs"]
    assert (again["handle"], again["attempt"]) == ("H:t:2", 2)
    assert harness.ask("w", "PUT", "/v1/jobs/2/result", b"", report).code == "not_held"
    assert harness.ask("w", "PUT", "/v1/jobs/2/result", b"", {"Switchgear-Attempt": "2"}).status == 204


def test_jobs_that_did_not_reach_their_worker_are_taken_back() -> None:
    harness = HttpHarness()
    worker = register(harness)
    submit(harness)
    submit(harness)
    (first,) = harness.ask("w", "POST", f"/v1/workers/{worker}/poll").json["jobs"]
    harness.ask("w", "POST", f"/v1/workers/{worker}/poll")  # and this answer is lost
    assert state(harness, 2) == "running"
    held = {"held": [{"handle": first["handle"], "attempt": 1}]}
    (again,) = harness.ask("w", "POST", f"/v1/workers/{worker}/poll?max=5", held).json["jobs"]
    assert (again["handle"], again["attempts"]) == ("H:t:2", 1)
    assert harness.ask("w", "PUT", "/v1/jobs/1/result", b"", {"Switchgear-Attempt": "1"}).status == 204


def test_a_worker_without_room_keeps_its_lease() -> None:
    harness = HttpHarness()
    worker = register(harness, lease=10)
    submit(harness)
    harness.send("w", "POST", f"/v1/workers/{worker}/poll?max=0&wait=20")
    harness.pass_time(20)
    assert [answer.json for answer in harness.heard("w")] == [{"jobs": [], "revoked": []}]
    assert state(harness) == "ready"  # it was not given a job
    assert harness.ask("w", "POST", f"/v1/workers/{worker}/poll?max=0").json == {"jobs": [], "revoked": []}


def test_a_worker_limits_the_attempts_of_a_job_that_has_no_limit() -> None:
    harness = HttpHarness()
    worker = register(harness)
    submit(harness)
    for attempt in (1, 2):
        harness.pass_time(1)
        (job,) = harness.ask("w", "POST", f"/v1/workers/{worker}/poll").json["jobs"]
        assert job["attempt"] == attempt
        body = {"error": "no", "retry_in": 0, "attempts_limit": 2}
        answer = harness.ask("w", "POST", "/v1/jobs/1/fail", body, {"Switchgear-Attempt": str(attempt)})
        assert answer.status == 204
    assert state(harness) == "failed"


# --- workers that are registered and never heard of again ---


def without_room(**settings: Any) -> HttpHarness:
    """A server that has no memory for more workers: a stranger has registered them all, with long leases."""
    harness = HttpHarness(settings=EngineSettings(memory_bytes=8 * 1024 * 1024))
    fields = {"functions": ["f"], "lease": 604_800, **settings}
    for _ in range(100_000):
        before = len(harness.engine.workers)
        assert harness.ask("stranger", "POST", "/v1/workers", fields).status == 201
        if len(harness.engine.workers) == before:
            return harness  # the oldest one has made room
    raise AssertionError("there is always room")


def test_a_worker_that_was_not_heard_of_for_longest_makes_room() -> None:
    harness = without_room()
    worker = register(harness, lease=60)
    submit(harness)
    assert len(harness.ask("w", "POST", f"/v1/workers/{worker}/poll").json["jobs"]) == 1
    assert harness.ask("other", "POST", "/v1/functions/f/take").status == 204


def test_workers_that_poll_stay_while_others_are_registered() -> None:
    harness = without_room()
    worker = register(harness)
    count = len(harness.engine.workers)
    for _ in range(10):
        for _ in range(count // 2):
            harness.ask("stranger", "POST", "/v1/workers", {"functions": ["f"], "lease": 604_800})
        assert harness.ask("w", "POST", f"/v1/workers/{worker}/poll").status == 200


def test_workers_with_jobs_and_workers_that_wait_make_no_room() -> None:
    harness = without_room()
    submit(harness)
    busy, waiting = register(harness), register(harness)
    (job,) = harness.ask("w", "POST", f"/v1/workers/{busy}/poll").json["jobs"]
    harness.send("waiter", "POST", f"/v1/workers/{waiting}/poll?wait=600")
    for _ in range(2 * len(harness.engine.workers)):
        harness.ask("stranger", "POST", "/v1/workers", {"functions": ["f"], "lease": 604_800})
    submit(harness)
    assert [len(answer.json["jobs"]) for answer in harness.heard("waiter")] == [1]
    path = f"/v1/jobs/{job['handle']}/result"
    assert harness.ask("w", "PUT", path, b"", {"Switchgear-Attempt": "1"}).status == 204


def test_a_registration_that_is_refused_leaves_no_worker() -> None:
    harness = HttpHarness()
    for number in range(MOST_DESCRIPTIONS):
        register(harness, tags=[f"tag{number}"])
    answer = harness.ask("w", "POST", "/v1/workers", {"functions": ["f"], "tags": ["one-more"], "lease": 604_800})
    assert (answer.status, answer.code) == (429, "limit")
    assert len(harness.engine.workers) == len(harness.setup.shared.workers.by_id) == MOST_DESCRIPTIONS
