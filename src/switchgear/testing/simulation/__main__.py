"""Runs one simulation, or many with different seeds: `python -m switchgear.testing.simulation --seed N`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from switchgear.testing.simulation.simulated_cluster import DEFAULT_STEPS, SimulationFailed, simulate
from switchgear.testing.simulation.simulated_nodes import CHECK_EVERY, simulate_nodes


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m switchgear.testing.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which history (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, metavar="COUNT", help="run this many, from SEED on")
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, help="its length (default: %(default)s)")
    parser.add_argument("--nodes", action="store_true", help="several nodes that own partitions of functions")
    parser.add_argument(
        "--check-every", type=int, default=1, metavar="STEPS", help="look at the whole engine only so often"
    )
    parser.add_argument("--verbose", action="store_true", help="tell every step")
    options = parser.parse_args(arguments)
    say = print if options.verbose else None
    if options.nodes:
        return _run_nodes(options, say)
    events = starts = crashes = 0
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            world = simulate(seed, options.steps, say, options.check_every)
        except SimulationFailed as failure:
            print(failure, file=sys.stderr)
            if options.verbose and failure.__cause__ is not None:
                raise failure.__cause__ from None
            return 1
        events += world.events
        starts += world.history.starts
        crashes += world.crashes
    print(
        f"nothing amiss: {options.seeds} × {options.steps} steps, {events} events,"
        f" {starts} starts of jobs, {crashes} crashes"
    )
    return 0


def _run_nodes(options: argparse.Namespace, say: Callable[[str], None] | None) -> int:
    acknowledged = nodes = 0
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            world = simulate_nodes(seed, options.steps, say, check_every=max(CHECK_EVERY, options.check_every))
        except SimulationFailed as failure:
            print(failure, file=sys.stderr)
            return 1
        acknowledged += len(world.acknowledged)
        nodes += world.started
    print(
        f"nothing amiss: {options.seeds} × {options.steps} steps, {acknowledged} acknowledged jobs,"
        f" {nodes} starts of nodes"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
