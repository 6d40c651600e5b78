"""How many jobs of a function may run, and how often one may be started: what an operator or a program asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["Policy", "Rate"]

Rate: TypeAlias = tuple[int, int]
"""So many starts in so many microseconds.  They may all come at once; from then on they are due at equal distances."""

MOST_AT_ONCE: Final = 1_000_000_000
LONGEST_PERIOD_US: Final = 366 * 24 * 3600 * 1_000_000  # more is a slip of the pen


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits of one function; see engine.gates for what each of them means.  Raises ValueError."""

    concurrency: int = 0  # most jobs that run at once; 0: any number
    rate: Rate | None = None  # of the function's starts
    key_concurrency: int = 0  # the same two for the jobs of each key; those without a key have no such limit
    key_rate: Rate | None = None
    fair: bool = False  # keys are served in turn, and not in the order of their jobs

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
        """Whether it asks for anything."""
        return bool(self.concurrency or self.rate or self.tells_keys_apart)

    @property
    def tells_keys_apart(self) -> bool:
        """Whether it matters what key a job has."""
        return bool(self.key_concurrency or self.key_rate or self.fair)
