"""Results as tables."""

from __future__ import annotations

import pytest

from switchgear.bench.results import Reading
from switchgear.bench.table import HEADS, Head, figure, markdown, rows_of
from switchgear.units import short_bytes
from tests.bench.documents import cell, document


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (1.234, "1.23"), (9.996, "10.0"), (12.34, "12.3"), (99.96, "100"), (12345.6, "12,346"), (0, "0.00")],
)
def test_figures_have_the_digits_that_count(value: float | None, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize(("count", "text"), [(999, "999 B"), (2048, "2 KiB"), (1.5 * 2**20, "1.5 MiB")])
def test_bytes_have_a_unit_that_suits_them(count: float, text: str) -> None:
    assert short_bytes(count) == text


def test_a_row_has_all_that_was_measured() -> None:
    readings = [
        Reading(10, 0.001, 5.0, 30.0, 99.0, notes={"bytes per queued job": 480.0, "other cpu %": 3}),
        Reading(10, 0.001, 6.0),
    ]
    (row,) = rows_of(document(cell("g", "drain x1", "switchgear", *readings)))
    assert row == ["drain x1", "switchgear", "10", "10,000", "5.00", "+20%", "30.0", "99.0", "bytes per queued job 480"]


def test_a_failed_row_shows_no_figure_at_all() -> None:
    readings = [Reading(10, 1.0, 5.0), Reading(0, 0.0, fault="lost a job")]
    (row,) = rows_of(document(cell("g", "w", "p", *readings)))
    assert row[:3] == ["w", "p", "FAILED"]
    assert len(row) == len(HEADS)
    assert not any(row[3:])


def test_markdown_keeps_its_columns() -> None:
    assert markdown([Head("a"), Head("b", True)], [["x|y", "1"]]) == "| a | b |\n|---|---:|\n| x\\|y | 1 |"
