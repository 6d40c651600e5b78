"""Count the instructions of the fixed script, and compare them with those on record.

    PYTHONPATH=build/compiled python -m bench.instructions                      compare; exit status 1 if they grew
    PYTHONPATH=build/compiled python -m bench.instructions --record "reason"    put these figures on record, and why

Only what the compiled session and hub do is counted, from the call that hands them bytes to its return; neither the
script nor the interpreter's start is.  Time on a shared machine is worth little, but these figures repeat.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench.instructions.script import AFTER_BACKGROUND, MODES
from switchgear.version import BUILD

ROOT: Final = Path(__file__).resolve().parents[2]
RECORD: Final = Path(__file__).with_name("record.json")
JOBS: Final = 3_200
TOLERANCE: Final = 0.10

# Counting begins and ends where the interpreter enters and leaves these methods.
COUNTED: Final = ("ByteSession___receive", "Hub____end_turn")


class CannotCount(Exception):
    """There is nothing to compare, and why."""


def environment() -> str:
    """What the figures depend on besides our own sources."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"Python {python}, mypy {version('mypy')}, {platform.machine()}"


def symbols() -> list[str]:
    """What mypyc has named the C functions of the methods; valgrind takes no two patterns that begin alike."""
    files = [module.__file__ for name, module in sys.modules.items() if name.endswith("__mypyc")]
    names = subprocess.run(["nm", *filter(None, files)], capture_output=True, text=True, check=True).stdout
    found = [re.findall(rf" T (CPyPy_\w*{name})$", names, re.MULTILINE) for name in COUNTED]
    if any(len(matches) != 1 for matches in found):
        raise CannotCount(f"{', '.join(COUNTED)} are not to be found in {files}: {found}")
    return [matches[0] for matches in found]


def count(mode: str, toggles: list[str]) -> int:
    """Instructions per job."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", *toggles, f"--callgrind-out-file={folder}/out"]
        command += [sys.executable, "-m", "bench.instructions.script", f"{mode}={JOBS}"]
        # Hashes decide where a table is searched, so they must not be drawn by lot.
        settings = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)
    total = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or total is None:
        raise CannotCount(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    if total[1] == "0":
        raise CannotCount("nothing was counted")
    return round(int(total[1]) / JOBS)


def count_all() -> dict[str, int]:
    if BUILD != "compiled":
        raise CannotCount("the package on the path is not compiled: make compiled, and PYTHONPATH=build/compiled")
    if shutil.which("valgrind") is None:
        raise CannotCount("valgrind is not installed; on Debian: apt-get install valgrind")
    toggles = [f"--toggle-collect={name}" for name in symbols()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counted = dict(zip(MODES, pool.map(partial(count, toggles=toggles), MODES)))
    for mode in AFTER_BACKGROUND:
        counted[mode] -= counted["background"]  # what is taken has to be submitted first
    return counted


def growth(counted: dict[str, int], recorded: dict[str, int]) -> list[str]:
    """What has grown by more than is allowed, in words."""
    return [
        f"{mode}: {counted[mode]:,} instructions per job, {counted[mode] / recorded[mode] - 1:+.1%} "
        f"on what is on record, {recorded[mode]:,}"
        for mode in MODES
        if mode in recorded and counted[mode] > recorded[mode] * (1 + TOLERANCE)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="REASON", help="put the figures on record, with the reason for the change")
    options = parser.parse_args()
    try:
        counted = count_all()
    except CannotCount as error:
        print(error, file=sys.stderr)
        return 2
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    recorded = record.get(environment(), {}).get("instructions per job")
    for mode, figure in counted.items():
        on_record = f", {recorded[mode]:,} on record" if recorded and mode in recorded else ""
        print(f"{mode:12} {figure:7,} instructions per job{on_record}")
    if options.record:
        record[environment()] = {"instructions per job": counted, "reason": options.record}
        RECORD.write_text(json.dumps(record, indent=2) + "\n")
        return 0
    if recorded is None:
        print(f"there is no record for {environment()}: make one with --record", file=sys.stderr)
        return 2
    grown = growth(counted, recorded)
    for line in grown:
        print(line, file=sys.stderr)
    if grown:
        print('if that is worth it, put it on record: python -m bench.instructions --record "why"', file=sys.stderr)
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
