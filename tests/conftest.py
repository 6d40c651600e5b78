"""What tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import Cluster, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    with running_postgres() as cluster:
        yield cluster
