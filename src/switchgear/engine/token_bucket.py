"""Token buckets of rate limits, each held as one number: the time at which the bucket will be full again.

To be exact, that time is counted in microseconds times the count of the rate: one token then takes a whole number of
these units, the period, to return.
"""

from __future__ import annotations

from switchgear.policy import Rate

__all__ = ["converted", "has_tokens_at_us", "spent", "tokens"]


def tokens(full_at: int, rate: Rate, now_us: int) -> int:
    """How many tokens the bucket has now."""
    count, period_us = rate
    missing = full_at - now_us * count
    return count if missing <= 0 else max(0, count - 1 - (missing - 1) // period_us)


def spent(full_at: int, rate: Rate, now_us: int) -> int:
    """The bucket after a token was taken."""
    return max(full_at, now_us * rate[0]) + rate[1]


def has_tokens_at_us(full_at: int, rate: Rate, number: int) -> int:
    """When the bucket has this many tokens."""
    count, period_us = rate
    return -(((count - number) * period_us - full_at) // count)


def converted(full_at: int, old: Rate | None, new: Rate | None, now_us: int) -> int:
    """The bucket for another rate, with its tokens as far as they fit.

    A full bucket stays full, because buckets of forgotten keys are full.
    """
    if old is None or new is None:
        return 0
    if old == new:
        return full_at
    count, period_us = new
    available = tokens(full_at, old, now_us)
    missing = count - min(count, available) if available < old[0] else 0
    return now_us * count + missing * period_us if missing else 0
