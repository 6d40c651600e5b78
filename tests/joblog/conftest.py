"""Job logs in every kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from switchgear.joblog import JobLog
from tests.support.postgres import POSTGRESQL, Cluster


@pytest.fixture(params=["sqlite", POSTGRESQL])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where there is no job log yet."""
    if request.param == "postgresql":
        cluster: Cluster = request.getfixturevalue("postgres")
        return cluster.new_url()
    return f"sqlite:{tmp_path / 'joblog.db'}"


@pytest.fixture
def log(url: str) -> Iterator[JobLog]:
    with JobLog.open(url) as log:
        yield log
