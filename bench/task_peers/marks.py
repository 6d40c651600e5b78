"""A byte of shared memory for each task, counted up by whoever runs it.

This is how the client sees that a task has run, and that none was lost or run twice, in the same way for all libraries
and at the price of an assignment: no message, no lock, no system call.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

VARIABLE = "BENCH_MARKS"


class Marks:
    """The marks in this file, one byte each."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), 0)
        self._full_up_to = 0

    @classmethod
    def create(cls, path: Path, tasks: int) -> Marks:
        """For so many tasks, and one more for those that warm up."""
        path.write_bytes(bytes(tasks + 1))
        return cls(path)

    def mark(self, number: int) -> None:
        # Nobody else has this number, so that no lock is needed; unless a task is run twice, which then shows.
        self._bytes[number] = min(self._bytes[number] + 1, 255)

    def are_set(self, tasks: int) -> bool:
        """Whether all of the first so many have been run."""
        place = self._bytes.find(b"\0", self._full_up_to, tasks)
        self._full_up_to = tasks if place < 0 else place
        return place < 0

    def fault(self, tasks: int) -> str:
        """What is wrong with the first so many; empty if each was run once."""
        seen = self._bytes[:tasks]
        lost, once = seen.count(0), seen.count(1)
        if once == tasks:
            return ""
        return f"of {tasks} tasks {lost} were not run and {tasks - lost - once} more than once"


def marks_of_this_run() -> Marks:
    """Those that the benchmark has made for this process and the others."""
    path = os.environ.get(VARIABLE)
    if path is None:
        raise SystemExit(f"{VARIABLE} is not set: this is a part of the benchmark, started by bench.tasks")
    return Marks(Path(path))
