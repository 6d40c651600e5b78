"""Seeing that the source has changed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from switchgear.app.worker.source_watch import SourceWatch


def module(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it had been imported."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x = 1\n")
    loaded = ModuleType(file.stem)
    loaded.__file__ = str(file)
    monkeypatch.setitem(sys.modules, f"{file.stem}_of_a_test", loaded)


def touch(file: Path) -> None:
    os.utime(file, ns=(1, file.stat().st_mtime_ns + 1))


def test_a_change_of_a_loaded_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path / "one.py", monkeypatch)
    watch = SourceWatch(str(tmp_path))
    assert watch.changes() == []
    touch(tmp_path / "one.py")
    assert watch.changes() == [str(tmp_path / "one.py")]


def test_a_removal_is_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path / "one.py", monkeypatch)
    watch = SourceWatch(str(tmp_path))
    (tmp_path / "one.py").unlink()
    assert watch.changes() == [str(tmp_path / "one.py")]


def test_a_module_that_is_loaded_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = SourceWatch(str(tmp_path))
    module(tmp_path / "deep" / "late.py", monkeypatch)
    assert watch.changes() == []
    touch(tmp_path / "deep" / "late.py")
    assert watch.changes() == [str(tmp_path / "deep" / "late.py")]


@pytest.mark.parametrize("where", ["elsewhere/one.py", "project/.venv/lib/site-packages/one.py", "project/one.so"])
def test_other_files_do_not_count(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path / where, monkeypatch)
    watch = SourceWatch(str(tmp_path / "project"))
    touch(tmp_path / where)
    assert watch.changes() == []


def test_files_that_could_not_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    watch = SourceWatch(str(tmp_path), [str(tmp_path / "broken.py")])
    touch(tmp_path / "broken.py")
    assert watch.changes() == [str(tmp_path / "broken.py")]
