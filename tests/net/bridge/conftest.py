"""One Redis for all tests of a process, empty at the start of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.redis_server import RedisServer, running_redis


@pytest.fixture(scope="session")
def shared_server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture
def server(shared_server: RedisServer) -> RedisServer:
    with shared_server.client() as client:
        client.flushall()
    return shared_server


@pytest.fixture
def store(server: RedisServer) -> Iterator[Any]:
    """The test's own look at what is kept in Redis."""
    with server.client() as client:
        yield client
