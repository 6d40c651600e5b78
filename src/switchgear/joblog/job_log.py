"""`JobLog`: registers the runs of workers, and queries the log."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Self, TypedDict, Unpack

from switchgear.errors import ConfigError, StorageError
from switchgear.joblog.audit import AuditEntry, AuditQuery, LoggedAudit, put_all
from switchgear.joblog.database import Ask, Database, Server
from switchgear.joblog.postgres import PostgresDatabase
from switchgear.joblog.runs import (
    LONGEST_NAME,
    FunctionSummary,
    LoggedRun,
    RegisteredTask,
    RunQuery,
    RunRow,
    TaskResult,
    microseconds,
    readable,
    result_fields,
    run_from_row,
    summary_from_row,
)
from switchgear.joblog.sqlite import SqliteDatabase
from switchgear.text import without_secrets

__all__ = ["JobLog"]


class Filters(TypedDict, total=False):
    """The filters of a query; see `RunQuery`."""

    function: str
    key: str
    handle: str
    host: str
    since: float | datetime
    until: float | datetime
    before_id: int
    limit: int


class SummaryFilters(TypedDict, total=False):
    """The filters of a summary."""

    function: str
    key: str
    host: str
    since: float | datetime
    until: float | datetime


class JobLog:
    """A log of runs in a database.

    One object serves any number of threads, and goes on to serve both processes after a fork.  Every method raises
    StorageError if the database cannot be used.
    """

    def __init__(self, database: Database[Any]) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Self:
        """The log at `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`, created if missing.

        Raises ConfigError for an invalid URL, and SchemaTooNew for a log that a later version has written.
        """
        log = cls(_database_at(url, create))
        log.connect()
        return log

    @classmethod
    def later(cls, url: str) -> Self:
        """Like `open`, but the database is opened at the first use."""
        return cls(_database_at(url, create=True))

    @property
    def url(self) -> str:
        """The URL of the log, without a password."""
        return self._database.url

    def connect(self) -> None:
        """Connect and migrate the schema now, and not at the first use."""
        self._database.open()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- registering ---

    def register_start_task(self, task: str | RegisteredTask, time: float | datetime | None = None) -> RegisteredTask:
        """Register the start of a task: now, or at `time` (seconds since the epoch, or a datetime).

        `task` is a function's name, a job's handle, or a `RegisteredTask`.  Returns a `RegisteredTask` by which the
        result can be registered from anywhere; by name it is registered for the last start under that name that has no
        result yet.
        """
        task = RegisteredTask.named(task) if isinstance(task, str) else task
        values = {**_identity(task), "process": _process(), "at_us": microseconds(time)}
        self._database.do(lambda ask: ask(self._database.statements["start_task"], values))
        return task

    def register_task_result(
        self, task: str | RegisteredTask, time: float | datetime | None = None, result: TaskResult = None
    ) -> None:
        """Register the end of a task: now, or at `time`.

        `result` is None, a code of 0, or bytes or text to be noted, for success; another code, or an exception, for a
        failure.
        """
        named = RegisteredTask.named(task) if isinstance(task, str) else task
        values = {
            **_identity(named),
            **result_fields(result),
            "process": _process(),
            "at_us": microseconds(time),
        }
        statements = self._database.statements

        def end(ask: Ask) -> None:
            if isinstance(task, str):
                names = ("handle", "function", "unique_key", "process", "host")
                for found in ask(statements["newest_open"], {name: values[name] for name in names}).rows:
                    values.update(zip(("handle", "host", "run"), found, strict=True))
            ask(statements["end_task"], values)

        self._database.do(end)

    @contextmanager
    def task(self, function: str, *, key: str = "", handle: str = "") -> Iterator[RegisteredTask]:
        """Register the start and the end of the context; an exception is registered as its error, and propagates."""
        task = self.register_start_task(RegisteredTask(function, key, handle))
        try:
            yield task
        except BaseException as error:
            with suppress(StorageError):  # the first error is the important one
                self.register_task_result(task, result=error)
            raise
        self.register_task_result(task)

    # --- queries ---

    def find(self, query: RunQuery) -> list[LoggedRun]:
        """Runs that match, newest first."""
        where, values = query.conditions()
        statement = self._database.statements["find"].replace("$where", where)
        rows = self._database.query(statement, {**values, "limit": query.limit})
        return [run_from_row(row) for row in rows]

    def spread(self, since: float, until: float, limit: int) -> tuple[list[LoggedRun], int]:
        """Some `limit` runs that started in a time, newest first, evenly spread; and every how manieth it is."""
        bounds = {"since_us": microseconds(since), "until_us": microseconds(until)}
        ids = [
            int(row[0])
            for name, bound in (("first_since", "since_us"), ("last_until", "until_us"))
            for row in self._database.query(self._database.statements[name], {bound: bounds[bound]})
        ]
        # Runs are numbered nearly in the order of their starts, so this is about how many there are.
        about = max(ids) - min(ids) + 1 if ids else 0
        every = max(1, -(-about // limit))
        return self.find(RunQuery(since=since, until=until, limit=2 * limit, every=every)), every

    def pages(self, query: RunQuery) -> Iterator[LoggedRun]:
        """All runs that match, newest first, read `limit` at a time."""
        while found := self.find(query):
            yield from found
            if len(found) < query.limit:
                return
            query = replace(query, before_id=found[-1].id)

    def ran(self, **filters: Unpack[Filters]) -> list[LoggedRun]:
        """Runs that have started, with their durations (`LoggedRun.seconds`)."""
        return self.find(RunQuery(**filters))

    def failures(self, **filters: Unpack[Filters]) -> list[LoggedRun]:
        """Runs that have failed, with their errors."""
        return self.find(RunQuery(outcome="failed", **filters))

    def unfinished(self, **filters: Unpack[Filters]) -> list[LoggedRun]:
        """Runs that have started and not ended."""
        return self.find(RunQuery(outcome="unfinished", **filters))

    def summary(self, **filters: Unpack[SummaryFilters]) -> list[FunctionSummary]:
        """Counts and durations for each function, by name."""
        return self.summarize(RunQuery(**filters))

    def summarize(self, query: RunQuery) -> list[FunctionSummary]:
        """`summary` of the runs that match, however many there are."""
        where, values = query.conditions()
        statement = self._database.statements["summary"].replace("$where", where)
        rows = self._database.query(statement, values)
        return sorted(map(summary_from_row, rows), key=lambda summary: summary.function)

    # --- the audit log ---

    def find_audit(self, query: AuditQuery) -> list[LoggedAudit]:
        """Entries of the audit log that match, newest first."""
        rows = self._database.query(self._database.statements["find_audit"], query.values())
        return [LoggedAudit.from_row(tuple(row)) for row in rows]

    def put_audit(self, host: str, entries: Sequence[AuditEntry]) -> None:
        """Write entries of the audit log, all or none."""
        statement = self._database.statements["put_audit"]
        self._database.do(lambda ask: put_all(ask, statement, host, entries))

    def audit_drop_bound(self, before_us: int, keep_count: int) -> int:
        """The time before which entries of the audit log are to be dropped, by their age or for their number."""
        return self._bound("oldest_audit_to_keep", before_us, keep_count)

    def drop_audit(self, before_us: int, limit: int) -> int:
        """Delete up to `limit` entries of the audit log before this time, the oldest first; returns how many."""
        return self._drop("drop_audit", before_us, limit)

    # --- for servers ---

    def put(self, server: Server, rows: Sequence[RunRow]) -> None:
        """Write the rows of a server's jobs."""
        self._database.put(server, rows)

    def drop_bound(self, before_us: int, keep_count: int) -> int:
        """The time before which runs are to be dropped, by their age or for their number."""
        return self._bound("oldest_to_keep", before_us, keep_count)

    def drop(self, before_us: int, limit: int) -> int:
        """Delete up to `limit` runs before this time, the oldest first; returns how many."""
        return self._drop("drop", before_us, limit)

    def _bound(self, statement_name: str, before_us: int, keep_count: int) -> int:
        newest = self._database.query(self._database.statements[statement_name], {"keep_count": keep_count})
        return max([before_us, *(int(row[0]) + 1 for row in newest)])

    def _drop(self, statement_name: str, before_us: int, limit: int) -> int:
        statement = self._database.statements[statement_name]
        values = {"before_us": before_us, "limit": limit}
        changed: int = self._database.do(lambda ask: ask(statement, values).changed)
        return changed


def _database_at(url: str, create: bool) -> Database[Any]:
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite":
        return SqliteDatabase.at(rest, create=create)
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        return PostgresDatabase(url, create=create)
    raise ConfigError(f"job log {without_secrets(url)!r}: expected sqlite:PATH or postgresql://USER@HOST/DATABASE")


def _identity(task: RegisteredTask) -> dict[str, str]:
    return {
        "function": readable(task.function, LONGEST_NAME),
        "unique_key": readable(task.key, LONGEST_NAME),
        "handle": readable(task.handle, LONGEST_NAME),
        "host": readable(task.host, LONGEST_NAME),
        "run": readable(task.id, LONGEST_NAME),
    }


def _process() -> str:
    return f"{os.getpid()}/{threading.get_native_id()}"
