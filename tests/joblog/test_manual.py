"""What docs/howto/job-log.md shows can be done as shown."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

MANUAL = Path(__file__).parents[2] / "docs" / "howto" / "job-log.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", MANUAL.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for program in blocks("python"):
        exec(program, names)
    names["log"].close()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("ValueError: no such address")
    assert [line.split()[:3] for line in lines[1:]] == [["mail", "2", "1"], ["resize", "1", "0"]]
    with closing(sqlite3.connect(tmp_path / "joblog.db")) as connection:
        ((function, count, _),) = connection.execute(*blocks("sql"))
    assert (function, count) == ("mail", 1)
