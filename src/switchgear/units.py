"""Durations, times and sizes: how people write them (`10s`, `1h30m`, `64MiB`), and how they are shown.

The configuration, the command line and the Python library all read and write them here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

__all__ = [
    "BYTES_PER_UNIT",
    "GIB",
    "KIB",
    "LONGEST_SECONDS",
    "MIB",
    "SECONDS_PER_UNIT",
    "duration_seconds",
    "exact_bytes",
    "exact_duration",
    "parse_bytes",
    "parse_duration",
    "parse_quantity",
    "parse_when",
    "short_bytes",
    "short_duration",
    "utc_text",
]

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# With an empty unit a bare number is seconds, or bytes.
SECONDS_PER_UNIT: Final[Mapping[str, Decimal]] = {
    "": Decimal(1),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86_400),
    "w": Decimal(604_800),
}
BYTES_PER_UNIT: Final[Mapping[str, Decimal]] = {
    "": Decimal(1),
    "b": Decimal(1),
    "kib": Decimal(KIB),
    "mib": Decimal(MIB),
    "gib": Decimal(GIB),
    "k": Decimal(1000),  # as in resources (`memory=64G`): without an `i`, powers of 1000
    "m": Decimal(1000**2),
    "g": Decimal(1000**3),
    "kb": Decimal(1000),
    "mb": Decimal(1000**2),
    "gb": Decimal(1000**3),
}
LONGEST_SECONDS: Final = 100 * 366 * 24 * 3600.0  # a longer duration in a program is a mistake

_LONGEST_SHOWN: Final = 40  # characters of a text that is refused
_MOST_BYTES: Final = 2**63 - 1

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_US: Final = 253_402_300_799_999_999  # the end of the year 9999

_PIECE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_PIECES: Final = re.compile(rf"(?:{_PIECE.pattern})+")
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_QUANTITY: Final = re.compile(r"([+-]?[0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)

# A later date is a mistake, which a server would refuse with a less helpful text.
_LATEST_SECONDS: Final = datetime(9999, 1, 1).timestamp()


# --- reading ---


def parse_duration(text: str) -> float:
    """Seconds of `90`, `1.5s`, `250ms`, `5m`, `2h`, `1d`, `1h30m`; raises ValueError."""
    text = text.strip().lower()
    if _NUMBER.fullmatch(text):
        seconds = float(text)
    elif _PIECES.fullmatch(text):
        seconds = float(sum(Decimal(number) * SECONDS_PER_UNIT[unit] for number, unit in _PIECE.findall(text)))
    else:
        raise ValueError(f"{text!r} is no duration: write seconds, or numbers with ms, s, m, h, d or w, such as 1h30m")
    if seconds > _LATEST_SECONDS:
        raise ValueError(f"{text!r} is too long")
    return seconds


def parse_when(text: str, now: float) -> float:
    """Seconds since the epoch of `+5m`, `2030-01-31T18:00`, `2030-01-31 18:00+01:00` or `1896109200`.

    A time without a zone is local.  Raises ValueError.
    """
    text = text.strip()
    if text.startswith("+"):
        moment = now + parse_duration(text[1:])
    elif _NUMBER.fullmatch(text):
        moment = float(text)
    else:
        try:
            moment = datetime.fromisoformat(text).timestamp()  # local time where no zone is given
        except (ValueError, OverflowError, OSError):
            raise ValueError(f"{text!r} is no time: write +5m, 2030-01-31T18:00, or seconds since the epoch") from None
    if not 0 <= moment <= _LATEST_SECONDS:
        raise ValueError(f"{text!r} is out of range")
    return moment


def parse_quantity(text: str, units: Mapping[str, Decimal]) -> Decimal:
    """One number with at most one unit of a table, such as `64KiB`, `1_000` or `5 m`; raises ValueError.

    The error has no text: each setting has its own.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2].lower() not in units:
        raise ValueError
    return Decimal(match[1]) * units[match[2].lower()]


def parse_bytes(text: str) -> int:
    """Bytes of `500M`, `1.5GiB` or `1000000`, rounded down; raises ValueError."""
    try:
        count = parse_quantity(text, BYTES_PER_UNIT)
    except ValueError:
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
        raise ValueError(
            f"{shown!r} is no size: write bytes, or a number with K, M, G or KiB, MiB, GiB, such as 500M"
        ) from None
    if not 0 <= count <= _MOST_BYTES:
        raise ValueError("that is not a possible size of memory")
    return int(count)


def duration_seconds(value: Any, name: str) -> float:
    """Seconds of a number or a timedelta in a program; raises ValueError, whose text names the value."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < LONGEST_SECONDS:
        raise ValueError(f"{name} is a number of seconds or a timedelta, not {value!r}")
    return float(seconds)


# --- showing ---


def short_duration(seconds: float | None) -> str:
    """A duration for people: 12 ms, 3.4 s, 5 min, 3.2 h, 4.5 d; empty for None."""
    if seconds is None:
        return ""
    for below, unit, name in ((0.9995, 0.001, "ms"), (120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < below:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 86_400:.1f} d"


def short_bytes(count: float) -> str:
    """A size for people, rounded to three digits: 1.5 MiB."""
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"


def exact_bytes(count: int) -> str:
    """A size as `parse_quantity` reads it back: 64MiB, or the bare number if no unit divides it."""
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)


def exact_duration(seconds: float) -> str:
    """A duration as `parse_duration` reads it back, in the largest unit that divides it: 1h, 90s, 250ms, 1.0005s."""
    for unit in ("d", "h", "m", "s", "ms"):
        count = round(seconds / float(SECONDS_PER_UNIT[unit]), 6)
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    return f"{seconds:g}s"


def utc_text(time_us: int) -> str:
    """A time in microseconds since the epoch as 2030-01-31T18:00:00.000000Z; one that no calendar has as a number."""
    if not 0 <= time_us <= _LATEST_US:
        return f"{time_us} µs"
    return (_EPOCH + timedelta(microseconds=time_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
