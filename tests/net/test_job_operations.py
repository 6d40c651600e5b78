"""What an operator does to all jobs that match, and how those are found."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from switchgear.errors import Refused
from switchgear.model import SECOND_US, Job, JobState
from switchgear.net.operations import jobs as job_operations
from switchgear.net.operations import unfinished_jobs
from switchgear.protocols.pending_read import Reading
from switchgear.storage.memory import MemoryStore
from switchgear.testing.clock import START_US
from switchgear.verbs.operator_verb import checked
from switchgear.verbs.table import VERBS
from tests.net.operator_harness import OperatorHarness

NOW = START_US // SECOND_US


def story() -> OperatorHarness:
    """1 and 2 are dead, 3 and 4 failed with words, 5 is cancelled, 6 done, 7 and 8 ready, 9 is to be tried again."""
    operator = OperatorHarness(attempts=1)
    operator.submit(6)
    operator.kill()
    operator.kill()
    operator.finish(code=1, error=b"OSError: disk full")
    operator.finish(code=1, error=b"ValueError: \xff")
    operator.engine.cancel(operator.engine.jobs[5])
    operator.finish()
    operator.submit(1)
    operator.submit(1, function=b"g")
    operator.submit(1, function=b"h", attempts_limit=5)
    other = operator.engine.add_worker(operator.harness.talker("other").session, "gearman")
    operator.engine.can_do(other, operator.engine.function_named(b"h"))
    assert operator.engine.take(other) is operator.engine.jobs[9]
    operator.engine.retry_later(other, 9, SECOND_US, b"OSError: not yet")
    operator.harness.end_turn()
    return operator


# --- finding ---


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"dead": True}, [2, 1]),
        ({"dead": True, "states": ["failed", "done"]}, [2, 1]),
        ({"dead": True, "function": "g"}, []),
        ({"dead": True, "error": "worker lost"}, [2, 1]),
        ({"dead": True, "error": "disk"}, []),
        ({"dead": False}, [9, 8, 7, 6, 5, 4, 3, 2, 1]),
        ({"error": "OSError"}, [9, 3]),
        ({"error": "OSError", "states": ["failed"]}, [3]),
        ({"error": "OSError", "states": ["scheduled", "done"]}, [9]),
        ({"error": "OSError", "states": ["done"]}, []),
        ({"error": ""}, [9, 8, 7, 6, 5, 4, 3, 2, 1]),
        ({"since": NOW + 1}, []),
        ({"until": NOW}, []),
        ({"until": NOW + 1}, [9, 8, 7, 6, 5, 4, 3, 2, 1]),
        ({"contains": "paylo", "function": "f", "states": ["ready", "done"]}, [7, 6]),
        ({"contains": "disk"}, [3]),
        ({"contains": "not yet"}, [9]),
        ({"contains": "nowhere"}, []),
        ({"key": "k"}, []),
        ({"since": NOW - 0.5, "states": ["ready"]}, [8, 7]),
    ],
    ids=str,
)
def test_which_jobs_match(selection: dict[str, Any], expected: list[int]) -> None:
    assert story().ids(**selection) == expected


class SlowStore(MemoryStore):
    """One in which a search looks at few jobs at a time."""

    async def search_bound(self, before_id: int, count: int, states: frozenset[JobState]) -> int:
        failed = [
            job.id for job in self._finished().values() if job.state > 4 and (not before_id or job.id < before_id)
        ]
        failed.sort(reverse=True)
        return failed[count - 1] if len(failed) >= count else 0


@pytest.fixture
def slow_operator(monkeypatch: pytest.MonkeyPatch) -> OperatorHarness:
    """A hundred failed jobs, one in ten of them dead, and a store that searches three at a time."""
    monkeypatch.setattr(job_operations, "MOST_SEARCHED", 3)
    operator = OperatorHarness(attempts=1)
    operator.harness.store = SlowStore()
    for number in range(1, 101):
        operator.submit()
        if number % 10:
            operator.finish(code=1, error=b"no")
        else:
            operator.kill()
    return operator


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_search_that_finds_little_goes_on_page_by_page(slow_operator: OperatorHarness, limit: int) -> None:
    assert slow_operator.ask("jobs", dead=True, limit=limit)["jobs"][0]["id"] == 100
    assert slow_operator.ask("jobs", dead=True, before_id=100, limit=limit) == {"jobs": [], "next_before_id": 97}
    assert slow_operator.all_pages(dead=True, limit=limit) == list(range(100, 0, -10))


def test_so_does_a_retry(slow_operator: OperatorHarness) -> None:
    retried: list[str] = []
    before_id: int | None = 0
    calls = 0
    while before_id is not None:
        answer = slow_operator.ask("retry", dead=True, before_id=before_id)
        assert answer["count"] == len(answer["retried"])
        retried += answer["retried"]
        before_id = answer["next_before_id"]
        calls += 1
    assert retried == [f"H:t:{number}" for number in range(100, 0, -10)]
    assert calls > 30


# --- retrying ---


def test_retry_all_that_are_dead_and_no_others() -> None:
    operator = story()
    assert operator.ask("retry", all_dead=True, function="g") == {"retried": [], "count": 0, "next_before_id": None}
    assert operator.ask("retry", dead=True, limit=1) == {"retried": ["H:t:2"], "count": 1, "next_before_id": 2}
    assert operator.ask("retry", all_dead=True)["retried"] == ["H:t:1"]
    assert operator.ask("retry", dead=True)["retried"] == []


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"function": "f"}, [4, 3, 2, 1]),
        ({"error": "Error"}, [4, 3]),
        ({"error": "OSError", "function": "h"}, []),
        ({"states": ["cancelled"]}, [5]),
        ({"states": ["cancelled", "failed"], "function": "f", "limit": 2}, [5, 4]),
        ({"since": NOW - 1, "dead": True}, [2, 1]),
        ({"since": NOW + 1}, []),
    ],
    ids=str,
)
def test_retry_all_that_match(selection: dict[str, Any], expected: list[int]) -> None:
    operator = story()
    assert operator.ask("retry", **selection)["retried"] == [f"H:t:{job_id}" for job_id in expected]
    assert all(operator.engine.jobs[job_id].attempts == 0 for job_id in expected)


def test_dead_jobs_are_found_behind_many_that_failed_otherwise() -> None:
    operator = OperatorHarness(attempts=1)
    operator.submit(10)
    dead = operator.kill()
    for _ in range(8):
        operator.finish(code=1)
    assert operator.ask("retry", all_dead=True, limit=1)["retried"] == [f"H:t:{dead.id}"]


def test_a_dead_job_whose_key_another_has_stays_dead() -> None:
    operator = OperatorHarness(attempts=1)
    operator.submit(1, unique=b"key")
    operator.kill()
    operator.submit(1, unique=b"key")
    assert operator.ask("retry", all_dead=True)["retried"] == []
    with pytest.raises(Refused):
        operator.ask("retry", job_id=1)


def test_a_job_that_is_dropped_meanwhile_does_not_save_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = story()
    find = operator.harness.find_jobs

    def forgetful(job_ids: Sequence[int]) -> Reading[dict[int, Job]]:
        return find([job_id for job_id in job_ids if job_id != 2])

    monkeypatch.setattr(operator.harness, "find_jobs", forgetful)
    assert operator.ask("retry", dead=True)["retried"] == ["H:t:1"]


# --- cancelling ---


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"function": "f"}, [7]),
        ({"function": "g", "states": ["ready"]}, [8]),
        ({"function": "h", "states": ["ready"]}, []),
        ({"function": "unknown"}, []),
        ({"function": "unknown", "states": ["ready"]}, []),
        ({"states": ["ready"]}, [8, 7]),
        ({"states": ["scheduled", "waiting", "running", "ready"]}, [9, 8, 7]),
        ({"error": "not yet"}, [9]),
        ({"since": NOW + 1}, []),
    ],
    ids=str,
)
def test_cancel_all_that_match(selection: dict[str, Any], expected: list[int]) -> None:
    operator = story()
    answer = operator.ask("cancel", **selection)
    assert answer["cancelled"] == [f"H:t:{job_id}" for job_id in expected]
    assert answer["count"] == len(expected)
    assert not answer["more"]
    assert not any(job_id in operator.engine.jobs for job_id in expected)


def test_cancel_a_running_job_that_matches() -> None:
    operator = story()
    running = operator.take()
    assert operator.ask("cancel", states=["running"])["cancelled"] == [f"H:t:{running.id}"]


@pytest.mark.parametrize("states", [None, ["ready"]])
def test_cancel_so_many_at_a_time(states: list[str] | None) -> None:
    operator = OperatorHarness()
    operator.submit(5)
    counts = []
    while True:
        answer = operator.ask("cancel", function="f", states=states, limit=2)
        counts.append(answer["count"])
        if not answer["more"]:
            break
    assert counts == [2, 2, 1]
    assert not operator.engine.jobs


def test_cancel_with_what_waits_for_them() -> None:
    operator = OperatorHarness()
    operator.submit(2)
    operator.submit(1, function=b"g", predecessors=(1,))
    answer = operator.ask("cancel", function="f", cascade=True)
    assert sorted(answer["cancelled"]) == ["H:t:1", "H:t:2", "H:t:3"]
    assert answer["count"] == 3


def test_of_very_many_cancelled_jobs_not_all_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_operations, "MOST_HANDLES", 3)
    operator = OperatorHarness()
    operator.submit(1)
    operator.submit(4, function=b"g", predecessors=(1,))
    answer = operator.ask("cancel", handle="H:t:1", cascade=True)
    assert len(answer["cancelled"]) == 3
    assert answer["count"] == 5
    assert not operator.engine.jobs


@pytest.mark.parametrize("limits", [{}, {"concurrency": 1}, {"fair": True}], ids=["plain", "gate", "lanes"])
def test_ready_jobs_of_a_function_are_found_behind_any_number_of_others(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any]
) -> None:
    monkeypatch.setattr(unfinished_jobs, "SCANNED_PER_STEP", 5)
    operator = OperatorHarness()
    operator.ask("limit", function="rare", **limits)
    operator.submit(2, function=b"rare")
    operator.submit(10)
    assert operator.ask("cancel", function="rare", states=["ready"])["count"] == 2


def test_jobs_that_left_their_queue_are_left_alone() -> None:
    operator = OperatorHarness()
    jobs = operator.submit(4)
    operator.engine.cancel(jobs[1])
    operator.engine.add_predecessors(jobs[2], (1,))
    assert operator.ask("cancel", function="f", states=["ready"])["cancelled"] == ["H:t:1", "H:t:4"]
    assert list(operator.engine.jobs) == [3]


# --- states of many ---


def test_the_states_of_many_jobs_at_once() -> None:
    answer = story().ask("states", handles=[f"H:t:{number}" for number in (9, 1, 5, 6, 7, 99, 0)])
    assert answer == {
        "states": ["scheduled", "failed", "cancelled", "done", "ready", "unknown", "unknown"],
        "counts": {"scheduled": 1, "failed": 1, "cancelled": 1, "done": 1, "ready": 1, "unknown": 2},
    }
    assert story().ask("states", handles=[]) == {"states": [], "counts": {}}


def test_so_many_are_too_many() -> None:
    with pytest.raises(ValueError, match="states: handles: expected a list of at most 10000 handles, got 10001"):
        story().ask("states", handles=["H:t:1"] * 10_001)


def test_something_that_is_no_list_of_handles() -> None:
    with pytest.raises(ValueError, match="states: handles: expected a list of at most 10000 handles, got 7"):
        story().ask("states", handles=7)


# --- changing ---


def test_a_job_gets_another_priority_and_another_time() -> None:
    operator = story()
    answer = operator.ask("change", handle="H:t:8", priority="high", run_at=NOW + 5)
    assert (answer["state"], answer["priority"], answer["run_at"]) == ("scheduled", "high", NOW + 5)
    answer = operator.ask("change", handle="H:t:8", run_at=0)
    assert (answer["state"], answer["priority"]) == ("ready", "high")


def test_only_jobs_that_wait_are_changed() -> None:
    operator = story()
    with pytest.raises(LookupError, match="no such job"):
        operator.ask("change", handle="H:t:99", priority="high")
    with pytest.raises(ValueError, match="nothing to change"):
        operator.ask("change", handle="H:t:8")
    for job_id, state in ((6, "done"), (5, "cancelled"), (3, "failed")):
        with pytest.raises(Refused, match=f"is {state}"):
            operator.ask("change", job_id=job_id, run_at=0)
    running = operator.take()
    with pytest.raises(Refused, match="is running"):
        operator.ask("change", job_id=running.id, priority="low")


# --- searching for a text ---


def test_a_search_for_a_text_says_how_far_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished_jobs, "MOST_SEARCHED", 4)
    monkeypatch.setattr(job_operations, "MOST_SEARCHED", 4)
    monkeypatch.setattr(unfinished_jobs, "SCANNED_PER_STEP", 2)
    operator = OperatorHarness()
    operator.submit(10)
    page = operator.ask("jobs", contains="nowhere")
    assert (page["jobs"], page["next_before_id"]) == ([], 7)
    assert operator.all_pages(contains="payload") == list(range(10, 0, -1))
    assert operator.all_pages(contains="nowhere") == []


def test_long_payloads_are_searched_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished_jobs, "BYTES_PER_STEP", 10)
    operator = OperatorHarness()
    operator.submit(10)  # of seven bytes each
    steps = sum(1 for _ in operator.operations.handlers["jobs"](**checked(VERBS["jobs"], {"contains": "nowhere"})))
    assert steps > 2
    assert operator.all_pages(contains="payload", limit=2) == list(range(10, 0, -1))


# --- by the shortest way ---


def without_scanning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any look through all jobs fails."""

    def refuse(*arguments: object) -> object:
        raise AssertionError("all jobs were looked through")

    monkeypatch.setattr(unfinished_jobs.UnfinishedJobs, "_scan", refuse)


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        ({"states": ["running"]}, [3, 2, 1]),
        ({"states": ["running"], "limit": 2}, [3, 2]),
        ({"states": ["running"], "before_id": 3}, [2, 1]),
        ({"states": ["running"], "function": "g"}, []),
        ({"states": ["running"], "function": "nobody"}, []),
        ({"unique": "u"}, [8, 7]),
        ({"unique": "u", "function": "g"}, [8]),
        ({"unique": "nobody's"}, []),
        ({"name": "n"}, [6]),
        ({"name": "n", "states": ["running"]}, []),
        ({"name": "nobody"}, []),
    ],
)
def test_what_has_a_table_is_not_searched(
    selection: dict[str, Any], found: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = OperatorHarness()
    operator.submit(5)
    operator.submit(1, name=b"n")
    operator.submit(1, unique=b"u")
    operator.submit(1, b"g", unique=b"u")
    for _ in range(3):
        operator.take()
    without_scanning(monkeypatch)
    page = operator.ask("jobs", **selection)
    assert [job["id"] for job in page["jobs"]] == found


@pytest.mark.parametrize("function", [None, "f", "g"])
def test_what_is_in_no_such_state_is_not_searched(function: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = OperatorHarness()
    operator.submit(50)
    operator.submit(1, b"g")
    looks = counted_looks(operator, monkeypatch)
    assert operator.ask("jobs", function=function, states=["waiting", "scheduled"])["jobs"] == []
    assert looks == []


def test_the_search_ends_with_the_last_of_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished_jobs, "SCANNED_PER_STEP", 5)
    operator = OperatorHarness()
    operator.submit(50)
    operator.submit(2, run_at_us=operator.engine.now_us + 5)
    looks = counted_looks(operator, monkeypatch)
    page = operator.ask("jobs", states=["scheduled"])
    assert [job["id"] for job in page["jobs"]] == [52, 51]
    assert page["next_before_id"] is None
    assert len(looks) == 1


def counted_looks(operator: OperatorHarness, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each step of a search."""
    looks: list[int] = []
    scan = itertools.islice

    def counted(*arguments: Any) -> Any:
        looks.append(1)
        return scan(*arguments)

    monkeypatch.setattr(unfinished_jobs, "islice", counted)
    return looks
