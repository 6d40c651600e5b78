"""The bytes by which a benchmark sees that tasks have run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.task_peers.marks import VARIABLE, Marks, marks_of_this_run


def test_each_task_marked_once_is_no_fault(tmp_path: Path) -> None:
    marks = Marks.create(tmp_path / "marks", 3)
    for number in (2, 0, 1):
        marks.mark(number)
    assert marks.are_set(3)
    assert marks.fault(3) == ""


def test_marks_are_seen_by_another_who_has_opened_the_file(tmp_path: Path) -> None:
    ours, theirs = Marks.create(tmp_path / "marks", 2), Marks(tmp_path / "marks")
    theirs.mark(0)
    assert not ours.are_set(2)
    theirs.mark(1)
    assert ours.are_set(2)


def test_lost_and_doubled_tasks_are_told(tmp_path: Path) -> None:
    marks = Marks.create(tmp_path / "marks", 4)
    for number in (0, 1, 1):
        marks.mark(number)
    assert not marks.are_set(4)
    assert marks.fault(4) == "of 4 tasks 2 were not run and 1 more than once"


def test_those_that_warm_up_share_a_mark_beyond_the_others(tmp_path: Path) -> None:
    marks = Marks.create(tmp_path / "marks", 1)
    for _ in range(300):
        marks.mark(1)
    assert marks.fault(1) == "of 1 tasks 1 were not run and 0 more than once"


def test_without_the_benchmark_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(SystemExit, match=r"started by bench\.tasks"):
        marks_of_this_run()
