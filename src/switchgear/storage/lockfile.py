"""One server per file: a lock that lasts as long as the process that holds it."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from switchgear.errors import StorageError

__all__ = ["FileLock"]


class FileLock:
    """Exclusive ownership of `path`, by way of a lock on the file `path`.lock beside it.

    The system lets go of the lock when the holder dies, however it dies, so a leftover file means nothing.  It is never
    removed: between another's opening it and locking it, it would be a different file.  A process that the holder forks
    does not hold it.
    """

    def __init__(self, path: Path) -> None:
        self._owned = path
        self._path = path.with_name(path.name + ".lock")
        self._descriptor = -1

    def acquire(self) -> None:
        """Own the file, or raise a StorageError that names who does."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
                who = f"process {holder}" if holder else "another process"
                raise StorageError(f"{self._owned} is in use by {who}") from None
            with suppress(OSError):  # a full disk: the lock holds all the same, only nameless
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _held.add(self)

    def is_on(self, file: os.stat_result) -> bool:
        """Whether this is the file that is locked: the path may lead to another one by now."""
        if self._descriptor < 0:
            return False
        ours = os.fstat(self._descriptor)
        return (ours.st_dev, ours.st_ino) == (file.st_dev, file.st_ino)

    def release(self) -> None:
        """Let go; nothing happens if it is not held."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            _held.discard(self)


_held: WeakSet[FileLock] = WeakSet()


def _let_go_in_child() -> None:
    """A lock lasts until every copy of its descriptor is closed, and a forked child must not prolong it."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)
