"""Schedules in every store, and what a durable one does besides."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from switchgear.errors import StorageError
from switchgear.model import LOW, CatchUp, Schedule
from switchgear.storage.base import Store
from switchgear.storage.sqlite_schedules import schedule_from_row, schedule_row
from switchgear.timetable import Cron, Every
from tests.storage.support import NOW_US, close, loaded, new_job, opened, run, written_to_by_another_program
from tests.storage.test_conformance import ALL, DURABLE, Durable

# What is worked out again, by the timetable or by trying.
FORGOTTEN = {"timetable", "next_us", "wake_us", "refusal", "removed"}


@pytest.fixture(params=ALL)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = ALL[request.param](tmp_path)
    store.open()
    yield store
    close(store)


@pytest.fixture(params=DURABLE)
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Durable]:
    durable = Durable(lambda: DURABLE[request.param](tmp_path))
    yield durable
    close(durable.store)


def nightly(name: bytes = b"nightly", **fields: Any) -> Schedule:
    return Schedule(name, Cron("0 3 * * *", "Europe/Berlin"), b"report", **fields)


def full() -> Schedule:
    """One whose every field has a value of its own."""
    return Schedule(
        name=b"odd \xff name",
        timetable=Every(200_000),
        function_name=b"odd \xfe function",
        payload=b"\0" * 5000,
        priority=LOW,
        catch_up=CatchUp.ALL,
        overlap=True,
        expires_after_us=1,
        timeout_us=2,
        attempts_limit=3,
        crash_limit=4,
        retention_us=0,
        key=b"key",
        owner=b"shop",
        paused=True,
        reached_us=NOW_US,
        last_us=NOW_US - 5,
        last_job_id=17,
        fired=5,
        skipped=6,
        missed=7,
        refused=8,
    )


def keep(store: Store, *schedules: Schedule) -> None:
    store.stage((), (), 0, schedules)
    run(store.commit())


def known(schedule: Schedule) -> dict[str, Any]:
    values = {field.name: getattr(schedule, field.name) for field in fields(schedule) if field.name not in FORGOTTEN}
    return values | {"times": (schedule.timetable.spec, schedule.timetable.timezone)}


class TestEveryStore:
    def test_a_new_one_has_none(self, store: Store) -> None:
        assert loaded(store).schedules == []

    def test_they_are_taken(self, store: Store) -> None:
        keep(store, nightly(), full())
        keep(store, nightly(removed=True))


class TestEveryDurableStore:
    @pytest.mark.parametrize("make", [nightly, full])
    def test_what_comes_back(self, durable: Durable, make: Any) -> None:
        keep(durable.store, make())
        (found,) = loaded(durable.reopen()).schedules
        assert known(found) == known(make())

    def test_by_name(self, durable: Durable) -> None:
        keep(durable.store, nightly(b"b"), nightly(b"a"))
        keep(durable.store, nightly(b"c"))
        assert [found.name for found in loaded(durable.reopen()).schedules] == [b"a", b"b", b"c"]

    def test_the_last_change_counts(self, durable: Durable) -> None:
        schedule = nightly()
        keep(durable.store, schedule)
        schedule.fired = 1
        durable.store.stage((), (), 0, [schedule])
        schedule.fired = 2
        durable.store.stage((), (), 0, [schedule])
        schedule.fired = 3  # after it was staged
        run(durable.store.commit())
        assert [found.fired for found in loaded(durable.reopen()).schedules] == [2]

    def test_a_removed_one_is_forgotten(self, durable: Durable) -> None:
        keep(durable.store, nightly(), full())
        keep(durable.store, nightly(removed=True))
        assert [found.name for found in loaded(durable.reopen()).schedules] == [full().name]

    def test_unless_there_is_another_of_its_name(self, durable: Durable) -> None:
        keep(durable.store, nightly())
        durable.store.stage((), (), 0, [nightly(removed=True)])
        durable.store.stage((), (), 0, [nightly(fired=7)])
        run(durable.store.commit())
        assert [found.fired for found in loaded(durable.reopen()).schedules] == [7]

    def test_what_was_only_staged_is_lost_with_its_job(self, durable: Durable) -> None:
        keep(durable.store, nightly())
        durable.store.stage([new_job(1)], (), 0, [nightly(fired=1)])
        snapshot = loaded(durable.reopen())
        assert (snapshot.jobs, [found.fired for found in snapshot.schedules]) == ([], [0])


class TestSqlite:
    def test_what_could_not_be_kept_stays_staged_under_what_is_newer(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("switchgear.storage.sqlite_schema.BUSY_TIMEOUT_S", 0.01)
        store = opened(path)
        store.stage([new_job(1)], (), 0, [nightly(b"a", fired=1), nightly(b"b", fired=1)])
        with written_to_by_another_program(path), pytest.raises(StorageError):
            run(store.commit())
        store.stage((), (), 0, [nightly(b"b", fired=2)])
        run(store.commit())
        close(store)
        store = opened(path)
        snapshot = loaded(store)
        assert [(found.name, found.fired) for found in snapshot.schedules] == [(b"a", 1), (b"b", 2)]
        assert [job.id for job in snapshot.jobs] == [1]
        close(store)

    @pytest.mark.parametrize(
        ("column", "nonsense"),
        [("spec", "often"), ("timezone", "Nowhere"), ("catch_up", 9), ("options", b"\xc1")],
    )
    def test_a_row_that_makes_no_sense(self, path: Path, column: str, nonsense: object) -> None:
        store = opened(path)
        keep(store, nightly())
        close(store)
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(f"UPDATE schedules SET {column} = ?", (nonsense,))
        connection.close()
        store = opened(path)
        with pytest.raises(StorageError, match=r"jobs\.db cannot be read: "):
            loaded(store)
        close(store)


@pytest.mark.parametrize("column", ["spec", "timezone"])
def test_a_row_whose_timetable_is_no_text_is_told_as_one_that_means_nothing(column: str) -> None:
    row = list(schedule_row(nightly()))
    row[{"spec": 2, "timezone": 3}[column]] = None
    with pytest.raises(ValueError, match="schedule b'nightly': its timetable is no text"):
        schedule_from_row(tuple(row))
