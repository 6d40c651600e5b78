"""`back_up_database`: copies the SQLite database of a store or job log, also while its server writes to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from switchgear.errors import StorageError

__all__ = ["back_up_database"]

PAGES: Final = 1_000  # copied between two calls of `show`
LOCKED_SECONDS: Final = 30.0


def back_up_database(source: Path, target: Path, show: Callable[[int, int], None]) -> int:
    """Copy all that is stored at this moment to a new file, and return the size of the file in bytes.

    `show` is called with the number of copied bytes, and of all. What the server writes meanwhile is
    not in the copy, and stays in its write-ahead log until the copy is complete. The file appears under its name when
    it is complete and on disk. Raises StorageError.
    """
    if not source.is_file():
        raise StorageError(f"{source}: there is no such file")
    if target.exists():
        raise StorageError(f"{target}: the file exists; backups are written to new files")
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        unfinished.unlink(missing_ok=True)
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            with (
                closing(
                    sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True, timeout=LOCKED_SECONDS)
                ) as db,
                closing(sqlite3.connect(unfinished)) as copy,
            ):
                # One transaction reads one state of the database, however long that takes.
                db.isolation_level = None
                db.execute("BEGIN")
                (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
                db.execute("SELECT count(*) FROM sqlite_master").fetchone()
                db.backup(
                    copy,
                    pages=PAGES,
                    progress=lambda _, left, total: show((total - left) * page_bytes, total * page_bytes),
                )
                db.execute("ROLLBACK")
            with unfinished.open("rb+") as file:
                os.fsync(file.fileno())
            os.link(unfinished, target)  # which refuses to replace a file that has come meanwhile
        finally:
            unfinished.unlink(missing_ok=True)
        folder = os.open(target.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except (sqlite3.Error, OSError) as error:
        raise StorageError(f"cannot back up {source} to {target}: {error}") from None
    return target.stat().st_size
