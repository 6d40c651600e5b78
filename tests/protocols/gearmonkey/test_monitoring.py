"""What monitoring tools see: keys, connections and commands, however many there are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from switchgear.protocols.gearmonkey import monitoring
from switchgear.protocols.gearmonkey.command_table import VERBS
from tests.protocols.gearmonkey.harness import MonkeyHarness, Word
from tests.support.resp_wire import Error, Simple, command


def scanned(harness: MonkeyHarness, *options: Word, most_calls: int = 10_000) -> list[bytes]:
    """All keys, as a tool reads them, call by call."""
    cursor: Any = 0
    found: list[bytes] = []
    for _ in range(most_calls):
        cursor, keys = harness.ask("tool", "SCAN", cursor, *options)
        found += keys
        if cursor == b"0":
            return found
    raise AssertionError(f"the scan does not end: {cursor}")


def push(harness: MonkeyHarness, function: str, count: int, priority: str = "normal") -> list[int]:
    ids = []
    for _ in range(count):
        job_id = harness.ask("client", "INCR", f"uid:{function}")
        harness.ask("client", "HMSET", f"job:{function}:{job_id}", "status", "idle", "input", "x")
        harness.ask("client", "LPUSH", f"queue:{function}:{priority}", job_id)
        ids.append(job_id)
    return ids


def test_a_scan_of_nothing() -> None:
    assert scanned(MonkeyHarness()) == []


@pytest.mark.parametrize("count", [1, 7, 10, 100_000])
def test_a_scan_finds_every_key_once(count: int) -> None:
    harness = MonkeyHarness()
    expected = set()
    for number in range(50):
        ids = push(harness, f"f{number}", 3, "high")
        expected |= {b"queue:f%d:high" % number, *(b"job:f%d:%d" % (number, job_id) for job_id in ids)}
    harness.ask("worker", "INCR", "count:f7")
    expected.add(b"count:f7")
    found = scanned(harness, "COUNT", count)
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert harness.ask("tool", "DBSIZE") == len(expected)


def test_a_scan_finds_what_is_there_all_the_time_whatever_comes_and_goes() -> None:
    harness = MonkeyHarness()
    push(harness, "steady", 1)
    cursor: Any = 0
    found = set()
    for number in range(200):
        push(harness, f"other{number}", 1)
        cursor, keys = harness.ask("tool", "SCAN", cursor, "COUNT", 1)
        found.update(keys)
        harness.ask("worker", "RPOP", f"queue:other{number}:normal")
    while cursor != b"0":
        cursor, keys = harness.ask("tool", "SCAN", cursor)
        found.update(keys)
    assert {b"queue:steady:normal", b"job:steady:1"} <= found


def test_a_scan_by_pattern_and_type() -> None:
    harness = MonkeyHarness()
    push(harness, "f", 2, "high")
    push(harness, "g", 1)
    assert sorted(scanned(harness, "MATCH", "queue:*")) == [b"queue:f:high", b"queue:g:normal"]
    assert sorted(scanned(harness, "MATCH", "*:f:*", "TYPE", "hash")) == [b"job:f:1", b"job:f:2"]
    assert scanned(harness, "TYPE", "zset") == []
    assert scanned(harness, "match", "queue:[g]:norma?") == [b"queue:g:normal"]


def test_a_pattern_that_takes_too_long_is_refused() -> None:
    harness = MonkeyHarness()
    push(harness, "f" * 60, 40)
    pattern = "*" + "*".join("[a-y]?" * 20 for _ in range(8)) + "*"
    reply = harness.ask("tool", "SCAN", 0, "COUNT", 1000, "MATCH", pattern)
    assert reply == Error(b"ERR comparing keys with this pattern takes too long; try a smaller COUNT")
    assert harness.ask("tool", "SCAN", 0, "MATCH", "*" * 2000).text.startswith(b"ERR a pattern of more than")


def test_a_range_of_a_long_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "MOST_IN_RANGE", 5)
    harness = MonkeyHarness()
    ids = push(harness, "f", 20)
    assert harness.ask("tool", "LRANGE", "queue:f:normal", -3, -1) == [b"%d" % job_id for job_id in ids[2::-1]]
    assert harness.ask("tool", "LRANGE", "queue:f:normal", -5, -5) == [b"%d" % ids[4]]
    reply = harness.ask("tool", "LRANGE", "queue:f:normal", 0, 3)
    assert reply == Error(b"ERR only the 5 ids that are popped next can be listed")


def test_looking_changes_nothing() -> None:
    harness = MonkeyHarness()
    push(harness, "f", 3)
    for _ in range(3):
        assert harness.ask("tool", "LRANGE", "queue:f:normal", 0, -1) == [b"3", b"2", b"1"]
        scanned(harness)
        harness.ask("tool", "LLEN", "queue:nobody:high")
    assert list(harness.engine.functions) == [b"f"]
    assert harness.ask("worker", "RPOP", "queue:f:normal") == b"1"


def test_connections_are_listed() -> None:
    harness = MonkeyHarness()
    harness.ask("worker", "CLIENT", "SETNAME", "ada")
    harness.talker("worker").send(command("BRPOP", "queue:f:high", 0))
    harness.ask("listener", "SUBSCRIBE", "a")
    harness.pass_time(5)
    own = harness.ask("tool", "CLIENT", "INFO")
    assert re.fullmatch(
        rb"id=3 addr=10\.0\.0\.1:0 name= age=0 flags=N db=0 .* cmd=client\|info user=default resp=2\n", own
    )
    worker, listener, tool = harness.ask("tool", "CLIENT", "LIST").splitlines()
    assert b"name=ada age=5 flags=b " in worker
    assert b" flags=P db=0 sub=1 " in listener
    assert b"cmd=client|list" in tool


def test_the_time_is_the_servers() -> None:
    harness = MonkeyHarness()
    seconds, microseconds = harness.ask("tool", "TIME")
    assert int(seconds) * 1_000_000 + int(microseconds) == harness.engine.now_us


@pytest.mark.parametrize("name", ["INCR", "HSET", "LPUSH", "BRPOP", "SCAN", "MULTI", "SUBSCRIBE", "LLEN"])
def test_nothing_is_done_in_a_database_that_is_not_there(name: str) -> None:
    harness = MonkeyHarness()
    words = [name, *(["x"] * (abs(VERBS[name.encode()].words) - 1))]
    assert harness.ask("client", "SELECT", 3) == Error(b"ERR DB index is out of range")
    refused = b"ERR database 3 was selected, and there is only database 0 here; nothing is done before SELECT 0"
    assert harness.ask("client", *words) == Error(refused)
    assert harness.ask("client", "PING") == Simple(b"PONG")
    assert harness.ask("client", "RESET") == Simple(b"RESET")
    assert harness.ask("client", *words) != Error(refused)
