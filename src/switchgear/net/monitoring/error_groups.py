"""`ErrorGroups`: groups failed jobs by function and by the normalised text of their errors."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from switchgear.model import Function

__all__ = ["ErrorGroup", "ErrorGroups", "common_text"]

# An error may be megabytes long; what it has in common with others is at its beginning, or at the end of a traceback.
MOST_ERROR_BYTES: Final = 16_384
MOST_LINE_CHARACTERS: Final = 300
MOST_GROUPS: Final = 1_000
MOST_EXAMPLES: Final = 5
TREND_PARTS: Final = 24
OTHER_ERRORS: Final = "… (other errors)"
TRACEBACK: Final = "Traceback (most recent call last):"

# A quotation mark inside a word is an apostrophe.
_QUOTED: Final = re.compile(r"""(?<!\w)'[^'\n]*'|"[^"\n]*"|`[^`\n]*`""")
_HEXADECIMAL: Final = re.compile(
    r"\b(?:0[xX][0-9a-fA-F]+"
    r"|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    r"|(?=[a-fA-F]{0,64}[0-9])[0-9a-fA-F]{8,64})\b"
)
_NUMBER: Final = re.compile(r"[0-9]+(?:[.,:][0-9]+)*")


def telling_line(error: bytes) -> str:
    """The line of an error that says what is wrong: the first, or the last one of a Python traceback."""
    lines = lines_of(error[:MOST_ERROR_BYTES])
    if not lines:
        return ""
    line = lines[0]
    if line.strip() == TRACEBACK:
        if len(error) > MOST_ERROR_BYTES:
            lines = lines_of(error[-MOST_ERROR_BYTES:]) or lines
        line = lines[-1]
    return line.strip()[:MOST_LINE_CHARACTERS]


def lines_of(text: bytes) -> list[str]:
    """The lines of a text that are not empty."""
    return [line for line in text.decode("utf-8", "replace").splitlines() if line.strip()]


def common_text(error: bytes) -> str:
    """The telling line of an error without what differs from job to job: numbers, hexadecimal ids and quoted texts."""
    line = _QUOTED.sub("'…'", telling_line(error))
    return _NUMBER.sub("#", _HEXADECIMAL.sub("#", line))


@dataclass(slots=True)
class ErrorGroup:
    """Failed jobs of one function with about the same error."""

    function: bytes
    text: str
    example: str
    count: int = 0
    dead: int = 0
    first_us: int = 0
    last_us: int = 0
    job_ids: list[int] = field(default_factory=list)
    trend: list[int] = field(default_factory=lambda: [0] * TREND_PARTS)  # how many in each part of the time


class ErrorGroups:
    """The groups, a bounded number of them; their trends are of the time from `from_us` to `until_us`."""

    def __init__(self, from_us: int, until_us: int) -> None:
        self._from_us = from_us
        self._part_us = max(1, -(-(until_us - from_us) // TREND_PARTS))
        self.groups: dict[tuple[bytes, str], ErrorGroup] = {}

    def add(self, function: Function, error: bytes, job_id: int, ended_us: int, *, is_dead: bool) -> None:
        """Add a job that failed; of one group, the newest first."""
        key = function.name, common_text(error)
        if key not in self.groups and len(self.groups) >= MOST_GROUPS:
            key = b"", OTHER_ERRORS
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = ErrorGroup(*key, telling_line(error), first_us=ended_us, last_us=ended_us)
        group.count += 1
        group.dead += is_dead
        group.first_us = min(group.first_us, ended_us)
        group.last_us = max(group.last_us, ended_us)
        part = (ended_us - self._from_us) // self._part_us
        if part >= 0:
            group.trend[min(part, TREND_PARTS - 1)] += 1
        if len(group.job_ids) < MOST_EXAMPLES:
            group.job_ids.append(job_id)

    def by_count(self) -> list[ErrorGroup]:
        """The groups, that with most jobs first."""
        return sorted(self.groups.values(), key=lambda group: (-group.count, -group.last_us))
