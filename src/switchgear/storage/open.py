"""Opens the store that a URL names, such as `sqlite:PATH`, `postgresql://HOST/DATABASE` or `memory:`."""

from __future__ import annotations

from pathlib import Path
from typing import Final, get_args

from switchgear.errors import ConfigError
from switchgear.postgresql import is_postgresql
from switchgear.storage.base import Store
from switchgear.storage.memory import DEFAULT_KEEP_COUNT, MemoryStore
from switchgear.storage.sqlite import DEFAULT_PAYLOAD_MEMORY_BYTES, SqliteStore
from switchgear.storage.sqlite_schema import Sync
from switchgear.text import without_secrets

__all__ = ["open_store"]

KNOWN_URLS: Final = "memory:, sqlite:PATH or postgresql://USER@HOST/DATABASE"


def open_store(
    url: str,
    *,
    sync: Sync = "full",
    payload_memory_bytes: int = DEFAULT_PAYLOAD_MEMORY_BYTES,
    keep_count: int = DEFAULT_KEEP_COUNT,
    make_directory: bool = False,
) -> Store:
    """Open the store that the URL names; `keep_count` applies to the one in memory, the others to the one on disk.

    With `make_directory` the directory of the file is created if missing, for its owner only.

    Raises ConfigError for an invalid URL, and StorageError for a store that cannot be used.
    """
    if sync not in get_args(Sync):
        raise ConfigError(f"store sync {sync!r}: expected full or normal")
    store = _store_at(url, sync, payload_memory_bytes, keep_count, make_directory)
    store.open()
    return store


def _store_at(url: str, sync: Sync, payload_memory_bytes: int, keep_count: int, make_directory: bool) -> Store:
    if is_postgresql(url):
        from switchgear.storage.postgres import PostgresStore

        return PostgresStore(url, payload_memory_bytes)
    scheme, colon, place = url.partition(":")
    if not colon or scheme not in ("memory", "sqlite"):
        raise ConfigError(f"store {without_secrets(url)!r}: expected {KNOWN_URLS}")
    if scheme == "memory":
        if place:
            raise ConfigError(f"store {url!r}: memory: takes nothing after the colon")
        return MemoryStore(keep_count)
    if not place:
        raise ConfigError(f"store {url!r}: expected the path of a file after sqlite:")
    if place.startswith("//"):
        # In other programs the number of slashes distinguishes relative from absolute paths; guessing would misplace
        # jobs.
        raise ConfigError(f"store {url!r}: expected a plain path after sqlite:, as in sqlite:{place.lstrip('/')}")
    if place == ":memory:":
        raise ConfigError(f"store {url!r}: write memory: for a store that is not kept")
    try:
        return SqliteStore(Path(place).expanduser(), sync, payload_memory_bytes, make_directory=make_directory)
    except (RuntimeError, ValueError) as error:  # no such home directory, or a NUL in the path
        raise ConfigError(f"store {url!r}: {error}") from None
