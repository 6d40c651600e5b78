"""What monitoring tools see: keys, connections and commands, however many there are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from switchgear.protocols.gearmonkey import monitoring
from switchgear.protocols.gearmonkey.verbs import VERBS
from tests.protocols.gearmonkey.house import MonkeyHouse, Word
from tests.support.resp_wire import Error, Simple, command


def scanned(house: MonkeyHouse, *options: Word, most_calls: int = 10_000) -> list[bytes]:
    """All keys, as a tool reads them, call by call."""
    cursor: Any = 0
    found: list[bytes] = []
    for _ in range(most_calls):
        cursor, keys = house.ask("tool", "SCAN", cursor, *options)
        found += keys
        if cursor == b"0":
            return found
    raise AssertionError(f"the scan does not end: {cursor}")


def push(house: MonkeyHouse, function: str, count: int, priority: str = "normal") -> list[int]:
    ids = []
    for _ in range(count):
        job_id = house.ask("client", "INCR", f"uid:{function}")
        house.ask("client", "HMSET", f"job:{function}:{job_id}", "status", "idle", "input", "x")
        house.ask("client", "LPUSH", f"queue:{function}:{priority}", job_id)
        ids.append(job_id)
    return ids


def test_a_scan_of_nothing() -> None:
    assert scanned(MonkeyHouse()) == []


@pytest.mark.parametrize("count", [1, 7, 10, 100_000])
def test_a_scan_finds_every_key_once(count: int) -> None:
    house = MonkeyHouse()
    expected = set()
    for number in range(50):
        ids = push(house, f"f{number}", 3, "high")
        expected |= {b"queue:f%d:high" % number, *(b"job:f%d:%d" % (number, job_id) for job_id in ids)}
    house.ask("worker", "INCR", "count:f7")
    expected.add(b"count:f7")
    found = scanned(house, "COUNT", count)
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert house.ask("tool", "DBSIZE") == len(expected)


def test_a_scan_finds_what_is_there_all_the_time_whatever_comes_and_goes() -> None:
    house = MonkeyHouse()
    push(house, "steady", 1)
    cursor: Any = 0
    found = set()
    for number in range(200):
        push(house, f"other{number}", 1)
        cursor, keys = house.ask("tool", "SCAN", cursor, "COUNT", 1)
        found.update(keys)
        house.ask("worker", "RPOP", f"queue:other{number}:normal")
    while cursor != b"0":
        cursor, keys = house.ask("tool", "SCAN", cursor)
        found.update(keys)
    assert {b"queue:steady:normal", b"job:steady:1"} <= found


def test_a_scan_by_pattern_and_type() -> None:
    house = MonkeyHouse()
    push(house, "f", 2, "high")
    push(house, "g", 1)
    assert sorted(scanned(house, "MATCH", "queue:*")) == [b"queue:f:high", b"queue:g:normal"]
    assert sorted(scanned(house, "MATCH", "*:f:*", "TYPE", "hash")) == [b"job:f:1", b"job:f:2"]
    assert scanned(house, "TYPE", "zset") == []
    assert scanned(house, "match", "queue:[g]:norma?") == [b"queue:g:normal"]


def test_a_pattern_that_takes_too_long_is_refused() -> None:
    house = MonkeyHouse()
    push(house, "f" * 60, 40)
    pattern = "*" + "*".join("[a-y]?" * 20 for _ in range(8)) + "*"
    reply = house.ask("tool", "SCAN", 0, "COUNT", 1000, "MATCH", pattern)
    assert reply == Error(b"ERR comparing keys with this pattern takes too long; try a smaller COUNT")
    assert house.ask("tool", "SCAN", 0, "MATCH", "*" * 2000).text.startswith(b"ERR a pattern of more than")


def test_a_range_of_a_long_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "MOST_IN_RANGE", 5)
    house = MonkeyHouse()
    ids = push(house, "f", 20)
    assert house.ask("tool", "LRANGE", "queue:f:normal", -3, -1) == [b"%d" % job_id for job_id in ids[2::-1]]
    assert house.ask("tool", "LRANGE", "queue:f:normal", -5, -5) == [b"%d" % ids[4]]
    reply = house.ask("tool", "LRANGE", "queue:f:normal", 0, 3)
    assert reply == Error(b"ERR only the 5 ids that are popped next can be listed")


def test_looking_changes_nothing() -> None:
    house = MonkeyHouse()
    push(house, "f", 3)
    for _ in range(3):
        assert house.ask("tool", "LRANGE", "queue:f:normal", 0, -1) == [b"3", b"2", b"1"]
        scanned(house)
        house.ask("tool", "LLEN", "queue:nobody:high")
    assert list(house.engine.functions) == [b"f"]
    assert house.ask("worker", "RPOP", "queue:f:normal") == b"1"


def test_connections_are_listed() -> None:
    house = MonkeyHouse()
    house.ask("worker", "CLIENT", "SETNAME", "ada")
    house.talker("worker").send(command("BRPOP", "queue:f:high", 0))
    house.ask("listener", "SUBSCRIBE", "a")
    house.pass_time(5)
    own = house.ask("tool", "CLIENT", "INFO")
    assert re.fullmatch(
        rb"id=3 addr=10\.0\.0\.1:0 name= age=0 flags=N db=0 .* cmd=client\|info user=default resp=2\n", own
    )
    worker, listener, tool = house.ask("tool", "CLIENT", "LIST").splitlines()
    assert b"name=ada age=5 flags=b " in worker
    assert b" flags=P db=0 sub=1 " in listener
    assert b"cmd=client|list" in tool


def test_the_time_is_the_servers() -> None:
    house = MonkeyHouse()
    seconds, microseconds = house.ask("tool", "TIME")
    assert int(seconds) * 1_000_000 + int(microseconds) == house.engine.now_us


@pytest.mark.parametrize("name", ["INCR", "HSET", "LPUSH", "BRPOP", "SCAN", "MULTI", "SUBSCRIBE", "LLEN"])
def test_nothing_is_done_in_a_database_that_is_not_there(name: str) -> None:
    house = MonkeyHouse()
    words = [name, *(["x"] * (abs(VERBS[name.encode()].words) - 1))]
    assert house.ask("client", "SELECT", 3) == Error(b"ERR DB index is out of range")
    refused = b"ERR database 3 was selected, and there is only database 0 here; nothing is done before SELECT 0"
    assert house.ask("client", *words) == Error(refused)
    assert house.ask("client", "PING") == Simple(b"PONG")
    assert house.ask("client", "RESET") == Simple(b"RESET")
    assert house.ask("client", *words) != Error(refused)
