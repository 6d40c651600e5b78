"""Pauses between attempts: of a job, of a connection, of a write to a database.

The formula is a pure function: the caller counts the failures and draws the random number.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["BACKOFF_KINDS", "Backoff", "ReconnectBackoff", "RetryPauses", "without_jitter"]

BACKOFF_KINDS: Final = ("exponential", "linear", "constant", "none")
_MOST_DOUBLINGS: Final = 1000  # beyond it a float overflows, and every bound is reached long before


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses between the attempts of a job.

    >>> growing = Backoff("exponential", first_seconds=2, most_seconds=60, jitter=False)
    >>> [growing.delay_seconds(attempt, random=0.0) for attempt in (1, 2, 3, 10)]
    [2.0, 4.0, 8.0, 60.0]

    With jitter a pause is between half of that and all of it, so that jobs which failed together do not come back
    together.  `random` is a number from 0 to 1, drawn by the caller.

    >>> Backoff("constant", first_seconds=10).delay_seconds(1, random=0.5)
    7.5

    Or each pause is given; the last one is for all later attempts as well.

    >>> [Backoff.of([1, 5, 30], jitter=False).delay_seconds(attempt, 0.0) for attempt in (1, 2, 3, 4)]
    [1.0, 5.0, 30.0, 30.0]
    """

    kind: str = "exponential"
    first_seconds: float = 1.0
    factor: float = 2.0  # of exponential growth
    most_seconds: float = 3600.0
    jitter: bool = True
    pauses_seconds: tuple[float, ...] = ()  # if given, these and nothing else

    def __post_init__(self) -> None:
        if self.kind not in BACKOFF_KINDS:
            raise ValueError(f"backoff is one of {', '.join(BACKOFF_KINDS)}, not {self.kind!r}")
        for name in ("first_seconds", "most_seconds"):
            _check_seconds(getattr(self, name), f"backoff: {name}")
        for pause in self.pauses_seconds:
            _check_seconds(pause, "backoff: a pause")
        if not isinstance(self.factor, int | float) or not 1 <= self.factor < math.inf:
            raise ValueError(f"backoff: factor is a number from 1 up, not {self.factor!r}")

    @classmethod
    def of(cls, given: Backoff | str | float | Sequence[float], jitter: bool | None = None) -> Backoff:
        """A backoff from what users write: a word, seconds, a list of seconds, or a Backoff."""
        if isinstance(given, Backoff):
            backoff = given
        elif isinstance(given, str):
            backoff = cls(given)
        elif isinstance(given, int | float) and not isinstance(given, bool):
            _check_seconds(given, "backoff")
            backoff = cls("constant", first_seconds=given, most_seconds=given)
        elif isinstance(given, list | tuple) and given:
            backoff = cls("constant", pauses_seconds=tuple(given))
        else:
            raise ValueError(f"backoff is a word, seconds, a list of seconds or a Backoff, not {given!r}")
        return backoff if jitter is None else replace(backoff, jitter=jitter)

    def delay_seconds(self, attempt: int, random: float) -> float:
        """The pause after this attempt, which has failed; the first attempt is number 1."""
        pause = min(self._whole_pause_seconds(max(1, attempt)), self.most_seconds)
        if self.pauses_seconds:
            pause = self.pauses_seconds[min(max(1, attempt), len(self.pauses_seconds)) - 1]
        return float(pause * (0.5 + 0.5 * random) if self.jitter else pause)

    def _whole_pause_seconds(self, attempt: int) -> float:
        if self.kind == "none":
            return 0.0
        if self.kind == "linear":
            return self.first_seconds * attempt
        if self.kind == "constant":
            return self.first_seconds
        try:
            return self.first_seconds * float(self.factor) ** min(attempt - 1, _MOST_DOUBLINGS)
        except OverflowError:
            return self.most_seconds


def without_jitter() -> float:
    """A replacement for the random numbers of `ReconnectBackoff` that makes every pause as long as it can be."""
    return 1.0


@dataclass(frozen=True, slots=True)
class ReconnectBackoff:
    """Exponential pauses between attempts to connect, with jitter.

    They grow, so that a failing server gets fewer attempts, and differ, so that a thousand workers do not reconnect at
    the same time.
    """

    first_seconds: float = 0.1
    most_seconds: float = 30.0
    factor: float = 2.0
    rng: Callable[[], float] = random.random

    def seconds(self, attempt: int) -> float:
        """The pause after `attempt` + 1 failures in a row: between half and all of the exponential value."""
        backoff = Backoff("exponential", self.first_seconds, self.factor, self.most_seconds)
        return backoff.delay_seconds(attempt + 1, self.rng())


class RetryPauses:
    """The pauses of one loop that retries: each is longer than the one before, until an attempt succeeds.

    >>> pauses = RetryPauses(ReconnectBackoff(first_seconds=1, most_seconds=3, rng=without_jitter))
    >>> [pauses.next_seconds() for _ in range(3)]
    [1.0, 2.0, 3.0]
    >>> pauses.reset()
    >>> pauses.next_seconds()
    1.0
    """

    def __init__(self, backoff: ReconnectBackoff) -> None:
        self.failures = 0  # in a row
        self._backoff = backoff

    def next_seconds(self) -> float:
        """Count a failure, and return how long to wait after it."""
        pause_seconds = self.due_seconds()
        self.failures += 1
        return pause_seconds

    def due_seconds(self) -> float:
        """How long to wait now, without counting a failure."""
        return self._backoff.seconds(self.failures)

    def reset(self) -> None:
        """Start again with the first pause, after an attempt has succeeded."""
        self.failures = 0


def _check_seconds(value: float, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{name} is a number of seconds, not {value!r}")
