"""The same conversations, with a Redis and with this server, and the same bytes in answer; and where they are not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest

from switchgear.protocols.gearmonkey.command_table import VERBS
from tests.interop.monkey_stage import stage
from tests.protocols.gearmonkey.transcript import Names, Transcript, load
from tests.support.gearmonkey_server import MonkeyServer, running_monkey_server
from tests.support.redis_server import RedisServer, running_redis
from tests.support.resp_wire import RespWire, Simple, Verbatim
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


@pytest.mark.parametrize("version", [2, 3])
def test_commands_are_described_alike(version: int, here: MonkeyServer, redis: RedisServer) -> None:
    """Libraries that route commands by their keys, as for a cluster, go by this."""
    names = [name.decode() for name in VERBS if name not in (b"HOST:", b"POST")]
    with RespWire(here.address, version) as ours, RespWire((HOST, redis.port), version) as theirs:
        for name in names:
            [described], [expected] = ours.ask("COMMAND", "INFO", name), theirs.ask("COMMAND", "INFO", name)
            assert len(described) == len(expected)
            # The name, how many words it takes, and where its keys are; and of the flags those that tell about keys.
            assert (described[0], described[1], *described[3:6]) == (expected[0], expected[1], *expected[3:6])
            assert set(described[2]) <= set(expected[2])
            for flag in (Simple(b"write"), Simple(b"readonly"), Simple(b"movablekeys")):
                if flag in expected[2] and name not in ("SCAN", "DBSIZE"):
                    assert flag in described[2], name


@pytest.mark.parametrize("version", [2, 3])
def test_a_tool_reads_both_alike(version: int, names: Names, here: MonkeyServer, redis: RedisServer) -> None:
    function, first_id = names.function, names.first_id
    with RespWire(here.address, version) as ours, RespWire((HOST, redis.port), version) as theirs:
        found = []
        for wire in (ours, theirs):
            assert wire.ask("INCR", f"uid:{function}") == first_id
            wire.ask("HMSET", f"job:{function}:{first_id}", "status", "idle", "input", "x")
            wire.ask("LPUSH", f"queue:{function}:low", first_id)
            keys: set[bytes] = set()
            cursor = b"0"
            while True:
                cursor, more = wire.ask("SCAN", cursor, "MATCH", f"[jq]*:{function}:*")
                keys.update(more)
                if cursor == b"0":
                    break
            found.append({key: wire.ask("TYPE", key) for key in keys})
            seconds, microseconds = wire.ask("TIME")
            assert abs(int(seconds) - time.time()) < 60
            assert 0 <= int(microseconds) < 1_000_000
        assert found[0] == found[1]
        own, other = (dict(pair.split(b"=", 1) for pair in client_info(wire).split()) for wire in (ours, theirs))
        assert set(own) <= set(other), "every word is one of Redis"
        assert (own[b"db"], own[b"resp"], own[b"cmd"]) == (other[b"db"], other[b"resp"], other[b"cmd"])


def client_info(wire: RespWire) -> bytes:
    answer = wire.ask("CLIENT", "INFO")
    return bytes(answer.text if isinstance(answer, Verbatim) else answer)
