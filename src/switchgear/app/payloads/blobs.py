"""Blob stores: where large payloads and results are kept, beside the server; and one in a directory."""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from hashlib import sha256
from pathlib import Path
from typing import Final

__all__ = ["BlobStore", "DirectoryBlobs", "blob_name"]

_NAME: Final = re.compile(r"[0-9a-f]{64}")


def blob_name(data: bytes) -> str:
    """The name of a blob: what is in it, hashed; so equal blobs are stored once, and a damaged one is noticed."""
    return sha256(data).hexdigest()


class BlobStore(ABC):
    """Keeps blobs under the names that `blob_name` gives them.  Its methods may be called from any thread."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Store a blob; durable when it returns."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """The blob of this name; raises KeyError."""

    @abstractmethod
    def delete_older(self, seconds: float) -> int:
        """Delete the blobs that were stored longer ago than this; returns how many."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Disconnect; it connects again when it is used again."""


class DirectoryBlobs(BlobStore):
    """Blobs as files of a directory that all programs and workers of an app can reach."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def __repr__(self) -> str:
        return f"DirectoryBlobs({str(self.directory)!r})"

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        if path.exists():
            os.utime(path)  # as if stored now
            return
        import tempfile  # few apps store blobs

        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
        _sync_directory(path.parent)

    def get(self, name: str) -> bytes:
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            raise KeyError(name) from None

    def delete_older(self, seconds: float) -> int:
        limit = time.time() - seconds
        deleted = 0
        for path in self.directory.glob("??/*"):
            try:
                if path.stat().st_mtime < limit:
                    path.unlink()
                    deleted += 1
            except FileNotFoundError:
                continue  # another program was faster
        return deleted

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):  # it comes from a payload, which anybody may have written
            raise KeyError(name)
        return self.directory / name[:2] / name


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
