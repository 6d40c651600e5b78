"""Writes the lifecycle diagram of a job into the documentation: `python -m switchgear.testing.lifecycle_diagram
[FILE]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from switchgear.engine.lifecycle import mermaid

__all__ = ["drawn", "redraw"]

DEFAULT_PAGE: Final = Path("docs/job-lifecycle.md")
BEGIN: Final = "<!-- diagram: drawn by `python -m switchgear.testing.lifecycle_diagram`; do not edit -->"
END: Final = "<!-- end of diagram -->"


def drawn() -> str:
    """The diagram as it is in the page, markers included."""
    return f"{BEGIN}\n```mermaid\n{mermaid()}\n```\n{END}"


def redraw(page: str) -> str:
    """The page with a new diagram; raises ValueError if the page has no place for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no lines {BEGIN!r} and {END!r}")
    return before + drawn() + after


def main(arguments: list[str]) -> int:
    path = Path(arguments[0]) if arguments else DEFAULT_PAGE
    try:
        page = path.read_text(encoding="utf-8")
        path.write_text(redraw(page), encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
