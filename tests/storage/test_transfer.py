"""Export and import: everything arrives in another store, and a damaged export is noticed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from switchgear.errors import StorageError
from switchgear.model import FAILED, RUNNING, SCHEDULED, CatchUp, Function, Limiter, Schedule
from switchgear.policy import Policy
from switchgear.storage.base import JobQuery, Store
from switchgear.storage.transfer import TransferCounts, exported, import_lines
from switchgear.timetable import Cron
from tests.storage.stores import DURABLE, parameters
from tests.storage.support import (
    NOW_US,
    close,
    commit,
    facts,
    find,
    finished_job,
    function,
    get,
    ids,
    load,
    new_job,
    run,
)

NAMES = ("sqlite", "postgresql")


@pytest.fixture(params=parameters(NAMES))
def source(request: pytest.FixtureRequest, place: Callable[[str], str]) -> Iterator[Store]:
    yield from opened(request.param, place)


@pytest.fixture(params=parameters(NAMES))
def target(request: pytest.FixtureRequest, place: Callable[[str], str], tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "target").mkdir()
    there = place(request.param)
    yield from opened(request.param, lambda name: there if name == "postgresql" else str(tmp_path / "target"))


def opened(name: str, place: Callable[[str], str]) -> Iterator[Store]:
    store = DURABLE[name](place(name))
    store.open()
    yield store
    close(store)


def lines_of(store: Store) -> list[bytes]:
    async def read() -> list[bytes]:
        return [line async for line in exported(store, TransferCounts())]

    return run(read())


def settings_of(store: Store) -> dict[bytes, Any]:
    functions: dict[bytes, Function] = {}
    load(store, lambda name: functions.setdefault(name, Function(name)))
    return {
        name: (known.paused, known.limits, known.limiter and known.limiter.policy) for name, known in functions.items()
    }


def filled(store: Store) -> Store:
    resize, mail = function(b"resize"), function(b"mail\xff")
    resize.paused, resize.limits = True, [1, 2, 3]
    mail.limiter = Limiter(mail, Policy(concurrency=5))
    jobs = [new_job(number, resize) for number in range(1, 500)]
    jobs += [
        finished_job(500, mail, result=b"\0\xff" * 100_000, error=b""),
        finished_job(501, mail, state=FAILED, error=b"no", moves=[7, NOW_US, 8, NOW_US + 5], name=b"Anna"),
        new_job(502, mail, payload=b"long" * 100_000, state=RUNNING, attempts=2),
        new_job(503, mail, payload=b"", state=SCHEDULED, run_at_us=NOW_US, unique=b"key", key=b"red", has_details=True),
    ]
    store.stage(
        (), (), 0, [Schedule(b"nightly", Cron("0 3 * * *", "UTC"), b"mail", b"\xfe", catch_up=CatchUp.ALL, fired=7)]
    )
    commit(store, jobs, [resize, mail])
    commit(store, jobs[1:2])
    store.stage((), (), 7000)
    run(store.commit())
    return store


def test_everything_arrives(source: Store, target: Store) -> None:
    filled(source)
    lines = lines_of(source)
    counts = run(import_lines(target, lines))
    assert (counts.jobs, counts.functions, counts.schedules) == (503, 2, 1)
    assert ids(find(target, JobQuery(limit=1000))) == list(range(503, 0, -1))
    for job_id in (1, 2, 500, 501, 502, 503):
        before, after = get(source, job_id), get(target, job_id)
        assert before is not None
        assert after is not None
        assert facts(after) == facts(before)
    assert settings_of(target) == settings_of(source)
    snapshot = load(target, Function)
    assert (snapshot.next_job_id, [schedule.fired for schedule in snapshot.schedules]) == (7000, [7])
    assert lines_of(target) == lines


def test_an_empty_store(source: Store, target: Store) -> None:
    counts = run(import_lines(target, lines_of(source)))
    assert (counts.jobs, counts.functions, counts.schedules) == (0, 0, 0)


def test_only_into_an_empty_store(source: Store) -> None:
    commit(source, [new_job(1)])
    with pytest.raises(StorageError, match="is not empty; import into a new store"):
        run(import_lines(source, lines_of(source)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[:-1], "cut off: its last line is missing"),
        (lambda lines: [*lines[:-2], lines[-1]], "says that it has 2 jobs; 1 were found"),
        (lambda lines: lines[1:], "line 1 of the export is in the wrong place"),
        (lambda lines: [*lines, lines[-2]], "line 5 of the export is in the wrong place"),
        (lambda lines: [lines[0], b"{}\n"], "line 2 is not of an export"),
        (lambda lines: [b"\xff\n"], "line 1 is not of an export"),
        (lambda lines: [], "its last line is missing"),
        (lambda lines: [lines[0].replace(b'"format":1', b'"format":2')], "this program knows formats up to 1"),
        (lambda lines: [lines[0], lines[1].replace(b'"state":2', b'"state":99')], "line 2 is not of an export"),
    ],
)
def test_a_damaged_export(tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], words: str) -> None:
    stores = []
    for name in ("source", "target"):
        (tmp_path / name).mkdir()
        store = DURABLE["sqlite"](str(tmp_path / name))
        store.open()
        stores.append(store)
    commit(stores[0], [new_job(1), new_job(2)])
    with pytest.raises(StorageError, match=words):
        run(import_lines(stores[1], change(lines_of(stores[0]))))
    for store in stores:
        close(store)


def test_an_import_that_fails_says_that_a_part_is_there(tmp_path: Path) -> None:
    source, target = (DURABLE["sqlite"](str(tmp_path / name)) for name in ("source", "target"))
    for store, name in ((source, "source"), (target, "target")):
        (tmp_path / name).mkdir()
        store.open()
    commit(source, [new_job(1), new_job(2)])
    with pytest.raises(StorageError, match=r"target/jobs\.db has a part of the jobs now: delete it"):
        run(import_lines(target, lines_of(source)[:-1]))
    for store in (source, target):
        close(store)


def test_on_the_command_line(tmp_path: Path) -> None:
    store = DURABLE["sqlite"](str(tmp_path))
    store.open()
    commit(store, [new_job(1), finished_job(2)])
    close(store)
    switchgear = f"{sys.executable} -m switchgear"
    first, second = tmp_path / "jobs.db", tmp_path / "other.db"
    pipe = f"{switchgear} export sqlite:{first} | {switchgear} import sqlite:{second}"
    done = subprocess.run(pipe, shell=True, capture_output=True, text=True, check=True, timeout=60)
    assert sorted(done.stderr.splitlines()) == [
        "exported 2 jobs, 0 functions with settings, 0 schedules",
        "imported 2 jobs, 0 functions with settings, 0 schedules",
    ]
    again = subprocess.run(pipe, shell=True, capture_output=True, text=True, check=False, timeout=60)
    assert "is not empty; import into a new store" in again.stderr
