"""Moments and durations as people write them."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Final

__all__ = ["parse_duration", "parse_when"]

_UNIT_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PIECE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_PIECES: Final = re.compile(rf"(?:{_PIECE.pattern})+")
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")

# A date beyond this is a slip of the pen, and a server would refuse it with less helpful words.
_LATEST_SECONDS: Final = datetime(9999, 1, 1).timestamp()


def parse_duration(text: str) -> float:
    """Seconds of `90`, `1.5s`, `250ms`, `5m`, `2h`, `1d`, `1h30m`; raises ValueError."""
    text = text.strip().lower()
    if _NUMBER.fullmatch(text):
        seconds = float(text)
    elif _PIECES.fullmatch(text):
        seconds = math.fsum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PIECE.findall(text))
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
