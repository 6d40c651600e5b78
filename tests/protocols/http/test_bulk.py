"""Bulk actions: jobs are chosen once, tried out, counted, and changed step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from switchgear.net.operations import bulk
from tests.protocols.http.harness import Answer, HttpHarness
from tests.protocols.http.test_submitting import fail, submit, take


def act(harness: HttpHarness, **fields: Any) -> Answer:
    return harness.ask("operator", "POST", "/v1/bulk", fields)


def harness_with_failures(count: int) -> HttpHarness:
    harness = HttpHarness()
    for _ in range(count):
        submit(harness)
        fail(harness, take(harness), "no paper")
        harness.heard("worker")
    return harness


def test_all_that_match_are_cancelled() -> None:
    harness = HttpHarness()
    for function in ("f", "g", "f"):
        submit(harness, function=function)
    answer = act(harness, action="cancel", filter={"function": "f"})
    assert (answer.status, answer.json["matched"], answer.json["examples"]) == (202, 2, ["H:t:3", "H:t:1"])
    assert answer.headers["location"] == f"/v1/bulk/{answer.json['id']}"
    progress = harness.ask("operator", "GET", f"/v1/bulk/{answer.json['id']}").json
    assert (progress["state"], progress["handled"], progress["changed"]) == ("done", 2, 2)
    assert harness.ask("operator", "GET", "/v1/bulk").json == [progress]
    assert harness.engine.job_count() == 1


@pytest.mark.parametrize("given", [{"states": ["ready"]}, {"state": ["ready"]}, {"state": "ready"}])
def test_states_may_be_named_as_in_lists(given: dict[str, Any]) -> None:
    harness = HttpHarness()
    submit(harness)
    take(harness)
    submit(harness)
    answer = act(harness, action="cancel", filter=given)
    assert (answer.status, answer.json["examples"]) == (202, ["H:t:2"])


def test_wrong_states_are_named_as_they_were_given() -> None:
    harness = HttpHarness()
    both = act(harness, action="cancel", filter={"state": "ready", "states": ["ready"]})
    assert both.json["errors"][0]["pointer"] == "/filter/state"
    wrong = act(harness, action="cancel", filter={"state": ["done"]})
    assert wrong.json["errors"][0]["pointer"] == "/filter/state/0"


def test_all_that_match_are_retried() -> None:
    harness = harness_with_failures(3)
    answer = act(harness, action="retry", filter={"error": "paper"}, expect=3)
    assert (answer.status, answer.json["matched"]) == (202, 3)
    assert harness.engine.job_count() == 3


def test_more_than_a_page() -> None:
    harness = HttpHarness()
    for _ in range(1100):
        submit(harness)
    assert act(harness, action="cancel", filter={"function": "f"}).json["matched"] == 1100
    assert harness.engine.job_count() == 0


def test_those_that_are_named() -> None:
    harness = HttpHarness()
    for _ in range(3):
        submit(harness)
    submit(harness, after=["H:t:1"])
    answer = act(harness, action="cancel", handles=["H:t:1", "2", "H:t:1"], cascade=True)
    assert answer.json["matched"] == 2
    assert harness.engine.job_count() == 1


def test_trying_it_out_changes_nothing() -> None:
    harness = HttpHarness()
    submit(harness)
    answer = act(harness, action="cancel", filter={"function": "f"}, dry_run=True)
    assert (answer.status, answer.json["matched"], answer.json["dry_run"]) == (200, 1, True)
    assert harness.engine.job_count() == 1
    assert harness.ask("operator", "GET", "/v1/bulk").json == []


def test_another_number_than_expected_changes_nothing() -> None:
    harness = HttpHarness()
    submit(harness)
    answer = act(harness, action="cancel", filter={"function": "f"}, expect=2)
    assert (answer.status, answer.code) == (409, "unexpected_count")
    assert harness.engine.job_count() == 1


def holding(steps: Callable[..., Any], begun: list[Any]) -> Callable[..., Any]:
    """The steps of an action, kept for the test in place of being worked off."""

    def held(*arguments: Any) -> Iterator[Any]:
        begun.append(steps(*arguments))
        return iter(())

    return held


def test_an_action_that_is_aborted_goes_on_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "JOBS_PER_STEP", 1)
    harness = HttpHarness()
    for _ in range(5):
        submit(harness)
    begun: list[Any] = []
    monkeypatch.setattr(bulk.BulkRun, "steps", holding(bulk.BulkRun.steps, begun))
    answer = act(harness, action="cancel", handles=["1", "2", "3", "4", "5"])
    (steps,) = begun
    next(steps)
    next(steps)
    aborted = harness.ask("operator", "DELETE", f"/v1/bulk/{answer.json['id']}").json
    assert (aborted["state"], aborted["handled"]) == ("aborted", 2)
    harness.turn(lambda: list(steps))
    progress = harness.ask("operator", "GET", f"/v1/bulk/{answer.json['id']}").json
    assert (progress["state"], progress["handled"], progress["changed"]) == ("aborted", 2, 2)
    assert harness.engine.job_count() == 3


def test_what_it_says_to_have_changed_is_stored() -> None:
    harness = HttpHarness(keeps=True)
    harness.send("c", "POST", "/v1/functions/f/jobs", b"")
    harness.keep()
    harness.heard("c")
    harness.send("c", "POST", "/v1/bulk", b'{"action": "cancel", "handles": ["1"]}')
    harness.keep()
    (answer,) = harness.heard("c")
    harness.send("c", "GET", answer.headers["location"])
    assert harness.heard("c") == []
    harness.keep()
    assert [answer.json["changed"] for answer in harness.heard("c")] == [1]


def test_only_some_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MOST_KEPT", 2)
    harness = HttpHarness()
    submit(harness)
    first = act(harness, action="cancel", handles=["1"]).json["id"]
    for _ in range(2):
        assert act(harness, action="cancel", handles=["1"]).status == 202
    assert harness.ask("operator", "GET", f"/v1/bulk/{first}").code == "not_found"
    assert harness.operator is not None
    for run in harness.operator.bulk.by_id.values():
        run.state = bulk.IN_PROGRESS
    assert act(harness, action="cancel", handles=["1"]).status == 429


def test_actions_on_very_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = HttpHarness()
    for _ in range(3):
        submit(harness)
    monkeypatch.setattr(bulk, "MOST_BULK_JOBS", 2)
    assert act(harness, action="cancel", filter={"function": "f"}).code == "too_many_jobs"
    monkeypatch.setattr(bulk, "MOST_PENDING_JOBS", 1)
    assert act(harness, action="cancel", handles=["1", "2"]).status == 429
    assert harness.engine.job_count() == 3


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"action": "explode", "handles": []}, "/action"),
        ({"action": "cancel"}, ""),
        ({"action": "cancel", "handles": [], "filter": {"function": "f"}}, ""),
        ({"action": "cancel", "filter": {}}, "/filter"),
        ({"action": "cancel", "filter": {"states": ["done"]}}, "/filter/states/0"),
        ({"action": "retry", "filter": {"states": ["failed", "ready"]}}, "/filter/states/1"),
        ({"action": "retry", "handles": ["H:t:1"], "cascade": True}, "/cascade"),
        ({"action": "cancel", "handles": ["H:t:1", "H:t:9"]}, "/handles/1"),
        ({"action": "cancel", "filter": {"color": "red"}}, "/filter/color"),
    ],
)
def test_a_wrong_action(fields: dict[str, Any], pointer: str) -> None:
    harness = HttpHarness()
    submit(harness)
    answer = act(harness, **fields)
    assert answer.status == 422, answer.body
    assert answer.json["errors"][0]["pointer"] == pointer
    assert harness.engine.job_count() == 1
