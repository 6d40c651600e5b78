"""Job logs in every kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from switchgear.joblog import JobLog
from tests.support.postgres import Cluster, running_postgres

# One process runs all tests with PostgreSQL, so that it is started once.
POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.xdist_group("postgresql"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    with running_postgres() as cluster:
        yield cluster


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
