"""A store in an SQLite file, for the tests that are about one, and durable ones of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from switchgear.storage.sqlite import SqliteStore
from tests.storage.stores import DURABLE, Durable, parameters
from tests.storage.support import close
from tests.support.postgres import Cluster


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path, "normal")
    store.open()
    yield store
    close(store)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Where a store of that name has no jobs yet: a directory, or the URL of a database."""

    def place_of(name: str) -> str:
        if name != "postgresql":
            return str(tmp_path)
        cluster: Cluster = request.getfixturevalue("postgres")
        return cluster.new_url()

    return place_of


@pytest.fixture(params=parameters(DURABLE))
def durable(request: pytest.FixtureRequest, place: Callable[[str], str]) -> Iterator[Durable]:
    where = place(request.param)
    durable = Durable(lambda: DURABLE[request.param](where))
    yield durable
    close(durable.store)
