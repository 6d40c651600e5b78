"""`Policy`: the limits of a function: how many of its jobs run at once, how often one may start, and fairness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["Policy", "Rate"]

Rate: TypeAlias = tuple[int, int]
"""This many starts in this many microseconds. They may all come at once; after that they are evenly spaced."""

MOST_AT_ONCE: Final = 1_000_000_000
LONGEST_PERIOD_US: Final = 366 * 24 * 3600 * 1_000_000  # a longer period is a typing error


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits of one function; `engine.limiters` describes them. Raises ValueError."""

    concurrency: int = 0  # how many jobs may run at once; 0: no limit
    rate: Rate | None = None  # of the function's starts
    key_concurrency: int = 0  # the same limits for the jobs of each key; jobs without a key have none
    key_rate: Rate | None = None
    fair: bool = False  # keys are served round robin, and not in the order of their jobs
    owner: str = ""  # the app that has declared the limits; empty: an operator

    def __post_init__(self) -> None:
        for name in ("concurrency", "key_concurrency"):
            number = getattr(self, name)
            if type(number) is not int or not 0 <= number <= MOST_AT_ONCE:
                raise ValueError(f"{name} is a whole number up to {MOST_AT_ONCE}, not {number!r}")
        for name in ("rate", "key_rate"):
            rate = getattr(self, name)
            if rate is None:
                continue
            count, period_us = rate
            if type(count) is not int or not 0 < count <= MOST_AT_ONCE:
                raise ValueError(f"{name} counts from 1 to {MOST_AT_ONCE} starts, not {count!r}")
            if type(period_us) is not int or not 0 < period_us <= LONGEST_PERIOD_US:
                raise ValueError(f"{name} is for a time from a microsecond to a year, not {period_us!r} µs")
        if type(self.fair) is not bool:
            raise ValueError(f"fair is true or false, not {self.fair!r}")

    def __bool__(self) -> bool:
        """Whether there is any limit."""
        return bool(self.concurrency or self.rate or self.tells_keys_apart)

    @property
    def tells_keys_apart(self) -> bool:
        """Whether the function has limits per key, or is fair."""
        return bool(self.key_concurrency or self.key_rate or self.fair)
