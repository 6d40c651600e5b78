"""Checks who owns the files of a store: files that another user can write must not become jobs of this server."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from switchgear.errors import ConfigError

__all__ = ["check_database", "check_directory", "check_link", "is_open_to_others"]

# Files that SQLite and the lock make beside a database. A file of another user with such a name would be read as ours.
BESIDE_DATABASE: Final = ("", "-wal", "-shm", "-journal", ".lock")


def check_directory(directory: Path) -> None:
    """Raises ConfigError if another user can put files into this directory, and OSError if the directory does not
    exist."""
    found = os.stat(directory)
    _check_owner(directory, found)
    if found.st_mode & stat.S_IWOTH:
        raise ConfigError(
            f"{directory}: every user of this machine can write to this directory, and so give jobs to its programs;"
            f" if that is not wanted: chmod o-w {directory}"
        )


def check_link(path: Path) -> None:
    """Raises ConfigError if this is a symbolic link that another user has made."""
    try:
        found = os.lstat(path)
    except OSError:
        return
    if stat.S_ISLNK(found.st_mode):
        _check_owner(path, found)


def check_database(path: Path) -> None:
    """Raises ConfigError if another user owns, or can write to, a database or its directory."""
    check_link(path)
    path = path.resolve()
    try:
        _check_owner(path.parent, os.stat(path.parent))
    except FileNotFoundError:
        return  # the server will create the file
    except OSError:
        return  # opening the file fails with the reason
    for ending in BESIDE_DATABASE:
        _check_file(path.with_name(path.name + ending))


def is_open_to_others(path: Path) -> bool:
    """Whether every user can put files into the directory of a database, and replace those that are there."""
    try:
        mode = os.stat(path.resolve().parent).st_mode
    except OSError:
        return False
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _check_file(path: Path) -> None:
    try:
        found = os.lstat(path)
    except OSError:
        return
    _check_owner(path, found)
    if stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IWOTH:
        raise ConfigError(f"{path}: every user of this machine can write to this file; chmod o-w {path}")


def _check_owner(path: Path, found: os.stat_result) -> None:
    own = os.geteuid()
    if found.st_uid not in (own, 0):
        raise ConfigError(
            f"{path} belongs to another user (uid {found.st_uid}; this process runs as {own}), who could change what"
            " is in it; run as that user, or make it yours with chown"
        )
