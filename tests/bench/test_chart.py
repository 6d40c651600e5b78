"""Charts: what they say can be read by people and by programs."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from switchgear.bench.chart import LEFT, RIGHT, WIDTH, Bar, Block, Scale, bar_chart

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*blocks: Block) -> ElementTree.Element:
    return ElementTree.fromstring(bar_chart("Jobs <fast>", "µs; less is better", blocks))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def widths(root: ElementTree.Element) -> list[float]:
    bars = [element for element in root.iter(f"{SVG}rect") if element.find(f"{SVG}title") is not None]
    return [float(element.get("width", "")) for element in bars]


def test_text_stays_text_and_is_escaped() -> None:
    root = drawn(Block("a & b", (Bar("ours", 2.0, "2.00"), Bar("theirs", 4.0, "4.00"))))
    assert {"Jobs <fast>", "a & b", "ours", "theirs", "2.00", "4.00"} <= set(texts(root))


def test_bars_are_as_long_as_their_figures() -> None:
    root = drawn(Block("w", (Bar("ours", 2.0, "2"), Bar("theirs", 4.0, "4"))))
    ours, theirs = widths(root)
    assert ours == pytest.approx(theirs / 2, abs=0.1)
    assert theirs == pytest.approx(WIDTH - LEFT - RIGHT, abs=0.1)


def test_a_wide_range_gets_a_scale_that_says_so() -> None:
    root = drawn(Block("w", (Bar("ours", 2.0, "2"), Bar("theirs", 2000.0, "2,000"))))
    assert "µs; less is better; logarithmic scale" in texts(root)
    assert {"10", "100", "1,000"} <= set(texts(root))
    ours, theirs = widths(root)
    assert theirs / 20 < ours < theirs / 5


def test_marks_lie_where_their_figures_do() -> None:
    scale = Scale([2.0, 2000.0])
    assert scale.marks() == [10.0, 100.0, 1000.0]
    first, second, third = (scale.length(mark) for mark in scale.marks())
    assert second - first == pytest.approx(third - second)


def test_what_failed_has_no_bar_but_a_word() -> None:
    root = drawn(Block("w", (Bar("ours", None, "FAILED"), Bar("theirs", 3.0, "3"))))
    assert "FAILED" in texts(root)
    assert widths(root)[0] == 0


def test_a_long_name_takes_two_lines() -> None:
    root = drawn(Block("a worker is killed, its job starts elsewhere", (Bar("ours", 1.0, "1"),)))
    assert "a worker is killed, its job starts" in texts(root)
    assert "elsewhere" in texts(root)


def test_it_suits_light_and_dark_pages() -> None:
    assert "prefers-color-scheme: dark" in bar_chart("t", "s", [Block("w", (Bar("ours", 1.0, "1"),))])
