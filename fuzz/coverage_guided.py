"""Runs a target with atheris: libFuzzer, guided by which lines and branches of the package an input reaches.

It instruments Python, so it needs the sources as they are and not compiled modules.  What it finds on the way goes to
build/fuzz/corpus, an input that fails to build/fuzz/failures.
"""

from __future__ import annotations

import sys
from random import Random

import atheris

from fuzz.inputs import FAILURES, ROOT, WORKING

__all__ = ["run"]

# Half of the mutations are those of libFuzzer, which knows what comparisons would have been true for.
OWN_SHARE = 0.5


def run(name: str, seconds: float, runs: int, seed: int) -> None:
    """Does not return: libFuzzer ends the process."""
    with atheris.instrument_imports(include=["switchgear"]):
        from fuzz.targets import TARGETS
    from fuzz.mutation import mutated

    if name not in TARGETS:
        sys.exit(f"there is no target {name}; --list names them")
    target = TARGETS[name]
    random = Random(seed)
    last = [b""]

    def run_one(data: bytes) -> None:
        target.run(data)

    def mutate(data: bytes, most_bytes: int, number: int) -> bytes:
        random.seed(number)
        other, last[0] = last[0], data
        if random.random() < OWN_SHARE:
            return mutated(random, data, other, target.levels, target.words, min(most_bytes, target.longest_bytes))
        return bytes(atheris.Mutate(data, most_bytes))

    working = WORKING / "corpus" / name
    failures = FAILURES / name
    for folder in (working, failures):
        folder.mkdir(parents=True, exist_ok=True)
    folders = [
        working,
        *(folder for folder in (ROOT / "corpus" / name, ROOT / "regressions" / name) if folder.is_dir()),
    ]
    options = [
        f"-max_total_time={round(seconds)}",
        f"-max_len={target.longest_bytes}",
        f"-seed={seed}",
        f"-artifact_prefix={failures}/",
        "-timeout=20",
        "-rss_limit_mb=2000",
        "-print_final_stats=1",
    ]
    if runs:
        options.append(f"-runs={runs}")
    atheris.Setup([sys.argv[0], *options, *map(str, folders)], run_one, custom_mutator=mutate)
    atheris.Fuzz()
