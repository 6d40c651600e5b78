"""What a connection can make the server hold beside jobs: each has an end, and counts as memory."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.protocols.gearmonkey import listener_state, session, waiting
from tests.protocols.gearmonkey.house import FakeTransport, MonkeyHouse, pop, push
from tests.support.resp_wire import OK, Error

NO_MEMORY = Error(b"OOM there is no memory for more jobs that are not pushed yet")


def held(house: MonkeyHouse) -> int:
    return house.engine.memory.draft_bytes


def test_a_draft_counts_as_memory_until_it_is_pushed_or_deleted() -> None:
    house = MonkeyHouse()
    for _ in range(2):
        house.ask("client", "INCR", "uid:f")
    empty = held(house)
    assert empty > 0
    house.ask("client", "HMSET", "job:f:1", "status", "idle", "input", "x" * 1000)
    house.ask("client", "HMSET", "job:f:2", "status", "idle", "input", "x" * 1000)
    assert held(house) > empty + 2000
    house.ask("client", "HMSET", "job:f:2", "input", "")
    assert held(house) < empty + 2000
    house.ask("client", "LPUSH", "queue:f:normal", "1")
    house.ask("client", "DEL", "job:f:2")
    assert held(house) == 0


def test_fields_beside_a_job_count_until_it_ends() -> None:
    house = MonkeyHouse()
    job_id = push(house)
    pop(house)
    assert held(house) == 0
    house.ask("worker", "HSET", f"job:f:{job_id}", "note", "x" * 1000)
    assert held(house) > 1000
    house.ask("worker", "HSET", f"job:f:{job_id}", "status", "success")
    assert held(house) == 0


def test_what_finds_no_memory_is_refused_and_what_is_there_can_be_pushed() -> None:
    house = MonkeyHouse(settings=EngineSettings(memory_bytes=12_000))
    house.ask("client", "INCR", "uid:f")
    assert house.ask("client", "HMSET", "job:f:1", "status", "idle", "input", "x" * 2000) == OK
    before = held(house)
    assert house.ask("client", "HMSET", "job:f:1", "more", "x" * 2000) == NO_MEMORY
    house.ask("client", "INCR", "uid:f")
    assert house.ask("client", "HMSET", "job:f:2", "input", "x" * 1000) == NO_MEMORY
    assert held(house) > before
    house.engine.memory.history_bytes = house.engine.memory.stored_limit_bytes - held(house)
    assert house.ask("client", "INCR", "uid:f") == NO_MEMORY
    house.engine.memory.history_bytes -= 300
    assert house.ask("client", "LPUSH", "queue:f:normal", "1") == 1, "it only changes its place"


def test_a_field_beside_a_job_that_finds_no_memory_is_refused() -> None:
    house = MonkeyHouse(settings=EngineSettings(memory_bytes=8000))
    job_id = push(house)
    pop(house)
    reply = house.ask("worker", "HSET", f"job:f:{job_id}", "note", "x" * 5000)
    assert reply == Error(b"OOM there is no memory for more fields")


def test_the_functions_that_workers_are_counted_for_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_state, "MOST_COUNTED_NAMES", 3)
    house = MonkeyHouse()
    for name in "abc":
        assert house.ask("one", "INCR", f"count:{name}") == 1
    assert house.ask("two", "INCR", "count:d") == Error(b"ERR workers are registered for 3 functions")
    assert house.ask("two", "INCR", "count:a") == 2
    house.leave("one")
    assert house.ask("two", "INCR", "count:d") == 1


def test_the_queues_of_a_pop_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    house = MonkeyHouse(packet_bytes=1_000_000)
    keys = [f"queue:{number}:normal" for number in range(waiting.MOST_QUEUE_KEYS + 1)]
    assert house.ask("worker", "BRPOP", *keys, "1") == Error(b"ERR more than 3000 keys at once")
    assert not house.engine.functions
    monkeypatch.setattr(session, "MOST_REGISTERED", 3)
    for names in ("ab", "c"):
        house.tell("worker", ("MULTI",), ("BRPOP", *(f"queue:{name}:high" for name in names), "1"), ("EXEC",))
    reply = house.ask("worker", "RPOP", "queue:d:high")
    assert reply == Error(b"ERR the sets of queues of a connection may name 3 functions")


def test_a_long_value_that_is_asked_for_many_times_is_there_once() -> None:
    house = MonkeyHouse()

    class Remembering(FakeTransport):
        def write(self, out: list[bytes]) -> None:
            pieces.extend(out)
            super().write(out)

    pieces: list[bytes] = []
    talker = house.talker("client")
    talker.wire = talker.session.transport = Remembering(house)
    house.ask("client", "INCR", "uid:f")
    house.ask("client", "HMSET", "job:f:1", "status", "idle", "input", "x" * 8000)
    pieces.clear()
    values = house.ask("client", "HMGET", "job:f:1", *["input"] * 50, "none", "status")
    assert values == [b"x" * 8000] * 50 + [None, b"idle"]
    assert len({id(piece) for piece in pieces if len(piece) >= 8000}) == 1
    assert house.ask("client", "HGET", "job:f:1", "input") == b"x" * 8000
    assert house.ask("client", "HGETALL", "job:f:1") == [b"status", b"idle", b"input", b"x" * 8000]
