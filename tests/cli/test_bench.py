"""`switchgear bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchgear.bench import workloads
from switchgear.bench.results import Cell, Reading
from switchgear.cli.main import main


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["bench", *args])


@pytest.mark.system
def test_it_measures_and_says_on_what(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    result = call("--quick", "--only", "drain,durable", "--dir", str(tmp_path), "--json", str(file))
    assert result.exit_code == 0, result.output
    assert "processor:" in result.stdout
    assert "switchgear serve --store memory:" in result.stdout
    assert "drain x32" in result.stdout
    document = json.loads(file.read_text())
    assert {row["group"] for row in document["rows"]} == {"drain", "durable"}
    for row in document["rows"]:
        assert row["fault"] == ""
        assert row["best"]["cpu_us"] > 0
        assert row["best"]["jobs"] > 0
    assert list(tmp_path.iterdir()) == [file]  # the databases have gone


@pytest.mark.system
def test_tasks_and_memory_are_measured_too() -> None:
    result = call("--quick", "--only", "tasks,memory")
    assert result.exit_code == 0, result.output
    assert "Python tasks in bulk" in result.stdout
    assert "jobs that wait" in result.stdout
    assert "memory: with so few jobs" in result.stdout


def test_a_fault_is_told_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def cells(groups: tuple[str, ...], quick: bool, directory: Path | None) -> list[Cell]:
        return [Cell("drain", "drain x1", "switchgear", "serve", lambda: Reading(0, 0.0, fault="a job was lost"))]

    monkeypatch.setattr(workloads, "cells", cells)
    result = call()
    assert result.exit_code == 1
    assert "FAILED" in result.stdout
    assert "switchgear: drain x1 at switchgear failed: a job was lost" in result.stderr


def test_rounds_are_run_as_asked_and_told_of_also_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def cells(groups: tuple[str, ...], quick: bool, directory: Path | None) -> list[Cell]:
        return [Cell("memory", "jobs that wait", "switchgear", "serve", lambda: Reading(1, 1.0, 5.0), rounds=1)]

    monkeypatch.setattr(workloads, "cells", cells)
    result = call("--rounds", "4")
    assert result.exit_code == 0
    assert len(result.stderr.splitlines()) == 4
    assert result.stderr.startswith("1/4  memory/jobs that wait/switchgear: 5.0 us")
    assert "PART" in result.stdout
    assert "memory  jobs that wait" in result.stdout


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--only", "submit,nothing"], "there is no nothing; there are submit, drain"),
        (["--only", ","], "there is no empty part"),
        (["--rounds", "0"], "0 is not in the range"),
        (["--json", "/nowhere/x.json"], "/nowhere/x.json cannot be written"),
        (["--dir", "/nowhere"], "does not exist"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_measured(args: list[str], complaint: str) -> None:
    result = call(*args)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_the_help_has_examples() -> None:
    assert "switchgear bench --only submit,drain --rounds 5" in call("--help").stdout
