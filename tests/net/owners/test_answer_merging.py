"""How the answers of several nodes become one, without nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from switchgear.net.owners.answer_merging import MERGES, NodePart
from switchgear.verbs.operator_verb import OperatorVerb, Reach, checked
from switchgear.verbs.table import VERBS
from tests.net.operator_harness import OperatorHarness
from tests.verbs.test_table import ANSWERS, READ_ARGUMENTS, busy_operator

# The states of jobs are added up where the store can be read, and permissions are known.
ELSEWHERE = {"states"}
OF_ALL_NODES = [verb for verb in VERBS.values() if verb.reach is Reach.ALL or verb.name in ("cancel", "retry")]


def test_every_verb_of_all_nodes_has_a_merge() -> None:
    assert MERGES.keys() == {verb.name for verb in OF_ALL_NODES} - ELSEWHERE


def answer_of(verb: OperatorVerb, operator: OperatorHarness) -> Any:
    answer = ANSWERS[verb.name](operator) if verb.name in ANSWERS else operator.ask(verb.name)
    if verb.name in ("cancel", "retry"):
        answer = answer[1]
    return msgspec.json.decode(msgspec.json.encode(answer))


@pytest.mark.parametrize(
    "verb", [verb for verb in OF_ALL_NODES if verb.name not in ELSEWHERE], ids=lambda verb: verb.name
)
def test_a_merged_answer_has_the_type_of_its_row(verb: OperatorVerb) -> None:
    parts = [NodePart(node, answer_of(verb, busy_operator())) for node in ("ada", "bob")]
    required = {argument.name: "x" for argument in verb.arguments if argument.required}
    given = {"action": "cancel"} if verb.name == "bulk" else READ_ARGUMENTS.get(verb.name, required)
    if verb.name == "declare":
        given = {"owner": "shop", "schedules": [], "functions": []}
    merged = MERGES[verb.name](parts, checked(verb, given))
    text = msgspec.json.encode(merged)
    assert msgspec.json.decode(text, type=verb.answer) == msgspec.json.decode(text)


def job(number: int, *, finished: bool = False) -> dict[str, Any]:
    return {"id": number, "finished_at": 1.0 if finished else None}


def pages(*nodes: tuple[list[int], int | None], limit: int) -> Any:
    parts = [
        NodePart(f"n{number}", {"jobs": [job(each) for each in ids], "next_before_id": before})
        for number, (ids, before) in enumerate(nodes)
    ]
    page = MERGES["jobs"](parts, {"limit": limit})
    return [each["id"] for each in page["jobs"]], page["next_before_id"]


def test_a_page_ends_where_the_first_node_has_stopped() -> None:
    """What others have below that comes with the next page, beside what this one has there."""
    assert pages(([9, 7], 7), ([8, 3, 2], None), limit=10) == ([9, 8, 7], 7)
    assert pages(([9, 7], None), ([8, 3], None), limit=10) == ([9, 8, 7, 3], None)
    assert pages(([9, 7], None), ([8, 3], None), limit=2) == ([9, 8], 8)
    assert pages(([], 5), ([4], None), limit=2) == ([], 5)


def test_an_unfinished_job_is_as_its_owner_says() -> None:
    parts = [
        NodePart("ada", {"jobs": [job(1, finished=True)], "next_before_id": None}),
        NodePart("bob", {"jobs": [job(1)], "next_before_id": None}),
    ]
    for each in (parts, parts[::-1]):
        assert MERGES["jobs"](each, {"limit": 5})["jobs"] == [job(1)]


def test_workers_of_other_nodes_count_for_a_function() -> None:
    parts = [
        NodePart("ada", [{"name": "f", "workers": 2}, {"name": "unowned", "workers": 1}]),
        NodePart("bob", [{"name": "f", "workers": 1, "total": 5}]),
    ]
    assert MERGES["functions"](parts, {}) == [{"name": "f", "workers": 3, "total": 5, "node": "bob"}]


def test_points_in_time_are_added_where_somebody_knows_them() -> None:
    def part(times: list[float], ready: list[float | None], oldest: list[float | None], begins: float | None) -> Any:
        return {"times": times, "values": {"ready": ready, "oldest": oldest}, "begins_at": begins, "functions": ["f"]}

    parts = [
        NodePart("ada", part([10, 20], [1, 2], [5, None], 10)),
        NodePart("bob", part([20, 30], [3, None], [7, None], None)),
    ]
    merged = MERGES["series"](parts, {})
    assert merged["times"] == [10, 20, 30]
    assert merged["values"] == {"ready": [1, 5, None], "oldest": [5, 7, None]}
    assert (merged["begins_at"], merged["functions"]) == (10, ["f"])


def test_memory_has_no_limit_if_one_node_has_none() -> None:
    def part(held: int, limit: int) -> Any:
        return {"reasons": [{"word": "accepting", "text": "", "data": {}}], "memory": {"held": held, "limit": limit}}

    assert MERGES["explain_server"]([NodePart("a", part(1, 5)), NodePart("b", part(2, 6))], {})["memory"] == {
        "held": 3,
        "limit": 11,
    }
    merged = MERGES["explain_server"]([NodePart("a", part(1, 5)), NodePart("b", part(2, 0))], {})
    assert merged["memory"] == {"held": 3, "limit": 0}
    assert [reason["word"] for reason in merged["reasons"]] == ["accepting"]
