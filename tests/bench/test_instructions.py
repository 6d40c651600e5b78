"""The compiled server needs no more instructions for a job than are on record; see bench/instructions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.instructions.__main__ import TOLERANCE, growth
from bench.instructions.script import MODES, main
from switchgear.version import BUILD

ROOT = Path(__file__).parents[2]

RECORDED = {mode: 1000 * number for number, mode in enumerate(MODES, 1)}


@pytest.mark.skipif(BUILD != "compiled", reason="it is the compiled modules that are counted")
@pytest.mark.timeout(300)
def test_a_job_needs_no_more_instructions_than_on_record() -> None:
    command = [sys.executable, "-m", "bench.instructions"]
    counted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if "there is no record for" in counted.stderr and "CI" not in os.environ:
        pytest.skip(counted.stderr.strip())
    assert counted.returncode == 0, counted.stdout + counted.stderr


@pytest.mark.parametrize("mode", MODES)
def test_what_has_grown_too_much_is_named(mode: str) -> None:
    most = int(RECORDED[mode] * (1 + TOLERANCE))
    assert growth(RECORDED | {mode: most}, RECORDED) == []
    (line,) = growth(RECORDED | {mode: most + 1}, RECORDED)
    assert line.startswith(mode)
    assert f"{RECORDED[mode]:,}" in line


def test_what_has_shrunk_is_welcome() -> None:
    assert growth(dict.fromkeys(MODES, 1), RECORDED) == []


@pytest.mark.parametrize("mode", MODES)
def test_the_script_does_what_it_says(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It checks every answer itself."""
    monkeypatch.setattr(sys, "argv", ["script", f"{mode}=70"])
    main()


@pytest.mark.parametrize("word", ["nothing=1", "drain", "drain=many"])
def test_a_word_that_is_not_understood_is_refused(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["script", word])
    with pytest.raises(SystemExit, match=word):
        main()
