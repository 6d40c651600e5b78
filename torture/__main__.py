"""Torture a server, and say what was found: `python -m torture`.

Exit status: 0 nothing is amiss, 1 something is, 2 the command is wrong or something is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torture import record
from torture.mutants import MUTANTS
from torture.play import play
from torture.report import failure_text, table
from torture.run import Plan, Tally
from torture.scenarios import SCENARIOS
from torture.server import ForkingStarter, ServerStarter

# A failure that is found once is found again; what comes after it is not worth the time.
FAILED_RUNS_AT_MOST = 3


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    if options.show_record:
        print(record.shown(options.show_record))
        return 0
    # As Ctrl-C does, which ends a run in order, with its servers.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    if options.lanes > 1:
        return in_lanes(options)
    tally, failures = torture(options)
    if not options.json:
        report(tally, failures)
    return 1 if failures else 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument(
        "--scenario", action="append", choices=SCENARIOS, help="only this one; may be given several times"
    )
    parser.add_argument("--minutes", type=float, default=3.0, help="for all together (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=None, help="of the first run; the next ones have the next seeds")
    parser.add_argument("--runs", type=int, default=0, help="so many of each scenario, however long they take")
    parser.add_argument("--kills", type=int, default=0, help="end when so many servers were killed")
    parser.add_argument("--lanes", type=int, default=1, help="so many servers at a time (default: %(default)s)")
    parser.add_argument("--fork", action="store_true", help="fork servers from a process that has imported the program")
    parser.add_argument("--mutant", choices=MUTANTS, help="torture a server that is broken in this way")
    parser.add_argument("--json", type=Path, help="write the figures to this file, and print no table")
    parser.add_argument("--record", type=Path, help="add the figures of each run to this file")
    parser.add_argument("--show-record", type=Path, metavar="RECORD", help="print what such a file adds up to, and end")
    options = parser.parse_args(arguments)
    options.scenario = options.scenario or list(SCENARIOS)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**9)
    return options


def torture(options: argparse.Namespace) -> tuple[Tally, list[str]]:
    """Play the scenarios one after the other; the texts are failures, each with the command that repeats it."""
    whole = Tally()
    failures: list[str] = []
    shares = sum(SCENARIOS[name].share for name in options.scenario)
    begun = time.monotonic()
    for name in options.scenario:
        deadline = begun + options.minutes * 60 * SCENARIOS[name].share / shares
        seed = options.seed
        while True:
            plan = Plan(float("inf") if options.runs else deadline)
            starter = starter_for(options)
            started = time.monotonic()
            try:
                run = play(name, seed, plan, starter)
            finally:
                starter.close()
            whole.add(run.tally)
            if options.record:
                record.append(options.record, name, seed, run.tally, time.monotonic() - started)
            if run.tally.violations:
                failures.append(failure_text(name, seed, run))
                print(failures[-1], file=sys.stderr, flush=True)
            if options.json:  # after each, so that a long one can be looked at, or broken off
                options.json.write_text(json.dumps(as_json(whole, failures)))
            whole.counts[f"runs of {name}"] += 1
            seed += 1
            if options.runs and seed - options.seed >= options.runs:
                break
            if not options.runs and time.monotonic() >= deadline:
                break
            if len(failures) >= FAILED_RUNS_AT_MOST or (options.kills and whole.counts["kills"] >= options.kills):
                break
        begun = time.monotonic()
    return whole, failures


def starter_for(options: argparse.Namespace) -> ServerStarter:
    if options.mutant:
        return ServerStarter(("torture.mutants", options.mutant))
    return ForkingStarter() if options.fork else ServerStarter()


def in_lanes(options: argparse.Namespace) -> int:
    """As many processes as there are lanes, each with seeds of its own."""
    lanes = []
    for lane in range(options.lanes):
        results = Path(tempfile.gettempdir(), f"torture-lane-{options.seed}-{lane}.json")
        command = [sys.executable, "-m", "torture", "--json", str(results), "--minutes", str(options.minutes)]
        command += ["--seed", str(options.seed + 1_000_000 * lane), "--runs", str(options.runs)]
        command += ["--kills", str(-(-options.kills // options.lanes))]
        command += ["--fork"] if options.fork else []
        command += ["--record", str(options.record)] if options.record else []
        command += ["--mutant", options.mutant] if options.mutant else []
        for name in options.scenario:
            command += ["--scenario", name]
        lanes.append((subprocess.Popen(command), results))
    try:
        for process, _ in lanes:
            process.wait()
    finally:
        for process, _ in lanes:
            process.terminate()
    whole = Tally()
    failures: list[str] = []
    for process, results in lanes:
        if not results.exists():
            failures.append(f"a parallel run ended with {process.returncode}")
            continue
        found = json.loads(results.read_text())
        results.unlink()
        whole.add(record.tally_of(found))
        failures += found["failures"]
    report(whole, failures)
    return 1 if failures else 0


def as_json(tally: Tally, failures: list[str]) -> dict[str, object]:
    return {**record.tally_as_json(tally), "failures": failures}


def report(tally: Tally, failures: list[str]) -> None:
    print(table(tally))
    for failure in failures:
        print(f"\n{failure}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
