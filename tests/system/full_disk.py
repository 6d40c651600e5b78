"""A disk that fills up and is cleared again, without a disk: the kernel's limit on the size of a process's files.

Beyond the limit a write fails as it does on a full disk, only with another number (Python ignores the signal that
comes with it).  What was written before can still be read and overwritten.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def no_room(pid: int, database: Path) -> Iterator[None]:
    """The files of the database cannot grow."""
    files = database.parent.glob(database.name + "*")
    fill_up(pid, max(file.stat().st_size for file in files))
    try:
        yield
    finally:
        make_room(pid)


def fill_up(pid: int, limit_bytes: int) -> None:
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit_bytes, hard))


def make_room(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has not survived
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
