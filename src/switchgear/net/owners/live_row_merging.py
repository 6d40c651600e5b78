"""Merges the rows that each node contributes to the live tables of the dashboard into one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from switchgear.json_bytes import bytes_of
from switchgear.net.operations.live_rows import KeyedRow
from switchgear.net.owners.answer_merging import NodePart
from switchgear.verbs.live_answers import FUNCTION_COLUMNS

__all__ = ["LIVE_VERBS", "MERGE_ROWS"]

# What nodes ask each other for the rows of a topic. No peer can ask that: they are not in the table of verbs.
LIVE_VERBS: Final[Mapping[str, str]] = {"functions": "live_functions", "workers": "live_workers"}
WORKERS_COLUMN: Final = FUNCTION_COLUMNS.index("workers")


def merge_function_rows(parts: Sequence[NodePart]) -> list[KeyedRow]:
    """The rows of the owners, with the workers of all nodes."""
    rows = {bytes_of(row[0], "name"): row for part in parts for row in part.value["rows"]}
    for part in parts:
        for name, workers in part.value["workers"]:
            row = rows.get(bytes_of(name, "name"))
            if row is not None:
                row[WORKERS_COLUMN] += workers
    return [(name, tuple(row)) for name, row in rows.items()]


def merge_worker_rows(parts: Sequence[NodePart]) -> list[KeyedRow]:
    """All rows. Ids of workers are their nodes' own, so those of others are shown with the node."""
    first, *others = parts
    rows: list[KeyedRow] = [(row[0], tuple(row)) for row in first.value]
    for part in others:
        for row in part.value:
            key = f"{row[0]}@{part.node}"
            rows.append((key.encode(), (key, *row[1:])))
    return rows


MERGE_ROWS: Final[Mapping[str, Callable[[Sequence[NodePart]], list[KeyedRow]]]] = {
    "functions": merge_function_rows,
    "workers": merge_worker_rows,
}
