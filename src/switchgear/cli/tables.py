"""Tables of text for a screen of a given width: columns are folded or left out, and no number is ever cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import click

__all__ = ["Column", "TableLayout", "fold", "layout", "shown_width", "table_lines"]

GAP: Final = 2  # columns of the screen between two columns of the table
FOLDED_COLUMNS: Final = 14  # a text is not folded to fewer columns than these as long as something can be left out


class Column(NamedTuple):
    """The head of a column, and what may happen to it on a narrow screen."""

    title: str
    right: bool = False
    wrap: bool = False  # may be folded
    drop: int = 0  # may be left out, the columns with the greatest numbers first; 0: never


class TableLayout(NamedTuple):
    """The columns that a screen has room for."""

    shown: list[int]  # their numbers, from left to right
    widths: list[int]  # of those, in columns of the screen
    hidden: list[str]  # the titles of those that were left out


def layout(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> TableLayout:
    """Which columns are shown on a screen of this width, and how wide each of them is. `None` is an endless screen.

    Texts that may be folded give way first, then columns that may be left out. What remains is never cut: on a very
    narrow screen the lines are longer than the screen, and the terminal wraps them.
    """
    values = [max((shown_width(row[index]) for row in rows), default=0) for index in range(len(columns))]
    natural = [max(size, shown_width(column.title)) for column, size in zip(columns, values, strict=True)]
    shown = [index for index, size in enumerate(natural) if size]  # a column without title and values is not there
    if width is None:
        return TableLayout(shown, [natural[index] for index in shown], [])
    least = [_least_width(column, size) for column, size in zip(columns, values, strict=True)]
    hidden: list[int] = []
    while sum(least[index] + GAP for index in shown) - GAP > width:
        droppable = [index for index in shown if columns[index].drop]
        if not droppable:
            break
        leaving = max(droppable, key=lambda index: (columns[index].drop, index))
        shown.remove(leaving)
        hidden.append(leaving)
    widths = _shared([natural[index] for index in shown], [least[index] for index in shown], width)
    return TableLayout(shown, widths, [columns[index].title for index in sorted(hidden)])


def _least_width(column: Column, values_width: int) -> int:
    """How narrow a column may become. Titles are folded at their spaces."""
    if column.wrap:
        values_width = min(values_width, FOLDED_COLUMNS)
    return max(values_width, max(map(shown_width, column.title.split()), default=0))


def _shared(natural: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Widths that add up to the width of the screen if they can: the widest texts give way first."""
    widths = list(natural)
    excess = sum(widths) + GAP * (len(widths) - 1) - width
    while excess > 0:
        foldable = [index for index in range(len(widths)) if widths[index] > least[index]]
        if not foldable:
            break
        widest = max(foldable, key=lambda index: widths[index])
        others = [widths[index] for index in foldable if widths[index] < widths[widest]]
        step = min(excess, widths[widest] - max([least[widest], *others]) or 1)
        widths[widest] -= step
        excess -= step
    return widths


def shown_width(text: str) -> int:
    """How many columns of a screen a text takes; Chinese characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # here, because few texts need it

    return cell_len(text)


def fold(text: str, width: int) -> list[str]:
    """A text as lines of at most this width, broken at spaces where that is possible."""
    lines: list[str] = []
    while shown_width(text) > width:
        head = _beginning(text, width)
        space = len(head) if text[len(head)] == " " else head.rfind(" ")
        if space <= 0:
            space = len(head)
        lines.append(text[:space].rstrip())
        text = text[space:].lstrip()
    return [*lines, text] if text or not lines else lines


def _beginning(text: str, width: int) -> str:
    """As much of a text as fits, and one character at least."""
    if text.isascii():
        return text[:width]
    end = 1
    while end < len(text) and shown_width(text[: end + 1]) <= width:
        end += 1
    return text[:end]


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None, styles: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """The lines of a table on a screen of a width, in colour, and the titles of columns that have no room there.

    Without a width, the lines are as long as they need to be, and plain. `styles` maps values to styles such as
    `bold red`.
    """
    fitting = layout(columns, rows, width)
    lines = []
    for number, row in enumerate([[column.title for column in columns], *rows]):
        cells = [fold(row[index], size) for index, size in zip(fitting.shown, fitting.widths, strict=True)]
        looks = [""] * len(cells)
        if width is not None:
            looks = ["bold" if number == 0 else styles.get(row[index], "") for index in fitting.shown]
        for depth in range(max(map(len, cells), default=0)):
            texts = [cell[depth] if depth < len(cell) else "" for cell in cells]
            rights = [columns[index].right for index in fitting.shown]
            lines.append(_line(texts, fitting.widths, rights, looks))
    return lines, fitting.hidden


def _line(texts: Sequence[str], widths: Sequence[int], rights: Sequence[bool], looks: Sequence[str]) -> str:
    """One line of the screen, without blanks at its end."""
    line = ""
    blanks = 0  # not written yet: perhaps nothing follows
    for text, width, right, look in zip(texts, widths, rights, looks, strict=True):
        room = max(0, width - shown_width(text))
        if text:
            line += " " * (blanks + room * right) + _styled(text, look)
            blanks = room * (not right) + GAP
        else:
            blanks += room + GAP
    return line


def _styled(text: str, look: str) -> str:
    words = look.split()
    if not words:
        return text
    colours = [word for word in words if word not in ("bold", "dim")]
    return click.style(text, fg=colours[0] if colours else None, bold="bold" in words, dim="dim" in words or None)
