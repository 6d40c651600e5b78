"""Loading in parts: what is plain comes as rows, the rest as jobs, and together that is everything."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.engine.engine import Engine
from switchgear.errors import StorageError
from switchgear.model import FAILED, RUNNING, SCHEDULED, WAITING, Cause, Delivery, Function, PlainJob
from switchgear.storage.base import Snapshot, Store
from switchgear.storage.memory import MemoryStore
from switchgear.testing import check_engine
from tests.storage.stores import Durable
from tests.storage.support import (
    NOW_US,
    close,
    commit,
    finished_job,
    function,
    load_apart,
    loaded,
    new_job,
    plain_portions,
    read_payloads,
)

# Each of these alone makes a job one that rows cannot tell.
SPECIAL: tuple[dict[str, Any], ...] = (
    {"state": RUNNING, "attempts": 1},
    {"state": SCHEDULED, "run_at_us": NOW_US},
    {"state": WAITING, "predecessors": (1,)},
    {"attempts": 1},
    {"name": b"Anna"},
    {"key": b"red", "has_details": True},
    {"rank": -1},
    {"expires_us": NOW_US},
    {"moves": [int(Cause.TAKEN), NOW_US, int(Cause.GIVEN_BACK), NOW_US]},
    {"result_code": 1},
    {"error": b""},
    {"result": b"half"},
    {"unique": b"held", "unique_until_us": NOW_US, "has_details": True},
    {"delivery": Delivery.WAIT},
    {"revision": 1},  # it will be the second that is kept
)


@pytest.fixture
def store(durable: Durable) -> Store:
    return durable.store


def apart(store: Store) -> tuple[Snapshot, list[PlainJob]]:
    functions: dict[bytes, Function] = {}
    snapshot = load_apart(store, lambda name: functions.setdefault(name, Function(name)))
    return snapshot, [row for portion in plain_portions(snapshot) for row in portion]


@pytest.mark.parametrize("fields", SPECIAL, ids=str)
def test_a_job_with_more_to_it_comes_as_a_job(store: Store, fields: dict[str, Any]) -> None:
    of = function()
    commit(store, [new_job(1, of), new_job(2, of, **fields), new_job(3, of, unique=b"red", priority=2)])
    snapshot, rows = apart(store)
    assert [job.id for job in snapshot.jobs] == [2]
    assert snapshot.jobs[0].payload == b"payload"
    assert [(row[0], row[1].name, *row[2:]) for row in rows] == [
        (1, b"resize", 1, Delivery.HANDLE, NOW_US + 1, b""),
        (3, b"resize", 2, Delivery.HANDLE, NOW_US + 3, b"red"),
    ]
    assert rows[0][1] is rows[1][1] is snapshot.jobs[0].function


def test_both_ways_of_loading_give_the_same_jobs(store: Store) -> None:
    of = function()
    jobs = [new_job(number, of, **SPECIAL[number % 40 % len(SPECIAL)]) for number in range(1, 1_500, 40)]
    jobs += [new_job(number, of) for number in range(1, 1_500) if number % 40 != 1]
    commit(store, [*jobs, finished_job(1_500, of), finished_job(1_501, of, state=FAILED)])
    snapshot, rows = apart(store)
    whole = loaded(store)
    assert sorted([job.id for job in snapshot.jobs] + [row[0] for row in rows]) == [job.id for job in whole.jobs]
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert (snapshot.next_job_id, snapshot.unsuccessful) == (1_502, {1_501: FAILED})
    assert (whole.next_job_id, whole.unsuccessful) == (1_502, {1_501: FAILED})


def test_an_engine_goes_on_with_both(store: Store) -> None:
    of = function()
    red: dict[str, Any] = {"key": b"red", "has_details": True}
    commit(store, [new_job(number, of, **(red if number % 50 == 0 else {})) for number in range(1, 201)])
    engine = Engine()
    engine.packed_queues.segment_jobs, engine.packed_queues.head_jobs = 8, 4
    engine.advance(NOW_US)
    snapshot = load_apart(store, engine.function_named)
    engine.restore(snapshot.jobs, snapshot.unsuccessful, snapshot.next_job_id, plain=plain_portions(snapshot))
    check_engine(engine)
    assert engine.packed_queues.job_count > 100
    assert [job.id for job in engine.ready_jobs(engine.functions[b"resize"])] == list(range(1, 201))
    assert len(read_payloads(store, range(1, 201))) == 200  # and the store can be asked again


def test_a_store_that_cannot_be_read_says_so(store: Store) -> None:
    commit(store, [new_job(1)])
    snapshot = load_apart(store, Function)
    close(store)
    with pytest.raises(StorageError, match="is closed"):
        plain_portions(snapshot)


def test_a_store_that_forgets_has_nothing_apart() -> None:
    store = MemoryStore()
    store.open()
    snapshot = load_apart(store, Function)
    assert (snapshot.jobs, plain_portions(snapshot)) == ([], [])
    close(store)
