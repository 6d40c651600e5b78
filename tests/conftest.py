"""What tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.postgres import Cluster, running_postgres

# How long an example takes says more about what else the machine does than about the test.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    with running_postgres() as cluster:
        yield cluster
