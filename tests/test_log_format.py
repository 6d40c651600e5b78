"""Log lines: JSON with the same keys always, and lines that the journal understands."""

from __future__ import annotations

import json
import logging
import os
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from switchgear.log_format import JsonFormatter, is_journal, journal_line, json_line, log_formatter

TEXT, PLAIN = "%(asctime)s %(levelname)s %(message)s", "%(message)s"


def record(message: str = "text", level: int = logging.INFO, **attributes: Any) -> logging.LogRecord:
    made = logging.LogRecord("switchgear.part", level, "file", 1, message, (), None)
    made.created = 1_767_225_600.25
    vars(made).update(attributes)
    return made


def test_a_line_has_the_time_in_utc_with_its_zone() -> None:
    assert json.loads(JsonFormatter().format(record("hello", event="greeting", fields={"to": "you"}))) == {
        "time": "2026-01-01T00:00:00.250Z",
        "level": "info",
        "logger": "switchgear.part",
        "event": "greeting",
        "message": "hello",
        "fields": {"to": "you"},
    }


def test_a_whole_second_has_its_milliseconds() -> None:
    assert json.loads(json_line(20, "l", "e", "m", seconds=0))["time"] == "1970-01-01T00:00:00.000Z"


@pytest.mark.parametrize("message", ["two\nlines", 'a "quote"', "\0\x1b\u2028", "caf\xe9", "\udcff", "\r\n"])
def test_any_message_is_one_line(message: str) -> None:
    line = JsonFormatter().format(record(message))
    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert json.loads(line)["message"] == message


def test_what_an_app_has_put_into_a_record_does_not_break_the_line() -> None:
    entry = json.loads(JsonFormatter().format(record(event=object(), fields="none")))
    assert (entry["event"], entry["fields"]) == ("log", {})
    entry = json.loads(JsonFormatter().format(record(fields={"path": Path("/tmp")})))
    assert entry["fields"] == {"path": "/tmp"}


def test_a_traceback_is_a_key_of_its_own() -> None:
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        made = record(exc_info=sys.exc_info())
    assert "RuntimeError: broken" in json.loads(JsonFormatter().format(made))["traceback"]


@pytest.mark.parametrize(
    ("level", "priority"),
    [("DEBUG", 7), ("INFO", 6), ("WARNING", 4), ("ERROR", 3), ("CRITICAL", 2)],
)
def test_levels_are_priorities_of_the_journal(level: str, priority: int) -> None:
    assert journal_line(logging.getLevelNamesMapping()[level], "a\nb") == f"<{priority}>a\n<{priority}>b"


@pytest.fixture
def pipe() -> Any:
    read, write = os.pipe()
    with open(read, "rb"), open(write, "w", encoding="utf-8") as stream:
        yield stream


def test_the_journal_is_recognised_by_its_device_and_inode(pipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.fstat(pipe.fileno())
    assert not is_journal(pipe)
    for text in ("", "1", "a:b", f"{status.st_dev}:{status.st_ino + 1}"):
        monkeypatch.setenv("JOURNAL_STREAM", text)
        assert not is_journal(pipe)
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    assert is_journal(pipe)
    assert not is_journal(StringIO())
    assert not is_journal(None)


def test_in_the_journal_there_is_no_second_time(pipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.fstat(pipe.fileno())
    assert log_formatter("text", pipe, TEXT, PLAIN).format(record()).startswith("20")
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    assert log_formatter("text", pipe, TEXT, PLAIN).format(record(level=logging.ERROR)) == "<3>text"
    assert log_formatter("json", pipe, TEXT, PLAIN).format(record()).startswith('<6>{"time"')
    assert log_formatter("text", None, TEXT, PLAIN).format(record()).startswith("20")
