"""`prefix`: the file with the handle prefix of an embedded directory, which no other directory has."""

from __future__ import annotations

import os
import re
import secrets
import string
from pathlib import Path
from typing import Final

from switchgear.errors import StorageError

__all__ = ["handle_prefix"]

_NAME: Final = "prefix"
# Not the host's name: the directory may outlive it, as in a container, and handles must stay good.
_BASE: Final = "H:embedded"
_CHARACTERS: Final = string.ascii_lowercase + string.digits
_LENGTH: Final = 6
_FORM: Final = re.compile(r"H:embedded(-[a-z0-9]+)?")


def handle_prefix(directory: Path, store_name: str) -> str:
    """The prefix of this directory, made with the directory and the same for every owner.

    Only for the holder of the owner's lock.  A store without this file is one from before there were such prefixes, and
    its handles stay what they were.  Raises OSError, or StorageError if the file holds something else.
    """
    path = directory / _NAME
    try:
        prefix = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        if (directory / store_name).exists():
            return _BASE
        prefix = f"{_BASE}-{''.join(secrets.choice(_CHARACTERS) for _ in range(_LENGTH))}"
        _write(path, prefix)
    if not _FORM.fullmatch(prefix):
        raise StorageError(f"{path}: {prefix[:80]!r} is not a prefix of handles, such as {_BASE}-k3v9qd")
    return prefix


def _write(path: Path, prefix: str) -> None:
    """Write and sync the file before there is a store: handles must not change, even if the power fails."""
    new = path.with_name(f"{_NAME}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(f"{prefix}\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
