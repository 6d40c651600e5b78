"""Draws task graphs as DOT (for Graphviz) and as SVG."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from switchgear.client.dwork.graph_analysis import STATES, GraphTask, TaskGraph
from switchgear.client.dwork.layout import Layout, lay_out
from switchgear.text import printable

__all__ = ["MOST_DRAWN", "dot_of", "svg_of"]

MOST_DRAWN: Final = 200  # more tasks do not fit a page such that they can be read

LABEL_CHARACTERS: Final = 30


class Colours(NamedTuple):
    """The fill and line colours of a state."""

    fill: str
    line: str


COLOURS: Final = {
    "done": Colours("#d3f0d5", "#2e7d32"),
    "running": Colours("#cfe4fb", "#1565c0"),
    "ready": Colours("#fff3c4", "#b08900"),
    "scheduled": Colours("#f3e5ff", "#7b3fa0"),
    "waiting": Colours("#f0f0f0", "#8a8a8a"),
    "stuck": Colours("#ffe0cc", "#d2691e"),
    "failed": Colours("#ffd0d0", "#c62828"),
    "cancelled": Colours("#e8dcd0", "#795548"),
    "expired": Colours("#e8dcd0", "#795548"),
}
UNKNOWN: Final = Colours("#ffffff", "#444444")
EDGE: Final = "#9a9a9a"
CRITICAL: Final = "#222222"

# In pixels.
CHARACTER_WIDTH: Final = 6.7  # of the font, on the safe side
FONT_SIZE: Final = 11
BOX_HEIGHT: Final = 24
ROW_HEIGHT: Final = 34
COLUMN_GAP: Final = 56
LEAST_BOX_WIDTH: Final = 48
MARGIN: Final = 20
HEADER_HEIGHT: Final = 48
LEGEND_ENTRY: Final = 118


def short(name: str) -> str:
    """A name shortened to fit a box, with unprintable characters escaped."""
    name = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
    return name if len(name) <= LABEL_CHARACTERS else name[: LABEL_CHARACTERS - 1] + "…"


# --- DOT ---


def dot_of(graph: TaskGraph) -> str:
    """The graph in DOT, the language of Graphviz."""
    critical = _critical_edges(graph)
    lines = [
        "digraph tasks {",
        "  rankdir=LR;",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10];',
        f'  edge [color="{EDGE}"];',
    ]
    for task in graph.tasks.values():
        state = graph.state_of(task)
        colours = COLOURS.get(state, UNKNOWN)
        lines.append(
            f"  t{task.id} [label={_dot_string(short(task.name))}, tooltip={_dot_string(_about(task, state))},"
            f' fillcolor="{colours.fill}", color="{colours.line}"];'
        )
    for task in graph.tasks.values():
        for other in graph.before[task.id]:
            style = f' [color="{CRITICAL}", penwidth=2]' if (other, task.id) in critical else ""
            lines.append(f"  t{other} -> t{task.id}{style};")
    return "\n".join([*lines, "}", ""])


def _dot_string(text: str) -> str:
    """Quote a text as a string of DOT."""
    lines = [printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n")]
    return '"' + "\\n".join(lines) + '"'


def _about(task: GraphTask, state: str) -> str:
    """The text of a task's tooltip: its name, state and duration."""
    lines = [printable(task.name), f"{state}, {task.seconds:.3g} s" if task.seconds else state]
    if task.error:
        lines.append(task.error)
    return "\n".join(lines)


def _critical_edges(graph: TaskGraph) -> set[tuple[int, int]]:
    path = [task.id for task in graph.critical_path()]
    return set(pairwise(path))


# --- SVG ---


def svg_of(graph: TaskGraph) -> str:
    """The graph as SVG, with a legend."""
    return _Drawing(graph).svg()


class _Drawing:
    def __init__(self, graph: TaskGraph) -> None:
        self.graph = graph
        self.layout: Layout = lay_out(graph.order, graph.before)
        self.critical = _critical_edges(graph)
        self.counts = graph.counts()
        self.widths = [self._column_width(column) for column in self.layout.columns]
        self.lefts: list[float] = []
        left = float(MARGIN)
        for width in self.widths:
            self.lefts.append(left)
            left += width + COLUMN_GAP
        legend_width = MARGIN * 2 + LEGEND_ENTRY * (len(self.counts) + bool(self.critical))
        self.width = max(left - COLUMN_GAP + MARGIN, legend_width)
        self.height = HEADER_HEIGHT + MARGIN + self.layout.height * ROW_HEIGHT

    def _column_width(self, column: list[int]) -> float:
        labels = [len(short(self.graph.tasks[place].name)) for place in column if place in self.graph.tasks]
        return max(LEAST_BOX_WIDTH, max(labels, default=0) * CHARACTER_WIDTH + 14)

    def svg(self) -> str:
        width, height = f"{self.width:.0f}", f"{self.height:.0f}"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" font-size="{FONT_SIZE}">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            *self._legend(),
            *self._edges(),
            *map(self._box, self.graph.tasks.values()),
            "</svg>",
            "",
        ]
        return "\n".join(parts)

    def _legend(self) -> list[str]:
        parts = []
        x = MARGIN
        for state, number in self.counts.items():
            colours = COLOURS.get(state, UNKNOWN)
            parts.append(
                f'<rect x="{x}" y="{MARGIN - 6}" width="14" height="14" rx="3"'
                f' fill="{colours.fill}" stroke="{colours.line}"/>'
                f'<text x="{x + 20}" y="{MARGIN + 5}">{escape(state)}: {number}</text>'
            )
            x += LEGEND_ENTRY
        if self.critical:
            parts.append(
                f'<line x1="{x}" y1="{MARGIN + 1}" x2="{x + 18}" y2="{MARGIN + 1}" stroke="{CRITICAL}"'
                f' stroke-width="2.5"/><text x="{x + 24}" y="{MARGIN + 5}">critical path</text>'
            )
        return parts

    def _y(self, place: int) -> float:
        return HEADER_HEIGHT + self.layout.rows[place] * ROW_HEIGHT + BOX_HEIGHT / 2

    def _box(self, task: GraphTask) -> str:
        column = self.layout.column_of[task.id]
        state = self.graph.state_of(task)
        colours = COLOURS.get(state, UNKNOWN)
        x, y, width = self.lefts[column], self._y(task.id), self.widths[column]
        about = escape(_clean(_about(task, state)))
        return (
            f'<g><title>{about}</title><rect x="{x:.1f}" y="{y - BOX_HEIGHT / 2:.1f}" width="{width:.1f}"'
            f' height="{BOX_HEIGHT}" rx="5" fill="{colours.fill}" stroke="{colours.line}"/>'
            f'<text x="{x + width / 2:.1f}" y="{y + 4:.1f}" text-anchor="middle">{escape(short(task.name))}</text></g>'
        )

    def _edges(self) -> list[str]:
        """All edges, those of the critical path last, so that they are drawn on top."""
        usual = [self._edge(edge, way) for edge, way in self.layout.edges.items() if edge not in self.critical]
        return usual + [self._edge(edge, way) for edge, way in self.layout.edges.items() if edge in self.critical]

    def _edge(self, edge: tuple[int, int], way: list[int]) -> str:
        """The SVG path of an edge: a curve that is horizontal at each column."""
        first = way[0]
        column = self.layout.column_of[first]
        x, y = self.lefts[column] + self.widths[column], self._y(first)
        path = [f"M{x:.1f} {y:.1f}"]
        for place in way[1:]:
            column = self.layout.column_of[place]
            next_x, next_y = self.lefts[column], self._y(place)
            middle = (x + next_x) / 2
            path.append(f"C{middle:.1f} {y:.1f} {middle:.1f} {next_y:.1f} {next_x:.1f} {next_y:.1f}")
            x, y = next_x, next_y
            if place is not way[-1]:  # a bend: straight on, past the boxes of its column
                x += self.widths[column]
                path.append(f"H{x:.1f}")
        critical = edge in self.critical
        colour, width = (CRITICAL, 2) if critical else (EDGE, 1)
        head = f"M{x:.1f} {y:.1f}l-6 -3.5v7z"
        return (
            f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
            f'<path d="{head}" fill="{colour}"/>'
        )


def _clean(text: str) -> str:
    """The text without characters that XML does not allow."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


assert set(COLOURS) == set(STATES)
