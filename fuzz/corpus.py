"""Keeps the corpus small: `python -m fuzz.corpus [TARGET...]` writes it anew from the seeds, the corpus as it is, and
what fuzzing has found on the way (build/fuzz/corpus).

An input is kept if it reaches a line of the package, or a step from one line to another, that none before it has
reached, or if it is short and of a kind of its own; short ones come first.  It needs the sources as they are,
not compiled.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Hashable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import switchgear
from fuzz.inputs import FAILURES, ROOT, WORKING, corpus_of, regressions_of, saved
from fuzz.seeds import seeds_of
from fuzz.target import Target
from fuzz.targets import TARGETS

__all__ = ["reached_by", "smallest"]

PACKAGE: Final = str(Path(switchgear.__file__).parent)
MOST_SECONDS: Final = 180.0  # for one target
SHORT_BYTES: Final = 100
FEW_BYTES: Final = 2_000
MOST_BYTES: Final = 150_000  # of one target's corpus

Reached = set[tuple[CodeType, int, int]]


def reached_by(target: Target, data: bytes) -> tuple[Reached, Hashable]:
    """The steps from line to line, within the package, that an input makes it take, and its kind."""
    reached: Reached = set()

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return None
        last = 0

        def on_line(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            if event == "line":
                reached.add((code, last, frame.f_lineno))
                last = frame.f_lineno
            return on_line

        return on_line

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        kind = target.run(data)
    finally:
        sys.settrace(before)
    return reached, kind


def smallest(target: Target, inputs: list[bytes], always: frozenset[bytes] = frozenset()) -> list[bytes]:
    """Those of the inputs that together reach as much as all of them, and those that are kept in any case."""
    end = time.monotonic() + MOST_SECONDS
    reached: Reached = set()
    kinds: set[Hashable] = set()
    kept: list[bytes] = []
    size = 0
    for data in sorted(dict.fromkeys(inputs), key=len):
        if time.monotonic() > end or size + len(data) > MOST_BYTES:
            continue
        try:
            steps, kind = reached_by(target, data)
        except Exception as error:
            print(f"  fails: {saved(FAILURES / target.name, data)}: {type(error).__name__}: {str(error)[:300]}")
            continue
        if steps - reached or data in always or (len(data) <= SHORT_BYTES and kind not in kinds):
            reached |= steps
            kinds.add(kind)
            kept.append(data)
            size += len(data)
    return kept


def main() -> None:
    for name in sys.argv[1:] or TARGETS:
        target = TARGETS[name]
        found = WORKING / "corpus" / name
        files = [*corpus_of(target), *(sorted(found.glob("*")) if found.is_dir() else ())]
        known = {path.read_bytes() for path in regressions_of(target)}
        seeds = seeds_of(target)
        always = frozenset(seeds if sum(map(len, seeds)) <= FEW_BYTES else ())  # what they reach is in other packages
        inputs = [*seeds, *(path.read_bytes() for path in files)]
        kept = smallest(target, [data for data in inputs if data not in known], always)
        folder = ROOT / "corpus" / name
        for path in corpus_of(target):
            path.unlink()
        for data in kept:
            saved(folder, data)
        print(f"{name}: {len(kept)} of {len(inputs)} inputs, {sum(map(len, kept))} bytes", flush=True)


if __name__ == "__main__":
    main()
