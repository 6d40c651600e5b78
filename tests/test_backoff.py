"""Pauses between attempts."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.backoff import Backoff


@pytest.mark.parametrize(
    ("given", "pauses"),
    [
        ("exponential", [1.0, 2.0, 4.0, 8.0]),
        ("linear", [1.0, 2.0, 3.0, 4.0]),
        ("constant", [1.0, 1.0, 1.0, 1.0]),
        ("none", [0.0, 0.0, 0.0, 0.0]),
        (5, [5.0, 5.0, 5.0, 5.0]),
        (7200, [7200.0, 7200.0, 7200.0, 7200.0]),
        ([1, 10], [1.0, 10.0, 10.0, 10.0]),
        (Backoff("exponential", first_seconds=3, factor=10, most_seconds=100), [3.0, 30.0, 100.0, 100.0]),
    ],
    ids=["exponential", "linear", "constant", "none", "seconds", "long", "list", "own"],
)
def test_pauses(given: Any, pauses: list[float]) -> None:
    backoff = Backoff.of(given, jitter=False)
    assert [backoff.delay_seconds(attempt, 0.7) for attempt in (1, 2, 3, 4)] == pauses


def test_jitter_is_between_half_and_all() -> None:
    backoff = Backoff("constant", first_seconds=8)
    assert [backoff.delay_seconds(1, random) for random in (0.0, 0.5, 1.0)] == [4.0, 6.0, 8.0]


def test_a_pause_never_exceeds_its_bound_however_many_attempts() -> None:
    backoff = Backoff("exponential", factor=10, most_seconds=60, jitter=False)
    assert backoff.delay_seconds(1_000_000, 0.0) == 60.0


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("fibonacci", "backoff is one of exponential, linear, constant, none, not 'fibonacci'"),
        (-1, "backoff is a number of seconds, not -1"),
        ([1, "x"], "backoff: a pause is a number of seconds, not 'x'"),
        ([], "backoff is a word, seconds, a list of seconds or a Backoff, not []"),
        (None, "backoff is a word, seconds, a list of seconds or a Backoff, not None"),
    ],
    ids=["word", "negative", "no number", "empty", "none"],
)
def test_what_is_no_backoff(given: Any, complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        Backoff.of(given)
    assert str(caught.value) == complaint


def test_a_factor_below_one_would_shrink_the_pauses() -> None:
    with pytest.raises(ValueError, match=r"factor is a number from 1 up, not 0\.5"):
        Backoff(factor=0.5)
