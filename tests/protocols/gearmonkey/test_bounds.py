"""What a connection can make the server hold beside jobs: each has an end, and counts as memory."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.protocols.gearmonkey import blocked_connection, listener_state, session
from tests.protocols.gearmonkey.harness import FakeTransport, MonkeyHarness, pop, push
from tests.support.resp_wire import OK, Error

NO_MEMORY = Error(b"OOM there is no memory for more jobs that are not pushed yet")


def held(harness: MonkeyHarness) -> int:
    return harness.engine.memory.draft_bytes


def test_a_draft_counts_as_memory_until_it_is_pushed_or_deleted() -> None:
    harness = MonkeyHarness()
    for _ in range(2):
        harness.ask("client", "INCR", "uid:f")
    empty = held(harness)
    assert empty > 0
    harness.ask("client", "HMSET", "job:f:1", "status", "idle", "input", "x" * 1000)
    harness.ask("client", "HMSET", "job:f:2", "status", "idle", "input", "x" * 1000)
    assert held(harness) > empty + 2000
    harness.ask("client", "HMSET", "job:f:2", "input", "")
    assert held(harness) < empty + 2000
    harness.ask("client", "LPUSH", "queue:f:normal", "1")
    harness.ask("client", "DEL", "job:f:2")
    assert held(harness) == 0


def test_fields_beside_a_job_count_until_it_ends() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    pop(harness)
    assert held(harness) == 0
    harness.ask("worker", "HSET", f"job:f:{job_id}", "note", "x" * 1000)
    assert held(harness) > 1000
    harness.ask("worker", "HSET", f"job:f:{job_id}", "status", "success")
    assert held(harness) == 0


def test_what_finds_no_memory_is_refused_and_what_is_there_can_be_pushed() -> None:
    harness = MonkeyHarness(settings=EngineSettings(memory_bytes=12_000))
    harness.ask("client", "INCR", "uid:f")
    assert harness.ask("client", "HMSET", "job:f:1", "status", "idle", "input", "x" * 2000) == OK
    before = held(harness)
    assert harness.ask("client", "HMSET", "job:f:1", "more", "x" * 2000) == NO_MEMORY
    harness.ask("client", "INCR", "uid:f")
    assert harness.ask("client", "HMSET", "job:f:2", "input", "x" * 1000) == NO_MEMORY
    assert held(harness) > before
    harness.engine.memory.history_bytes = harness.engine.memory.stored_limit_bytes - held(harness)
    assert harness.ask("client", "INCR", "uid:f") == NO_MEMORY
    harness.engine.memory.history_bytes -= 300
    assert harness.ask("client", "LPUSH", "queue:f:normal", "1") == 1, "it only changes its place"


def test_a_field_beside_a_job_that_finds_no_memory_is_refused() -> None:
    harness = MonkeyHarness(settings=EngineSettings(memory_bytes=8000))
    job_id = push(harness)
    pop(harness)
    reply = harness.ask("worker", "HSET", f"job:f:{job_id}", "note", "x" * 5000)
    assert reply == Error(b"OOM there is no memory for more fields")


def test_the_functions_that_workers_are_counted_for_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_state, "MOST_COUNTED_NAMES", 3)
    harness = MonkeyHarness()
    for name in "abc":
        assert harness.ask("one", "INCR", f"count:{name}") == 1
    assert harness.ask("two", "INCR", "count:d") == Error(b"ERR workers are registered for 3 functions")
    assert harness.ask("two", "INCR", "count:a") == 2
    harness.leave("one")
    assert harness.ask("two", "INCR", "count:d") == 1


def test_the_queues_of_a_pop_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = MonkeyHarness(packet_bytes=1_000_000)
    keys = [f"queue:{number}:normal" for number in range(blocked_connection.MOST_QUEUE_KEYS + 1)]
    assert harness.ask("worker", "BRPOP", *keys, "1") == Error(b"ERR more than 3000 keys at once")
    assert not harness.engine.functions
    monkeypatch.setattr(session, "MOST_REGISTERED", 3)
    for names in ("ab", "c"):
        harness.tell("worker", ("MULTI",), ("BRPOP", *(f"queue:{name}:high" for name in names), "1"), ("EXEC",))
    reply = harness.ask("worker", "RPOP", "queue:d:high")
    assert reply == Error(b"ERR the sets of queues of a connection may name 3 functions")


def test_a_long_value_that_is_asked_for_many_times_is_there_once() -> None:
    harness = MonkeyHarness()

    class Remembering(FakeTransport):
        def write(self, out: list[bytes]) -> None:
            pieces.extend(out)
            super().write(out)

    pieces: list[bytes] = []
    talker = harness.talker("client")
    talker.wire = talker.session.transport = Remembering(harness)
    harness.ask("client", "INCR", "uid:f")
    harness.ask("client", "HMSET", "job:f:1", "status", "idle", "input", "x" * 8000)
    pieces.clear()
    values = harness.ask("client", "HMGET", "job:f:1", *["input"] * 50, "none", "status")
    assert values == [b"x" * 8000] * 50 + [None, b"idle"]
    assert len({id(piece) for piece in pieces if len(piece) >= 8000}) == 1
    assert harness.ask("client", "HGET", "job:f:1", "input") == b"x" * 8000
    assert harness.ask("client", "HGETALL", "job:f:1") == [b"status", b"idle", b"input", b"x" * 8000]
