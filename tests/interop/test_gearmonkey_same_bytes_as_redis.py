"""The same conversations, with a Redis and with this server, and the same bytes in answer; and where they are not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.interop.monkey_stage import stage
from tests.protocols.gearmonkey.transcript import Names, Transcript, load
from tests.support.gearmonkey_server import MonkeyServer, running_monkey_server
from tests.support.redis_server import RedisServer, running_redis
from tests.support.resp_wire import RespWire
from tests.support.servers import HOST

pytestmark = pytest.mark.interop

NUMBERS = count(1)


@pytest.fixture(scope="module")
def here() -> Iterator[MonkeyServer]:
    with running_monkey_server() as server:
        yield server


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture
def names(here: MonkeyServer, redis: RedisServer) -> Names:
    """A function of the test's own, whose next ids are the same for both."""
    function = f"function{next(NUMBERS)}"
    with RespWire(here.address) as wire:
        last_id: int = wire.ask("INCR", "uid:used-up")
    with RespWire((HOST, redis.port)) as wire:
        wire.ask("FLUSHALL")
        wire.ask("SCRIPT", "FLUSH")
        wire.ask("SET", f"uid:{function}", last_id)
    return Names(function, last_id + 1)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("transcript", load("document"), ids=str)
def test_the_same_bytes(
    transcript: Transcript, version: int, names: Names, here: MonkeyServer, redis: RedisServer
) -> None:
    with (
        stage(here.address, version, names, "here") as ours,
        stage((HOST, redis.port), version, names, "redis") as theirs,
    ):
        ours.play(transcript)
        theirs.play(transcript)
        assert ours.heard == theirs.heard


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("transcript", load("differences"), ids=str)
def test_where_a_redis_answers_otherwise(
    transcript: Transcript, version: int, names: Names, here: MonkeyServer, redis: RedisServer
) -> None:
    with (
        stage(here.address, version, names, "here") as ours,
        stage((HOST, redis.port), version, names, "redis") as theirs,
    ):
        ours.play(transcript)
        theirs.play(transcript)
        assert ours.heard != theirs.heard
