"""Checks that the files that SQLite has open are those that a restart would find.

A file that is deleted, moved or replaced stays open. SQLite continues to write to it, every commit succeeds, and
everything is lost with the process. So a store checks its files before and after every commit: nothing is acknowledged
that a restart would not find.

Checks. The database by both its names (the one that the user gave, and the one that it resolves to), its log (`-wal`)
and the log's index (`-shm`) must be the files that were opened. The log must be as long as its index says, and begin
with the header that the index knows: otherwise it was cut off. Only checkpoints write to the database, and they leave a
trace in the index; if it was written and there is no trace, another program has written it, such as `cp backup.db
jobs.db`. The index is laid out as https://www.sqlite.org/walformat.html says.

Not detected: changed bytes within the log; a copy over the database with the same length, and equal in all compared
pages.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from switchgear.errors import StorageError
from switchgear.storage.lockfile import DatabaseLock

__all__ = ["LogFileLost", "StoreFiles"]

INDEX_BYTES: Final = 136  # its header, a copy of that, and the state of checkpoints
INDEX_HEADER_BYTES: Final = 48
PAGE_SIZE: Final = struct.Struct("=14xH")  # 1: 65536
FRAME_COUNT: Final = struct.Struct("=16xI")
PAGE_COUNT: Final = struct.Struct("=20xI")
MERGED_COUNTS: Final = struct.Struct("=96xI28xI")  # frames that a checkpoint has merged, and is about to merge
SALTS: Final = slice(32, 40)  # changed whenever the log starts anew
LOG_HEADER_BYTES: Final = 32
LOG_SALTS: Final = slice(16, 24)
LOG_MAGIC: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
FRAME_HEADER_BYTES: Final = 24

# If the database was written without a checkpoint, this many pages are compared with their earlier contents, to
# distinguish a copy from a mere `touch`.
SAMPLED_PAGES: Final = 32
SAMPLE_BYTES: Final = 4096


class LogFileLost(StorageError):
    """The log, or its index, was moved or deleted. SQLite still has it open, and can merge it into the database."""


class _Seen(NamedTuple):
    """The state of the database after the last checkpoint."""

    size_bytes: int
    mtime_ns: int
    checkpoints: tuple[bytes, int, int]  # the log's salts, frames merged, frames to be merged
    sample: int


class StoreFiles:
    """The files of one open store, checked in the event loop's thread.

    In the writer's thread each of these calls would release the interpreter lock, and wait for the event loop to return
    it.
    """

    def __init__(self, given: Path, path: Path, lock: DatabaseLock) -> None:
        """`given` resolves to `path`, the database, perhaps through links."""
        # Strings: the files are checked twice in every commit, and a Path costs as much as the system call.
        self._path = str(path)
        self._given = str(given) if given != path else None
        self._log_path = f"{path}-wal"
        self._index_path = f"{path}-shm"
        self._lock = lock
        self._database = self._log_file = self._index_file = (0, 0)  # device and inode
        self._log = self._index = -1
        self._seen: _Seen | None = None
        self._checked_bytes = -1  # the length of the log when all was found in order; -1: it was not
        self._damage = ""

    def begin(self) -> None:
        """Remember the files that SQLite has just opened; raises StorageError or OSError."""
        self._database = _identity(os.fstat(self._lock.descriptor))
        self._log = os.open(self._log_path, os.O_RDONLY)
        self._index = os.open(self._index_path, os.O_RDONLY)
        self._log_file = _identity(os.fstat(self._log))
        self._index_file = _identity(os.fstat(self._index))
        self._seen = None
        self.check()

    def end(self) -> None:
        """Forget the files. SQLite must have closed them all: closing one here releases its locks."""
        for descriptor in (self._log, self._index):
            if descriptor >= 0:
                os.close(descriptor)
        self._log = self._index = -1
        self._log_file = self._index_file = (0, 0)

    def check(self) -> None:
        """Raise StorageError if a restart would not find the present commit; LogFileLost if that can be repaired."""
        self._checked_bytes = -1
        if self._damage:
            raise StorageError(self._damage)
        database, log = self.check_names()
        try:
            index = os.pread(self._index, INDEX_BYTES, 0)
            if len(index) == INDEX_BYTES:
                self._check_log(index, log.st_size)
                self._check_written(database, index)
        except OSError as error:
            raise StorageError(f"the files of {self._path} cannot be read: {error.strerror}") from error
        self._checked_bytes = log.st_size

    def is_log_unchanged(self) -> bool:
        """Whether the last check found everything in order, and the log is as long as it was then."""
        return self._checked_bytes >= 0 and os.fstat(self._log).st_size == self._checked_bytes

    def check_names(self) -> tuple[os.stat_result, os.stat_result]:
        """The states of the database and its log, if they are still in place; otherwise raises the same errors. For
        any thread."""
        database = self._check_database()
        log = self._stat(self._log_path)
        if log is None or _identity(log) != self._log_file:
            raise LogFileLost(f"{self._log_path}, the log of the store, was deleted or replaced while in use")
        index = self._stat(self._index_path)
        if index is None or _identity(index) != self._index_file:
            raise LogFileLost(f"{self._index_path}, the index of the store's log, was deleted or replaced while in use")
        return database, log

    @property
    def is_damaged(self) -> bool:
        """Whether the log and the database no longer belong together, so that they must not be merged."""
        return bool(self._damage)

    def _check_database(self) -> os.stat_result:
        found = self._stat(self._path)
        if found is None or _identity(found) != self._database:
            raise StorageError(self._what_happened(found))
        if self._given is not None:
            try:
                led_to = os.stat(self._given)
            except OSError:
                led_to = None
            if led_to is None or _identity(led_to) != self._database:
                raise StorageError(
                    f"{self._given} does not lead to the store's file {self._path} any more: a restart would not find"
                    " its jobs; let it lead there again, and the server continues by itself"
                )
        return found

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StorageError(f"the store's file {path} cannot be looked at: {error.strerror}") from error

    def _what_happened(self, found: os.stat_result | None) -> str:
        was_deleted = not os.fstat(self._lock.descriptor).st_nlink
        text = f"the store's file {self._path} is gone: it was {'deleted' if was_deleted else 'moved'} while in use"
        if found is not None:
            text += ", and another one is in its place"
        if was_deleted:
            return text + "; what this server has kept in it is lost when the server ends"
        return text + "; put it back, and work goes on by itself"

    def _check_log(self, index: bytes, log_bytes: int) -> None:
        if self._is_log_whole(index, log_bytes):
            return
        # The log may have grown between the two checks. So check once more, in the order in which it grows.
        index = os.pread(self._index, INDEX_BYTES, 0)
        is_whole = self._is_log_whole(index, os.fstat(self._log).st_size)
        if not is_whole and os.pread(self._index, INDEX_BYTES, 0) == index:
            self._damage = (
                f"{self._log_path}, the log of the store, was cut off or overwritten by another program: what was kept"
                " last is lost; stop the server, and start it again with what is left"
            )
            self._lock.keep_from_merging()
            raise StorageError(self._damage)

    def _is_log_whole(self, index: bytes, log_bytes: int) -> bool:
        """Whether the log is as long as its index says, and has the right header."""
        (frames,) = FRAME_COUNT.unpack_from(index)
        if not frames or index[:INDEX_HEADER_BYTES] != index[INDEX_HEADER_BYTES : 2 * INDEX_HEADER_BYTES]:
            return True  # it is empty, or being written
        if log_bytes < LOG_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + _page_bytes(index)):
            return False
        header = os.pread(self._log, LOG_HEADER_BYTES, 0)
        return header[:4] in LOG_MAGIC and header[LOG_SALTS] == index[SALTS]

    def _check_written(self, database: os.stat_result, index: bytes) -> None:
        """Raise StorageError if another program wrote to the database. `database` was read before `index`: a
        checkpoint leaves its trace before it writes."""
        checkpoints = _checkpoints(index)
        _, merged, to_merge = checkpoints
        is_merging = merged != to_merge
        seen = self._seen
        if seen is not None and checkpoints == seen.checkpoints:
            if database.st_mtime_ns == seen.mtime_ns and database.st_size == seen.size_bytes:
                return
            if not is_merging and (database.st_size != seen.size_bytes or self._sample(database) != seen.sample):
                raise self._overwritten()
        now = os.fstat(self._lock.descriptor)
        self._seen = _Seen(now.st_size, now.st_mtime_ns, checkpoints, self._sample(now))
        if is_merging or os.pread(self._index, INDEX_BYTES, 0) != index:
            self._seen = None  # not at rest: the next check decides
        elif merged == FRAME_COUNT.unpack_from(index)[0] > 0 and now.st_size < _database_bytes(index):
            raise self._overwritten()  # after the checkpoint

    def _overwritten(self) -> StorageError:
        self._damage = (
            f"the store's file {self._path} was overwritten while in use, and not by SQLite; stop the server before a"
            f" copy is restored, and delete {os.path.basename(self._log_path)} and"
            f" {os.path.basename(self._index_path)}, which do not belong to the copy"
        )
        self._lock.keep_from_merging()
        return StorageError(self._damage)

    def _sample(self, database: os.stat_result) -> int:
        """A checksum of some pages: the first, and others at equal distances."""
        step = max(1, database.st_size // SAMPLE_BYTES // SAMPLED_PAGES) * SAMPLE_BYTES
        checksum = 0
        for offset in range(0, database.st_size, step):
            checksum = zlib.crc32(os.pread(self._lock.descriptor, SAMPLE_BYTES, offset), checksum)
        return checksum


def _identity(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


def _page_bytes(index: bytes) -> int:
    (size,) = PAGE_SIZE.unpack_from(index)
    return 65536 if size == 1 else int(size)


def _database_bytes(index: bytes) -> int:
    """The length of the database after the whole log is merged into it."""
    return int(PAGE_COUNT.unpack_from(index)[0]) * _page_bytes(index)


def _checkpoints(index: bytes) -> tuple[bytes, int, int]:
    merged, to_merge = MERGED_COUNTS.unpack_from(index)
    return index[SALTS], merged, to_merge
