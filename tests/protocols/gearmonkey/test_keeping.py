"""What is kept, for how long, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.errors import Refused
from switchgear.model import NORMAL, READY, RUNNING, Delivery, Job
from switchgear.protocols.gearmonkey import drafts
from switchgear.protocols.pending_read import Reading
from switchgear.testing import RecordingPeer
from tests.protocols.gearmonkey.harness import TRIO, MonkeyHarness, Word, pop, push
from tests.protocols.gearmonkey.transcript import SHA
from tests.support.resp_wire import OK, Error, NullArray, Simple

PONG = Simple(b"PONG")


# --- drafts and fields ---


def test_drafts_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "MOST_DRAFTS", 2)
    harness = MonkeyHarness()
    for number in (1, 2, 3):
        assert harness.ask("client", "INCR", "uid:f") == number
    assert isinstance(harness.ask("client", "HMSET", "job:f:1", "status", "idle"), Error)
    assert harness.ask("client", "HMSET", "job:f:2", "status", "idle") == OK


def test_drafts_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "MOST_DRAFT_BYTES", 5000)
    harness = MonkeyHarness()
    for number in (1, 2, 3):
        harness.ask("client", "INCR", "uid:f")
        assert harness.ask("client", "HMSET", f"job:f:{number}", "input", "x" * 2000) == OK
    assert harness.ask("client", "EXISTS", "job:f:1", "job:f:2", "job:f:3") == 2
    assert harness.ask("client", "LPUSH", "queue:f:low", 3) == 1
    assert harness.setup.drafts.bytes < 2500
    harness.ask("client", "INCR", "uid:f")
    assert harness.ask("client", "HMSET", "job:f:4", "input", "x" * 7000) == OK  # one is taken, however long
    assert harness.ask("client", "LPUSH", "queue:f:low", 4) == 2
    assert harness.setup.drafts.bytes == 0


def test_one_draft_does_not_grow_beyond_all_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "MOST_DRAFT_BYTES", 5000)
    harness = MonkeyHarness()
    harness.ask("client", "INCR", "uid:f")
    assert harness.ask("client", "HSET", "job:f:1", "input", "x" * 4000) == 1
    assert harness.ask("client", "HSET", "job:f:1", "note", "x" * 4000).text.startswith(b"OOM ")
    assert harness.ask("client", "HSET", "job:f:1", "input", "y" * 4500) == 0  # it takes the place of the other
    assert harness.ask("client", "HGETALL", "job:f:1") == [b"input", b"y" * 4500]


@pytest.mark.parametrize("is_pushed", [False, True])
def test_a_hash_has_a_limited_number_of_fields(monkeypatch: pytest.MonkeyPatch, is_pushed: bool) -> None:
    monkeypatch.setattr(drafts, "MOST_FIELDS", 3)
    harness = MonkeyHarness()
    harness.ask("client", "INCR", "uid:f")
    if is_pushed:
        harness.ask("client", "HSET", "job:f:1", "status", "idle")
        harness.ask("client", "LPUSH", "queue:f:low", 1)
    assert harness.ask("client", "HSET", "job:f:1", "a", 1, "b", 1) == 2
    refusal = Error(b"ERR a hash may have 3 fields")
    assert harness.ask("client", "HSET", "job:f:1", "b", 2, "c", 1, "d", 1) == refusal
    assert harness.ask("client", "HSET", "job:f:1", "a", 2, "c", 1) == 1
    assert harness.ask("client", "HMGET", "job:f:1", "a", "b", "c", "d") == [b"2", b"1", b"1", None]


@pytest.mark.parametrize("is_pushed", [False, True])
def test_what_a_field_takes_is_counted_once_however_often_it_is_written(is_pushed: bool) -> None:
    harness = MonkeyHarness()
    harness.ask("client", "INCR", "uid:f")
    harness.ask("client", "HSET", "job:f:1", "input", "x")
    if is_pushed:
        harness.ask("client", "LPUSH", "queue:f:low", 1)
    memory = harness.setup.extras if is_pushed else harness.setup.drafts
    before = memory.bytes
    for size in (10, 500, 3):
        harness.ask("client", "HSET", "job:f:1", "note", "x" * size)
        assert memory.bytes - before == len("note") + size + drafts.FIELD_OVERHEAD_BYTES


def test_a_job_without_input_is_a_job() -> None:
    harness = MonkeyHarness()
    harness.ask("client", "INCR", "uid:f")
    harness.ask("client", "HMSET", "job:f:1", "status", "idle")
    assert harness.ask("client", "LPUSH", "queue:f:low", 1) == 1
    assert harness.ask("client", "HGETALL", "job:f:1") == [b"status", b"idle", b"input", b""]


def test_other_fields_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "MOST_EXTRA_BYTES", 3000)
    harness = MonkeyHarness()
    first, second = push(harness), push(harness)
    assert harness.ask("client", "HSET", f"job:f:{first}", "note", "x" * 2000) == 1
    refusal = harness.ask("client", "HSET", f"job:f:{second}", "note", "x" * 2000)
    assert refusal.text.startswith(b"OOM ")
    harness.engine.cancel(harness.engine.jobs[first])  # which nobody has told the listener
    assert harness.ask("client", "HSET", f"job:f:{second}", "note", "x" * 2000) == 1
    assert harness.setup.extras.bytes < 3000
    harness.ask("client", "INCR", "uid:f")
    harness.ask("client", "HSET", "job:f:3", "note", "x" * 2000)
    assert harness.ask("client", "LPUSH", "queue:f:low", 3).text.startswith(b"OOM ")
    harness.engine.cancel(harness.engine.jobs[second])
    assert harness.ask("client", "LPUSH", "queue:f:low", 3) == 1


def test_fields_that_an_end_brings_along_are_not_kept() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    pop(harness)
    harness.ask("worker", "HSET", f"job:f:{job_id}", "note", "x")
    assert (
        harness.ask("worker", "HSET", f"job:f:{job_id}", "status", "error", "output", "y", "note", "z", "more", "z")
        == 2
    )
    assert harness.setup.extras.bytes == 0


# --- refusals and promises ---


def test_a_full_queue_refuses() -> None:
    harness = MonkeyHarness(settings=EngineSettings(jobs=2))
    for number in (1, 2, 3):
        harness.ask("client", "INCR", "uid:f")
        harness.ask("client", "HMSET", f"job:f:{number}", "status", "idle", "input", number)
    refusal = harness.ask("client", "LPUSH", "queue:f:low", 1, 2, 3)
    assert refusal == Error(b"ERR 2 of 3 ids were pushed, the others not: Job queue is full")
    assert sorted(harness.engine.jobs) == [1, 2]
    assert harness.ask("client", "LPUSH", "queue:f:low", 3) == Error(b"OOM Job queue is full")
    assert pop(harness) == 1
    harness.ask("worker", "HMSET", "job:f:1", "status", "success", "output", "")
    assert harness.ask("client", "LPUSH", "queue:f:low", 3) == 2  # what was written is still there


def test_too_many_functions() -> None:
    harness = MonkeyHarness(settings=EngineSettings(functions=1))
    push(harness)
    refusal = Error(b"ERR there are 1 functions already")
    assert harness.ask("worker", "BRPOP", "queue:g:high", 1) == refusal
    assert harness.ask("worker", "EVALSHA", SHA, 1, "queue:g:scheduled", 1) == refusal


def test_while_the_server_stops_nothing_is_taken_or_given() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    harness.tell("client", ("INCR", "uid:f"), ("HMSET", "job:f:2", "status", "idle"))
    harness.engine.drain()
    assert harness.ask("client", "INCR", "uid:f") == Error(b"ERR server is shutting down")
    assert harness.ask("client", "LPUSH", "queue:f:low", 2) == Error(b"ERR server is shutting down")
    assert harness.ask("worker", "RPOP", "queue:f:normal") is None
    harness.tell("worker", ("BRPOP", *TRIO, 1))
    harness.pass_time(1)
    assert harness.heard("worker") == [NullArray()]
    assert harness.ask("client", "HGET", f"job:f:{job_id}", "status") == b"idle"


def test_an_attempt_that_counts_is_kept_before_it_is_made() -> None:
    harness = MonkeyHarness(keeps=True, settings=EngineSettings(attempts=2))
    harness.engine.submit(b"f", b"", b"x", NORMAL, Delivery.HANDLE)
    harness.turn()
    harness.keep()
    assert harness.tell("worker", ("BRPOP", *TRIO, 1)) == []
    harness.keep()
    assert harness.heard("worker") == [[b"queue:f:normal", b"1"]]


def test_an_id_that_might_be_given_out_again_is_not_given_out() -> None:
    harness = MonkeyHarness()
    harness.engine.refusal = Refused("storage", "disk full")
    assert harness.ask("client", "INCR", "uid:f") == Error(b"MISCONF disk full")
    harness.engine.refusal = None
    assert harness.ask("client", "INCR", "uid:f") == 1


@pytest.mark.parametrize("push", [("LPUSH", "queue:f:low"), ("ZADD", "queue:f:scheduled", 0)])
def test_a_push_that_could_not_be_kept_may_be_tried_again(push: tuple[str, ...]) -> None:
    harness = MonkeyHarness(keeps=True)
    harness.ask("client", "INCR", "uid:f")
    harness.ask("client", "HMSET", "job:f:1", "status", "idle", "input", "x", "note", "y")
    assert harness.tell("client", (*push, 1)) == []
    harness.fail_to_keep(Refused("storage", "disk full"))
    assert harness.heard("client") == [Error(b"MISCONF disk full")]
    assert harness.setup.extras.bytes == 0
    assert harness.ask("client", "HGETALL", "job:f:1") == [b"status", b"idle", b"input", b"x", b"note", b"y"]
    assert harness.tell("client", (*push, 1)) == []
    harness.keep()
    assert harness.heard("client") == [1]
    assert harness.ask("client", "HMGET", "job:f:1", "input", "note") == [b"x", b"y"]


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        (("RPOP", "lock:f:1"), b"OK"),
        (("BRPOP", "lock:f:1", 1), [b"lock:f:1", b"OK"]),
        (("EXISTS", "lock:f:1"), 1),
        (("TTL", "lock:f:1"), 10),
        (("EXPIRE", "lock:f:1", 10), 1),
        (("DEL", "lock:f:1"), 1),
        (("EXPIRE", "job:f:1", 90_000), 1),
    ],
)
def test_nobody_is_told_of_an_end_before_it_is_kept(words: tuple[Word, ...], reply: object) -> None:
    harness = MonkeyHarness(keeps=True, settings=EngineSettings(attempts=0))
    harness.engine.submit(b"f", b"", b"x", NORMAL, Delivery.HANDLE)
    harness.turn()
    harness.keep()
    pop(harness)
    assert harness.tell("worker", ("HMSET", "job:f:1", "status", "success", "output", "y")) == []
    assert harness.tell("client", words) == []
    harness.keep()
    assert harness.heard("client") == [reply]


def test_an_end_that_is_not_kept_yet_is_waited_for() -> None:
    """A job has ended, the store does not know it, and the engine does not know the job any more."""
    harness = MonkeyHarness(keeps=True)
    job = harness.engine.submit(b"f", b"", b"x", NORMAL, Delivery.HANDLE)
    harness.turn()
    harness.keep()
    other = RecordingPeer()
    worker = harness.engine.add_worker(other, "other")
    harness.engine.can_do(worker, job.function)
    harness.engine.take(worker)
    as_the_store_has_it = Job(1, job.function, b"", b"x", NORMAL, Delivery.HANDLE, 0)
    as_the_store_has_it.state = RUNNING
    harness.engine.complete(worker, 1, b"y")

    def find_jobs(job_ids: Sequence[int]) -> Reading[dict[int, Job]]:
        yield from ()
        return {1: as_the_store_has_it}

    harness.find_jobs = find_jobs  # type: ignore[method-assign]
    assert harness.tell("client", ("BRPOP", "lock:f:1", 1)) == []
    harness.keep()
    assert harness.heard("client") == [[b"lock:f:1", b"OK"]]
    assert harness.ask("second", "RPOP", "lock:f:1") is None
    # A worker that has reported, lost its connection, and reports again.
    assert harness.tell("second", ("HMSET", "job:f:1", "status", "success", "output", "y")) == []
    harness.keep()
    assert harness.heard("second") == [OK]


def test_a_history_that_cannot_be_read_is_an_error() -> None:
    harness = MonkeyHarness()
    harness.read_error = Refused("storage", "unreadable")
    refusal = Error(b"MISCONF unreadable")
    for words in (
        ("HGETALL", "job:f:1"),
        ("HMSET", "job:f:1", "status", "busy"),
        ("EXPIRE", "job:f:1", 1),
        ("BRPOP", "lock:f:1", 1),
        ("EXISTS", "lock:f:1"),
    ):
        assert harness.ask("client", *words) == refusal
    assert harness.ask("client", "PING") == PONG


def test_a_payload_that_cannot_be_read_now_is_an_error_and_its_job_is_not_given() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    harness.engine.jobs[job_id].payload = None
    harness.read_error = Refused("storage", "unreadable")
    assert harness.ask("client", "HGETALL", f"job:f:{job_id}") == Error(b"MISCONF unreadable")
    assert harness.tell("worker", ("BRPOP", "queue:f:high", "queue:f:normal", "queue:f:low", 1)) == []
    assert harness.engine.jobs[job_id].state is READY


def test_a_payload_that_is_lost_ends_the_job() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    job = harness.engine.jobs[job_id]
    job.payload = None
    lost = f"the store has lost the payload of job {job_id}".encode()
    assert harness.ask("client", "HGET", f"job:f:{job_id}", "input") == Error(b"ERR " + lost)
    assert harness.ask("client", "HGET", f"job:f:{job_id}", "status") == b"idle"
    assert harness.tell("worker", ("BRPOP", "queue:f:high", "queue:f:normal", "queue:f:low", 1)) == []
    assert harness.ask("client", "HMGET", f"job:f:{job_id}", "status", "output") == [b"error", lost]


# --- how long the hash of a finished job stays ---


@pytest.mark.parametrize(("server_hours", "job_hours"), [(24, 25), (1, 25), (25, None), (1000, None)])
def test_a_job_is_kept_for_25_hours_if_the_history_is_shorter(server_hours: int, job_hours: int | None) -> None:
    settings = EngineSettings(retention_us=server_hours * 3_600_000_000)
    harness = MonkeyHarness(keeps=True, settings=settings)
    job_id = harness.ask("client", "INCR", "uid:f")
    harness.ask("client", "HMSET", f"job:f:{job_id}", "status", "idle", "input", "x")
    harness.tell("client", ("LPUSH", "queue:f:normal", job_id))
    retention_us = harness.engine.jobs[job_id].retention_us
    assert retention_us == (-1 if job_hours is None else job_hours * 3_600_000_000)


def test_a_store_in_memory_keeps_the_last_jobs_of_all() -> None:
    harness = MonkeyHarness()
    assert harness.engine.jobs[push(harness)].retention_us == -1
