"""Lock files: one server per store; a lock lasts as long as the process that holds it.

`FileLock` locks a file beside the owned one, so it depends on the name: a hard link, or deleting the lock file,
circumvents it. `DatabaseLock` locks the database itself, whatever its name is. A store has both: the first names the
owner, and keeps out servers of older versions.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final
from weakref import WeakSet

from switchgear.errors import StorageError

__all__ = ["DatabaseLock", "FileLock"]

# SQLite uses the first 512 of these bytes for its locks; our lock is on a later byte.
_SQLITE_LOCK_BYTES: Final = 0x40000000
_SQLITE_SHARED_BYTES: Final = (_SQLITE_LOCK_BYTES + 2, 510)
_OUR_LOCK_BYTE: Final = (_SQLITE_LOCK_BYTES + 1024, 1)

# A lock of an open file, not of a process as SQLite's are: it stays when SQLite closes another descriptor of the same
# file, and a second store in the same process does not get it either. Not every system has such locks.
_SET_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)


class FileLock:
    """Exclusive ownership of `path`, by a lock on the file `path`.lock beside it.

    The system releases the lock when the owner dies, however it dies, so a leftover file means nothing. The file is
    never removed: another process that has opened but not yet locked it would lock a different file. A process that the
    owner forks does not own it.
    """

    def __init__(self, path: Path) -> None:
        self._owned = path
        self._path = path.with_name(path.name + ".lock")
        self._descriptor = -1

    def acquire(self) -> None:
        """Acquire the lock, or raise a StorageError that names the owner."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
                who = f"process {holder}" if holder else "another process"
                raise StorageError(f"{self._owned} is in use by {who}") from None
            with suppress(OSError):  # a full disk: the lock is held, but does not name its owner
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _held.add(self)

    def is_on(self, file: os.stat_result) -> bool:
        """Whether this is the locked file: the path may refer to another one by now."""
        if self._descriptor < 0:
            return False
        ours = os.fstat(self._descriptor)
        return (ours.st_dev, ours.st_ino) == (file.st_dev, file.st_ino)

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            _held.discard(self)


class DatabaseLock:
    """Exclusive ownership of the SQLite database at `path`, by a lock on a byte that SQLite never uses.

    `flock` would not do: where it is made of byte locks (NFS, the BSDs, macOS) SQLite could not lock the file any more.
    The descriptor must be open before SQLite's first one and be closed after its last, because closing any descriptor
    of a file releases the process's own locks on it, which are SQLite's.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor = -1

    def acquire(self) -> None:
        """Acquire the lock, creating an empty database if there is none; raises StorageError if another process has
        it, or OSError."""
        self._refuse_second_in_process()
        # SQLite gives its log the mode of the database, so this keeps payloads from other users.
        self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        _held.add(self)
        try:
            if not stat.S_ISREG(os.fstat(self.descriptor).st_mode):
                raise StorageError(f"{self._path} cannot be used as a job database: it is not a regular file")
            _lock_bytes(self.descriptor, fcntl.F_WRLCK, _OUR_LOCK_BYTE)
        except BlockingIOError:
            found = os.fstat(self.descriptor)
            self.release()
            raise self._in_use("another process", found) from None
        except BaseException:
            self.release()
            raise

    def _refuse_second_in_process(self) -> None:
        """Refuse a second store in this process, without opening the file: closing it would release SQLite's locks
        of the first."""
        with suppress(FileNotFoundError):
            found = os.stat(self._path)
            for other in list(_held):
                if isinstance(other, DatabaseLock) and os.path.samestat(os.fstat(other.descriptor), found):
                    raise self._in_use(f"process {os.getpid()}", found)

    def _in_use(self, who: str, found: os.stat_result) -> StorageError:
        how = f", by one of its {found.st_nlink} names" if found.st_nlink > 1 else ""
        return StorageError(f"{self._path} is in use by {who}{how}")

    def keep_from_merging(self) -> None:
        """From now on SQLite neither merges the log into the file when it is closed, nor deletes the log.

        It does both by name, and only if no other connection reads the file; so one does.
        """
        with suppress(OSError):
            _lock_bytes(self.descriptor, fcntl.F_RDLCK, _SQLITE_SHARED_BYTES)

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            _held.discard(self)


def _lock_bytes(descriptor: int, kind: int, place: tuple[int, int]) -> None:
    """Lock some bytes of an open file; raises BlockingIOError if another process has them.

    Does nothing on systems without such locks.
    """
    if _SET_LOCK is None:
        return
    start, length = place
    if sys.platform == "darwin":
        request = struct.pack("qqihh", start, length, 0, kind, os.SEEK_SET)
    else:
        request = struct.pack("hhqqi0q", kind, os.SEEK_SET, start, length, 0)
    try:
        fcntl.fcntl(descriptor, _SET_LOCK, request)
    except PermissionError as error:  # some systems report this for a lock that another process has
        raise BlockingIOError(error.errno, error.strerror) from error
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise


_held: WeakSet[FileLock | DatabaseLock] = WeakSet()


def _release_in_child() -> None:
    """Close inherited descriptors in a forked child: a lock lasts until every copy of its descriptor is closed."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_release_in_child)
