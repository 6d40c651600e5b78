"""`ReportWriter`: writes what a running worker does, for people or for programs."""

from __future__ import annotations

import json
import logging
import sys
import time
from contextlib import suppress
from typing import Final, TextIO

import click

from switchgear.cli.output import report_line
from switchgear.log_format import is_journal, journal_line, json_line
from switchgear.text import printable

__all__ = ["ReportWriter"]

LOGGER: Final = "switchgear.worker"


class ReportWriter:
    """Writes to standard error, as text or as lines of a log in JSON; or as JSON to standard output."""

    def __init__(
        self, program: str, *, quiet: bool, as_json: bool, log_format: str = "text", output: TextIO | None = None
    ) -> None:
        """`as_json`: to standard output, or to the stream that was standard output."""
        self.is_quiet = quiet
        self._program = program
        self._as_json = as_json
        self._log_format = log_format
        self._output = output

    def say(self, text: str, /, *, is_problem: bool = False, event: str, **fields: object) -> None:
        """Write something that has happened; in quiet mode only if it is a problem."""
        if self.is_quiet and not is_problem:
            return
        # The reader has closed the pipe, or a signal came during the write; the jobs matter more.
        with suppress(OSError, RuntimeError):
            if self._as_json:
                click.echo(json.dumps({"event": event, "at": round(time.time(), 6), **fields}), file=self._output)
            else:
                click.echo(
                    self._log_line(text, logging.WARNING if is_problem else logging.INFO, event, fields), err=True
                )

    def _log_line(self, text: str, level: int, event: str, fields: dict[str, object]) -> str:
        is_for_journal = is_journal(sys.stderr)
        if self._log_format == "json":
            line = json_line(level, LOGGER, event, text, fields, seconds=time.time())
        elif is_for_journal:
            line = "\n".join([printable(each) for each in text.splitlines() if each.strip()])
        else:
            line = report_line(self._program, text)
        return journal_line(level, line) if is_for_journal else line
