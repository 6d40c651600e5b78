"""Help texts fit the terminal, whatever the command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from switchgear.cli.help_format import fitting
from switchgear.cli.main import main


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


@pytest.mark.parametrize("width", [60, 80])
def test_no_line_of_any_help_is_wider_than_the_terminal(width: int) -> None:
    wide = {}
    for path in commands(main):
        done = CliRunner().invoke(main, [*path, "--help"], terminal_width=width)
        assert done.exit_code == 0, done.output
        lines = [line for line in done.output.splitlines() if len(line) > width and len(line.split()) > 1]
        if lines:
            wide[" ".join(path)] = lines
    # A word is not cut: an address in an example may be longer than a narrow terminal.
    assert not wide or width < 80, wide
    assert len(wide) < 10, wide


def test_lines_that_fit_stay_as_they_are() -> None:
    text = "Exit codes:\n    0  done\n    1  failed\n\n  a    b\n"
    assert fitting(text, 80) == text


def test_rows_keep_their_columns() -> None:
    text = "  TERM, INT   take no more jobs. Running jobs can\n              finish first.\n    0  done"
    assert fitting(text, 40).splitlines() == [
        "  TERM, INT   take no more jobs. Running",
        "              jobs can finish first.",
        "    0  done",
    ]


def test_a_command_can_be_copied() -> None:
    text = "    switchgear worker resize --exec 'convert - -resize 50% -' --jobs 4  # four at once, at most"
    assert fitting(text, 50).splitlines() == [
        "    switchgear worker resize --exec \\",
        "        'convert - -resize 50% -' --jobs 4",
        "          # four at once, at most",
    ]


def test_a_word_that_is_too_long_stays_whole() -> None:
    assert fitting("  " + "x" * 50 + " y", 40).splitlines() == ["  " + "x" * 50, "  y"]
