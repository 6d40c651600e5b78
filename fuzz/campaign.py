"""Runs very many inputs in the background: python -m fuzz.campaign TARGET... [--goal N] [--slice-seconds N]

One process at a time, which takes only processor time that nothing else wants, or with `--nice` a share of the rest.
The targets take turns, the one with the fewest inputs first, and so do the engines, if atheris is installed.  How many
inputs each target has run is counted in build/fuzz/campaign.json after every slice, so that a campaign can be stopped
at any time and go on later.  It ends when every target has reached the goal, when `--minutes` are over, or when an
input fails.

`scripts/build-compiled-fuzz build/fuzz-compiled` compiles the targets and the code that makes inputs; with
`PYTHONPATH=build/fuzz-compiled:build/compiled:. python -P -m fuzz.campaign` several times as many inputs run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from fuzz.inputs import WORKING

__all__ = ["Campaign"]

CODECS: Final = (
    "gearman-codec",
    "draft-codec",
    "resp-codec",
    "dwork-codec",
    "wmp-codec",
    "pingpong-codec",
    "zmtp-codec",
    "http-codec",
)
GOAL: Final = 10_000_000
SLICE_SECONDS: Final = 60.0
# `-P` keeps the current directory from coming before compiled targets on the path: child processes need it as well.
SAFE_PATH: Final = ("-P",) if sys.flags.safe_path else ()
RUNS: Final = {
    "mutation": re.compile(r"^\S+: (\d+) inputs", re.MULTILINE),
    "atheris": re.compile(r"^stat::number_of_executed_units: (\d+)", re.MULTILINE),
}


class Campaign:
    """Counts of inputs by target and engine, in a file."""

    def __init__(self, path: Path, engines: tuple[str, ...]) -> None:
        self.path = path
        self.engines = engines
        self.counts: dict[str, dict[str, int]] = json.loads(path.read_text()) if path.exists() else {}

    def inputs(self, target: str) -> int:
        """How many inputs the target has run, with any engine."""
        counts = self.counts.get(target, {})
        return sum(counts.get(engine, 0) for engine in RUNS)

    def next_target(self, targets: list[str], goal: int) -> str | None:
        """The target that is farthest from the goal; None if all have reached it."""
        target = min(targets, key=self.inputs)
        return target if self.inputs(target) < goal else None

    def run_slice(self, target: str, seconds: float) -> int:
        """Run one target for so long in a process of its own; its exit status."""
        counts = self.counts.setdefault(target, {})
        number = counts["slices"] = counts.get("slices", 0) + 1  # also the seed, so that each slice has other inputs
        engine = self.engines[number % len(self.engines)]
        command = [sys.executable, *SAFE_PATH, "-m", "fuzz", target, f"--engine={engine}", f"--seconds={seconds}"]
        done = subprocess.run([*command, f"--seed={number}"], capture_output=True, text=True, check=False)
        found = RUNS[engine].search(done.stdout + done.stderr)
        counts[engine] = counts.get(engine, 0) + (int(found[1]) if found else 0)
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
        else:
            self._save()
        return done.returncode

    def _save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.counts, indent=1) + "\n")
        new.replace(self.path)


def yield_processor(nice: int | None) -> None:
    """From now on take only time that no other process wants, or have this priority; child processes do the same."""
    if nice is not None:
        os.nice(nice)
        return
    os.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.campaign", description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(CODECS), metavar="TARGET")
    parser.add_argument("--goal", type=int, default=GOAL, help="inputs for each target")
    parser.add_argument("--slice-seconds", type=float, default=SLICE_SECONDS)
    parser.add_argument("--engine", choices=("atheris", "mutation"), help="only this one")
    parser.add_argument("--counts", type=Path, default=WORKING / "campaign.json")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after so long")
    parser.add_argument("--nice", type=int, help="run at this priority, instead of in idle time only")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    has_atheris = importlib.util.find_spec("atheris") is not None
    engines = (arguments.engine,) if arguments.engine else ("mutation", "atheris") if has_atheris else ("mutation",)
    campaign = Campaign(arguments.counts, engines)
    yield_processor(arguments.nice)
    while (target := campaign.next_target(arguments.targets, arguments.goal)) is not None:
        start = time.monotonic()
        if start > end:
            break
        status = campaign.run_slice(target, arguments.slice_seconds)
        seconds = time.monotonic() - start
        print(f"{target}: {campaign.inputs(target)} inputs, {seconds:.0f} s", flush=True)
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
