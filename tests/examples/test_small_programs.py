"""The small programs in examples/ print what they are there to show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.sites import EXAMPLES, PATIENCE_SECONDS

OUTPUTS = {
    "hello.py": ["Hello, world!"],
    "thumbnails.py": [
        "progress: 32 of 32 lines",
        "asked twice, made once: True",
        "picture-0.small.pgm: 64 x 32",
        "picture-1.small.pgm: 64 x 32",
        "picture-2.small.pgm: 64 x 32",
        "letter.txt: failed after 1 attempt",
    ],
    "graph.py": [
        "Berlin 200, Paris 200, Rome 50",
        "cleaned up after Berlin and Paris and Rome",
        "cleaned up after Berlin and Atlantis",
        "no report: failed",
    ],
    "schedule.py": [
        "schedule.backup: 30 2 * * *",
        "schedule.beat: every 0.5 s",
        "beat 1 of the heart",
        "beat 2 of the heart",
        "beat 3 of the heart",
        "backed up before its time",
    ],
    "async_worker.py": [
        "50 pages, side by side",
        "page 0 has the digest 98b8816d",
        "what would not end was cancelled",
    ],
}


def run_alone(program: str, place: Path) -> list[str]:
    """What a program prints, in a directory where nothing is."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHGEAR_")}
    done = subprocess.run(
        [sys.executable, EXAMPLES / program],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.system
@pytest.mark.parametrize("program", OUTPUTS)
def test_a_program_runs_alone(program: str, tmp_path: Path) -> None:
    assert run_alone(program, tmp_path) == OUTPUTS[program]


@pytest.mark.system
def test_a_program_that_is_run_again_goes_on_in_the_same_directory(tmp_path: Path) -> None:
    assert run_alone("hello.py", tmp_path) == run_alone("hello.py", tmp_path) == OUTPUTS["hello.py"]


def test_all_small_programs_are_here() -> None:
    assert sorted(OUTPUTS) == sorted(path.name for path in EXAMPLES.glob("*.py"))


def test_hello_world_has_six_lines_of_code() -> None:
    lines = (EXAMPLES / "hello.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 6
