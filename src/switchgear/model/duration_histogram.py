"""`DurationHistogram`: counts durations in buckets, each four times as wide as the one before.

Every job passes here twice, so the counts are single fields that need no list and, compiled, no objects: noting a
duration takes some twenty instructions.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

__all__ = ["BOUNDS_US", "DurationHistogram"]

# The upper bounds of the buckets, which belong to them; one more bucket has everything above.
BOUNDS_US: Final = (1_000, 4_000, 16_000, 64_000, 256_000, 1_024_000, 4_096_000, 16_384_000, 65_536_000, 262_144_000)


@mypyc_attr(acyclic=True)
class DurationHistogram:
    """How many durations were how long, and their sum."""

    __slots__ = (
        "longer",
        "sum_us",
        "to_1ms",
        "to_1s",
        "to_4ms",
        "to_4s",
        "to_16ms",
        "to_16s",
        "to_64ms",
        "to_65s",
        "to_256ms",
        "to_262s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sum_us: i64 = 0
        self.to_1ms: i64 = 0
        self.to_4ms: i64 = 0
        self.to_16ms: i64 = 0
        self.to_64ms: i64 = 0
        self.to_256ms: i64 = 0
        self.to_1s: i64 = 0
        self.to_4s: i64 = 0
        self.to_16s: i64 = 0
        self.to_65s: i64 = 0
        self.to_262s: i64 = 0
        self.longer: i64 = 0

    def note(self, duration_us: i64) -> None:
        """Count a duration; one below zero, after the clock was set, counts as zero."""
        if duration_us <= 1_000:
            self.to_1ms += 1
            if duration_us < 0:
                return
        elif duration_us <= 4_000:
            self.to_4ms += 1
        elif duration_us <= 16_000:
            self.to_16ms += 1
        elif duration_us <= 64_000:
            self.to_64ms += 1
        elif duration_us <= 256_000:
            self.to_256ms += 1
        elif duration_us <= 1_024_000:
            self.to_1s += 1
        elif duration_us <= 4_096_000:
            self.to_4s += 1
        elif duration_us <= 16_384_000:
            self.to_16s += 1
        elif duration_us <= 65_536_000:
            self.to_65s += 1
        elif duration_us <= 262_144_000:
            self.to_262s += 1
        else:
            self.longer += 1
        self.sum_us += duration_us

    def counts(self) -> list[int]:
        """How many there are in each bucket, the last one without a bound."""
        return [
            self.to_1ms, self.to_4ms, self.to_16ms, self.to_64ms, self.to_256ms, self.to_1s, self.to_4s, self.to_16s,
            self.to_65s, self.to_262s, self.longer,
        ]  # fmt: skip

    def add(self, other: DurationHistogram) -> None:
        """Count what another histogram has counted."""
        self.sum_us += other.sum_us
        self.to_1ms += other.to_1ms
        self.to_4ms += other.to_4ms
        self.to_16ms += other.to_16ms
        self.to_64ms += other.to_64ms
        self.to_256ms += other.to_256ms
        self.to_1s += other.to_1s
        self.to_4s += other.to_4s
        self.to_16s += other.to_16s
        self.to_65s += other.to_65s
        self.to_262s += other.to_262s
        self.longer += other.longer
