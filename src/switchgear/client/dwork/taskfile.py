"""Task files: one line for each task, `task,predecessor,predecessor…`.

    # fetch before anything else
    fetch.sh
    unpack.sh,fetch.sh
    "awk '{print $1, $2}' table",unpack.sh

This is what dquery reads, and more.  Blanks around a field do not belong to it.  A field in double quotes may contain
commas, and a quote that is written twice; quotes anywhere else mean nothing, so a line that was written without regard
to them still says what it said.  A line that begins with `#` is a comment.  A task with several lines waits for what
any of them names, and the order of lines does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from switchgear.errors import ConfigError, CycleRefused

__all__ = [
    "TaskFile",
    "UnknownPredecessor",
    "fields_of",
    "in_order",
    "line_of",
    "parse_task_lines",
    "parse_tasks",
    "read_task_file",
]

# A whole field, with the comma or the end of the line that follows it.
_QUOTED: Final = re.compile(r'[ \t]*"((?:[^"]|"")*)"[ \t]*(?:,|$)')
_BLANKS: Final = " \t\r\n"
_NEEDS_QUOTES: Final = re.compile(r'^[#"]|^[ \t]|[ \t]$|,')


def fields_of(line: str) -> list[str]:
    """The fields of a line, which is not a comment."""
    if '"' not in line:
        return [field.strip(_BLANKS) for field in line.split(",")]
    fields: list[str] = []
    line = line.strip(_BLANKS)
    place = 0
    while place <= len(line):
        quoted = _QUOTED.match(line, place)
        if quoted is not None:
            fields.append(quoted[1].replace('""', '"'))
            ends_with_comma = quoted[0].endswith(",")
            place = quoted.end() if ends_with_comma else len(line) + 1
        else:
            comma = line.find(",", place)
            end = comma if comma >= 0 else len(line)
            fields.append(line[place:end].strip(_BLANKS))
            place = end + 1
    return fields


def line_of(task: str, predecessors: Iterable[str] = ()) -> str:
    """The line for a task and its predecessors."""
    return ",".join(
        '"' + name.replace('"', '""') + '"' if _NEEDS_QUOTES.search(name) else name for name in (task, *predecessors)
    )


@dataclass(frozen=True, slots=True)
class UnknownPredecessor:
    """A task has a predecessor that the file does not have."""

    line: int
    task: str
    predecessor: str

    def __str__(self) -> str:
        return f"line {self.line}: '{self.task}' waits for '{self.predecessor}', which is not in the file"

    @property
    def is_torn(self) -> bool:
        """Whether the names look like the parts of one command that has a comma in its quotes."""
        return any(name.count(quote) % 2 for name in (self.task, self.predecessor) for quote in "\"'")


@dataclass(slots=True)
class TaskFile:
    """All tasks of a file in its order, each with its predecessors."""

    tasks: dict[str, list[str]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)  # where each was named first
    comments: int = 0

    def unknown_predecessors(self) -> Iterator[UnknownPredecessor]:
        """The predecessors that are not tasks of the file."""
        for task, predecessors in self.tasks.items():
            for predecessor in predecessors:
                if predecessor not in self.tasks:
                    yield UnknownPredecessor(self.lines[task], task, predecessor)


def parse_tasks(lines: Iterable[str]) -> TaskFile:
    """Parse lines; raises ConfigError with the number of a bad line."""
    file = TaskFile()
    for number, line in enumerate(lines, 1):
        line = line.strip(_BLANKS)
        if not line:
            continue
        if line.startswith("#"):
            file.comments += 1
            continue
        task, *predecessors = fields_of(line)
        if not task:
            raise ConfigError(f"line {number} has no task before its first comma: {line}")
        if "\0" in line:
            raise ConfigError(f"line {number} has a NUL in it")
        known = file.tasks.get(task)
        if known is None:
            file.tasks[task] = list(dict.fromkeys(filter(None, predecessors)))
            file.lines[task] = number
        else:
            known += (name for name in dict.fromkeys(predecessors) if name and name not in known)
    return file


def parse_task_lines(lines: Iterable[bytes], source: str) -> TaskFile:
    """Read lines as they are in a file; raises ConfigError that names the source and the line.

    Names are bytes to a server, and need not be text: bytes that are not UTF-8 are decoded as in file names
    (surrogateescape).
    """
    try:
        return parse_tasks(line.decode(errors="surrogateescape") for line in lines)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def read_task_file(path: Path) -> TaskFile:
    """Read a file; raises OSError or ConfigError."""
    with path.open("rb") as file:
        return parse_task_lines(file, str(path))


def in_order(tasks: dict[str, list[str]]) -> list[str]:
    """All tasks, each after those that it waits for, and otherwise in the order given.

    Raises CycleRefused that names the tasks of a circle.
    """
    ordered: dict[str, None] = {}
    for first in tasks:
        if first not in ordered:
            _visit(first, tasks, ordered)
    return list(ordered)


def _visit(first: str, tasks: dict[str, list[str]], ordered: dict[str, None]) -> None:
    """Append a task after all its predecessors.  Not by recursion: a chain may be long."""
    path = {first: iter(tasks[first])}
    while path:
        task = next(reversed(path))
        for predecessor in path[task]:
            if predecessor in path:
                circle = list(path)
                raise CycleRefused([*circle[circle.index(predecessor) :], predecessor])
            if predecessor in tasks and predecessor not in ordered:
                path[predecessor] = iter(tasks[predecessor])
                break
        else:
            path.popitem()  # unlike `del`, this leaves no gap that the next look at the end would have to skip
            ordered[task] = None
