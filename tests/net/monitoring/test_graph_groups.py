"""The verb `graph`: very many jobs in few groups, the frontier, and why it is stuck."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.net.monitoring.graph_groups import MOST_GROUPS
from switchgear.net.operations import graph as graph_operations
from tests.net.operator_harness import OperatorHarness


def groups(answer: dict[str, Any]) -> dict[tuple[str, int], dict[str, int]]:
    return {(group["label"], group["layer"]): group["states"] for group in answer["groups"]}


def pipeline(operator: OperatorHarness, width: int) -> None:
    """So many extractions, each with a conversion behind it, and one report of all."""
    first = [operator.submit(function=b"f", name=b"extract-%d" % number)[0] for number in range(width)]
    second = [
        operator.submit(function=b"f", name=b"convert-%d" % number, predecessors=(job.id,))[0]
        for number, job in enumerate(first)
    ]
    operator.submit(function=b"f", name=b"report", predecessors=tuple(job.id for job in second))


def test_a_pipeline_has_three_groups() -> None:
    operator = OperatorHarness()
    pipeline(operator, 20)
    operator.take()
    answer = operator.ask("graph", function="f")
    assert groups(answer) == {
        ("extract-*", 0): {"ready": 19, "running": 1},
        ("convert-*", 1): {"waiting": 20},
        ("report", 2): {"waiting": 1},
    }
    assert answer["edges"] == [{"before": 0, "after": 1, "jobs": 20}, {"before": 1, "after": 2, "jobs": 1}]
    assert [group["is_frontier"] for group in answer["groups"]] == [True, False, False]
    assert (answer["jobs"], answer["complete"]) == (41, True)
    assert answer["groups"][0]["examples"] == ["H:t:1", "H:t:2", "H:t:3"]


def test_by_name_and_by_handle() -> None:
    operator = OperatorHarness()
    pipeline(operator, 5)
    operator.submit(function=b"f", name=b"alone")
    operator.submit(function=b"f")
    assert operator.ask("graph", name="convert-")["jobs"] == 5
    assert operator.ask("graph", name="")["jobs"] == 12
    assert operator.ask("graph", handle="H:t:7")["jobs"] == 11
    assert operator.ask("graph", function="g") == {
        "groups": [], "edges": [], "jobs": 0, "complete": True, "stuck": [],
    }  # fmt: skip


def test_around_a_job_that_has_ended() -> None:
    operator = OperatorHarness()
    pipeline(operator, 3)
    operator.finish()
    assert operator.ask("graph", handle="H:t:1")["jobs"] in (0, 1, 6)
    with pytest.raises(LookupError, match="no such job"):
        operator.ask("graph", handle="H:t:99")


@pytest.mark.parametrize("arguments", [{}, {"function": "f", "name": "x"}, {"function": "f", "handle": "H:t:1"}])
def test_one_selection_is_needed(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected one of function, name and handle"):
        OperatorHarness().ask("graph", **arguments)


def test_where_it_is_stuck_and_why() -> None:
    operator = OperatorHarness()
    (first,) = operator.submit(function=b"f", name=b"first")
    operator.submit(function=b"f", name=b"second", predecessors=(first.id,))
    operator.submit(function=b"g", name=b"other")
    (stuck,) = operator.ask("graph", function="g")["stuck"]
    assert (stuck["handle"], stuck["word"]) == ("H:t:3", "no_worker")
    operator.finish(error=b"no")
    answer = operator.ask("graph", function="f")
    assert [(each["handle"], "failed" in each["text"]) for each in answer["stuck"]] == [("H:t:2", True)]


def test_very_many_names_functions_and_layers() -> None:
    operator = OperatorHarness()
    for number in range(400):
        letters = bytes(97 + int(digit) for digit in str(number))
        operator.submit(function=b"f", name=letters)
    answer = operator.ask("graph", function="f")
    assert [(group["label"], group["jobs"]) for group in answer["groups"]] == [("", 400)]
    operator = OperatorHarness()
    last = 0
    for number in range(1_000):
        (job,) = operator.submit(
            function=b"g%d" % (number % 400), name=b"n%d" % number, predecessors=(last,) if last else ()
        )
        last = job.id
    answer = operator.ask("graph", name="n")
    assert 100 < len(answer["groups"]) <= MOST_GROUPS
    assert sum(group["jobs"] for group in answer["groups"]) == 1_000
    assert answer["groups"][0]["function"] == ""


def test_a_graph_that_is_too_large_is_said_to_be_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_operations, "MOST_GRAPH_JOBS", 100)
    monkeypatch.setattr(graph_operations, "MOST_CONNECTED_JOBS", 100)
    monkeypatch.setattr(graph_operations, "JOBS_PER_STEP", 20)
    operator = OperatorHarness()
    pipeline(operator, 100)
    for selection in ({"function": "f"}, {"handle": "H:t:1"}):
        answer = operator.ask("graph", **selection)
        assert not answer["complete"]
        assert answer["jobs"] <= 200
