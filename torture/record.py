"""A file to which each run appends its figures, one line of JSON a run, so that counts of many runs add up.

`python -m torture --record FILE` writes it; `python -m torture --show-record FILE` prints one table for each scenario.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from torture.history import Violation
from torture.report import table
from torture.run import Tally

__all__ = ["append", "shown", "tally_as_json", "tally_of"]


def append(path: Path, scenario: str, seed: int, tally: Tally, seconds: float) -> None:
    """Add a run, in one write, so that several processes can use one file."""
    line = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "revision": revision(),
        "scenario": scenario,
        "seed": seed,
        "seconds": round(seconds, 1),
        "lease": os.environ.get("TORTURE_LEASE_SECONDS", ""),
        **tally_as_json(tally),
    }
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def shown(path: Path) -> str:
    """The tables of all scenarios in a record."""
    whole: dict[str, Tally] = {}
    for text in path.read_text().splitlines():
        line = json.loads(text)
        whole.setdefault(line["scenario"], Tally()).add(tally_of(line))
    return "\n\n".join(f"{scenario}\n{table(tally)}" for scenario, tally in whole.items())


def tally_as_json(tally: Tally) -> dict[str, Any]:
    return {
        "counts": dict(tally.counts),
        "longest_recovery_seconds": tally.longest_recovery_seconds,
        "takeover_seconds": tally.takeover_seconds,
        "violations": tally.violations[:1000],
    }


def tally_of(found: dict[str, Any]) -> Tally:
    tally = Tally()
    tally.counts.update(found["counts"])
    tally.longest_recovery_seconds = found["longest_recovery_seconds"]
    tally.takeover_seconds = found["takeover_seconds"]
    tally.violations = [Violation(*violation) for violation in found["violations"]]
    return tally


def revision() -> str:
    """The commit that is checked out here; empty if that is not known."""
    try:
        command = ["git", "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
