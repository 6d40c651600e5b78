"""Formatters of log lines: text, JSON, and text with priorities for the systemd journal.

A JSON line is one object, of servers and workers alike:

    {"time": "2026-01-31T12:00:00.000Z", "level": "warning", "logger": "switchgear", "event": "job_requeued",
     "message": "H:web1:7 of resize requeued: worker lost (attempt 1)", "fields": {"job": "H:web1:7", ...}}

`event` is a word for programs; it is `log` for a line that is no event. `fields` are the values in the message.
`traceback` is there if there is one.

Standard error may be the journal. Then a line begins with its priority in angle brackets, which the journal takes off,
and has no time, which the journal adds.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

__all__ = [
    "LOG_FORMATS",
    "JournalFormatter",
    "JsonFormatter",
    "is_journal",
    "journal_line",
    "json_line",
    "log_formatter",
]

LOG_FORMATS: Final = ("text", "json")
NO_EVENT: Final = "log"

# The priorities of syslog, from the level on.
PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
DEBUG_PRIORITY: Final = 7


def json_line(
    level: int,
    logger: str,
    event: str,
    message: str,
    fields: Mapping[str, Any] | None = None,
    *,
    seconds: float,
    traceback: str = "",
) -> str:
    """A log line as JSON; `seconds` since the epoch."""
    time = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    entry: dict[str, Any] = {
        "time": time.removesuffix("+00:00") + "Z",
        "level": logging.getLevelName(level).lower(),
        "logger": logger,
        "event": event or NO_EVENT,
        "message": message,
        "fields": {} if fields is None else dict(fields),
    }
    if traceback:
        entry["traceback"] = traceback
    return json.dumps(entry, default=str)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", None)
        event = getattr(record, "event", "")
        traceback = self.formatException(record.exc_info) if record.exc_info else record.exc_text or ""
        if record.stack_info:
            traceback += f"\n{record.stack_info}" if traceback else record.stack_info
        return json_line(
            record.levelno,
            record.name,
            event if isinstance(event, str) else NO_EVENT,  # a record of an app may have anything there
            record.getMessage(),
            fields if isinstance(fields, dict) else None,
            seconds=record.created,
            traceback=traceback,
        )


class JournalFormatter(logging.Formatter):
    """Lines of another formatter, with their priority."""

    def __init__(self, lines: logging.Formatter) -> None:
        super().__init__()
        self._lines = lines

    def format(self, record: logging.LogRecord) -> str:
        return journal_line(record.levelno, self._lines.format(record))


def journal_line(level: int, text: str) -> str:
    """Text of one or several lines, each with its priority: for the journal every line is an entry."""
    priority = next((number for least, number in PRIORITIES if level >= least), DEBUG_PRIORITY)
    return "\n".join([f"<{priority}>{line}" for line in text.split("\n")])


def is_journal(stream: TextIO | None) -> bool:
    """Whether the other end of a stream is the journal, by the variable that systemd sets for that."""
    device, colon, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    if not colon or stream is None:
        return False
    try:
        status = os.fstat(stream.fileno())
        return (status.st_dev, status.st_ino) == (int(device), int(inode))
    except (OSError, ValueError):  # it is no file, or the variable is of something else
        return False


def log_formatter(
    log_format: str, stream: TextIO | None, text: str, plain_text: str, time: str | None = None
) -> logging.Formatter:
    """The formatter for a stream, or for a file (`None`); `plain_text` is the text format without the time."""
    is_for_journal = is_journal(stream)
    formatter: logging.Formatter
    if log_format == "json":
        formatter = JsonFormatter()
    else:
        formatter = logging.Formatter(plain_text) if is_for_journal else logging.Formatter(text, time)
    return JournalFormatter(formatter) if is_for_journal else formatter
