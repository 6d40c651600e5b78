"""python -m fuzz TARGET... [--seconds N] [--runs N] [--seed S] [--engine atheris|mutation]
python -m fuzz TARGET FILE...
python -m fuzz --list

The second form runs the files and nothing else.  `all` stands for every target.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import subprocess
import sys
from pathlib import Path

DEFAULT_SECONDS = 10.0


def main() -> int:
    arguments = parse()
    if arguments.list:
        from fuzz.targets import TARGETS

        for target in TARGETS.values():
            print(f"{target.name:20} {', '.join(target.covers)}")
        return 0
    names = [name for name in arguments.words if not Path(name).is_file()]
    files = [Path(name) for name in arguments.words if Path(name).is_file()]
    if arguments.engine == "atheris" and not files:
        return run_atheris(names, arguments)
    return run_here(names, files, arguments)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="TARGET|FILE")
    parser.add_argument("--list", action="store_true", help="name the targets")
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, help="for each target")
    parser.add_argument("--runs", type=int, default=0, help="inputs for each target; 0: as many as the time allows")
    parser.add_argument("--seed", type=int, default=1)
    default = "atheris" if importlib.util.find_spec("atheris") else "mutation"
    parser.add_argument("--engine", choices=("atheris", "mutation"), default=default)
    arguments = parser.parse_args()
    if not arguments.words and not arguments.list:
        parser.error("name a target, or `all`; --list names them")
    return arguments


def run_here(names: list[str], files: list[Path], arguments: argparse.Namespace) -> int:
    from fuzz.runner import Failure, fuzz, run_within_time, stop_long_runs
    from fuzz.targets import TARGETS

    unknown = [name for name in names if name not in TARGETS and name != "all"]
    if unknown:
        print(f"there is no target, and no file, {unknown[0]}; --list names the targets", file=sys.stderr)
        return 2
    targets = list(TARGETS.values()) if "all" in names else [TARGETS[name] for name in names]
    stop_long_runs()
    gc.freeze()  # all modules: a collection need not visit them again and again
    for target in targets:
        for file in files:
            print(f"{target.name}: {file}: {run_within_time(target, file.read_bytes())!r}")
        if files:
            continue
        try:
            finding = fuzz(target, arguments.seconds, arguments.runs, arguments.seed)
        except Failure as failure:
            print(failure, file=sys.stderr)
            raise
        speed = finding.runs / max(finding.seconds, 0.001)
        print(f"{target.name}: {finding.runs} inputs, {finding.kinds} kinds, {speed:.0f}/s", flush=True)
    return 0


def run_atheris(names: list[str], arguments: argparse.Namespace) -> int:
    """Each target in a process of its own, because atheris ends the process."""
    if len(names) == 1 and names != ["all"]:
        from fuzz.coverage_guided import run

        run(names[0], arguments.seconds, arguments.runs, arguments.seed)
        return 0
    if names == ["all"]:
        from fuzz.targets import TARGETS

        names = list(TARGETS)
    options = [f"--seconds={arguments.seconds}", f"--runs={arguments.runs}", f"--seed={arguments.seed}"]
    for name in names:
        command = [sys.executable, "-m", "fuzz", name, "--engine=atheris", *options]
        status = subprocess.run(command, check=False).returncode
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
