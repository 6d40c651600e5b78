"""Bar charts as SVG, written by hand: text stays text, and colours suit light and dark pages."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["Bar", "Block", "bar_chart"]

WIDTH = 860
LEFT = 230  # room for names
RIGHT = 90  # room for the figure behind the longest bar
BAR = 15
GAP = 3
BLOCK_GAP = 16
HEAD = 58
LEGEND_LINE = 18
FOOT = 22
LABEL_CHARACTERS = 34  # a longer name takes two lines
LETTER = 7.6  # the width that a letter may need

# Of medium lightness, so that they differ from white and from black, and from each other by lightness as well.
COLOURS = (
    "#2f7ed8", "#e07b39", "#8a8f98", "#3fa66b", "#b05cc6", "#c9a227",
    "#d1495b", "#5fb3c9", "#7a6ff0", "#94a33a", "#c2779b", "#4d7f6f",
)  # fmt: skip

STYLE = """
    text { font: 12px system-ui, sans-serif; fill: #24292f; }
    .title { font-size: 15px; font-weight: 600; }
    .small { font-size: 11px; fill: #57606a; }
    .line { stroke: #d0d7de; stroke-width: 1; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .small { fill: #9198a1; }
      .line { stroke: #3d444d; }
    }
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """The value of one server; None if there is none, with the reason as text."""

    series: str
    value: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """The bars of one workload."""

    label: str
    bars: tuple[Bar, ...]


class Scale:
    """Maps values to lengths; logarithmic if the smallest would be too short on a linear scale."""

    def __init__(self, values: Sequence[float]) -> None:
        positive = [value for value in values if value > 0]
        self.largest = max(positive, default=1.0)
        smallest = min(positive, default=1.0)
        self.is_logarithmic = self.largest / smallest > 40
        self._floor = 10 ** math.floor(math.log10(smallest / 1.5)) if self.is_logarithmic else 0.0

    def length(self, value: float) -> float:
        room = WIDTH - LEFT - RIGHT
        if value <= 0:
            return 0.0
        if not self.is_logarithmic:
            return room * value / self.largest
        return room * math.log10(value / self._floor) / math.log10(self.largest / self._floor)

    def marks(self) -> list[float]:
        """The values of grid lines: the powers of ten of a logarithmic scale."""
        if not self.is_logarithmic:
            return []
        first, last = round(math.log10(self._floor)), math.floor(math.log10(self.largest))
        return [10.0**power for power in range(first + 1, last + 1)]


def bar_chart(title: str, subtitle: str, blocks: Sequence[Block]) -> str:
    """A chart of horizontal bars, a block for each workload, a colour for each server."""
    series = list(dict.fromkeys(bar.series for block in blocks for bar in block.bars))
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(series)}
    scale = Scale([bar.value for block in blocks for bar in block.bars if bar.value is not None])
    legend, first_top = _legend(series, colours)
    top = first_top
    body: list[str] = []
    for block in blocks:
        body += _label(block.label, top + len(block.bars) * (BAR + GAP) / 2 + 2)
        for bar in block.bars:
            body += _bar(bar, top, colours[bar.series], scale)
            top += BAR + GAP
        top += BLOCK_GAP
    height = top - BLOCK_GAP + FOOT
    note = f"{subtitle}; logarithmic scale" if scale.is_logarithmic else subtitle
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            f' role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">',
            f"<style>{STYLE}</style>",
            f'<text class="title" x="10" y="22">{escape(title)}</text>',
            f'<text class="small" x="10" y="40">{escape(note)}</text>',
            *legend,
            *_marks(scale, first_top - 4, height - FOOT + 4),
            *body,
            "</svg>",
            "",
        ]
    )


def _legend(series: Sequence[str], colours: dict[str, str]) -> tuple[list[str], int]:
    """The legend, in as many lines as it needs, and the y position below it."""
    parts: list[str] = []
    x, y = 10.0, HEAD
    for name in series:
        needed = 30 + LETTER * len(name)
        if x + needed > WIDTH - 10:
            x, y = 10.0, y + LEGEND_LINE
        parts.append(f'<rect x="{x:.0f}" y="{y - 10}" width="11" height="11" rx="2" fill="{colours[name]}"/>')
        parts.append(f'<text x="{x + 16:.0f}" y="{y}">{escape(name)}</text>')
        x += needed
    return parts, y + LEGEND_LINE


def _label(label: str, middle: float) -> list[str]:
    lines = textwrap.wrap(label, LABEL_CHARACTERS)[:2] or [""]
    first = middle - (len(lines) - 1) * 7
    return [
        f'<text x="{LEFT - 10}" y="{first + 14 * number:.1f}" text-anchor="end">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]


def _marks(scale: Scale, top: float, bottom: float) -> list[str]:
    parts = [f'<line class="line" x1="{LEFT}" y1="{top}" x2="{LEFT}" y2="{bottom}"/>']
    for mark in scale.marks():
        x = LEFT + scale.length(mark)
        parts.append(f'<line class="line" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(f'<text class="small" x="{x:.1f}" y="{bottom + 12}" text-anchor="middle">{mark:,g}</text>')
    return parts


def _bar(bar: Bar, top: float, colour: str, scale: Scale) -> list[str]:
    length = 0.0 if bar.value is None else max(1.0, scale.length(bar.value))
    tip = f"<title>{escape(bar.series)}: {escape(bar.text)}</title>"
    return [
        f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}">{tip}</rect>',
        f'<text class="small" x="{LEFT + length + 5:.1f}" y="{top + BAR - 4}">{escape(bar.text)}</text>',
    ]
