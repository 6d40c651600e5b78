"""The store in an SQLite file: the file itself, its owner, its layout, and files that are no good."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from switchgear.errors import SchemaTooNew, StorageError
from switchgear.model import DONE, FAILED, WAITING
from switchgear.storage import sqlite, sqlite_schema
from switchgear.storage.base import JobQuery
from switchgear.storage.sqlite import SqliteStore
from switchgear.storage.sqlite_schema import MIGRATIONS, connect, migrate
from tests.storage.support import (
    NOW_US,
    close,
    commit,
    find,
    finish,
    finished_job,
    function,
    get,
    ids,
    in_a_process,
    loaded,
    new_job,
    opened,
    pragma,
    read_payloads,
    run,
)


def with_numbers(statement: str) -> str:
    """The statement with something in place of its parameters."""
    return re.sub(r":\w+", "'[5]'", sqlite_schema.STATEMENTS[statement])


OLD_IDS = with_numbers("old_ids")
KEPT_LONG_ENOUGH = with_numbers("ids_kept_long_enough")


class TestTheFile:
    def test_only_its_owner_reads_it(self, tmp_path: Path) -> None:
        path = tmp_path / "state" / "jobs.db"
        store = opened(path, make_directory=True)
        commit(store, [new_job(1)])
        modes = {name.name: stat.S_IMODE(name.stat().st_mode) for name in [path.parent, *path.parent.iterdir()]}
        close(store)
        assert modes == {
            "state": 0o700,
            "jobs.db": 0o600,
            "jobs.db-wal": 0o600,
            "jobs.db-shm": 0o600,
            "jobs.db.lock": 0o600,
        }

    @pytest.mark.parametrize(("sync", "level"), [("full", 2), ("normal", 1)])
    def test_how_it_is_written(self, path: Path, sync: sqlite_schema.Sync, level: int) -> None:
        close(opened(path))
        connection = connect(path, sync)
        try:
            assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
            assert connection.execute("PRAGMA synchronous").fetchone()[0] == level
        finally:
            connection.close()

    def test_closing_leaves_one_whole_file(self, store: SqliteStore, path: Path) -> None:
        commit(store, [new_job(number) for number in range(1, 1000)])
        close(store)
        assert sorted(name.name for name in path.parent.iterdir()) == ["jobs.db", "jobs.db.lock"]
        assert pragma(path, "integrity_check") == "ok"

    def test_closing_twice_is_fine(self, store: SqliteStore) -> None:
        close(store)
        close(store)

    def test_a_closed_store_says_so(self, store: SqliteStore) -> None:
        commit(store, [finished_job(1)])
        close(store)
        store.stage([finished_job(2)])
        for use in (store.commit, lambda: store.drop_finished(0, 0)):
            with pytest.raises(StorageError, match="closed"):
                run(use())
        with pytest.raises(StorageError, match="closed"):
            get(store, 1)
        with pytest.raises(StorageError, match="not open"):
            store.stage([new_job(3, function(b"new"))])

    def test_an_unused_store_closes(self, path: Path) -> None:
        close(SqliteStore(path))
        assert not path.exists()


class TestOwnership:
    def test_one_server_at_a_time(self, store: SqliteStore, path: Path) -> None:
        with pytest.raises(StorageError, match=rf"jobs\.db is in use by process {os.getpid()}$"):
            opened(path)
        close(store)
        close(opened(path))

    def test_whatever_the_file_is_called(self, store: SqliteStore, path: Path) -> None:
        link = path.with_name("link.db")
        link.symlink_to(path)
        with pytest.raises(StorageError, match="in use"):
            opened(link)

    def test_by_another_process(self, store: SqliteStore, path: Path) -> None:
        program = "import sys; from switchgear.storage.open import open_store; open_store(sys.argv[1])"
        other = in_a_process("-c", program, f"sqlite:{path}")
        assert other.returncode
        assert f"in use by process {os.getpid()}" in other.stderr

    def test_a_lock_left_by_the_dead_means_nothing(self, path: Path) -> None:
        program = "import os, sys; from switchgear.storage.open import open_store; open_store(sys.argv[1]); os._exit(9)"
        assert in_a_process("-c", program, f"sqlite:{path}").returncode == 9
        assert path.with_name("jobs.db.lock").read_text().strip().isdigit()
        close(opened(path))


class TestFilesThatCannotBeUsed:
    def test_not_a_database(self, path: Path) -> None:
        path.write_bytes(b"Dear diary, " * 1000)
        with pytest.raises(StorageError, match=r"jobs\.db cannot be used as a job database: file is not a database"):
            opened(path)
        assert path.read_bytes().startswith(b"Dear diary")

    def test_a_database_of_another_program(self, path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE contacts (name TEXT)")
        connection.close()
        with pytest.raises(StorageError, match=r"jobs\.db is the database of another program"):
            opened(path)

    def test_a_directory_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "state").write_text("")
        with pytest.raises(StorageError, match=r"state/jobs\.db cannot be opened"):
            opened(tmp_path / "state" / "jobs.db")

    def test_a_directory_that_is_not_ours(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with as_nobody_much(), pytest.raises(StorageError, match=r"jobs\.db cannot be opened: .*Permission denied"):
            opened(tmp_path / "jobs.db")

    def test_the_log_of_a_database_that_is_missing(self, path: Path) -> None:
        """SQLite would delete it, with what was acknowledged last."""
        log = path.with_name("jobs.db-wal")
        log.write_bytes(b"\x37\x7f\x06\x82" + bytes(5_000))
        with pytest.raises(StorageError, match=r"jobs\.db is missing or empty, and its log .*jobs\.db-wal is there"):
            opened(path)
        assert log.exists()
        log.unlink()
        close(opened(path))

    def test_something_that_is_no_file(self, path: Path) -> None:
        os.mkfifo(path)
        with pytest.raises(StorageError, match=r"jobs\.db cannot be used as a job database: it is not a regular file"):
            opened(path)

    def test_what_to_do_about_a_damaged_one_is_said(self, path: Path) -> None:
        path.write_bytes(b"Dear diary, " * 1000)
        with pytest.raises(StorageError, match="not a database; restore a backup, or move the file away with its -wal"):
            opened(path)

    def test_it_can_be_opened_after_the_cause_is_gone(self, path: Path) -> None:
        path.write_bytes(b"Dear diary, " * 1000)
        with pytest.raises(StorageError):
            opened(path)
        path.unlink()
        close(opened(path))

    def test_damaged_inside(self, path: Path) -> None:
        store = opened(path)
        commit(store, [new_job(number, payload=b"x" * 500) for number in range(1, 500)])
        close(store)
        damage(path)
        store = opened(path)
        try:
            for use in (
                lambda: loaded(store),
                lambda: find(store, JobQuery(limit=1000)),
                lambda: read_payloads(store, range(1, 500)),
                lambda: commit(store, [new_job(number, attempts=1) for number in range(1, 500)]),
            ):
                with pytest.raises(StorageError, match=r"jobs\.db cannot be (read|written): "):
                    use()
        finally:
            close(store)

    @pytest.mark.parametrize(
        ("column", "nonsense"), [("extra", b"\xc1"), ("moves", b"\x91\xa1x"), ("state", 3.5), ("function_id", 99)]
    )
    def test_a_row_that_makes_no_sense(self, path: Path, column: str, nonsense: object) -> None:
        store = opened(path)
        commit(store, [new_job(1)])
        close(store)
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(f"UPDATE jobs SET {column} = ?", (nonsense,))
        connection.close()
        store = opened(path)
        with pytest.raises(StorageError, match=r"jobs\.db cannot be read: "):
            get(store, 1)
        close(store)


@contextmanager
def as_nobody_much() -> Iterator[None]:
    """Without the rights of root, to whom no directory is closed."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def damage(path: Path) -> None:
    """Scribble over everything but the first pages, where the layout is described."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for offset in range(12 * 4096, size, 4096):
            file.seek(offset)
            file.write(b"\xa5" * 200)


class TestLayout:
    def test_it_carries_its_version(self, store: SqliteStore, path: Path) -> None:
        assert pragma(path, "user_version") == max(MIGRATIONS)

    def test_a_later_one_is_refused(self, path: Path) -> None:
        close(opened(path))
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version = {max(MIGRATIONS) + 7}")
        connection.close()
        with pytest.raises(SchemaTooNew, match=rf"version {max(MIGRATIONS) + 7}, .* up to {max(MIGRATIONS)}"):
            opened(path)

    def test_versions_have_no_gaps(self) -> None:
        assert list(MIGRATIONS) == list(range(1, len(MIGRATIONS) + 1))

    def test_an_older_one_is_brought_up_to_date_step_by_step(self, path: Path) -> None:
        """The file keeps its jobs; what is done twice would fail."""
        store = opened(path)
        commit(store, [new_job(1)])
        close(store)
        newest = max(MIGRATIONS)
        later = {
            newest + 1: "CREATE TABLE first (step)",
            newest + 2: "ALTER TABLE first RENAME TO second",
        }
        connection = connect(path, "normal")
        try:
            migrate(connection, path, MIGRATIONS | {newest + 1: later[newest + 1] + ";"})
            migrate(connection, path, MIGRATIONS | {version: script + ";" for version, script in later.items()})
            assert connection.execute("PRAGMA user_version").fetchone()[0] == newest + 2
            assert connection.execute("SELECT count(*) FROM second, jobs").fetchone()[0] == 0
            assert connection.execute("SELECT count(*) FROM jobs").fetchone()[0] == 1
        finally:
            connection.close()

    def test_jobs_of_the_first_version_are_kept_and_dropped_as_ever(self, path: Path) -> None:
        connection = connect(path, "normal")
        migrate(connection, path, {1: MIGRATIONS[1]})
        connection.execute("INSERT INTO functions (id, name) VALUES (1, x'66')")
        for job_id, state in ((1, DONE), (2, FAILED), (3, WAITING)):
            finished_us = NOW_US + job_id if state is not WAITING else 0
            numbers = (job_id, 1, int(state), 1, 1, NOW_US, 0, finished_us, 0, 0, 1)
            connection.execute(
                f"INSERT INTO jobs VALUES ({', '.join('?' * 11)}, x'', x'', x'', x'', x'', NULL, x'61')", numbers
            )
        connection.close()
        store = opened(path)
        try:
            snapshot = loaded(store)
            assert (ids(snapshot.jobs), snapshot.unsuccessful, snapshot.held) == ([3], {2: FAILED}, [])
            assert snapshot.jobs[0].payload == b"a"
            assert run(store.drop_finished(NOW_US + 2, 100, now_us=NOW_US + 5)) == 1
            assert ids(find(store, JobQuery())) == [3, 2]
            commit(store, [finish(snapshot.jobs[0])])
            assert run(store.drop_finished(0, 0, now_us=NOW_US)) == 2
        finally:
            close(store)

    def test_a_step_that_fails_leaves_no_trace(self, path: Path) -> None:
        close(opened(path))
        newest = max(MIGRATIONS)
        bad = MIGRATIONS | {newest + 1: "CREATE TABLE half (done); CREATE TABLE jobs (again);"}
        connection = connect(path, "normal")
        try:
            with pytest.raises(StorageError, match=f"to version {newest + 1}"):
                migrate(connection, path, bad)
            assert connection.execute("PRAGMA user_version").fetchone()[0] == newest
            assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone()[0] == 0
        finally:
            connection.close()
        close(opened(path))

    @pytest.mark.parametrize(
        ("query", "index"),
        [
            ("SELECT id FROM jobs INDEXED BY jobs_unfinished WHERE state < 4 AND id > 5 ORDER BY id", "unfinished"),
            ("SELECT id FROM jobs WHERE name = x'61' AND name <> x'' ORDER BY id DESC", "named"),
            (sqlite_schema.STATEMENTS["newest_to_drop"].replace("?", "5"), "finished"),
            (sqlite_schema.STATEMENTS["unsuccessful"].replace("?", "5"), "unsuccessful"),
            (OLD_IDS, "finished"),
            (KEPT_LONG_ENOUGH, "keep_until"),
        ],
    )
    def test_what_is_asked_often_has_an_index(self, store: SqliteStore, path: Path, query: str, index: str) -> None:
        connection = sqlite3.connect(path)
        plan = " ".join(str(row[-1]) for row in connection.execute(f"EXPLAIN QUERY PLAN {query}"))
        connection.close()
        assert f"jobs_{index}" in plan
        assert "TEMP B-TREE" not in plan


class TestALongLoad:
    def test_payloads_fill_the_memory_given_and_no_more(self, path: Path) -> None:
        store = opened(path)
        of = function()
        sizes = [100, 5_000, 300, 2_000, 1]
        commit(store, [new_job(number, of, payload=b"x" * size) for number, size in enumerate(sizes, 1)])
        close(store)
        for memory_bytes, loaded_count in ((0, 0), (99, 0), (5_100, 2), (7_399, 3), (7_400, 4), (10_000, 5)):
            store = opened(path, payload_memory_bytes=memory_bytes)
            jobs = loaded(store).jobs
            close(store)
            assert ids(jobs) == [1, 2, 3, 4, 5]
            assert [job.payload is not None for job in jobs] == [place < loaded_count for place in range(5)]

    def test_only_the_newest_failures_are_remembered(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite, "UNSUCCESSFUL_COUNT", 3)
        commit(store, [finished_job(number, state=FAILED) for number in range(1, 7)])
        assert list(loaded(store).unsuccessful) == [4, 5, 6]

    def test_and_those_that_are_waited_for(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """Otherwise a restart would take them for done, and let go what waits for them."""
        monkeypatch.setattr(sqlite, "UNSUCCESSFUL_COUNT", 3)
        commit(store, [finished_job(number, state=FAILED if number != 2 else DONE) for number in range(1, 7)])
        commit(store, [new_job(7, state=WAITING, predecessors=(1, 2, 5)), new_job(8, predecessors=(3,))])
        assert list(loaded(store).unsuccessful) == [1, 4, 5, 6]
