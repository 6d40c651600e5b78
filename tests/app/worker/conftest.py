"""A server for each test of workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers import Server, running_switchgear


@pytest.fixture
def server() -> Iterator[Server]:
    with running_switchgear() as server:
        yield server
