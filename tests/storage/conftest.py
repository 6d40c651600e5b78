"""A store in an SQLite file, for the tests that are about one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from switchgear.storage.sqlite import SqliteStore
from tests.storage.support import close


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path, "normal")
    store.open()
    yield store
    close(store)
