"""`Database`: the base class of the job log's databases, with connections per process and transactions.

A `Database` is used by any thread. After a fork it is used by both processes: each has its own connection, because
neither SQLite nor PostgreSQL supports sharing one. An inherited connection is kept and never touched: closing it would
also end the parent's connection.
"""

from __future__ import annotations

import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from switchgear.errors import SchemaTooNew, StorageError
from switchgear.joblog.runs import COLUMNS, RunRow

__all__ = ["Answer", "Ask", "ConnectionLost", "Database", "Server", "read_migrations", "read_statements"]

Connection = TypeVar("Connection")
Result = TypeVar("Result")


class Answer(NamedTuple):
    """The result of a statement: its rows, and how many rows it changed."""

    rows: Sequence[tuple[Any, ...]]
    changed: int


Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Answer]  # runs one statement


class ConnectionLost(StorageError):
    """The connection cannot be used any more; a new one may work."""


class Server:
    """The server that writes rows: the prefix of its handles, its host and its process."""

    def __init__(self, prefix: str, host: str, process: str) -> None:
        self.prefix = prefix
        self.host = host
        self.process = process


class _ProcessConnection(Generic[Connection]):
    """The connection of one process, and the lock for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: Connection | None = None


class Database(ABC, Generic[Connection]):
    """Connects when it has to, and makes transactions."""

    url: str  # as a user would write it, without a password
    statements: Mapping[str, str]

    def __init__(self) -> None:
        self._links: dict[int, _ProcessConnection[Connection]] = {}  # by process
        self._closed = False

    def open(self) -> None:
        """Connect, and bring the layout up to date."""
        self._on_link(lambda connection: None)

    def do(self, work: Callable[[Ask], Result]) -> Result:
        """Run `work` in one transaction, and return its result; raises StorageError.

        A connection that broke while it was idle is replaced, so `work` may be called twice.
        """
        return self._on_link(lambda connection: self._transact(connection, work))

    def query(self, statement: str, values: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        """The rows of a reading statement, which does not block writers."""
        return self._on_link(lambda connection: self._query(connection, statement, values))

    def put(self, server: Server, rows: Sequence[RunRow]) -> None:
        """Insert or update the rows of a server's jobs in one transaction; no job may occur twice."""
        self._on_link(lambda connection: self._put(connection, server, rows))

    def close(self) -> None:
        """Close this process's connection, for good."""
        self._closed = True
        link = self._links.get(os.getpid())
        if link is not None:
            with link.lock:
                self._discard(link)

    def _on_link(self, use: Callable[[Connection], Result]) -> Result:
        link = self._links.get(os.getpid())
        if link is None:
            link = self._links.setdefault(os.getpid(), _ProcessConnection())
        with link.lock:
            was_connected = link.connection is not None
            try:
                return self._attempt(link, use)
            except ConnectionLost:
                if not was_connected:
                    raise
            return self._attempt(link, use)

    def _attempt(self, link: _ProcessConnection[Connection], use: Callable[[Connection], Result]) -> Result:
        if self._closed:
            raise StorageError(f"{self.url} is closed")
        if link.connection is None:
            link.connection = self._connect()
        try:
            return use(link.connection)
        except BaseException:
            # Whatever the error was, no broken transaction outlives its caller.
            self._discard(link)
            raise

    def _discard(self, link: _ProcessConnection[Connection]) -> None:
        connection, link.connection = link.connection, None
        if connection is not None:
            self._disconnect(connection)

    def _check_version(self, version: int, newest: int) -> None:
        if version > newest:
            raise SchemaTooNew(
                f"the job log {self.url} has layout version {version}, this program knows versions up to {newest}: "
                f"it was written by a later Switchgear"
            )

    @abstractmethod
    def _connect(self) -> Connection:
        """Connect, and migrate the schema to the newest version; raises StorageError."""

    @abstractmethod
    def _disconnect(self, connection: Connection) -> None:
        """Close a connection in any state."""

    @abstractmethod
    def _transact(self, connection: Connection, work: Callable[[Ask], Result]) -> Result:
        """Run the work in a transaction; raises ConnectionLost or StorageError for errors of the database."""

    @abstractmethod
    def _query(self, connection: Connection, statement: str, values: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        """Run `query` on this connection."""

    @abstractmethod
    def _put(self, connection: Connection, server: Server, rows: Sequence[RunRow]) -> None:
        """Run `put` on this connection."""


def read_migrations(dialect: str) -> dict[int, str]:
    """The migration script for each version of the schema."""
    scripts = {}
    for file in resources.files(__package__).joinpath("sql", dialect).iterdir():
        numbered = re.fullmatch(r"(\d{3})_\w+\.sql", file.name)
        if numbered:
            scripts[int(numbered[1])] = file.read_text(encoding="utf-8")
    return dict(sorted(scripts.items()))


def read_statements(dialect: str) -> dict[str, str]:
    """The SQL statements by name: those for all databases, and those for one."""
    folder = resources.files(__package__).joinpath("sql")
    columns = ", ".join(COLUMNS)
    statements: dict[str, str] = {}
    for file in (folder.joinpath("statements.sql"), folder.joinpath(dialect, "statements.sql")):
        parts = re.split(r"^-- name: (\w+)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            statements[name] = body.strip().replace("$columns", columns)
    return statements
