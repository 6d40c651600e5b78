"""The runner that needs nothing but Python: mutates the inputs of a corpus, with compiled modules or without.

It has no coverage to go by.  Instead it keeps an input in mind when `Target.run` says of it what it has said of none
before: another error, another sequence of packets.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from types import FrameType
from typing import Final

from fuzz.inputs import FAILURES, kept_inputs, saved
from fuzz.mutation import Mutator
from fuzz.target import Defect, Target

__all__ = ["Failure", "Finding", "fuzz", "run_within_time", "shortened", "stop_long_runs"]

MOST_KEPT: Final = 5_000
# No input of some kilobytes may take longer. This is processor time: a busy machine may keep a process waiting.
LONGEST_RUN_SECONDS: Final = 20
SHORTENING_SECONDS: Final = 10.0


class Failure(Exception):
    """An input has failed; `path` is where it is saved."""

    def __init__(self, target: Target, data: bytes, error: Exception) -> None:
        self.data = data
        self.path = saved(FAILURES / target.name, data)
        command = f"python -m fuzz {target.name} {self.path}"
        super().__init__(f"{target.name}: {type(error).__name__}: {error}\n  {command}\n  {data[:200]!r}")


@dataclass
class Finding:
    """What was done."""

    runs: int = 0
    seconds: float = 0.0
    kinds: int = 0


def fuzz(target: Target, seconds: float, runs: int, seed: int, inputs: Sequence[bytes] | None = None) -> Finding:
    """Run all kept inputs and then made-up ones, for so long or so often, whatever ends first; raises Failure.

    With `runs` of 0 the time alone decides.  The same seed makes the same inputs.
    """
    pool = Mutator(Random(f"{target.name} {seed}"), target.levels, target.words, target.longest_bytes)
    seen: set[Hashable] = set()
    finding = Finding()
    start = time.monotonic()
    for data in (kept_inputs(target) if inputs is None else inputs) or (b"",):
        seen.add(_run(target, data))
        finding.runs += 1
        pool.add(data)
    while (not runs or finding.runs < runs) and (finding.runs % 16 or time.monotonic() - start < seconds):
        data = pool.next()
        kind = _run(target, data)
        finding.runs += 1
        if kind not in seen:
            seen.add(kind)
            if len(pool) < MOST_KEPT:
                pool.add(data)
    finding.seconds = time.monotonic() - start
    finding.kinds = len(seen)
    return finding


def _run(target: Target, data: bytes) -> Hashable:
    try:
        return run_within_time(target, data)
    except Exception as error:
        short = shortened(target, data, type(error))
        try:
            run_within_time(target, short)
        except Exception as last:
            raise Failure(target, short, last) from last
        raise Failure(target, data, error) from error


def shortened(target: Target, data: bytes, kind: type[Exception]) -> bytes:
    """An input that is shorter, as far as one is soon found, and fails in the same way."""
    end = time.monotonic() + SHORTENING_SECONDS

    def fails(candidate: bytes) -> bool:
        try:
            run_within_time(target, candidate)
        except Exception as error:
            return type(error) is kind
        return False

    size = len(data) // 2
    while size and time.monotonic() < end:
        for candidate in _with_less(target, data, size):
            if time.monotonic() > end:
                break
            if len(candidate) < len(data) and fails(candidate):
                data = candidate
                break
        else:
            size //= 2
    return data


def _with_less(target: Target, data: bytes, size: int) -> Iterator[bytes]:
    for level in target.levels[:1]:
        parts = level.cut(data)
        for place in range(len(parts)):
            yield level.join(parts[:place] + parts[place + 1 :])
            if size < len(parts[place].body):
                body = parts[place].body
                for start in range(0, len(body), size):
                    less = parts[place].with_body(body[:start] + body[start + size :])
                    yield level.join([*parts[:place], less, *parts[place + 1 :]])
    for start in range(0, len(data), size):
        yield data[:start] + data[start + size :]


def run_within_time(target: Target, data: bytes) -> Hashable:
    """Run one input; one that takes much too long is a defect as well."""
    start = time.process_time()
    if _stops_long_runs:
        signal.setitimer(signal.ITIMER_PROF, LONGEST_RUN_SECONDS)
    kind = target.run(data)
    if time.process_time() - start > LONGEST_RUN_SECONDS:
        raise Defect(f"it took more than {LONGEST_RUN_SECONDS} s")
    return kind


def stop_long_runs() -> None:
    """From now on an input that would run for ever is stopped as well: for a process that does nothing else."""
    global _stops_long_runs

    def stop(number: int, frame: FrameType | None) -> None:
        raise Defect(f"it took more than {LONGEST_RUN_SECONDS} s")

    signal.signal(signal.SIGPROF, stop)
    _stops_long_runs = True


_stops_long_runs = False
