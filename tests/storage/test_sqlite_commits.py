"""The store in an SQLite file: its commits, what happens beside them, and what happens when they fail."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchgear.errors import StorageError
from switchgear.model import DONE, FAILED, Job
from switchgear.storage import sqlite, sqlite_schema, sqlite_writer
from switchgear.storage.base import JobQuery
from switchgear.storage.sqlite import SqliteStore
from switchgear.storage.sqlite_rows import LONG_VALUE_BYTES
from switchgear.storage.sqlite_writer import Work, Writer
from tests.storage.support import (
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
    retry,
    run,
    written_to_by_another_program,
)


class TestWhileACommitIsInFlight:
    def test_changes_collect_for_the_next(self, store: SqliteStore, path: Path) -> None:
        first, second = new_job(1), new_job(2)

        async def story() -> None:
            with written_to_by_another_program(path):
                store.stage([first])
                commit = asyncio.create_task(store.commit())
                await asyncio.sleep(0)
                first.attempts = 1
                store.stage([first, second])
                second.attempts = 1
                store.stage([second])
                assert await store.read_jobs([1]) == {}
                assert not commit.done()
            await commit
            assert [job.attempts for job in await store.find(JobQuery())] == [0]
            await store.commit()
            assert [(job.id, job.attempts) for job in await store.find(JobQuery())] == [(2, 1), (1, 1)]

        run(story())

    def test_two_commits_do_not_overtake_each_other(self, store: SqliteStore, path: Path) -> None:
        job = new_job(1)

        async def story() -> None:
            commits = []
            with written_to_by_another_program(path):
                for _ in range(5):
                    job.attempts += 1
                    store.stage([job])
                    commits.append(asyncio.create_task(store.commit()))
                    await asyncio.sleep(0)
            assert [list(refused) for refused in await asyncio.gather(*commits)] == [[], [], [], [], []]

        run(story())
        assert [found.attempts for found in find(store, JobQuery())] == [5]

    def test_a_cancelled_commit_that_has_begun_is_still_finished(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = new_job(1)
        has_begun, may_go_on = threading.Event(), threading.Event()
        real_put = Writer.put

        def slow_put(writer: Writer, work: Work) -> list[int]:
            has_begun.set()
            assert may_go_on.wait(60)
            return real_put(writer, work)

        monkeypatch.setattr(Writer, "put", slow_put)

        async def story() -> None:
            store.stage([job])
            commit = asyncio.create_task(store.commit())
            await asyncio.to_thread(has_begun.wait, 60)
            for _ in range(3):
                commit.cancel()
                await asyncio.sleep(0)
                assert not commit.done()
            may_go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await commit
            assert list(await store.commit()) == []

        run(story())
        assert ids(find(store, JobQuery())) == [1]
        assert list(commit(store, [finish(job)])) == []

    def test_a_cancelled_commit_that_has_not_begun_leaves_everything_staged(self, store: SqliteStore) -> None:
        async def story() -> None:
            store.stage([new_job(1)])
            commit = asyncio.create_task(store.commit())
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            assert await store.find(JobQuery()) == []
            assert list(await store.commit()) == []

        run(story())
        assert ids(find(store, JobQuery())) == [1]

    def test_searching_goes_on_beside_it(self, store: SqliteStore, path: Path) -> None:
        commit(store, [finished_job(1)])

        async def story() -> None:
            with written_to_by_another_program(path):
                store.stage([finished_job(2)])
                commit = asyncio.create_task(store.commit())
                assert ids(await store.find(JobQuery())) == [1]
            await commit

        run(story())


class TestWhenACommitFails:
    @pytest.fixture(autouse=True)
    def _impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite_schema, "BUSY_TIMEOUT_S", 0.01)

    @pytest.fixture
    def store(self, path: Path, _impatient: None) -> Iterator[SqliteStore]:
        store = opened(path)
        yield store
        close(store)

    def fail_to_commit(self, store: SqliteStore) -> None:
        with (
            written_to_by_another_program(store.path),
            pytest.raises(StorageError, match=r"jobs\.db cannot be written: database is locked"),
        ):
            run(store.commit())

    def test_everything_stays_staged(self, store: SqliteStore) -> None:
        of = function()
        of.paused = True
        store.stage([new_job(1, of), new_job(2, of, payload=b"long" * 1000)], [of], 77)
        self.fail_to_commit(store)
        self.fail_to_commit(store)
        assert find(store, JobQuery()) == []
        assert list(run(store.commit())) == []
        snapshot = loaded(store)
        assert [job.payload for job in snapshot.jobs] == [b"payload", b"long" * 1000]
        assert snapshot.jobs[0].function.paused
        assert snapshot.next_job_id == 77

    def test_the_newer_change_wins(self, store: SqliteStore) -> None:
        job = new_job(1)
        store.stage([job])
        self.fail_to_commit(store)
        job.payload = None
        job.attempts = 1
        store.stage([job])
        self.fail_to_commit(store)
        assert list(run(store.commit())) == []
        found = get(store, 1)
        assert found is not None
        assert (found.attempts, found.payload) == (1, b"payload")

    def test_even_one_staged_meanwhile(self, store: SqliteStore) -> None:
        job = new_job(1)

        async def story() -> None:
            with written_to_by_another_program(store.path):
                store.stage([job])
                commit = asyncio.create_task(store.commit())
                await asyncio.sleep(0)
                job.attempts, job.payload = 1, None
                store.stage([job])
                with pytest.raises(StorageError):
                    await commit
            assert list(await store.commit()) == []

        run(story())
        found = get(store, 1)
        assert found is not None
        assert (found.attempts, found.payload) == (1, b"payload")

    def test_what_is_withdrawn_is_not_tried_again(self, store: SqliteStore) -> None:
        kept, before, meanwhile = new_job(1), new_job(2, payload=b"x" * 5000), new_job(3)

        async def story() -> None:
            with written_to_by_another_program(store.path):
                store.stage([kept, before, meanwhile])
                commit = asyncio.create_task(store.commit())
                await asyncio.sleep(0)
                store.unstage([meanwhile])
                with pytest.raises(StorageError):
                    await commit
                store.unstage([before])
            await store.commit()

        run(story())
        assert ids(find(store, JobQuery())) == [1]
        assert read_payloads(store, [1, 2, 3]) == {1: b"payload"}

    def test_dropping_fails_too_and_can_be_repeated(self, store: SqliteStore) -> None:
        commit(store, [finished_job(1)])
        with written_to_by_another_program(store.path), pytest.raises(StorageError, match="cannot be written"):
            run(store.drop_finished(0, 0))
        assert run(store.drop_finished(0, 0)) == 1

    def test_a_disk_that_is_full_for_a_while(self, path: Path) -> None:
        ended = in_a_process("-m", "tests.storage.full_disk", str(path))
        assert not ended.returncode, ended.stderr
        assert pragma(path, "integrity_check") == "ok"
        store = opened(path)
        snapshot = loaded(store)
        close(store)
        assert ids(snapshot.jobs) == [*range(3, 2_100), 2_101]
        assert snapshot.jobs[-1].payload == b"y" * 100_000
        assert snapshot.next_job_id == 5_000


class LyingConnection(sqlite3.Connection):
    """Fails to commit once, after all: as when the machine reports an error that came too late to matter."""

    has_lied = False

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        cursor = super().execute(statement, *arguments)
        if statement == "COMMIT" and not LyingConnection.has_lied:
            LyingConnection.has_lied = True
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


def test_a_change_that_was_kept_though_its_commit_failed_is_not_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_connect = sqlite3.connect
    monkeypatch.setattr(LyingConnection, "has_lied", False)
    store = opened(path)
    commit(store, [new_job(1)])
    close(store)
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: real_connect(*a, factory=LyingConnection, **k))
    monkeypatch.setattr(sqlite_writer, "migrate", lambda connection, path: None)
    store = opened(path)
    try:
        job = loaded(store).jobs[0]
        with pytest.raises(StorageError, match="disk I/O error"):
            commit(store, [finish(job), new_job(2)])
        assert LyingConnection.has_lied
        assert list(run(store.commit())) == []
        assert [(found.id, found.state is DONE) for found in find(store, JobQuery())] == [(2, False), (1, True)]
        late = new_job(1, revision=0)
        assert list(commit(store, [late])) == [1]
    finally:
        close(store)


class TestBatches:
    @pytest.mark.parametrize("count", [1, 2, 9, 33, 1023, 1024, 1025, 2500])
    def test_of_any_size(self, store: SqliteStore, count: int) -> None:
        of = function()
        jobs = [new_job(number, of) for number in range(1, count + 1)]
        assert list(commit(store, jobs)) == []
        assert list(commit(store, [finish(job) for job in jobs[::2]])) == []
        assert len(loaded(store).jobs) == count // 2

    def test_with_an_sqlite_that_takes_few_parameters(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Stingy(sqlite3.Connection):
            def getlimit(self, category: int, /) -> int:
                return 999

            def execute(self, statement: str, parameters: Any = (), /) -> sqlite3.Cursor:
                assert len(parameters) <= 999
                return super().execute(statement, parameters)

        real_connect = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: real_connect(*a, factory=Stingy, **k))
        store_path = store.path
        close(store)
        store = opened(store_path)
        commit(store, [new_job(number) for number in range(1, 300)])
        assert len(loaded(store).jobs) == 299
        close(store)

    def test_a_payload_is_written_once(self, store: SqliteStore, path: Path) -> None:
        """A change of a job with a long payload costs a page or two, not the payload again."""
        job = new_job(1, payload=b"x" * 1_000_000)
        commit(store, [job])
        log = path.with_name("jobs.db-wal")
        before = log.stat().st_size
        job.attempts = 1
        commit(store, [job])
        commit(store, [retry(finish(job, FAILED))])
        commit(store, [finish(job)])
        assert log.stat().st_size - before < 100_000


def test_jobs_of_the_log_have_functions_of_their_own(store: SqliteStore) -> None:
    """Looking at the log must not make functions in the engine."""
    of = function()
    commit(store, [finished_job(1, of), finished_job(2, of)])
    first, second = find(store, JobQuery())
    assert first.function is second.function
    assert first.function is not of


def test_staging_while_dropping(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropping goes in bites, and a commit gets in between."""
    monkeypatch.setattr(sqlite, "DROP_COUNT", 10)
    of = function()
    commit(store, [finished_job(number, of) for number in range(1, 2001)])  # 200 bites: no read misses them all
    seen: list[int] = []

    async def story() -> None:
        dropping = asyncio.create_task(store.drop_finished(0, 5))
        new: list[Job] = []
        while not dropping.done():
            new.append(new_job(3000 + len(new), of))
            store.stage(new[-1:])
            await store.commit()
            seen.append(len(await store.find(JobQuery(states=frozenset({DONE}), limit=2000))))
        assert await dropping == 1995
        assert len(await store.find(JobQuery(states=frozenset({DONE}), limit=2000))) == 5

    run(story())
    assert any(5 < count < 2000 for count in seen)
    assert len(loaded(store).jobs) == len(seen)


class TestLongValues:
    """Payloads, results and errors of many megabytes are written in pieces."""

    @pytest.mark.parametrize("size", [LONG_VALUE_BYTES - 1, LONG_VALUE_BYTES, LONG_VALUE_BYTES * 20 + 7])
    def test_they_are_kept_as_they_are(self, store: SqliteStore, size: int) -> None:
        words = bytes(range(251)) * (size // 251 + 1)
        payload, result, error = words[:size], words[1 : size + 1], words[2 : size + 2]
        job = new_job(1, payload=payload)
        commit(store, [job])
        finish(job, FAILED).result = result
        job.error = error
        other = new_job(2)
        for _ in range(2):
            assert list(commit(store, [job, other])) == []
            kept = get(store, 1)
            assert kept is not None
            assert (kept.payload, kept.result, kept.error) == (payload, result, error)

    def test_a_refused_change_leaves_them_alone(self, store: SqliteStore) -> None:
        newer = finished_job(1, result=b"new" * LONG_VALUE_BYTES, revision=10)
        older = finished_job(1, result=b"old" * LONG_VALUE_BYTES)
        commit(store, [newer])
        assert list(commit(store, [older, new_job(2)])) == [1]
        kept = get(store, 1)
        assert kept is not None
        assert kept.result == newer.result
