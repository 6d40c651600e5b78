"""Token buckets: a start takes a token, and tokens come back one by one over the period."""

from __future__ import annotations

from switchgear.engine.token_bucket import converted, has_tokens_at_us, spent, tokens
from switchgear.policy import Rate

RATE: Rate = (3, 3_000)  # three in three milliseconds


def test_a_new_bucket_is_full() -> None:
    assert tokens(0, RATE, 10_000) == 3


def test_each_start_takes_one_and_one_comes_back_after_another() -> None:
    bucket = 0
    for left in (2, 1, 0):
        bucket = spent(bucket, RATE, 10_000)
        assert tokens(bucket, RATE, 10_000) == left
    assert [tokens(bucket, RATE, now_us) for now_us in (10_999, 11_000, 12_000, 13_000)] == [0, 1, 2, 3]


def test_it_is_known_when_there_will_be_some() -> None:
    bucket = spent(spent(spent(0, RATE, 10_000), RATE, 10_000), RATE, 10_000)
    for number in (1, 2, 3):
        at_us = has_tokens_at_us(bucket, RATE, number)
        assert tokens(bucket, RATE, at_us) == number
        assert tokens(bucket, RATE, at_us - 1) == number - 1


def test_another_rate_keeps_the_tokens_that_fit() -> None:
    bucket = spent(0, RATE, 10_000)
    assert tokens(converted(bucket, RATE, (10, 3_000), 10_000), (10, 3_000), 10_000) == 2
    assert tokens(converted(bucket, RATE, (1, 3_000), 10_000), (1, 3_000), 10_000) == 1
    assert converted(bucket, RATE, RATE, 10_000) == bucket
    assert converted(bucket, RATE, None, 10_000) == 0
