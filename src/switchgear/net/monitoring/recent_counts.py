"""`RecentCounts`: earlier values of counters, from which rates are computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from switchgear.model import SECOND_US

__all__ = ["RATE_SECONDS", "RecentCounts"]

RATE_SECONDS: Final = 10  # rates are about the last ten seconds, where so much is known
SPACING_US: Final = SECOND_US * 9 // 10  # between two samples
MOST_SAMPLES: Final = 660  # eleven minutes of one sample a second


class RecentCounts:
    """Values of counters at earlier times, at most one in about a second."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Sequence[int]]] = deque(maxlen=MOST_SAMPLES)

    def note(self, now_us: int, counts: Sequence[int]) -> None:
        """Remember the present values, unless others were remembered a moment ago."""
        samples = self._samples
        while samples and samples[-1][0] > now_us:
            samples.pop()  # the clock was set back
        if not samples or now_us - samples[-1][0] >= SPACING_US:
            samples.append((now_us, counts))

    def before(self, now_us: int, seconds: float) -> tuple[int, Sequence[int]] | None:
        """The time and the values of the last sample that is so old, or of the oldest one; `None` if there is none
        that is older than a moment."""
        wanted_us = now_us - round(seconds * SECOND_US)
        found = None
        for sample in reversed(self._samples):
            if now_us - sample[0] >= SPACING_US:
                found = sample
            if sample[0] <= wanted_us:
                break
        return found

    def rates(self, now_us: int, counts: Sequence[int]) -> tuple[float, list[float | None]]:
        """Over how many seconds, and how much each counter grew per second; a counter that shrank did not grow."""
        earlier = self.before(now_us, RATE_SECONDS)
        if earlier is None:
            return 0.0, [None] * len(counts)
        at_us, values = earlier
        seconds = (now_us - at_us) / SECOND_US
        pairs = zip(counts, values, strict=True)
        return round(seconds, 3), [round(max(0, count - value) / seconds, 3) for count, value in pairs]
