"""Jobs: lists in pages, one job and what belongs to it, waiting for its end, events, cancel and retry."""

from __future__ import annotations

import pytest

from tests.protocols.http.harness import HttpHarness
from tests.protocols.http.test_submitting import fail, finish, submit, take


def harness_with(count: int) -> HttpHarness:
    harness = HttpHarness()
    for number in range(count):
        submit(harness, payload=str(number))
    return harness


# --- lists ---


def test_pages_of_jobs() -> None:
    harness = harness_with(5)
    finish(harness, take(harness), b"")
    harness.heard("worker")
    seen: list[int] = []
    target = "/v1/jobs?limit=2"
    for _ in range(10):
        page = harness.ask("c", "GET", target).json
        seen += [job["id"] for job in page["jobs"]]
        assert page["complete"] is (page["next"] is None)
        if page["complete"]:
            break
        assert page["searched_to"] == int(page["next"])
        target = f"/v1/jobs?limit=2&cursor={page['next']}"
    assert seen == [5, 4, 3, 2, 1]


def test_filters() -> None:
    harness = harness_with(2)
    submit(harness, function="g", name="n", unique="u")
    fail(harness, take(harness), "no paper")
    harness.heard("worker")

    def ids(query: str) -> list[int]:
        return [job["id"] for job in harness.ask("c", "GET", f"/v1/jobs?{query}").json["jobs"]]

    assert ids("function=g") == ids("name=n") == ids("unique=u") == [3]
    assert ids("state=failed") == ids("error=paper") == [1]
    assert ids("state=ready&state=failed") == ids("state=ready,failed") == [3, 2, 1]
    assert ids("dead=1") == ids("since=4000000000") == []


# --- one job ---


def test_a_job_without_and_with_its_contents() -> None:
    harness = harness_with(1)
    job = harness.ask("c", "GET", "/v1/jobs/H:t:1").json
    assert (job["handle"], job["state"], job["payload_bytes"]) == ("H:t:1", "ready", 1)
    assert "payload" not in job
    assert harness.ask("c", "GET", "/v1/jobs/H%3At%3A1?contents=1").json["payload"] == "0"
    assert harness.ask("c", "GET", "/v1/jobs/1").json == job


def test_waiting_for_the_end_of_a_job() -> None:
    harness = harness_with(2)
    harness.send("c", "GET", "/v1/jobs/1?wait=10")
    harness.send("d", "GET", "/v1/jobs/2?wait=10")
    finish(harness, take(harness), b"r")
    assert [answer.json["state"] for answer in harness.heard("c")] == ["done"]
    assert harness.heard("d") == []
    harness.pass_time(10)
    assert [answer.json["state"] for answer in harness.heard("d")] == ["ready"]


def test_payload_and_result_are_bytes_that_no_browser_shows() -> None:
    harness = harness_with(1)
    payload = harness.ask("c", "GET", "/v1/jobs/1/payload")
    assert (payload.body, payload.headers["content-type"]) == (b"0", "application/octet-stream")
    assert payload.headers["content-disposition"] == "attachment"
    assert payload.headers["content-security-policy"] == "sandbox; default-src 'none'"
    early = harness.ask("c", "GET", "/v1/jobs/1/result")
    assert (early.status, early.code) == (409, "job_unfinished")
    finish(harness, take(harness), b"<script>")
    result = harness.ask("c", "GET", "/v1/jobs/1/result")
    assert (result.body, result.headers["x-content-type-options"]) == (b"<script>", "nosniff")
    assert harness.ask("c", "GET", "/v1/jobs/1/payload").body == b"0"
    assert harness.ask("c", "HEAD", "/v1/jobs/1/result").headers["content-length"] == "8"


def test_waiting_for_a_result() -> None:
    harness = harness_with(2)
    harness.send("c", "GET", "/v1/jobs/1/result?wait=10")
    harness.send("d", "GET", "/v1/jobs/2/result?wait=10")
    finish(harness, take(harness), b"r")
    (answer,) = harness.heard("c")
    assert (answer.status, answer.body) == (200, b"r")
    harness.pass_time(10)
    assert [answer.code for answer in harness.heard("d")] == ["job_unfinished"]


def test_a_job_that_failed_has_no_result() -> None:
    harness = harness_with(1)
    fail(harness, take(harness), "no paper\nin the tray")
    answer = harness.ask("c", "GET", "/v1/jobs/1/result")
    assert (answer.status, answer.code, answer.json["error"]) == (409, "job_failed", "no paper\nin the tray")
    assert answer.json["detail"] == "no paper?in the tray"


def test_why_a_job_waits() -> None:
    harness = harness_with(1)
    explanation = harness.ask("c", "GET", "/v1/jobs/1/explain").json
    assert explanation["reasons"][0]["word"] == "no_worker"


def test_attempts() -> None:
    harness = harness_with(1)
    first = take(harness)
    harness.ask(
        "worker", "POST", "/v1/jobs/1/release", b"", {"Switchgear-Attempt": first.headers["switchgear-attempt"]}
    )
    second = take(harness)
    assert second.headers["switchgear-attempt"] == "2"
    attempts = harness.ask("c", "GET", "/v1/jobs/1/attempts").json["attempts"]
    assert [(each["attempt"], each["outcome"]) for each in attempts] == [(1, "given_back"), (2, "running")]
    finish(harness, second, b"")
    attempts = harness.ask("c", "GET", "/v1/jobs/1/attempts").json["attempts"]
    assert [each["outcome"] for each in attempts] == ["given_back", "succeeded"]


def test_neighbours() -> None:
    harness = harness_with(1)
    submit(harness, after=["H:t:1"])
    submit(harness, after=["H:t:2"])
    submit(harness, after=["H:t:3"])
    finish(harness, take(harness), b"")
    graph = harness.ask("c", "GET", "/v1/jobs/2/graph?depth=1").json
    assert {node["handle"]: (node["state"], node["distance"]) for node in graph["nodes"]} == {
        "H:t:1": ("done", 1),
        "H:t:2": ("ready", 0),
        "H:t:3": ("waiting", 1),
    }
    assert sorted(graph["edges"]) == [["H:t:1", "H:t:2"], ["H:t:2", "H:t:3"]]
    assert graph["complete"]
    assert len(harness.ask("c", "GET", "/v1/jobs/2/graph").json["nodes"]) == 4


def test_a_neighbourhood_that_is_too_large_says_so() -> None:
    harness = harness_with(1)
    for _ in range(120):
        submit(harness, after=["H:t:1"])
    graph = harness.ask("c", "GET", "/v1/jobs/1/graph").json
    assert len(graph["nodes"]) == 101
    assert not graph["complete"]


# --- changing ---


def test_cancelling() -> None:
    harness = harness_with(1)
    submit(harness, after=["H:t:1"])
    assert harness.ask("c", "DELETE", "/v1/jobs/1?cascade=1").json["cancelled"] == ["H:t:1", "H:t:2"]
    again = harness.ask("c", "DELETE", "/v1/jobs/1")
    assert (again.status, again.code) == (409, "job_ended")


def test_retrying() -> None:
    harness = harness_with(1)
    assert harness.ask("c", "POST", "/v1/jobs/1/retry").code == "conflict"
    fail(harness, take(harness), "no paper")
    assert harness.ask("c", "POST", "/v1/jobs/1/retry").json["retried"] == ["H:t:1"]
    assert harness.ask("c", "GET", "/v1/jobs/1").json["state"] == "ready"


def test_a_cancelled_job_is_told_when_that_is_stored() -> None:
    harness = HttpHarness(keeps=True)
    harness.send("c", "POST", "/v1/functions/f/jobs", b"")
    harness.keep()
    harness.heard("c")
    harness.send("c", "DELETE", "/v1/jobs/1")
    assert harness.heard("c") == []
    harness.keep()
    assert [answer.status for answer in harness.heard("c")] == [200]


# --- events ---


def test_following_a_job() -> None:
    harness = harness_with(1)
    harness.send("c", "GET", "/v1/jobs/1/events")
    taken = take(harness)
    attempt = {"Switchgear-Attempt": taken.headers["switchgear-attempt"]}
    harness.ask("worker", "POST", "/v1/jobs/1/progress", {"numerator": 1, "denominator": 2, "message": "half"}, attempt)
    harness.pass_time(16)
    finish(harness, taken, b"r")
    (answer,) = harness.heard("c")
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.body.decode().split("\n\n") == [
        'event: state\ndata: {"handle":"H:t:1","state":"ready"}',
        'event: progress\ndata: {"numerator":1,"denominator":2,"message":"half"}',
        ": still here",
        'event: end\ndata: {"handle":"H:t:1","state":"done","error":null}',
        "",
    ]
    assert harness.ask("c", "GET", "/livez").status == 200
    last = harness.ask("c", "GET", "/v1/jobs/1/events").body.decode()
    assert last == 'event: end\ndata: {"handle":"H:t:1","state":"done","error":null}\n\n'


def test_head_of_an_event_stream_has_an_end() -> None:
    harness = harness_with(1)
    assert harness.ask("c", "HEAD", "/v1/jobs/1/events").headers["content-type"] == "text/event-stream"
    assert harness.ask("c", "GET", "/livez").status == 200


@pytest.mark.parametrize("what", ["payload", "result", "explain", "attempts", "graph", "events"])
def test_what_belongs_to_a_job_that_there_is_not(what: str) -> None:
    assert harness_with(1).ask("c", "GET", f"/v1/jobs/H:t:2/{what}").code == "job_not_found"
