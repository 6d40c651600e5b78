"""Help texts that fit the terminal: lines that click writes as they are (examples, tables, lists of exit codes) are
wrapped if they are too long, with their indentation and columns."""

from __future__ import annotations

import re
from typing import Final

import click

__all__ = ["HelpContext", "use_help_format"]

COMMAND: Final = "switchgear "
# A row of two columns: its indentation and first column with the gap after it, and the second column.
ROW: Final = re.compile(r"( *\S(?:.*?\S)? {2,})(\S.*)")
# Words of a command line; what is quoted stays together.
WORD: Final = re.compile(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+")
LEAST_TEXT: Final = 24  # a narrower second column begins on a line of its own


class FittingFormatter(click.HelpFormatter):
    """Wraps every line that is wider than the terminal."""

    def write(self, string: str) -> None:
        """Write text, with long lines wrapped."""
        if any(len(line) > self.width for line in string.splitlines()):
            string = fitting(string, self.width)
        super().write(string)


class HelpContext(click.Context):
    """The context of a command whose help fits."""

    formatter_class = FittingFormatter


def use_help_format(command: click.Command) -> None:
    """Let the help of this command, and of those below it, fit the terminal."""
    command.context_class = HelpContext
    if isinstance(command, click.Group):
        for each in command.commands.values():
            use_help_format(each)


def fitting(text: str, width: int) -> str:
    """The text with lines of at most this width, unless a single word is wider."""
    found: list[str] = []
    lines = text.split("\n")
    while lines:
        line = lines.pop(0)
        row = ROW.fullmatch(line)
        hang = len(row[1]) if row is not None and not line.lstrip().startswith(COMMAND) else None
        following: list[str] = []
        while hang is not None and lines and indentation(lines[0]) == hang:
            following.append(lines.pop(0))
        if all(len(each) <= width for each in (line, *following)):
            found += [line, *following]
        else:
            found += wrapped(" ".join((line, *(each.strip() for each in following))), width)
    return "\n".join(found)


def indentation(line: str) -> int:
    """How many spaces a line begins with; -1 if there is nothing else."""
    return len(line) - len(line.lstrip(" ")) if line.strip() else -1


def wrapped(line: str, width: int) -> list[str]:
    """The lines for one that is too long."""
    indent = " " * indentation(line)
    row = ROW.fullmatch(line)
    if line.strip().startswith(COMMAND):
        command, remark = (row[1].rstrip(), row[2]) if row is not None else (line, "")
        lines = broken(indent, indent + "    ", WORD.findall(command), width, " \\")
        if remark and len(lines[-1]) + 2 + len(remark) <= width:
            lines[-1] += f"  {remark}"
        elif remark:
            lines += broken(indent + "      ", indent + "      ", remark.split(), width)
        return lines
    if row is None:
        return broken(indent, indent, line.split(), width)
    head, rest = row[1], row[2]
    if width - len(head) < LEAST_TEXT:
        return [head.rstrip(), *broken(indent + "    ", indent + "    ", rest.split(), width)]
    return broken(head, " " * len(head), rest.split(), width)


def broken(first: str, others: str, words: list[str], width: int, mark: str = "") -> list[str]:
    """Lines of these words; `first` and `others` are what they begin with, and `mark` is at the end of all but the
    last."""
    lines: list[str] = []
    line, is_empty = first, True
    for word in words:
        space = "" if is_empty else " "
        if not is_empty and len(line) + len(space) + len(word) + len(mark) > width:
            lines.append(line + mark)
            line, space = others, ""
        line += space + word
        is_empty = False
    return [*lines, line]
