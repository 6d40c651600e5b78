"""Where a job log may be, and what it says where it may not."""

from __future__ import annotations

import sqlite3
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from switchgear.errors import ConfigError, SchemaTooNew, StorageError
from switchgear.joblog import JobLog
from switchgear.joblog.database import Database
from switchgear.joblog.postgres import MIGRATION_LOCK, PostgresDatabase
from switchgear.joblog.postgres import MIGRATIONS as POSTGRES_MIGRATIONS
from switchgear.joblog.runs import LoggedStart
from switchgear.joblog.sqlite import MIGRATIONS as SQLITE_MIGRATIONS
from switchgear.joblog.sqlite import SqliteDatabase
from tests.joblog.support import put, row
from tests.support.postgres import Cluster
from tests.support.waiting import eventually

NEXT = max(SQLITE_MIGRATIONS) + 1
CHANGE = "ALTER TABLE joblog_runs ADD COLUMN mood TEXT NOT NULL DEFAULT 'fine';\nCREATE TABLE other (id INTEGER);"


def later_version(url: str) -> Database[object]:
    """The database as a program knows it whose layout is one version further."""
    if url.startswith("sqlite:"):
        path = Path(url.removeprefix("sqlite:"))
        return SqliteDatabase(path, migrations={**SQLITE_MIGRATIONS, NEXT: CHANGE})  # type: ignore[return-value]
    return PostgresDatabase(url, migrations={**POSTGRES_MIGRATIONS, NEXT: CHANGE})  # type: ignore[return-value]


def test_both_databases_have_the_same_versions() -> None:
    assert SQLITE_MIGRATIONS.keys() == POSTGRES_MIGRATIONS.keys()


def test_a_log_is_found_again(url: str) -> None:
    with JobLog.open(url) as log:
        put(log, row(1))
    with JobLog.open(url, create=False) as log:
        assert len(log.ran()) == 1


def test_an_older_layout_is_brought_up_to_date(url: str) -> None:
    with JobLog.open(url) as log:
        put(log, row(1))
    with JobLog(later_version(url)) as log:
        rows = log._database.query("SELECT handle, mood FROM joblog_runs", {})
        assert [tuple(found) for found in rows] == [("H:here:1", "fine")]
        put(log, row(2))
        assert len(log.ran()) == 2


def first_version(url: str) -> Database[object]:
    """The database as the first version knew it."""
    if url.startswith("sqlite:"):
        path = Path(url.removeprefix("sqlite:"))
        return SqliteDatabase(path, migrations={1: SQLITE_MIGRATIONS[1]})  # type: ignore[return-value]
    return PostgresDatabase(url, migrations={1: POSTGRES_MIGRATIONS[1]})  # type: ignore[return-value]


def test_runs_of_the_first_layout_stay_and_new_ones_name_their_workers(url: str) -> None:
    columns = "submitted_us, started_us, ended_us, at_us, attempts, result_code, source, state, function, unique_key"
    texts = "handle, run, host, process, origin, protocol, error, result"
    old = JobLog(first_version(url))
    old.connect()
    old._database.do(
        lambda ask: ask(
            f"INSERT INTO joblog_runs ({columns}, {texts}) VALUES (1, 2, 3, 2, 1, 0, 'server', 'done', 'f', '',"
            " :handle, '', 'here', '1', '', 'gearman', '', '')",
            {"handle": "H:here:1"},
        )
    )
    old.close()
    with JobLog.open(url) as log:
        (run,) = log.ran()
        assert (run.handle, run.worker, run.worker_host, run.starts, run.trace) == ("H:here:1", "", "", (), "")
        put(log, row(2, worker="w1", worker_host="::1", starts="5\tgearman\tw1\t::1\n", trace="00-a"))
        put(log, row(2, worker="", starts=""))  # its end, from a server that has forgotten the worker
        (run,) = log.ran(handle="H:here:2")
        assert (run.worker, run.worker_host, run.trace) == ("w1", "::1", "00-a")
        assert run.starts == (LoggedStart(0.000005, "gearman", "w1", "::1"),)
        rows = log._database.query("SELECT worker, trace FROM joblog WHERE handle = :handle", {"handle": run.handle})
        assert [tuple(found) for found in rows] == [("w1", "00-a")]


def test_starts_are_added_each_once_and_of_very_many_the_last_are_kept(url: str) -> None:
    with JobLog.open(url) as log:
        for number in range(1, 1_000):
            put(log, row(1, at=1, worker="w", starts=f"{number}\tgearman\tworker {number}\t127.0.0.1\n"))
        put(log, row(1, at=1, worker="w", starts="999\tgearman\tworker 999\t127.0.0.1\n"))
        (run,) = log.ran()
    names = [start.worker for start in run.starts]
    assert names == [f"worker {number}" for number in range(1_000 - len(names), 1_000)]
    assert 100 < len(names) < 999


def test_a_newer_layout_is_refused(url: str) -> None:
    with JobLog(later_version(url)) as log:
        log.connect()
    with pytest.raises(SchemaTooNew, match=f"has layout version {NEXT}, this program knows versions up to {NEXT - 1}"):
        JobLog.open(url)


def test_asking_makes_no_log(url: str) -> None:
    with pytest.raises(StorageError, match="there is no job log"):
        JobLog.open(url, create=False)
    with pytest.raises(StorageError, match="there is no job log"):
        JobLog.open(url, create=False)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("", "expected sqlite:PATH or postgresql://"),
        ("memory:", "expected sqlite:PATH or postgresql://"),
        ("postgresql:jobs", "expected sqlite:PATH or postgresql://"),
        ("sqlite:", "expected the path of a file"),
        ("sqlite:///x.db", "expected a plain path after sqlite:, as in sqlite:x.db"),
        ("sqlite::memory:", "it has to be a file"),
        ("sqlite:~nobody-here/x.db", "home"),
        ("postgresql://jobs@h/x?nonsense=1", "nonsense"),
    ],
)
def test_a_url_that_makes_no_sense(url: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        JobLog.open(url)


# --- a file ---


def test_only_its_owner_can_read_the_file(tmp_path: Path) -> None:
    with JobLog.open(f"sqlite:{tmp_path / 'deep' / 'er' / 'log.db'}") as log:
        put(log, row(1))
        files = list((tmp_path / "deep" / "er").iterdir())
        assert len(files) == 3
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_file_that_is_something_else(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("This is not a database. " * 100, encoding="utf-8")
    with pytest.raises(StorageError, match="cannot be used as a job log"):
        JobLog.open(f"sqlite:{text}")
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE x (y)")
    with pytest.raises(StorageError, match="is a database, but not a job log"):
        JobLog.open(f"sqlite:{tmp_path / 'other.db'}")
    with pytest.raises(StorageError, match="cannot be opened"):
        JobLog.open(f"sqlite:{text / 'below'}")
    (tmp_path / "empty.db").touch()
    with pytest.raises(StorageError, match="only an empty file"):
        JobLog.open(f"sqlite:{tmp_path / 'empty.db'}", create=False)


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced", "directory"])
def test_a_file_that_goes_while_it_is_written(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """What is written to it would be lost, and nobody would know."""
    path = tmp_path / "state" / "log.db"
    with JobLog.open(f"sqlite:{path}") as log:
        put(log, row(1))
        if how == "directory":
            path.parent.rename(tmp_path / "elsewhere")
        else:
            for file in path.parent.iterdir():
                file.rename(tmp_path / file.name) if how == "moved" else file.unlink()
            if how == "replaced":
                path.touch()
        put(log, row(2))
        put(log, row(3))
        with JobLog.open(f"sqlite:{path}", create=False) as reader:
            assert sorted(run.handle for run in reader.ran()) == ["H:here:2", "H:here:3"]
    assert caplog.text.count("was deleted or moved; logging continues in a new file") == 1


def test_a_question_waits_for_nobody(tmp_path: Path) -> None:
    """Neither does it keep anybody from writing."""
    path = tmp_path / "log.db"
    with JobLog.open(f"sqlite:{path}") as log, closing(sqlite3.connect(path, isolation_level=None)) as other:
        put(log, row(1))
        other.execute("BEGIN IMMEDIATE")
        assert len(log.ran()) == 1
        other.execute("COMMIT")


# --- PostgreSQL ---


@pytest.fixture
def log_in_postgres(postgres: Cluster) -> Iterator[JobLog]:
    with JobLog.open(postgres.new_url()) as log:
        yield log


@pytest.mark.xdist_group("postgresql")
def test_a_connection_that_broke_is_replaced(postgres: Cluster, log_in_postgres: JobLog) -> None:
    log = log_in_postgres
    task = log.register_start_task("mail")
    postgres.hang_up()
    log.register_task_result(task)
    postgres.hang_up()
    put(log, row(1))
    postgres.hang_up()
    assert [run.state for run in log.ran()] == ["done", "done"]


@pytest.mark.xdist_group("postgresql")
def test_a_database_that_is_away_is_an_error_until_it_is_back(postgres: Cluster, log_in_postgres: JobLog) -> None:
    log = log_in_postgres
    postgres.stop()
    try:
        for _ in range(2):
            with pytest.raises(StorageError, match="job log postgresql://"):
                log.register_start_task("mail")
    finally:
        postgres.start()
    log.register_start_task("mail")
    assert len(log.unfinished()) == 1


@pytest.mark.xdist_group("postgresql")
def test_whoever_comes_second_finds_the_tables_made(postgres: Cluster) -> None:
    """It has looked for them before, and then waited until the first was done."""
    url = postgres.new_url()
    waiting = b"SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with (
        psycopg.connect(url) as first,
        psycopg.connect(url, autocommit=True) as onlooker,
        ThreadPoolExecutor(1) as pool,
    ):
        first.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        second = pool.submit(JobLog.open, url)
        eventually(lambda: onlooker.execute(waiting).fetchone(), "the second waits")
        for script in POSTGRES_MIGRATIONS.values():
            first.execute(script.encode())
        first.execute("CREATE TABLE joblog_version AS SELECT %s AS version", (max(POSTGRES_MIGRATIONS),))
        first.commit()
        with second.result() as log:
            assert log.ran() == []


def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be reached"):
        JobLog.open(f"postgresql://jobs@/jobs?host={tmp_path}")


def test_without_psycopg_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"pip install 'switchgear\[postgres\]'"):
        JobLog.open("postgresql://jobs@localhost/jobs")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://jobs:hunter2@127.0.0.1:1/jobs",
        "postgresql://jobs:hunter2%zz@127.0.0.1:1/jobs",
        "postgresql://jobs@127.0.0.1:1/jobs?password=hunter2",
        "postgresql://jobs:hunter2@127.0.0.1:1/jobs?nonsense=1",
    ],
)
def test_a_password_is_not_shown(url: str) -> None:
    with pytest.raises((ConfigError, StorageError)) as caught:
        JobLog.open(url)
    assert "hunter2" not in str(caught.value)
