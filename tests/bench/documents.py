"""Runs as they might have been, for what is made from them."""

from __future__ import annotations

from typing import Any

from switchgear.bench.results import Cell, Reading, to_document


def never() -> Reading:
    raise AssertionError("nothing is measured here")


def cell(group: str, workload: str, peer: str, *readings: Reading) -> Cell:
    return Cell(group, workload, peer, "as it comes", never, readings=list(readings))


def document(*cells: Cell) -> dict[str, Any]:
    return to_document(cells, {"processor": "one | two"})
