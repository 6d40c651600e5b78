"""`PostgresBlobs`: blobs in a table of PostgreSQL."""

from __future__ import annotations

import threading
from typing import Any, Final

from switchgear.app.payloads.blobs import BlobStore
from switchgear.errors import ConfigError

__all__ = ["PostgresBlobs"]

_CREATE: Final = """
    CREATE TABLE IF NOT EXISTS switchgear_blobs (
        name text PRIMARY KEY,
        data bytea NOT NULL,
        stored_at timestamptz NOT NULL DEFAULT now()
    )
"""
_PUT: Final = """
    INSERT INTO switchgear_blobs (name, data) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET stored_at = now()
"""
_GET: Final = "SELECT data FROM switchgear_blobs WHERE name = %s"
_DELETE: Final = "DELETE FROM switchgear_blobs WHERE stored_at < now() - make_interval(secs => %s)"


class PostgresBlobs(BlobStore):
    """Blobs as rows of the table `switchgear_blobs`, which is made if there is none."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise ConfigError("PostgresBlobs needs a package: pip install 'switchgear[postgres]'") from None
        self._psycopg = psycopg
        self._url = url
        self._connection: Any = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "PostgresBlobs(...)"  # the URL may have a password

    def put(self, name: str, data: bytes) -> None:
        self._execute(_PUT, (name, data))

    def get(self, name: str) -> bytes:
        row = self._execute(_GET, (name,), binary=True).fetchone()
        if row is None:
            raise KeyError(name)
        return bytes(row[0])

    def delete_older(self, seconds: float) -> int:
        return int(self._execute(_DELETE, (seconds,)).rowcount)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _execute(self, statement: str, values: tuple[Any, ...], *, binary: bool = False) -> Any:
        with self._lock:
            try:
                return self._connected().execute(statement, values, binary=binary)
            except self._psycopg.OperationalError:  # the connection was lost; once more with another
                self._connection = None
                return self._connected().execute(statement, values, binary=binary)

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = self._psycopg.connect(self._url, autocommit=True)
            self._connection.execute(_CREATE)
        return self._connection
