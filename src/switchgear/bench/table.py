"""Results as tables: rows of words for the terminal, Markdown for pages.  Both are made from the document of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["HEADS", "Head", "figure", "markdown", "rows_of"]


class Head(NamedTuple):
    """The heading of a column."""

    title: str
    right: bool = False


HEADS = (
    Head("WORKLOAD"),
    Head("SERVER"),
    Head("JOBS", True),
    Head("JOBS/S", True),
    Head("CPU µs/JOB", True),
    Head("SPREAD", True),
    Head("p50 µs", True),
    Head("p99 µs", True),
    Head("ALSO"),
)
# Notes on the reliability of a reading, which are only in the JSON.
UNSAID = ("generator cpu %", "other cpu %", "longest us")


def figure(value: float | None, unit: str = "") -> str:
    """A number with three significant digits, or all of a whole number: 1.23, 12.3, 123, 12,345; a dash for None."""
    if value is None:
        return "–"
    size = abs(value)
    digits = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{value:,.{digits}f}{unit}"


def rows_of(document: dict[str, Any]) -> list[list[str]]:
    """A row for each cell, under `HEADS`."""
    return [_cells(row) for row in document["rows"]]


def _cells(row: dict[str, Any]) -> list[str]:
    best = row["best"]
    start = [row["workload"], row["peer"]]
    if row["fault"] or best is None:
        return [*start, "FAILED", *[""] * (len(HEADS) - len(start) - 1)]
    spread = "–" if row["spread"] is None else f"+{row['spread']:.0%}"
    return [
        *start,
        f"{best['jobs']:,}",
        figure(best["jobs_per_second"]),
        figure(best["cpu_us"]),
        spread,
        figure(best["p50_us"]),
        figure(best["p99_us"]),
        _also(best["notes"]),
    ]


def _also(notes: dict[str, float]) -> str:
    return ", ".join(f"{name} {figure(value)}" for name, value in notes.items() if name not in UNSAID)


def markdown(heads: Sequence[Head], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [
        _line([head.title for head in heads]),
        "|" + "|".join("---:" if head.right else "---" for head in heads) + "|",
        *(_line(row) for row in rows),
    ]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
