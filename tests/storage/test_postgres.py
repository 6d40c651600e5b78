"""The store in PostgreSQL: its lease, lost connections, long values, poolers, passwords and migrations."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from switchgear.errors import ConfigError, Fenced, SchemaTooNew, StorageError
from switchgear.model import DONE, FAILED, READY, RUNNING, Function
from switchgear.storage.base import JobQuery
from switchgear.storage.open import open_store
from switchgear.storage.postgres import PostgresStore
from switchgear.storage.postgres_lease import LeaseRow
from switchgear.storage.postgres_schema import MIGRATIONS
from switchgear.storage.process_identity import has_ended, process_identity
from tests.storage.support import (
    close,
    commit,
    facts,
    find,
    finish,
    finished_job,
    function,
    get,
    ids,
    loaded,
    new_job,
    read_payloads,
    run,
)
from tests.support.postgres import Cluster, running_pgbouncer, running_postgres
from tests.support.proxy import Proxy, cuttable
from tests.support.servers import free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.xdist_group("postgresql")

LONG = bytes(range(256)) * 2000  # two pieces


@pytest.fixture
def url(postgres: Cluster) -> str:
    return postgres.new_url()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    store = opened(url)
    yield store
    close(store)


@pytest.fixture
def proxy(postgres: Cluster) -> Iterator[Proxy]:
    with cuttable(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def far_url(postgres: Cluster, proxy: Proxy) -> str:
    return postgres.new_url(proxy.port)


@pytest.fixture
def direct_url(postgres: Cluster, proxy: Proxy, far_url: str) -> str:
    """The same database, whatever becomes of the network."""
    return far_url.replace(f":{proxy.port}/", f":{postgres.port}/")


@pytest.fixture
def far_store(far_url: str) -> Iterator[PostgresStore]:
    """One whose network can be cut."""
    store = opened(far_url)
    yield store
    close(store)


def opened(url: str, **options: Any) -> PostgresStore:
    store = PostgresStore(url, **options)
    store.open()
    return store


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def sessions(url: str) -> int:
    """How many sessions of others there are that wait for a lock."""
    ((count,),) = execute(url, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    return int(count)


class Clock:
    """In place of the module `time`."""

    def __init__(self, now_s: list[float]) -> None:
        self._now_s = now_s

    def monotonic(self) -> float:
        return self._now_s[0]


def use_clock(monkeypatch: pytest.MonkeyPatch, now_s: list[float]) -> None:
    for module in ("fence", "lease", "writer"):
        monkeypatch.setattr(f"switchgear.storage.postgres_{module}.time", Clock(now_s))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class TestOneServerAtATime:
    def test_a_second_one_is_refused(self, store: PostgresStore, url: str) -> None:
        async def story() -> None:
            await store.load(Function)  # from here on it gives signs of life
            second = PostgresStore(url)
            with pytest.raises(StorageError, match=rf"is in use by another server: process {os.getpid()} on "):
                await asyncio.to_thread(second.open)

        run(story())
        assert list(commit(store, [new_job(1)])) == []

    def test_when_the_first_has_stopped_the_second_begins_at_once(self, url: str) -> None:
        close(opened(url, lease_seconds=600))
        close(opened(url))

    def test_a_process_of_this_machine_that_has_ended_is_not_waited_for(self, url: str) -> None:
        abandoned = opened(url, lease_seconds=600)
        abandoned._writer.connection.close()
        ended = subprocess.run(["true"], check=True)
        assert ended.returncode == 0
        boot, namespace, _, start = process_identity().split(" ")
        execute(url, f"UPDATE sg_lease SET process = '{boot} {namespace} 4194304 {start}'")
        close(opened(url))

    def test_one_that_was_cut_off_is_waited_for(self, url: str) -> None:
        abandoned = opened(url, lease_seconds=0.5)
        abandoned._writer.connection.close()
        execute(url, "UPDATE sg_lease SET process = 'elsewhere'")
        store = opened(url, lease_seconds=0.5)
        commit(store, [new_job(1)])
        with pytest.raises(Fenced, match="another server has taken over the jobs in postgresql://"):
            commit(abandoned, [new_job(2)])
        assert ids(find(store, JobQuery())) == [1]
        close(store)

    def test_a_commit_that_a_dead_server_has_left_behind_is_no_sign_of_life(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """PostgreSQL may still be busy with it, for example because it waits for a standby."""
        abandoned = opened(url, lease_seconds=0.5)
        abandoned._writer.connection.close()
        execute(url, "UPDATE sg_lease SET process = 'elsewhere'")
        store = PostgresStore(url, lease_seconds=0.5)
        look, looks = store.lease.look, []

        async def look_and_commit() -> LeaseRow:
            looks.append(await look())
            if len(looks) == 2:
                execute(url, "UPDATE sg_lease SET beat = beat + 1")
            return looks[-1]

        monkeypatch.setattr(store.lease, "look", look_and_commit)
        store.open()
        commit(store, [new_job(1)])
        close(store)

    def test_a_fenced_store_stores_nothing_more(self, store: PostgresStore, url: str) -> None:
        commit(store, [new_job(1)])
        execute(url, "UPDATE sg_lease SET epoch = epoch + 1, holder = 7")
        for _ in range(2):
            store.stage([new_job(2)], [], 500)
            with pytest.raises(Fenced):
                run(store.commit())
        with pytest.raises(Fenced):
            run(store.drop_finished(0, 0))
        assert store.must_be_silent()
        assert execute(url, "SELECT id FROM sg_job") == [(1,)]
        assert execute(url, "SELECT value FROM sg_meta WHERE key = 'next_job_id'") == []

    def test_a_lease_that_nobody_confirms_lapses(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        now_s = [1000.0]
        use_clock(monkeypatch, now_s)
        store = opened(url, lease_seconds=4)
        commit(store, [new_job(1)])
        now_s[0] += 2.9
        assert not store.must_be_silent()
        store.check()
        now_s[0] += 0.2
        assert store.must_be_silent()
        with pytest.raises(StorageError, match="has not confirmed for too long"):
            store.check()
        commit(store, [new_job(2)])
        assert not store.must_be_silent()
        close(store)

    def test_a_commit_whose_answer_came_too_late_is_confirmed_first(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The process was stopped after the commit, and meanwhile another server has taken over."""
        now_s = [1000.0]
        use_clock(monkeypatch, now_s)
        store = opened(url, lease_seconds=4)
        commit(store, [new_job(1)])
        real_put = store._writer.put

        async def slow_put(batch: Any) -> list[int]:
            refused = await real_put(batch)
            now_s[0] += 100
            execute(url, "UPDATE sg_lease SET epoch = epoch + 1, holder = 7")
            return refused

        monkeypatch.setattr(store._writer, "put", slow_put)
        with pytest.raises(Fenced):
            commit(store, [new_job(2)])
        close(store)

    def test_an_idle_owner_gives_signs_of_life(self, url: str) -> None:
        store = opened(url, lease_seconds=0.4)

        async def story() -> None:
            await store.load(Function)
            beats = "SELECT coalesce(max(value), 0) FROM sg_meta WHERE key = 'beat'"
            ((before,),) = execute(url, beats)
            await until(lambda: execute(url, beats)[0][0] > before + 2)

        run(story())
        close(store)

    def test_what_is_said_of_processes(self) -> None:
        assert not has_ended(process_identity())
        assert not has_ended("")
        assert not has_ended("other-boot pid:[1] 4194304 5")
        boot, namespace, process, _ = process_identity().split(" ")
        assert has_ended(f"{boot} {namespace} {process} 5")  # another process with the same number


class TestLostConnections:
    def test_while_idle(self, store: PostgresStore, postgres: Cluster) -> None:
        async def story() -> None:
            store.stage([new_job(1)])
            await store.commit()
            assert await store.read_payloads([1]) == {1: b"payload"}
            postgres.hang_up()
            assert await store.read_payloads([1]) == {1: b"payload"}
            store.stage([new_job(2)])
            assert list(await store.commit()) == []

        run(story())
        assert ids(find(store, JobQuery())) == [2, 1]

    def test_between_two_event_loops(self, store: PostgresStore, postgres: Cluster) -> None:
        commit(store, [new_job(1)])
        postgres.hang_up()
        with pytest.raises(StorageError, match="the connection was lost"):
            commit(store, [new_job(2)])
        assert list(run(store.commit())) == []
        assert ids(find(store, JobQuery())) == [2, 1]

    def test_when_the_answer_of_a_commit_is_lost_it_is_stored_once(
        self, far_store: PostgresStore, proxy: Proxy, direct_url: str
    ) -> None:
        store = far_store
        first, second = new_job(1), new_job(2, payload=LONG)
        commit(store, [first, second])
        changes = [finish(first), new_job(3), new_job(4, payload=LONG), finished_job(5, result=LONG)]
        self.lose_an_answer(store, proxy, changes, direct_url)
        assert list(run(store.commit())) == []
        assert [(job.id, job.state) for job in find(store, JobQuery())] == [
            (5, DONE),
            (4, READY),
            (3, READY),
            (2, READY),
            (1, DONE),
        ]
        assert read_payloads(store, [2, 4]) == {2: LONG, 4: LONG}
        assert facts(get(store, 5) or new_job(0)) == facts(changes[3])

    def test_and_a_change_made_meanwhile_is_stored_too(
        self, far_store: PostgresStore, proxy: Proxy, direct_url: str
    ) -> None:
        job = new_job(1)
        self.lose_an_answer(far_store, proxy, [job], direct_url)
        job.state, job.attempts, job.payload = RUNNING, 1, None
        far_store.stage([job])
        assert list(run(far_store.commit())) == []
        found = get(far_store, 1)
        assert found is not None
        assert (found.state, found.attempts, found.payload) == (RUNNING, 1, b"payload")

    def test_and_a_submission_that_was_refused_is_deleted(
        self, far_store: PostgresStore, proxy: Proxy, direct_url: str
    ) -> None:
        withdrawn, other = new_job(1), new_job(2)
        self.lose_an_answer(far_store, proxy, [withdrawn, other], direct_url)
        far_store.unstage([withdrawn])
        assert list(run(far_store.commit())) == []
        assert ids(find(far_store, JobQuery())) == [2]

    def lose_an_answer(self, store: PostgresStore, proxy: Proxy, jobs: list[Any], url: str) -> None:
        """PostgreSQL stores these, and its answer does not arrive."""
        expected = max(job.id for job in jobs)

        def is_stored() -> bool:
            rows = execute(url, "SELECT id FROM sg_job UNION ALL SELECT id FROM sg_done")
            return (expected,) in rows

        async def story() -> None:
            await store.read_payloads([1])
            store.stage((), (), 100)
            await store.commit()  # in this event loop, so that the connection is known to be good
            proxy.hold_answers()
            store.stage(jobs)
            committing = asyncio.create_task(store.commit())
            await until(is_stored)
            proxy.cut()
            proxy.release_answers()
            with pytest.raises(StorageError, match="the connection was lost"):
                await committing

        run(story())

    def test_a_commit_left_behind_is_not_stored_after_a_later_one(self, url: str) -> None:
        """It waits for a lock in PostgreSQL, and its server has given it up."""
        store = opened(url)
        store._writer.connection._patience_s = 0.3
        job = new_job(1)
        with psycopg.connect(url) as other:
            other.execute("SELECT * FROM sg_lease FOR UPDATE")
            store.stage([job])
            with pytest.raises(StorageError, match=r"no answer for 0\.3 s"):
                run(store.commit())
            assert sessions(url) == 1  # it still waits
            store._writer.connection._patience_s = 5.0
            # The next one ends every session that has locked the lease or waits to, ours and the other's.
            finish(job)
            store.stage([job])
            run(_until_committed(store))
            with pytest.raises(psycopg.OperationalError):
                other.execute("SELECT 1")
        assert sessions(url) == 0
        assert [(found.id, found.state) for found in find(store, JobQuery())] == [(1, DONE)]
        assert execute(url, "SELECT count(*) FROM sg_job") == [(0,)]
        close(store)

    def test_a_frozen_database(self) -> None:
        with running_postgres() as cluster:
            store = opened(cluster.new_url())
            for connection in (store._writer.connection, store._reads.reader):
                connection._patience_s = 0.3
            commit(store, [new_job(1)])
            run(store.read_payloads([1]))
            cluster.freeze()
            store.stage([new_job(2)])
            with pytest.raises(StorageError, match=r"no answer for 0\.3 s"):
                run(store.commit())
            with pytest.raises(StorageError):
                run(asyncio.wait_for(store.read_payloads([1]), 20))
            cluster.thaw()
            assert list(run(_until_committed(store))) == []
            assert ids(find(store, JobQuery())) == [2, 1]
            close(store)

    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL])
    def test_a_restart_of_the_database(self, how: signal.Signals) -> None:
        with running_postgres() as cluster:
            store = opened(cluster.new_url())

            async def story() -> None:
                store.stage([new_job(1)])
                await store.commit()
                cluster.stop(how)
                store.stage([new_job(2)])
                # A killed PostgreSQL leaves sessions behind, which may still store it.
                with suppress(StorageError) if how is signal.SIGKILL else pytest.raises(StorageError):
                    await store.commit()
                cluster.start()
                assert list(await _until_committed(store)) == []
                assert ids(await store.find(JobQuery())) == [2, 1]

            run(story())
            close(store)


async def _until_committed(store: PostgresStore) -> Any:
    while True:
        try:
            return await store.commit()
        except Fenced:
            raise
        except StorageError:
            await asyncio.sleep(0.05)


class TestRows:
    @pytest.mark.parametrize("size", [0, 1, 1024, 1025, 65_536, 262_144, 262_145, 3_000_000])
    def test_values_of_any_length(self, store: PostgresStore, size: int) -> None:
        value = os.urandom(size)
        job = new_job(1, payload=value)
        commit(store, [job])
        assert read_payloads(store, [1]) == {1: value}
        job.error, job.result = value, value
        commit(store, [finish(job, FAILED)])
        found = get(store, 1)
        assert found is not None
        assert facts(found) == facts(job)
        (found,) = find(store, JobQuery(states=frozenset({FAILED})))
        assert (found.result, found.error) == (value, value)
        run(store.drop_finished(0, 0))
        assert execute(store._given_url, "SELECT count(*) FROM sg_long") == [(0,)]

    def test_a_long_result_in_place_of_another(self, store: PostgresStore) -> None:
        job = new_job(1, state=FAILED, error=LONG, result=LONG + LONG)
        finish(job, FAILED)
        commit(store, [job])
        job.state, job.finished_us, job.result, job.error = READY, 0, b"", None
        commit(store, [job])
        assert [(found.result, found.error) for found in loaded(store).jobs] == [(b"", None)]
        job.result = LONG
        commit(store, [finish(job)])
        found = get(store, 1)
        assert found is not None
        assert (found.result, found.error) == (LONG, None)

    def test_a_long_error_is_searched(self, store: PostgresStore) -> None:
        error = b"x" * 262_140 + b"needle across two pieces" + b"y" * 10
        commit(store, [finished_job(1, state=FAILED, error=error), finished_job(2, state=FAILED, error=b"hay")])
        assert ids(find(store, JobQuery(error_contains=b"needle across"))) == [1]

    def test_numbers_beyond_every_column(self, store: PostgresStore) -> None:
        strange = new_job(2, run_at_us=2**70, expires_us=-(2**80), numerator=2**90)
        commit(store, [new_job(1), strange, new_job(3)])
        jobs = loaded(store).jobs
        assert ids(jobs) == [1, 2, 3]
        assert jobs[1].run_at_us == 2**63 - 1
        commit(store, [finish(job) for job in jobs])
        assert loaded(store).jobs == []

    def test_many_in_one_commit(self, store: PostgresStore) -> None:
        of = function()
        jobs = [new_job(number, of, name=b"%d" % number if number % 3 == 0 else b"") for number in range(1, 2001)]
        commit(store, jobs)
        for job in jobs:
            job.state, job.attempts = RUNNING, 1
        commit(store, jobs)
        commit(store, [finish(job) for job in jobs])
        assert execute(store._given_url, "SELECT count(*) FROM sg_job") == [(0,)]
        assert len(run(store.read_jobs(range(1, 2001)))) == 2000


class TestWaysToReachIt:
    def test_through_pgbouncer_in_transaction_mode(self, postgres: Cluster) -> None:
        database = postgres.new_database()
        with running_pgbouncer(postgres) as port:
            url = f"postgresql://switchgear@127.0.0.1:{port}/{database}"
            store = opened(url)
            assert store._writer.connection.is_pooled
            jobs = [new_job(number, payload=LONG if number == 5 else b"payload") for number in range(1, 50)]

            async def story() -> None:
                for job in jobs:
                    store.stage([job])
                    await store.commit()
                await asyncio.gather(*(store.read_payloads([job.id]) for job in jobs))

            run(story())
            commit(store, [finish(job) for job in jobs])
            assert len(find(store, JobQuery())) == 49
            assert read_payloads(store, [5]) == {5: LONG}
            close(store)
            store = opened(url)
            assert loaded(store).next_job_id == 50
            close(store)

    def test_a_password_from_a_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with running_postgres() as cluster:
            cluster.execute("CREATE ROLE ada LOGIN PASSWORD 'correct horse'")
            cluster.execute("CREATE DATABASE jobs OWNER ada")
            cluster.require_passwords()
            url = f"postgresql://ada@127.0.0.1:{cluster.port}/jobs"
            with pytest.raises(StorageError, match="no password supplied"):
                opened(url)
            for secret in ("wrong%20horse", "wrong+horse"):
                with pytest.raises(StorageError, match="password authentication failed") as caught:
                    opened(url.replace("ada@", f"ada:{secret}@"))
                assert "horse" not in str(caught.value)
            passwords = tmp_path / "passwords"
            passwords.write_text(f"127.0.0.1:{cluster.port}:*:ada:correct horse\n")
            passwords.chmod(0o600)
            monkeypatch.setenv("PGPASSFILE", str(passwords))
            store = opened(url)
            commit(store, [new_job(1)])
            close(store)
            monkeypatch.delenv("PGPASSFILE")
            store = opened(url.replace("ada@", "ada:correct%20horse@"))
            assert store.url == f"postgresql://ada:***@127.0.0.1:{cluster.port}/jobs"
            assert ids(loaded(store).jobs) == [1]
            close(store)

    def test_encrypted(self, tmp_path: Path) -> None:
        with running_postgres() as cluster:
            certificate = cluster.use_tls()
            url = f"postgresql://switchgear@127.0.0.1:{cluster.port}/postgres"
            store = opened(f"{url}?sslmode=verify-full&sslrootcert={certificate}")
            assert store._writer.connection._require().ssl_in_use
            commit(store, [new_job(1, payload=LONG * 20)])
            assert read_payloads(store, [1]) == {1: LONG * 20}
            close(store)
            with pytest.raises(StorageError, match=r"certificate verify failed|root certificate file"):
                opened(f"{url}?sslmode=verify-full&sslrootcert={tmp_path / 'none'}")

    def test_the_one_of_several_hosts_that_can_be_written(self, postgres: Cluster) -> None:
        with running_postgres() as standby:
            database = postgres.new_database()
            standby.execute(f"CREATE DATABASE {database}")
            standby.settings["default_transaction_read_only"] = "on"
            standby.stop()
            standby.start()
            hosts = f"127.0.0.1:{standby.port},127.0.0.1:{postgres.port}"
            store = opened(f"postgresql://switchgear@{hosts}/{database}?target_session_attrs=read-write")
            commit(store, [new_job(1)])
            assert store._writer.connection._require().port == str(postgres.port).encode()
            close(store)

    def test_nobody_is_there(self) -> None:
        with pytest.raises(StorageError, match=r"postgresql://ada:\*\*\*@127\.0\.0\.1:\d+/jobs cannot be .*refused"):
            opened(f"postgresql://ada:secret@127.0.0.1:{free_port()}/jobs")

    def test_psycopg_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
        with pytest.raises(ConfigError, match=r"pip install 'switchgear\[postgres\]'"):
            open_store("postgresql://localhost/jobs")


class TestMigrations:
    LATER = MIGRATIONS | {
        max(MIGRATIONS) + 1: "ALTER TABLE sg_done ADD COLUMN colour text; ALTER TABLE sg_job ADD COLUMN colour text"
    }

    def test_a_later_layout_is_refused(self, url: str) -> None:
        close(opened(url, migrations=self.LATER))
        newest = max(MIGRATIONS)
        problem = f"has layout version {newest + 1}, this program knows versions up to {newest}"
        with pytest.raises(SchemaTooNew, match=problem):
            opened(url)

    def test_jobs_stay(self, url: str) -> None:
        store = opened(url)
        commit(store, [new_job(1), finished_job(2)])
        close(store)
        store = opened(url, migrations=self.LATER)
        assert ids(find(store, JobQuery())) == [2, 1]
        close(store)

    def test_a_mistake_changes_nothing(self, url: str) -> None:
        close(opened(url))
        broken = MIGRATIONS | {max(MIGRATIONS) + 1: "ALTER TABLE sg_job ADD COLUMN colour text; SELECT nonsense"}
        with pytest.raises(StorageError, match=r"cannot be used as a job store.*nonsense"):
            opened(url, migrations=broken)
        store = opened(url)
        commit(store, [new_job(1)])
        close(store)

    def test_two_servers_begin_with_an_empty_database_at_once(self, url: str) -> None:
        stores = [PostgresStore(url), PostgresStore(url)]

        async def story() -> list[BaseException | None]:
            opening = [asyncio.to_thread(store.open) for store in stores]
            done = await asyncio.gather(*opening, return_exceptions=True)
            return list(done)

        outcomes = run(story())
        assert [type(outcome) for outcome in outcomes if outcome is not None] in ([], [StorageError])
        for store, outcome in zip(stores, outcomes):
            if outcome is None:
                close(store)

    def test_tables_of_others_are_not_locked_and_those_of_a_later_schema_are_found(self, url: str) -> None:
        close(opened(url))
        schema = url.rpartition("%3D")[2]
        execute(url, f"CREATE SCHEMA before_{schema}")
        both = url.replace(f"%3D{schema}", f"%3Dbefore_{schema}%2C{schema}")
        with psycopg.connect(url) as other:
            other.execute("CREATE TABLE sg_of_somebody_else (id integer)")
            other.commit()
            other.execute("SELECT count(*) FROM sg_of_somebody_else")
            store = opened(both, migrations=self.LATER)
            commit(store, [new_job(1)])
            close(store)

    @pytest.mark.parametrize(
        ("first", "second"), [("sg_job", "sg_done"), ("sg_done", "sg_job"), ("sg_schedule", "sg_long")]
    )
    def test_it_lets_reads_end_that_use_tables_in_any_order(self, url: str, first: str, second: str) -> None:
        close(opened(url))
        newer = PostgresStore(url, migrations=self.LATER)
        with psycopg.connect(url) as reader, ThreadPoolExecutor() as pool:
            reader.execute(f"SELECT count(*) FROM {first}")
            opening = pool.submit(newer.open)
            waits = "SELECT pid FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
            eventually(lambda: execute(url, waits), "the migration waits for its locks")
            reader.execute(f"SELECT count(*) FROM {second}")
            reader.rollback()
            opening.result(DEADLINE_SECONDS)
        close(newer)

    def test_it_does_not_deadlock_with_commits_and_reads(self, url: str) -> None:
        """A newer server migrates as soon as it owns the jobs, while the older one has not noticed."""
        store = opened(url)
        jobs = [new_job(number, payload=LONG) for number in range(1, 20)]
        commit(store, jobs)

        async def story() -> int:
            newer = PostgresStore(url, migrations=self.LATER)
            commits = 0

            async def busily() -> None:
                nonlocal commits
                while True:
                    for job in jobs:
                        store.stage([job])
                    await store.commit()
                    commits += 1

            async def curiously() -> None:
                while True:
                    await store.read_jobs([1, 2, 3])
                    await store.find(JobQuery(unique=b"none"))

            tasks = [asyncio.create_task(busily()), asyncio.create_task(curiously())]
            await asyncio.sleep(0.2)
            await newer.prepare()
            while not await newer.lease.take(await newer.lease.look()):  # noqa: ASYNC110 - the older one commits in between
                await asyncio.sleep(0)
            await newer.take_over()
            with pytest.raises(Fenced):
                await tasks[0]
            tasks[1].cancel()
            newer.stage([new_job(100)])
            assert list(await newer.commit()) == []
            await newer.close()
            return commits

        assert run(story()) > 0
        close(store)
