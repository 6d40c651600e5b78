"""What an operator cannot ask: arguments that make no sense, jobs that nobody knows, a store that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.errors import Refused
from tests.net.operator_harness import OperatorHarness
from tests.support.unreadable_store import UnreadableStore

# --- what makes no sense ---


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("", {}),
        ("nonsense", {}),
        ("_find", {"job_id": 1}),
        ("__class__", {}),
        ("server", {"x": 1}),
        ("server", {"self": 1}),
        ("functions", {"function": "f"}),
        ("jobs", {"function": 5}),
        ("jobs", {"function": ["f"]}),
        ("jobs", {"function": {"base64": "Zg=="}}),
        ("jobs", {"function": "\ud800"}),
        ("jobs", {"states": "ready"}),
        ("jobs", {"states": 5}),
        ("jobs", {"states": ["sleepy"]}),
        ("jobs", {"states": [5]}),
        ("jobs", {"states": [["ready"]]}),
        ("jobs", {"unique": 1.5}),
        ("jobs", {"name": True}),
        ("jobs", {"limit": "5"}),
        ("jobs", {"limit": -1}),
        ("jobs", {"limit": 1e30}),
        ("jobs", {"limit": float("inf")}),
        ("jobs", {"limit": 10**30}),
        ("jobs", {"before_id": -1}),
        ("jobs", {"before_id": 2**63}),
        ("jobs", {"before_id": True}),
        ("jobs", {"dead": 1}),
        ("jobs", {"dead": "yes"}),
        ("jobs", {"dead": True, "states": ["cancelled"]}),
        ("jobs", {"error": 5}),
        ("jobs", {"since": -1}),
        ("jobs", {"since": "yesterday"}),
        ("jobs", {"since": True}),
        ("jobs", {"since": float("nan")}),
        ("jobs", {"since": 1e30}),
        ("jobs", {"query": "x"}),
        ("job", {}),
        ("job", {"job_id": "1"}),
        ("job", {"job_id": 1.0}),
        ("job", {"job_id": True}),
        ("job", {"job_id": None}),
        ("job", {"job_id": []}),
        ("job", {"job_id": 2**64}),
        ("cancel", {}),
        ("cancel", {"job_id": {}}),
        ("cancel", {"job_id": 1, "function": "f"}),
        ("cancel", {"cascade": True}),
        ("cancel", {"limit": 5}),
        ("cancel", {"states": []}),
        ("cancel", {"states": ["done"]}),
        ("cancel", {"states": ["ready", "failed"]}),
        ("cancel", {"dead": True}),
        ("cancel", {"function": "f", "nonsense": 1}),
        ("retry", {}),
        ("retry", {"job_id": "1"}),
        ("retry", {"all_dead": False}),
        ("retry", {"dead": False}),
        ("retry", {"limit": 5, "before_id": 5}),
        ("retry", {"job_id": 1, "error": "x"}),
        ("retry", {"states": ["done"]}),
        ("retry", {"states": ["failed", "ready"]}),
        ("retry", {"all_dead": True, "function": 1}),
        ("retry", {"all_dead": True, "limit": None}),
        ("pause", {}),
        ("pause", {"function": None}),
        ("pause", {"function": 1}),
        ("pause", {"function": ["f"]}),
        ("resume", {"function": None, "x": 1}),
    ],
)
def test_bad_arguments_are_one_kind_of_error(verb: str, arguments: dict[str, Any]) -> None:
    operator = OperatorHarness(attempts=1)
    operator.submit()
    operator.kill()
    with pytest.raises(ValueError):
        operator.operations(verb, arguments)


@pytest.mark.parametrize("verb", ["job", "cancel", "retry"])
@pytest.mark.parametrize("job_id", [0, 2, 10**18])
def test_jobs_that_nobody_knows(verb: str, job_id: int) -> None:
    operator = OperatorHarness()
    operator.submit()
    with pytest.raises(LookupError, match="no such job"):
        operator.ask(verb, job_id=job_id)


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("jobs", {}),
        ("jobs", {"dead": True}),
        ("job", {"job_id": 1}),
        ("cancel", {"job_id": 1}),
        ("retry", {"all_dead": True}),
        ("retry", {"error": "x"}),
    ],
)
def test_a_store_that_cannot_be_read_is_a_refusal(verb: str, arguments: dict[str, Any]) -> None:
    operator = OperatorHarness()
    operator.submit()
    operator.finish()
    operator.harness.store = UnreadableStore()
    with pytest.raises(Refused, match="disk broken") as caught:
        operator.ask(verb, **arguments)
    assert caught.value.reason == "storage"
