"""One Redis for all tests of a process, empty at the start of each."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import redis

from tests.client.gearmonkey.harness import FACES, Client
from tests.support.redis_server import Overheard, RedisServer, overhearing, running_redis


@pytest.fixture(scope="session")
def shared_server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture
def server(shared_server: RedisServer) -> RedisServer:
    with shared_server.client() as client:
        client.flushall()
        client.script_flush()
    return shared_server


@pytest.fixture
def store(server: RedisServer) -> Iterator[redis.Redis]:
    """The test's own look at what is kept."""
    with server.client() as client:
        yield client


@pytest.fixture
def overheard(server: RedisServer, store: redis.Redis) -> Iterator[Overheard]:
    with overhearing(server) as everything:
        yield everything


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What is logged, even if a server in this process has set up its own log."""
    log = logging.getLogger("switchgear")
    log.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.WARNING, "switchgear"):
            yield caplog
    finally:
        log.removeHandler(caplog.handler)


@pytest.fixture(params=list(FACES))
def client(request: pytest.FixtureRequest, server: RedisServer) -> Iterator[Client]:
    face = FACES[request.param](server.url)
    yield face
    face.close()
