"""A page of the documentation as a list of things that can be tried.

    ```python            runs in the namespace of the page, as if the page were one module
    # name.py            if its first line is the name of a file, it is written there as well; on a page whose
                         commands are run, only written, for them to run
                         code with `def test_...` in it, all over a page, is a file for pytest
    ```text              directly after such code: what it printed
    ```console           lines that begin with `$ ` are commands, and those below each are what it prints

A comment above a block, which readers of the page do not see, may say how it is to be run:

    <!-- run: skip because it needs a mail server -->
    <!-- run: with a worker -->          python: a worker serves the page's `app` from then on
    <!-- run: in a second terminal -->   console: goes on in the background until the end of the page
    <!-- run: until it is so -->         console: again and again, until it prints what the page says
    <!-- run -->                         console: only some pages have theirs run by default

In what is printed, `...` stands for anything, and times, dates, ports and process ids need not be those of the page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["DOCS", "Block", "Command", "blocks_of", "commands_of", "matches"]

DOCS: Final = Path(__file__).parents[2] / "docs"

_FENCE: Final = re.compile(r"^ {0,3}```(\w*)\s*$")
_DIRECTIVE: Final = re.compile(r"<!--\s*run(?::\s*(.*?))?\s*-->")
_FILE_NAME: Final = re.compile(r"#\s+(\w+\.py)\s*$")

# What is different in each run.  Both what is expected and what came are put through these.
_VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?"), "DATE"),
    (re.compile(r"\b\d+(\.\d+)? (us|µs|ms|s|min|h|d)\b"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"H:embedded-\w+:\d+"), "H:embedded-X:N"),
    (re.compile(r"myhost/\d+"), "myhost/PID"),
    (re.compile(r"[ \t]+"), " "),  # columns are as wide as what is in them
)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    text: str
    line: int  # of its first line of text in the page
    how: str | None  # what the comment above it says; None if there is none
    output: str | None = None  # what the page says it prints

    @property
    def file_name(self) -> str | None:
        """Where the page says this is to be put."""
        found = _FILE_NAME.match(self.text.partition("\n")[0])
        return found[1] if found is not None else None

    @property
    def is_skipped(self) -> bool:
        return self.how is not None and self.how.startswith("skip")


@dataclass(frozen=True)
class Command:
    """A line that somebody types into a shell, and what they see then."""

    line: str
    output: str


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, each with the output that follows it."""
    blocks: list[Block] = []
    how: str | None = None
    language: str | None = None
    text: list[str] = []
    is_directly_after = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if language is None and fence is not None:
            language, text = fence[1], []
        elif language is not None and fence is not None:
            whole = "\n".join(text) + "\n"
            if language == "text" and is_directly_after and how is None:
                before = blocks[-1]
                blocks[-1] = Block(before.language, before.text, before.line, before.how, output=whole)
            else:
                blocks.append(Block(language, whole, number - len(text), how))
            language, how, is_directly_after = None, None, True
        elif language is not None:
            text.append(line)
        elif (directive := _DIRECTIVE.fullmatch(line.strip())) is not None:
            how = directive[1] or ""
        elif line.strip():
            how, is_directly_after = None, False
    assert language is None, f"{page}: a block has no end"
    return blocks


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block; one that ends with a backslash goes on below."""
    commands: list[Command] = []
    lines = iter(block.text.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            last = commands.pop()
            commands.append(Command(last.line, f"{last.output}{line}\n"))
            continue
        typed = line[2:]
        while typed.endswith("\\"):
            typed = f"{typed}\n{next(lines)}"
        commands.append(Command(typed, ""))
    return commands


def matches(expected: str, seen: str, *, is_beginning: bool = False) -> bool:
    """Whether this is what the page promised; with `is_beginning` more may follow."""
    wanted = [re.escape(part) for part in _usual(expected).split("...")]
    return re.match(".*".join(wanted) + ("" if is_beginning else r"\Z"), _usual(seen), re.DOTALL) is not None


def _usual(text: str) -> str:
    """Without what varies, and without blanks at the ends of lines and of all."""
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
