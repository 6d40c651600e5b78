"""The verb `limit`, and what `functions` tells of limits."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.model import SECOND_US
from switchgear.policy import Policy
from tests.net.operator_harness import OperatorHarness

NOTHING = {"concurrency": 0, "rate": None, "key_concurrency": 0, "key_rate": None, "fair": False}


def policy_of(operator: OperatorHarness, name: bytes = b"f") -> Policy | None:
    limiter = operator.engine.functions[name].limiter
    return limiter.policy if limiter is not None else None


def test_what_is_given_is_set_and_the_rest_stays() -> None:
    operator = OperatorHarness()
    answer = operator.ask("limit", function="f", concurrency=4, rate=[10, 1])
    assert answer == {"function": "f", "policy": NOTHING | {"concurrency": 4, "rate": [10, 1.0]}}
    operator.ask("limit", function="f", key_concurrency=1, key_rate=[100, 3600.0], fair=True)
    assert policy_of(operator) == Policy(4, (10, SECOND_US), 1, (100, 3600 * SECOND_US), True)
    operator.ask("limit", function="f", rate=[1, 0.25], fair=False)
    assert policy_of(operator) == Policy(4, (1, SECOND_US // 4), 1, (100, 3600 * SECOND_US), False)


@pytest.mark.parametrize("no_rate", [0, [0, 0], [0, 1]], ids=str)
def test_nought_is_no_limit(no_rate: object) -> None:
    operator = OperatorHarness()
    operator.ask("limit", function="f", concurrency=4, rate=[10, 1], key_concurrency=2, key_rate=[1, 1])
    answer = operator.ask("limit", function="f", concurrency=0, rate=no_rate, key_concurrency=0, key_rate=no_rate)
    assert answer["policy"] == NOTHING
    assert policy_of(operator) is None


def test_a_question_changes_nothing() -> None:
    operator = OperatorHarness()
    assert operator.ask("limit", function="unheard of")["policy"] == NOTHING
    assert b"unheard of" not in operator.engine.functions
    operator.ask("limit", function="f", fair=True)
    limiter = operator.engine.functions[b"f"].limiter
    assert operator.ask("limit", function="f")["policy"] == NOTHING | {"fair": True}
    assert operator.ask("limit", function="f", fair=True, concurrency=0)["policy"] == NOTHING | {"fair": True}
    assert operator.engine.functions[b"f"].limiter is limiter


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "function is missing"),
        ({"function": ""}, "function is missing"),
        ({"function": 7}, "expected a text"),
        ({"function": "f", "concurrency": -1}, "expected a whole number"),
        ({"function": "f", "concurrency": True}, "expected a whole number"),
        ({"function": "f", "concurrency": 10**10}, "concurrency is a whole number up to"),
        ({"function": "f", "key_concurrency": "2"}, "expected a whole number"),
        (
            {"function": "f", "rate": "10/s"},
            "limit: rate: expected an array of a count and a number of seconds",
        ),
        ({"function": "f", "rate": [10]}, "rate: expected an array"),
        ({"function": "f", "rate": [1.5, 1]}, "rate: expected an array"),
        ({"function": "f", "rate": [1, float("nan")]}, "rate: expected an array"),
        ({"function": "f", "rate": [1, 0]}, "rate is for a time"),
        ({"function": "f", "rate": [-1, 1]}, "rate counts from 1"),
        ({"function": "f", "key_rate": [1, 1e300]}, "key_rate is for a time"),
        ({"function": "f", "fair": "yes"}, "limit: fair: expected true or false, got 'yes'"),
        ({"function": "f", "colour": "red"}, "colour"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(arguments: dict[str, Any], complaint: str) -> None:
    operator = OperatorHarness()
    with pytest.raises(ValueError, match=complaint):
        operator.ask("limit", **arguments)
    assert all(function.limiter is None for function in operator.engine.functions.values())


def test_functions_tell_their_limits_and_how_many_keys_wait() -> None:
    operator = OperatorHarness()
    operator.submit(2)
    operator.submit(2, key=b"a")
    operator.submit(1, key=b"b")
    (told,) = operator.ask("functions")
    assert (told["policy"], told["keys_waiting"]) == (None, None)
    operator.ask("limit", function="f", concurrency=2)
    (told,) = operator.ask("functions")
    assert (told["policy"], told["keys_waiting"]) == (NOTHING | {"concurrency": 2}, None)
    operator.ask("limit", function="f", fair=True)
    (told,) = operator.ask("functions")
    assert told["keys_waiting"] == 2


def test_the_oldest_job_is_found_in_its_lane() -> None:
    operator = OperatorHarness()
    operator.ask("limit", function="f", fair=True)
    operator.submit(1, key=b"a")
    operator.engine.advance(operator.harness.clock.advance(2))
    operator.submit(1, key=b"b")
    (told,) = operator.ask("functions")
    assert told["oldest_ready_seconds"] == 2.0
