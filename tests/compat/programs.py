"""Starts programs of a project in a directory, as its users do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["output_of", "running"]

PROGRAM_SECONDS = 60


def output_of(place: Path, *command: str, url: str) -> str:
    """Run a program to its end; returns what it prints."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=place,
        env=_environment(url),
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def running(place: Path, *command: str, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs beside the test, and is stopped after it."""
    with open(place / "worker.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=place, env=_environment(url), stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PROGRAM_SECONDS)


def _environment(url: str) -> dict[str, str]:
    return os.environ | {"SWITCHGEAR_URL": url, "PYTHONWARNINGS": "ignore"}
