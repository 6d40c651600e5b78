"""Limits of functions are kept, and a server that goes on with them hands out as the last one did."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from switchgear.engine.engine import Engine, SubmitOptions
from switchgear.errors import StorageError
from switchgear.model import NORMAL, SECOND_US, Delivery, Function, Job, Peer
from switchgear.policy import Policy
from switchgear.storage.sqlite import SqliteStore
from switchgear.storage.sqlite_schema import MIGRATIONS, connect, migrate
from switchgear.testing import check_engine
from tests.storage.support import NOW_US, close, load, run

EVERYTHING = Policy(2, (10, SECOND_US), 1, (100, 3600 * SECOND_US), True, "shop")


def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    store.open()
    return store


def begun(store: SqliteStore) -> Engine:
    """A server that goes on with what the store has."""
    engine = Engine()
    engine.reports_changes = True
    engine.advance(NOW_US)
    snapshot = load(store, engine.function_named)
    engine.restore(snapshot.jobs, snapshot.unsuccessful, snapshot.next_job_id)
    check_engine(engine)
    return engine


def kept(engine: Engine, store: SqliteStore) -> None:
    jobs, functions = engine.take_changes()[:2]
    store.stage(jobs, functions, engine.next_job_id)
    run(store.commit())


def submit(engine: Engine, key: bytes) -> Job:
    return engine.submit(b"mail", b"", b"", NORMAL, Delivery.HANDLE, None, SubmitOptions(key=key))


def policy_of(function: Function) -> Policy | None:
    return function.limiter.policy if function.limiter is not None else None


def test_a_policy_comes_back(tmp_path: Path) -> None:
    store = opened(tmp_path / "jobs.db")
    engine = begun(store)
    engine.set_policy(engine.function_named(b"mail"), EVERYTHING)
    engine.set_policy(engine.function_named(b"was limited"), Policy(concurrency=1))
    engine.pause(engine.function_named(b"paused"))
    kept(engine, store)
    engine.set_policy(engine.function_named(b"was limited"), Policy())
    kept(engine, store)
    close(store)
    store = opened(tmp_path / "jobs.db")
    known = {name: policy_of(function) for name, function in begun(store).functions.items()}
    assert known == {b"mail": EVERYTHING, b"was limited": None, b"paused": None}
    close(store)


def test_a_dropped_function_comes_back_without_limits(tmp_path: Path) -> None:
    store = opened(tmp_path / "jobs.db")
    engine = begun(store)
    function = engine.function_named(b"mail")
    engine.set_policy(function, EVERYTHING)
    kept(engine, store)
    assert engine.drop_function(function)
    kept(engine, store)
    assert begun(store).functions == {}
    close(store)


def test_after_a_restart_keys_stand_in_their_order_and_nobody_runs(tmp_path: Path) -> None:
    """What ran when the server stopped is where it was taken from, and its room is free."""
    store = opened(tmp_path / "jobs.db")
    engine = begun(store)
    engine.set_policy(engine.function_named(b"mail"), Policy(concurrency=3, key_concurrency=1, fair=True))
    jobs = [submit(engine, key) for key in (b"a", b"a", b"a", b"b", b"", b"b")]
    worker = engine.add_worker(Peer(), "test")
    engine.can_do(worker, engine.function_named(b"mail"))
    assert [engine.take(worker) for _ in range(4)] == [jobs[0], jobs[3], jobs[4], None]
    kept(engine, store)
    close(store)

    store = opened(tmp_path / "jobs.db")
    engine = begun(store)
    limiter = engine.functions[b"mail"].limiter
    assert limiter is not None
    assert limiter.keys_waiting == 2
    worker = engine.add_worker(Peer(), "test")
    engine.can_do(worker, engine.functions[b"mail"])
    order = []
    while (job := engine.take(worker)) is not None:
        order.append(job.id)
        engine.complete(worker, job.id, b"")
    assert order == [jobs[place].id for place in (0, 3, 4, 1, 5, 2)]
    check_engine(engine)
    close(store)


def test_a_file_without_limits_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    connection = connect(path, "normal")
    migrate(connection, path, {1: MIGRATIONS[1]})
    connection.execute("INSERT INTO functions VALUES (1, x'66', 1, 0, 0, 0)")
    connection.close()
    store = opened(path)
    function = begun(store).functions[b"f"]
    assert (function.paused, function.limiter) == (True, None)
    close(store)


@pytest.mark.parametrize("blob", [b"", b"nonsense", b"\x81\xabconcurrency\xff"], ids=["empty", "nonsense", "negative"])
def test_limits_that_mean_nothing_are_a_damaged_file(tmp_path: Path, blob: bytes) -> None:
    path = tmp_path / "jobs.db"
    store = opened(path)
    engine = begun(store)
    engine.set_policy(engine.function_named(b"mail"), EVERYTHING)
    kept(engine, store)
    close(store)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE functions SET policy = ?", (blob,))
    connection.close()
    store = opened(path)
    with pytest.raises(StorageError, match="cannot be read"):
        begun(store)
    close(store)


def test_a_limit_of_a_later_version_is_overlooked(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = opened(path)
    engine = begun(store)
    engine.set_policy(engine.function_named(b"mail"), Policy(concurrency=3))
    kept(engine, store)
    close(store)
    later = b"\x82\xabconcurrency\x07\xa4kind\x01"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE functions SET policy = ?", (later,))
    connection.close()
    store = opened(path)
    assert policy_of(begun(store).functions[b"mail"]) == Policy(concurrency=7)
    close(store)
