"""What happens to the files of a store while it is open: nothing is kept that a restart would not find."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from switchgear.errors import StorageError
from switchgear.storage import sqlite, sqlite_schema
from switchgear.storage.base import JobQuery
from switchgear.storage.sqlite import SqliteStore
from switchgear.storage.sqlite_writer import Work, Writer
from switchgear.storage.store_files import StoreFiles
from tests.storage.support import (
    close,
    commit,
    find,
    finished_job,
    ids,
    in_a_process,
    loaded,
    new_job,
    opened,
    pragma,
    run,
)

Change = Callable[[Path], None]

EVERYTHING = JobQuery(limit=10_000)


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def index_of(path: Path) -> Path:
    return path.with_name(path.name + "-shm")


def copy(source: Path, target: Path) -> None:
    """In another process: closing a file lets go of all locks that a process has on it, and SQLite's are needed."""
    subprocess.run(["cp", str(source), str(target)], check=True)


def kept_after_a_crash(path: Path) -> list[int]:
    """What a server finds that is started after the one that has the files open was killed."""
    place = path.with_name("crashed")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for file in (path, log_of(path)):
        if file.exists():
            copy(file, place)
    store = opened(place / path.name)
    try:
        return sorted(ids(find(store, EVERYTHING)))
    finally:
        close(store)


def is_refused(store: SqliteStore, words: str) -> None:
    """Neither a commit nor a look works, again and again."""
    for _ in range(2):
        with pytest.raises(StorageError, match=words):
            run(store.commit())
        with pytest.raises(StorageError, match=words):
            store.check()


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for file in (path, log_of(path), index_of(path)):
        file.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replace_by_a_copy(path: Path) -> None:
    copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").rename(path)


def replace_by_a_link_to_itself(path: Path) -> None:
    """The same file, but a restart would look for the log beside the other name."""
    move(path)
    path.symlink_to(path.with_name("elsewhere.db"))


def replace_by_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def delete_directory(path: Path) -> None:
    shutil.rmtree(path.parent)


def move_directory(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def replace_directory_by_a_file(path: Path) -> None:
    move_directory(path)
    path.parent.write_text("")


class TestTheDatabaseIsGone:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (delete, r"the store's file .*jobs\.db is gone: it was deleted while in use; .* lost when the server ends"),
            (delete_all, "it was deleted while in use"),
            (move, "it was moved while in use; put it back, and work goes on by itself"),
            (replace_by_a_copy, "it was deleted while in use, and another one is in its place"),
            (replace_by_a_link_to_itself, "it was moved while in use, and another one is in its place"),
            (replace_by_a_directory, "it was deleted while in use, and another one is in its place"),
            (delete_directory, "it was deleted while in use"),
            (move_directory, "it was moved while in use"),
            (replace_directory_by_a_file, "it was moved while in use"),
        ],
    )
    def test_nothing_is_kept_any_more(self, tmp_path: Path, change: Change, words: str) -> None:
        path = tmp_path / "state" / "jobs.db"
        store = opened(path, make_directory=True)
        try:
            commit(store, [new_job(1)])
            change(path)
            store.stage([new_job(2)])
            is_refused(store, words)
            with pytest.raises(StorageError, match=words):
                run(store.drop_finished(0, 0))
        finally:
            close(store)

    def test_what_is_committed_while_it_goes_is_not_acknowledged(
        self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real_put = Writer.put

        def put_and_delete(writer: Writer, work: Work) -> list[int]:
            refused = real_put(writer, work)
            path.unlink()
            return refused

        monkeypatch.setattr(Writer, "put", put_and_delete)
        with pytest.raises(StorageError, match="deleted while in use"):
            commit(store, [new_job(1)])

    def test_when_it_is_put_back_work_goes_on(self, store: SqliteStore, path: Path) -> None:
        commit(store, [new_job(1)])
        elsewhere = path.with_name("elsewhere.db")
        path.rename(elsewhere)
        store.stage([new_job(2)])
        is_refused(store, "moved")
        elsewhere.rename(path)
        store.check()
        assert list(run(store.commit())) == []
        assert kept_after_a_crash(path) == [1, 2]

    def test_what_was_committed_while_it_went_is_not_refused_when_it_comes_back(
        self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real_put = Writer.put
        elsewhere = path.with_name("elsewhere.db")

        def put_and_move(writer: Writer, work: Work) -> list[int]:
            refused = real_put(writer, work)
            path.rename(elsewhere)
            return refused

        with monkeypatch.context() as patch:
            patch.setattr(Writer, "put", put_and_move)
            with pytest.raises(StorageError):
                commit(store, [new_job(1)])
        elsewhere.rename(path)
        assert list(run(store.commit())) == []
        assert kept_after_a_crash(path) == [1]

    def test_no_other_file_is_read_in_its_place(self, store: SqliteStore, path: Path) -> None:
        commit(store, [new_job(1)])
        path.rename(path.with_name("elsewhere.db"))
        sqlite3.connect(path).execute("CREATE TABLE jobs (id)")
        with pytest.raises(StorageError, match="another one is in its place"):
            find(store, EVERYTHING)  # its first question, for which it has to connect

    def test_a_link_that_leads_elsewhere(self, tmp_path: Path) -> None:
        path, link = tmp_path / "jobs.db", tmp_path / "link.db"
        close(opened(tmp_path / "other.db"))
        link.symlink_to(path)
        store = opened(link)
        try:
            commit(store, [new_job(1)])
            link.unlink()
            link.symlink_to(tmp_path / "other.db")
            store.stage([new_job(2)])
            is_refused(store, r"link\.db does not lead to the store's file .*jobs\.db any more")
            link.unlink()
            link.symlink_to(path)
            assert list(run(store.commit())) == []
        finally:
            close(store)

    def test_closing_tells_of_it_and_leaves_the_moved_file_whole(
        self, store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        commit(store, [new_job(1)])
        move(path)
        close(store)
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        assert "the server stops while its store cannot be relied on: the store's file" in caplog.text
        store = opened(path.with_name("elsewhere.db"))
        assert ids(find(store, EVERYTHING)) == [1]
        close(store)

    def test_closing_does_not_delete_the_log_of_the_store_that_took_its_place(self, tmp_path: Path) -> None:
        path = tmp_path / "state" / "jobs.db"
        first = opened(path, make_directory=True)
        commit(first, [new_job(1)])
        path.parent.rename(tmp_path / "old")
        second = opened(path, make_directory=True)
        commit(second, [new_job(7)])
        close(first)
        commit(second, [new_job(8)])
        assert kept_after_a_crash(path) == [7, 8]
        close(second)


class TestTheLogIsLost:
    def test_it_is_replaced_and_nothing_is_lost(
        self, store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        commit(store, [new_job(1)])
        for number, lost in enumerate([log_of, index_of, log_of], 2):
            lost(path).unlink()
            with pytest.raises(StorageError, match=r"jobs\.db-(wal|shm), .* was deleted or replaced while in use"):
                store.check()
            commit(store, [new_job(number)])
            store.check()
            assert kept_after_a_crash(path) == list(range(1, number + 1))
        assert caplog.text.count("everything that was in the lost log") == 3

    def test_it_goes_during_a_commit(self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real_put = Writer.put

        def put_and_delete(writer: Writer, work: Work) -> list[int]:
            refused = real_put(writer, work)
            log_of(path).unlink()
            return refused

        with monkeypatch.context() as patch:
            patch.setattr(Writer, "put", put_and_delete)
            assert list(commit(store, [new_job(1)])) == []
        assert kept_after_a_crash(path) == [1]
        assert list(commit(store, [new_job(2)])) == []
        assert kept_after_a_crash(path) == [1, 2]

    def test_what_is_staged_while_it_is_replaced_waits_for_the_next_commit(
        self, store: SqliteStore, path: Path
    ) -> None:
        """Whoever staged it would otherwise take it for not kept, and might refuse it."""

        async def stage_meanwhile() -> None:
            store.stage([new_job(2)])
            committing = asyncio.create_task(store.commit())
            await asyncio.sleep(0)
            store.stage([new_job(3)])
            await committing

        commit(store, [new_job(1)])
        log_of(path).unlink()
        run(stage_meanwhile())
        assert kept_after_a_crash(path) == [1, 2]
        run(store.commit())
        assert kept_after_a_crash(path) == [1, 2, 3]

    def test_it_is_replaced_by_a_copy_of_itself(self, store: SqliteStore, path: Path) -> None:
        commit(store, [new_job(1)])
        copy(log_of(path), path.with_name("copy"))
        commit(store, [new_job(2)])
        path.with_name("copy").rename(log_of(path))
        commit(store, [new_job(3)])
        assert kept_after_a_crash(path) == [1, 2, 3]

    def test_while_it_is_read_nothing_is_kept(
        self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_schema, "BUSY_TIMEOUT_S", 0.01)
        close(store)
        store = opened(path)
        commit(store, [new_job(1)])
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchone()
        commit(store, [new_job(2)])
        log_of(path).unlink()
        with pytest.raises(StorageError, match="it is being read"):
            commit(store, [new_job(3)])
        reader.close()
        assert list(run(store.commit())) == []
        assert kept_after_a_crash(path) == [1, 2, 3]
        close(store)

    def test_closing_saves_it(self, store: SqliteStore, path: Path) -> None:
        commit(store, [new_job(1)])
        log_of(path).unlink()
        close(store)
        assert kept_after_a_crash(path) == [1]


class TestAnExpectedCommit:
    """The files are checked while the commit is expected, and once more when it is done."""

    @pytest.fixture
    def checks(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """What was done: "check" and "put"."""
        done: list[str] = []
        real_check, real_put = StoreFiles.check, Writer.put

        def check(files: StoreFiles) -> None:
            done.append("check")
            real_check(files)

        def put(writer: Writer, work: Work) -> list[int]:
            done.append("put")
            return real_put(writer, work)

        monkeypatch.setattr(StoreFiles, "check", check)
        monkeypatch.setattr(Writer, "put", put)
        monkeypatch.setattr(sqlite, "CHECKED_S", 60.0)
        return done

    def test_its_first_check_was_made_before(self, store: SqliteStore, checks: list[str]) -> None:
        store.expect_commit()
        commit(store, [new_job(1)])
        assert checks == ["check", "put", "check"]

    def test_the_check_counts_for_one_commit(self, store: SqliteStore, checks: list[str]) -> None:
        store.expect_commit()
        commit(store, [new_job(1)])
        commit(store, [new_job(2)])
        assert checks == ["check", "put", "check", "check", "put", "check"]

    def test_the_check_does_not_count_for_long(
        self, store: SqliteStore, checks: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite, "CHECKED_S", 0.0)
        store.expect_commit()
        commit(store, [new_job(1)])
        assert checks == ["check", "check", "put", "check"]

    def test_the_log_is_lost_after_the_check(self, store: SqliteStore, path: Path, checks: list[str]) -> None:
        commit(store, [new_job(1)])
        store.expect_commit()
        log_of(path).unlink()
        commit(store, [new_job(2)])
        assert kept_after_a_crash(path) == [1, 2]

    def test_the_log_is_cut_off_after_the_check(self, store: SqliteStore, path: Path, checks: list[str]) -> None:
        for number in range(1, 6):
            commit(store, [new_job(number)])
        store.expect_commit()
        os.truncate(log_of(path), 5_000)
        store.stage([new_job(6)])
        is_refused(store, r"jobs\.db-wal, the log of the store, was cut off or overwritten")
        close(store)

    def test_a_loss_that_is_noticed_early_is_repaired_by_the_commit(
        self, store: SqliteStore, path: Path, checks: list[str]
    ) -> None:
        commit(store, [new_job(1)])
        log_of(path).unlink()
        store.expect_commit()
        commit(store, [new_job(2)])
        assert kept_after_a_crash(path) == [1, 2]


class TestTheLogIsCutOff:
    @pytest.mark.parametrize("left_bytes", [0, 20, 32, 5_000])
    def test_nothing_is_kept_any_more(self, store: SqliteStore, path: Path, left_bytes: int) -> None:
        for number in range(1, 6):
            commit(store, [new_job(number)])
        os.truncate(log_of(path), left_bytes)
        store.stage([new_job(6)])
        is_refused(store, r"jobs\.db-wal, the log of the store, was cut off or overwritten")
        close(store)

    def test_while_a_commit_runs(self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        commit(store, [new_job(1)])
        real_put = Writer.put

        def cut_and_put(writer: Writer, work: Work) -> list[int]:
            os.truncate(log_of(path), 0)
            return real_put(writer, work)

        monkeypatch.setattr(Writer, "put", cut_and_put)
        with pytest.raises(StorageError, match="cut off"):
            commit(store, [new_job(2)])

    def test_what_was_merged_before_is_not_spoilt_by_closing(self, store: SqliteStore, path: Path) -> None:
        """Merging a log of which a part is missing would write nothing over something."""
        commit(store, [new_job(number) for number in range(1, 100)])
        merge_from_outside(path)
        for number in range(100, 300):
            commit(store, [new_job(number)])
        os.truncate(log_of(path), 40_000)
        with pytest.raises(StorageError):
            store.check()
        close(store)
        store = opened(path)
        assert set(range(1, 100)) <= set(ids(find(store, EVERYTHING)))
        close(store)
        assert pragma(path, "integrity_check") == "ok"


def merge_from_outside(path: Path) -> None:
    program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchone()"
    assert in_a_process("-c", program, str(path)).returncode == 0


class TestTheDatabaseIsWrittenByOthers:
    def backed_up(self, store: SqliteStore, path: Path) -> Path:
        """The store with two jobs in it, and a backup that has only one."""
        backup = path.with_name("backup.db")
        commit(store, [new_job(1)])
        merge_from_outside(path)
        copy(path, backup)
        commit(store, [new_job(number) for number in range(2, 200)])
        merge_from_outside(path)
        store.check()
        return backup

    def test_a_copy_is_restored_over_it(self, store: SqliteStore, path: Path) -> None:
        backup = self.backed_up(store, path)
        copy(backup, path)  # the file stays the same, and all that is in it changes
        store.stage([new_job(200)])
        is_refused(store, r"jobs\.db was overwritten while in use, and not by SQLite; .* delete jobs\.db-wal")

    def test_closing_leaves_the_copy_alone(self, store: SqliteStore, path: Path) -> None:
        backup = self.backed_up(store, path)
        copy(backup, path)
        with pytest.raises(StorageError):
            store.check()
        close(store)
        assert path.read_bytes() == backup.read_bytes()
        for file in (log_of(path), index_of(path)):  # as the message says
            file.unlink()
        assert kept_after_a_crash(path) == [1]

    def test_touching_it_does_no_harm(self, store: SqliteStore, path: Path) -> None:
        commit(store, [new_job(1)])
        os.utime(path)
        os.utime(log_of(path))
        commit(store, [new_job(2)])
        assert kept_after_a_crash(path) == [1, 2]

    def test_another_program_may_read_write_and_merge(self, store: SqliteStore, path: Path) -> None:
        program = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA wal_autocheckpoint = 1');"
            "c.execute('UPDATE jobs SET attempts = 1'); c.commit();"
            "c.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchone(); c.close()"
        )
        for number in range(1, 5):
            commit(store, [new_job(number)])
            assert in_a_process("-c", program, str(path)).returncode == 0
            store.check()
        assert ids(find(store, EVERYTHING)) == [4, 3, 2, 1]

    def test_its_own_checkpoints_are_no_surprise(
        self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_schema, "CHECKPOINT_PAGES", 3)
        monkeypatch.setattr(sqlite_schema, "LOG_SIZE_LIMIT_BYTES", 4096)
        close(store)
        store = opened(path)
        for number in range(1, 200):
            commit(store, [finished_job(number, payload=b"x" * 3_000)])
        run(store.drop_finished(0, 50))
        assert len(find(store, EVERYTHING)) == 50
        close(store)

    def test_looking_beside_a_writer_finds_nothing_wrong(
        self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The look is made while the files change."""
        monkeypatch.setattr(sqlite_schema, "CHECKPOINT_PAGES", 3)
        monkeypatch.setattr(sqlite_schema, "LOG_SIZE_LIMIT_BYTES", 4096)
        close(store)
        store = opened(path)
        is_over = threading.Event()

        def write() -> None:
            for number in range(1, 300):
                commit(store, [new_job(number, payload=b"x" * 3_000)])
            is_over.set()

        files = StoreFiles(path, path, store._database_lock)
        files.begin()
        writer = threading.Thread(target=write)
        writer.start()
        while not is_over.is_set():
            files.check()
        writer.join()
        close(store)
        files.end()


class TestOwnership:
    """The lock is on the file, and not on one of its names."""

    def test_a_second_name(self, store: SqliteStore, path: Path) -> None:
        other = path.with_name("other.db")
        os.link(path, other)
        with pytest.raises(StorageError, match=rf"other\.db is in use by process {os.getpid()}, by one of its 2 names"):
            opened(other)
        program = "import sys; from switchgear.storage.open import open_store; open_store(sys.argv[1])"
        ended = in_a_process("-c", program, f"sqlite:{other}")
        assert ended.returncode
        assert "is in use by another process" in ended.stderr

    def test_a_deleted_lock_file(self, store: SqliteStore, path: Path) -> None:
        path.with_name("jobs.db.lock").unlink()
        with pytest.raises(StorageError, match=rf"jobs\.db is in use by process {os.getpid()}$"):
            opened(path)
        commit(store, [new_job(1)])  # SQLite's own locks are as they were

    def test_refusing_a_second_one_costs_the_first_no_lock(self, store: SqliteStore, path: Path) -> None:
        """Closing a descriptor of a file lets go of all locks that the process has on it."""
        commit(store, [new_job(1)])
        path.with_name("jobs.db.lock").unlink()
        with pytest.raises(StorageError):
            opened(path)
        program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('select * from jobs'); c.close()"
        assert in_a_process("-c", program, str(path)).returncode == 0
        assert log_of(path).exists()  # the other was not the last to close the file
        commit(store, [new_job(2)])
        assert kept_after_a_crash(path) == [1, 2]

    def test_a_copy_is_another_store(self, store: SqliteStore, path: Path) -> None:
        commit(store, [new_job(1)])
        copy(path, path.with_name("copy.db"))
        close(opened(path.with_name("copy.db")))

    def test_another_program_reads_it(self, store: SqliteStore, path: Path) -> None:
        commit(store, [new_job(1)])
        program = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM jobs'))"
        assert in_a_process("-c", program, str(path)).stdout == "(1,)\n"


class TestWarnings:
    @pytest.mark.parametrize(
        ("mode_of", "mode", "words"),
        [("file", 0o666, "can change jobs"), ("directory", 0o777, "can replace the store"), ("directory", 0o1777, "")],
    )
    def test_others_may_write(
        self, tmp_path: Path, mode_of: str, mode: int, words: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = tmp_path / "state" / "jobs.db"
        close(opened(path, make_directory=True))
        (path if mode_of == "file" else path.parent).chmod(mode)
        close(opened(path))
        assert [words in record.message for record in caplog.records] == ([True] if words else [])

    def test_it_loads(self, store: SqliteStore) -> None:
        commit(store, [new_job(1)])
        assert ids(loaded(store).jobs) == [1]
