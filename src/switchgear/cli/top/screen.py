"""The screen of `switchgear top`: its state, what keys do to it, and its lines, without input and output."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import click

from switchgear.cli.output import printable, text_of
from switchgear.cli.tables import Column, shown_width, table_lines
from switchgear.cli.top.braille import braille_line
from switchgear.cli.top.views import NODE, VIEWS, Entry, View, count_text
from switchgear.units import short_duration

__all__ = ["KeyCommand", "Screen"]

HISTORY: Final = 600  # figures of the past that are remembered
MOST_ALARMS: Final = 3
# The lines of the head: server, counts, three rates, oldest wait, alarms.  The lowest number stays longest on a screen
# that has no room for all of them beside the least of a list, of details, or of the help.
HEAD_IMPORTANCE: Final = (0, 1, 5, 4, 6, 3, 2, 7, 8)
MOST_HEAD: Final = len(HEAD_IMPORTANCE)
LEAST_LIST: Final = 4  # title, heads of the columns, two rows
LEAST_DETAILS: Final = 6
JOB_COUNTS: Final = ("ready", "running", "waiting", "scheduled")
ALARM_STYLES: Final = {"critical": "red", "warning": "yellow"}
STYLES: Final = {"paused": "yellow", "no worker": "red"}
QUESTIONS: Final = {
    "pause": "Stop handing out the jobs of {}?",
    "resume": "Hand out the jobs of {} again?",
    "cancel": "Cancel job {}?",
    "retry": "Run job {} again?",
}
HELP: Final = """\
 f w j d        functions, workers, running jobs, dead letters
 up down        select; also PgUp, PgDn, Home, End
 enter          everything about the selected one; Esc: back
 < >            sort by the column to the left or right
 i              sort the other way round
 /              filter by a part of any text; Esc: no filter
 space          hold the screen, and let it go on
 p              pause or resume the selected function
 c  r           cancel or retry the selected job
 q              quit"""


class KeyCommand(NamedTuple):
    """Something that the user wants from the server."""

    verb: str  # pause, resume, cancel, retry; or details
    subject: str


@dataclass(slots=True)
class Screen:
    """The state of the screen of `switchgear top`."""

    server: str
    view: View = VIEWS[0]
    sort: dict[str, tuple[int, bool]] = field(default_factory=dict)  # by view: column, and whether the least is first
    filter_text: str = ""
    is_typing: bool = False  # a filter is being typed
    is_held: bool = False
    is_helping: bool = False
    selected: str = ""  # the key of an entry
    asking: KeyCommand | None = None  # it is to be confirmed
    details: list[str] | None = None
    scroll: int = 0  # the first line of the details that is shown
    message: str = ""
    overview: Mapping[str, Any] | None = None
    entries: list[Entry] = field(default_factory=list)
    history: dict[str, deque[float]] = field(default_factory=dict)
    page: int = 10  # how many rows the screen last had room for

    # --- what the server says ---

    def show(self, overview: Mapping[str, Any], objects: Sequence[Mapping[str, Any]], now: float) -> None:
        """Take over what the server has answered."""
        self.overview = overview
        self.entries = [self.view.entry(each, now) for each in objects]
        for name in ("submitted", "done", "failed"):
            rate = overview["rates"][name]
            self.history.setdefault(name, deque(maxlen=HISTORY)).append(rate or 0.0)

    def shown_entries(self) -> list[Entry]:
        """The entries that pass the filter, sorted."""
        column, ascending = self._sorting()
        wanted = self.filter_text.lower()
        entries = [entry for entry in self.entries if any(wanted in cell.lower() for cell in entry.cells)]
        return sorted(entries, key=lambda entry: (entry.order[column], entry.key), reverse=not ascending)

    def _sorting(self) -> tuple[int, bool]:
        return self.sort.get(self.view.title, (self.view.sorted_by, False))

    # --- keys ---

    def press(self, key: str) -> KeyCommand | str | None:
        """React to a key; returns what the server is asked for, or `quit`."""
        self.message = ""
        if self.asking is not None:
            command, self.asking = self.asking, None
            if key in ("y", "Y"):
                return command
            self.message = "Nothing was done."
            return None
        if self.is_typing:
            self._type(key)
            return None
        if key in ("q", "Q", "ctrl-c"):
            return "quit"
        if self.is_helping or key in ("?", "h"):
            self.is_helping = not self.is_helping
            return None
        if self.details is not None:
            self._read_on(key)
            return None
        return self._press_in_list(key)

    def _press_in_list(self, key: str) -> KeyCommand | None:
        if key in ("up", "down", "page-up", "page-down", "home", "end"):
            self._move(key)
        elif key in ("<", ">", "i"):
            self._change_sorting(key)
        elif key == "/":
            self.is_typing = True
        elif key == " ":
            self.is_held = not self.is_held
        elif key == "escape":
            self.filter_text = ""
        elif key == "enter" and self.current() is not None:
            return KeyCommand("details", self.selected)
        elif key in self.view.actions:
            self._ask_for(key)
        else:
            for view in VIEWS:
                if view.letter == key and view is not self.view:
                    self.view, self.entries, self.selected = view, [], ""
        return None

    def _type(self, key: str) -> None:
        if key == "enter":
            self.is_typing = False
        elif key == "escape":
            self.is_typing, self.filter_text = False, ""
        elif key == "backspace":
            self.filter_text = self.filter_text[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter_text += key

    def _read_on(self, key: str) -> None:
        steps = {"up": -1, "down": 1, "page-up": -self.page, "page-down": self.page, " ": self.page}
        if key in steps:
            last = max(0, len(self.details or ()) - self.page)
            self.scroll = max(0, min(self.scroll + steps[key], last))
        elif key in ("escape", "enter"):
            self.details, self.scroll = None, 0

    def _move(self, key: str) -> None:
        entries = self.shown_entries()
        if not entries:
            return
        at = self._position(entries)
        last = len(entries) - 1
        to = {"up": at - 1, "down": at + 1, "page-up": at - self.page, "page-down": at + self.page, "home": 0}
        self.selected = entries[max(0, min(to.get(key, last), last))].key

    def _position(self, entries: Sequence[Entry]) -> int:
        return next((index for index, entry in enumerate(entries) if entry.key == self.selected), 0)

    def _columns(self) -> list[Column]:
        """The columns of the list; without a title, if there is nothing to be shown in it."""
        has_nodes = any(entry.about.get("node") for entry in self.entries)
        return [each if has_nodes or each.title != NODE else each._replace(title="") for each in self.view.columns]

    def _change_sorting(self, key: str) -> None:
        column, ascending = self._sorting()
        if key == "i":
            ascending = not ascending
        else:
            titled = [index for index, each in enumerate(self._columns()) if each.title]
            at = titled.index(column) if column in titled else 0
            column = titled[(at + (1 if key == ">" else -1)) % len(titled)]
        self.sort[self.view.title] = (column, ascending)

    def current(self) -> Entry | None:
        """The selected entry, or the first."""
        entries = self.shown_entries()
        if not entries:
            return None
        entry = entries[self._position(entries)]
        self.selected = entry.key
        return entry

    def _ask_for(self, key: str) -> None:
        entry = self.current()
        if entry is None:
            return
        verb = {"c": "cancel", "r": "retry"}.get(key) or ("resume" if entry.about["paused"] else "pause")
        self.asking = KeyCommand(verb, entry.key)

    # --- lines ---

    def lines(self, width: int, height: int) -> list[str]:
        """The screen, line by line, none of them longer than the width."""
        foot = self._foot(width)
        least = HELP.count("\n") + 1 if self.is_helping else LEAST_DETAILS if self.details is not None else LEAST_LIST
        head = self._head(width, max(1, height - len(foot) - least))
        room = max(1, height - len(head) - len(foot))
        if self.is_helping:
            body = [_cut(line, width) for line in HELP.split("\n")]
        elif self.details is not None:
            self.page = room
            body = [_cut(line, width) for line in self.details[self.scroll : self.scroll + room]]
        elif self.overview is None:
            body = []
        else:
            body = self._list(width, room)
        body = body[:room]
        return [*head, *body, *[""] * (room - len(body)), *foot][:height]

    def all_lines(self, width: int) -> list[str]:
        """The screen without keys, with as many lines as there are rows, to be printed once."""
        return [*self._head(width), *self._list(width, len(self.entries) + 2)]

    def _head(self, width: int, most: int = MOST_HEAD) -> list[str]:
        """At most so many lines about the server: on a low screen those that matter most."""
        overview = self.overview
        title = f"switchgear top  {printable(self.server)}"
        if overview is None:
            return [click.style(_cut(title, width), bold=True)]
        state = "draining" if overview["draining"] else "serving"
        if overview["store"]["error"]:
            state = "refusing jobs"
        about = [title, state, f"up {short_duration(overview['uptime_seconds'])}", overview["version"]]
        jobs, workers, rates = overview["jobs"], overview["workers"], overview["rates"]
        counts = [f"{name} {count_text(jobs[name])}" for name in JOB_COUNTS if name in jobs]
        counts += [f"workers {count_text(workers['busy'])}/{count_text(workers['total'])}"]
        counts += [f"functions {count_text(overview['functions'])}"]
        oldest = overview["oldest_ready"]
        waits = f"oldest {short_duration(oldest['seconds'])}" if oldest else "nothing waits"
        if overview["drain_seconds"]:
            waits += f"  done in {short_duration(overview['drain_seconds'])}"
        lines = [click.style(_fitting(about, width), bold=True), _fitting(counts, width)]
        for name, shown in (("submitted", "in"), ("done", "done"), ("failed", "failed")):
            rate = "-" if rates[name] is None else count_text(rates[name])
            text = f"{shown:<7}{rate + '/s':>9} "
            lines.append(text + braille_line(list(self.history.get(name, ())), max(0, width - len(text) - 1)))
        lines.append(_cut(waits, width))
        for alarm in overview["alarms"][:MOST_ALARMS]:
            text = _cut(f"! {printable(alarm['text'])}", width)
            lines.append(click.style(text, fg=ALARM_STYLES.get(alarm["level"], "yellow")))
        by_importance = sorted(range(len(lines)), key=HEAD_IMPORTANCE.__getitem__)
        return [lines[place] for place in sorted(by_importance[:most])]

    def _list(self, width: int, room: int) -> list[str]:
        """The title of the list, the heads of its columns, and the rows around the selected one."""
        entries = self.shown_entries()
        self.page = max(1, room - 2)
        at = self._position(entries)
        first = max(0, min(at - self.page // 2, len(entries) - self.page))
        shown = entries[first : first + self.page]
        column, ascending = self._sorting()
        columns = [each._replace(wrap=False) for each in self._columns()]
        mark = "^" if ascending else "v"
        columns[column] = columns[column]._replace(title=columns[column].title + mark, drop=0)
        rows = [self._cells(entry, width) for entry in shown]
        table, hidden = table_lines(columns, rows, width, STYLES)
        title = self.view.title + (f"  filter: {self.filter_text}" if self.filter_text else "")
        title += f"  {at + 1 if entries else 0} of {len(entries)}"
        if hidden:
            title += f"  (no room for {', '.join(hidden)})"
        lines = [click.style(_cut(title, width), fg="cyan"), *table]
        if entries and len(table) > 1:
            selected = 2 + at - first
            text = click.unstyle(lines[selected])
            lines[selected] = click.style(text + " " * (width - shown_width(text)), reverse=True)
        return lines

    def _cells(self, entry: Entry, width: int) -> list[str]:
        """The texts of a row, with long ones cut so that it takes one line of the screen."""
        most = max(14, width // 3)
        cells = zip(self.view.columns, map(printable, entry.cells), strict=True)
        return [_cut(cell, most) if column.wrap else cell for column, cell in cells]

    def _foot(self, width: int) -> list[str]:
        if self.asking is not None:
            question = QUESTIONS[self.asking.verb].format(printable(self.asking.subject))
            return [click.style(_cut(f"y/n: {question}", width), fg="yellow", bold=True)]
        if self.is_typing:
            return [_cut(f"/{self.filter_text}_", width)]
        if self.message:
            return [click.style(_cut(printable(self.message), width), fg="yellow")]
        words = [f"{view.letter} {view.title}" for view in VIEWS if view is not self.view]
        actions = {"p": "p pause", "c": "c cancel", "r": "r retry"}
        words = ["q quit", "? help", *(actions[key] for key in self.view.actions), "enter details", "/ filter", *words]
        if self.is_held:
            words.insert(0, "HELD: space goes on")
        line = ""
        for word in words:  # what does not fit is in the help
            if len(line) + len(word) + 2 > width:
                break
            line += word + "  "
        return [click.style(line.rstrip(), dim=True)]

    # --- details ---

    def show_details(self, answer: Mapping[str, Any], reasons: Sequence[Mapping[str, Any]]) -> None:
        """Show everything about the selected entry."""
        lines = [
            f"{name:<22} {printable(_value(value))}" for name, value in answer.items() if value not in (None, "", [])
        ]
        why = [f"  {printable(reason['text'])}" for reason in reasons]
        self.details = [*(["Why:", *why, ""] if why else []), *lines]
        self.scroll = 0


def _value(value: object) -> str:
    if isinstance(value, list):
        return " ".join(_value(each) for each in value)
    if isinstance(value, Mapping) and "base64" not in value:
        return ", ".join(f"{name} {_value(each)}" for name, each in value.items() if each not in (None, "", []))
    return text_of(value).partition("\n")[0]


def _fitting(parts: Sequence[str], width: int) -> str:
    """The first of these parts, as many as fit into a line, with a mark if some are left out."""
    for count in range(len(parts), 0, -1):
        line = "  ".join([*parts[:count], *(["…"] if count < len(parts) else [])])
        if shown_width(line) <= width:
            return line
    return _cut(parts[0], width)


def _cut(text: str, width: int) -> str:
    """A plain text that is cut to fit into a line, with a mark."""
    if shown_width(text) <= width:
        return text
    while text and shown_width(text) > width - 1:
        text = text[:-1]
    return text + "…" if width > 0 else ""
