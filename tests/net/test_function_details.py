"""The verbs `times` and `keys`."""

from __future__ import annotations

import pytest

from switchgear.net.operations import function_details
from tests.net.operator_harness import OperatorHarness


def test_how_long_jobs_wait_and_run() -> None:
    operator = OperatorHarness()
    operator.submit(2)
    assert operator.ask("times", function="f")["run"]["mean_seconds"] is None
    operator.harness.clock.advance(1)
    operator.harness.turn()
    job = operator.take()
    operator.harness.clock.advance(0.01)
    operator.harness.turn()
    operator.engine.complete(operator.worker, job.id, b"")
    answer = operator.ask("times", function="f")
    assert (answer["wait"]["mean_seconds"], answer["wait"]["p99_seconds"]) == (1.0, 1.024)
    assert (answer["run"]["mean_seconds"], answer["run"]["p50_seconds"]) == (0.01, 0.016)
    assert len(answer["run"]["counts"]) == len(answer["bounds"]) + 1
    assert sum(answer["run"]["counts"]) == 1


def test_the_keys_with_most_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_details, "KEYS_PER_STEP", 2)
    operator = OperatorHarness()
    assert operator.submit()
    assert operator.ask("keys", function="f") == {"function": "f", "keys": [], "count": 0, "complete": True}
    operator.ask("limit", function="g", key_concurrency=1)
    for number in range(5):
        operator.submit(1 + number, function=b"g", key=b"k%d" % number)
    operator.take(b"g")
    answer = operator.ask("keys", function="g", limit=3)
    assert [(key["key"], key["ready"]) for key in answer["keys"]] == [("k4", 5), ("k3", 4), ("k2", 3)]
    everything = operator.ask("keys", function="g")["keys"]
    assert sum(key["running"] for key in everything) == 1
    assert answer["complete"]
    monkeypatch.setattr(function_details, "MOST_KEYS_SEEN", 2)
    answer = operator.ask("keys", function="g")
    assert (len(answer["keys"]), answer["complete"]) == (2, False)


@pytest.mark.parametrize("verb", ["times", "keys"])
def test_an_unknown_function(verb: str) -> None:
    with pytest.raises(LookupError, match="there is no function nobody"):
        OperatorHarness().ask(verb, function="nobody")
