"""Waiting, being a worker, and what is left behind."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import EngineSettings, SubmitOptions
from switchgear.model import NORMAL, SECOND_US, Cause, Delivery
from switchgear.protocols.gearmonkey import key_commands, listener_state, session
from switchgear.testing import RecordingPeer
from tests.protocols.gearmonkey.house import TRIO, MonkeyHouse, pop, push
from tests.support.reads import kept_job
from tests.support.resp_wire import OK, Error, NullArray, command

# --- waiting ---


def test_what_is_sent_behind_a_command_that_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_BEHIND", 3)
    for more in (command("PING") * 4, command("ECHO", "x" * 9_990) + command("PING")):
        house = MonkeyHouse()
        talker = house.talker("client")
        talker.send(command("BRPOP", *TRIO, 0))
        talker.send(more)
        assert talker.wire.is_closed
        assert len(house.bad_input) == 1
        assert not house.setup.sessions


def test_what_waits_counts_as_held() -> None:
    house = MonkeyHouse()
    talker = house.talker("client")
    talker.send(command("BRPOP", *TRIO, 1))
    talker.send(command("ECHO", "x" * 1000))
    assert talker.session.buffered_bytes > 1000
    house.pass_time(1)
    assert talker.session.buffered_bytes == 0


def test_who_stops_sending_while_it_waits_is_gone() -> None:
    house = MonkeyHouse()
    house.tell("worker", ("BRPOP", *TRIO, 0))
    house.talker("worker").stop_sending()
    assert house.talker("worker").wire.is_closed
    assert not house.engine.workers
    job_id = push(house)
    assert pop(house, "second") == job_id


def test_who_leaves_while_it_waits_for_an_end_is_forgotten() -> None:
    house = MonkeyHouse()
    job_id = push(house)
    house.tell("first", ("BRPOP", f"lock:f:{job_id}", 5))
    house.tell("second", ("BRPOP", f"lock:f:{job_id}", 5))
    house.leave("first")
    pop(house)
    house.ask("worker", "HMSET", f"job:f:{job_id}", "status", "success", "output", "y")
    assert house.heard("second") == [[b"lock:f:%d" % job_id, b"OK"]]
    assert not house.setup.locks.waiting
    house.pass_time(10)


def test_a_fraction_of_a_second() -> None:
    house = MonkeyHouse()
    house.tell("worker", ("BRPOP", *TRIO, "0.25"))
    house.pass_time(0.24)
    assert house.heard("worker") == []
    house.pass_time(0.01)
    assert house.heard("worker") == [NullArray()]


@pytest.mark.parametrize("keys", [TRIO, TRIO[:1], ("lock:f:1",)])
@pytest.mark.parametrize("moved_seconds", [-3600, 3600])
def test_waiting_takes_its_time_when_the_clock_is_set(keys: tuple[str, ...], moved_seconds: int) -> None:
    house = MonkeyHouse()
    house.tell("waiting", ("BRPOP", *keys, 1))
    house.pass_time(0.5)
    house.clock.set_wall_clock(moved_seconds)
    house.engine.clock_moved(house.clock.follow_wall_clock())
    house.pass_time(0.45)
    assert house.heard("waiting") == []
    house.pass_time(0.05)
    assert house.heard("waiting") == [NullArray()]


def test_what_was_waited_for_long_ago_does_not_end_the_next_wait() -> None:
    house = MonkeyHouse()
    house.tell("some", ("BRPOP", TRIO[1], 1))
    house.pass_time(0.1)
    job_id = push(house)
    house.pass_time(0.2)
    assert house.heard("some") == [[b"queue:f:normal", b"%d" % job_id]]
    house.tell("some", ("BRPOP", *TRIO, 5))
    house.pass_time(4.9)
    assert house.heard("some") == []


def test_for_ever_is_long() -> None:
    house = MonkeyHouse()
    house.tell("worker", ("BRPOP", *TRIO, 0))
    house.tell("some", ("BRPOP", TRIO[0], 0))
    house.tell("client", ("BRPOP", "lock:f:1", 0))
    house.pass_time(60)
    assert house.heard("worker") == house.heard("some") == house.heard("client") == []


@pytest.mark.parametrize("timeout", [0, 5])
def test_who_waits_at_one_queue_is_sent_its_jobs_at_once_and_no_others(timeout: int) -> None:
    house = MonkeyHouse()
    house.tell("high", ("BRPOP", TRIO[0], timeout))
    house.tell("all", ("BRPOP", *TRIO, timeout))
    high = push(house, queue=TRIO[0])
    assert house.heard("high") == [[b"queue:f:high", b"%d" % high]]
    house.tell("high", ("BRPOP", TRIO[0], timeout))
    normal = push(house)
    assert house.heard("all") == [[b"queue:f:normal", b"%d" % normal]]
    assert house.heard("high") == []
    assert len(house.engine.workers) == 2


def test_a_connection_may_wait_at_one_queue_and_then_at_all_of_them() -> None:
    house = MonkeyHouse()
    house.tell("worker", ("BRPOP", TRIO[0], 1))
    house.pass_time(1)
    assert house.heard("worker") == [NullArray()]
    house.tell("worker", ("BRPOP", *TRIO, 1))
    job_id = push(house)
    assert house.heard("worker") == [[b"queue:f:normal", b"%d" % job_id]]
    assert len(house.engine.workers) == 1


@pytest.mark.parametrize("timeout", ["1e300", "99999999999999", "inf", "nan", "1_0", " 1", "-0.1", ""])
def test_no_time_that_makes_sense(timeout: str) -> None:
    reply = MonkeyHouse().ask("client", "BRPOP", *TRIO, timeout)
    assert isinstance(reply, Error)
    assert reply.text.startswith(b"ERR timeout is ")


def test_waiting_leaves_no_trace_in_the_engine() -> None:
    house = MonkeyHouse()
    job_id = push(house)
    for _ in range(3):
        house.tell("client", ("BRPOP", f"lock:f:{job_id}", "lock:f:77", 1))
        house.tell("some", ("BRPOP", "queue:f:low", 1))
        house.pass_time(1.2)
        assert house.heard("client") == house.heard("some") == [NullArray()]
    assert not house.engine.jobs[job_id].subscribers
    assert all(not worker.tickets and not worker.peer.timers for worker in house.engine.workers.values())


def test_while_a_function_is_paused_nothing_is_given_out() -> None:
    house = MonkeyHouse()
    house.engine.pause(house.engine.function_named(b"f"))
    job_id = push(house)
    assert house.ask("worker", "RPOP", "queue:f:normal") is None
    house.tell("worker", ("BRPOP", *TRIO, 5))
    house.engine.resume(house.engine.functions[b"f"])
    house.turn()
    assert house.heard("worker") == [[b"queue:f:normal", b"%d" % job_id]]


# --- workers ---


def test_a_connection_holds_a_limited_number_of_jobs() -> None:
    house = MonkeyHouse(settings=EngineSettings(jobs_per_worker=2))
    ids = [push(house) for _ in range(3)]
    assert [pop(house), pop(house)] == ids[:2]
    refusal = Error(b"ERR this connection has 2 jobs that it has not reported on")
    assert house.ask("worker", "BRPOP", *TRIO, 0) == house.ask("worker", "BRPOP", TRIO[1], 0) == refusal
    house.ask("worker", "HMSET", f"job:f:{ids[0]}", "status", "success", "output", "")
    assert pop(house) == ids[2]


def test_a_connection_pops_from_a_limited_number_of_sets_of_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_WORKERS", 2)
    house = MonkeyHouse()
    for name in "aba":
        assert house.ask("worker", "RPOP", f"queue:{name}:low") is None
    assert house.ask("worker", "RPOP", "queue:c:low") == Error(
        b"ERR a connection may pop from 2 different sets of queues"
    )
    assert len(house.engine.workers) == 2


def test_the_count_has_the_workers_of_other_protocols_in_it() -> None:
    house = MonkeyHouse()
    other = house.engine.add_worker(RecordingPeer(), "other")
    house.engine.can_do(other, house.engine.function_named(b"f"))
    assert house.ask("worker", "INCR", "count:f") == 2
    house.tell("worker", ("BRPOP", *TRIO, 0))  # the engine knows it as a worker, too
    assert house.ask("client", "GET", "count:f") == b"2"
    house.leave("worker")
    assert house.ask("client", "GET", "count:f") == b"1"
    house.engine.remove_worker(other)
    assert house.ask("client", "GET", "count:f") == b"0"


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_commands, "MOST_COUNTED", 2)
    monkeypatch.setattr(listener_state, "MOST_COUNTED_NAMES", 2)
    house = MonkeyHouse()
    house.tell("worker", ("INCR", "count:a"), ("INCR", "count:b"), ("INCR", "count:a"))
    refusal = Error(b"ERR a connection may register workers for 2 functions")
    assert house.ask("worker", "INCR", "count:c") == refusal
    house.leave("worker")
    assert house.ask("client", "GET", "count:a") == b"0"
    house.ask("worker", "INCR", "count:c")
    assert house.ask("client", "GET", "count:a") is None  # room was short, and nobody counts there


def test_a_job_that_timed_out_is_taken_from_its_worker() -> None:
    house = MonkeyHouse()
    options = SubmitOptions(timeout_us=SECOND_US)
    job = house.engine.submit(b"f", b"", b"x", NORMAL, Delivery.HANDLE, options=options)
    assert pop(house) == job.id
    house.pass_time(1)
    assert house.ask("client", "HGET", "job:f:1", "status") == b"idle"
    assert house.ask("worker", "HMSET", "job:f:1", "status", "busy") == Error(
        b"ERR job 1 was not taken from its queue here"
    )
    assert house.ask("worker", "HMSET", "job:f:1", "status", "success", "output", "late") == OK
    assert house.ask("client", "HGET", "job:f:1", "output") == b"late"


def test_a_job_dies_when_its_attempts_are_spent_and_whoever_listens_hears_of_it() -> None:
    house = MonkeyHouse(settings=EngineSettings(attempts=2))
    house.tell("listener", ("SUBSCRIBE", "channel:f"))
    job_id = push(house)
    for _ in range(2):
        assert pop(house) == job_id
        house.leave("worker")
    assert house.heard("listener") == [[b"message", b"channel:f", b"finish:%d" % job_id]]
    status, output = house.ask("client", "HMGET", f"job:f:{job_id}", "status", "output")
    assert (status, output) == (b"error", b"worker lost in attempt 2, the last one")


def test_jobs_that_were_given_back_by_a_server_that_stops_can_still_be_reported_on() -> None:
    house = MonkeyHouse()
    job_id = push(house)
    pop(house)
    (worker,) = house.engine.workers.values()
    house.engine.remove_worker(worker)
    assert house.ask("worker", "HMSET", f"job:f:{job_id}", "status", "success", "output", "y") == OK
    assert house.ask("client", "HGET", f"job:f:{job_id}", "status") == b"success"
    assert house.ask("worker", "RPOP", "queue:f:low") is None  # as a new worker
    house.leave("worker")
    assert not house.engine.workers


def test_a_job_that_a_worker_of_another_protocol_has_is_not_ended_by_whoever_comes_along() -> None:
    house = MonkeyHouse()
    job_id = push(house)
    job = house.engine.jobs[job_id]
    first = house.engine.add_worker(RecordingPeer(), "other")
    second = house.engine.add_worker(RecordingPeer(), "other")
    for worker in (first, second):
        house.engine.can_do(worker, job.function)
    house.engine.take(first)
    house.engine.remove_worker(first, Cause.GIVEN_BACK)
    house.engine.take(second)
    report = ("HMSET", f"job:f:{job_id}", "status", "success", "output", "y")
    assert house.ask("client", *report) == Error(b"ERR job 1 was not taken from its queue here")
    assert job.worker is second
    house.engine.remove_worker(second, Cause.GIVEN_BACK)
    assert house.ask("client", *report) == OK  # nobody has it, and nobody knows who had it before the server stopped


def test_a_job_may_wait_for_a_lock_of_another_function_in_vain() -> None:
    house = MonkeyHouse()
    job_id = push(house)
    pop(house)
    house.ask("worker", "HMSET", f"job:f:{job_id}", "status", "success", "output", "y")
    assert house.ask("client", "RPOP", f"lock:g:{job_id}") is None
    assert house.ask("client", "RPOP", f"lock:f:{job_id}", 0) == NullArray()
    assert house.ask("client", "RPOP", f"lock:f:{job_id}", 3) == [b"OK"]


# --- what is left behind ---


def test_a_session_leaves_nothing_behind() -> None:
    house = MonkeyHouse()
    job_id = push(house)
    push(house)
    house.tell(
        "both",
        ("INCR", "count:f"),
        ("HELLO", 3),
        ("SUBSCRIBE", "a"),
        ("PSUBSCRIBE", "b*"),
        ("BRPOP", *TRIO, 1),
        ("RPOP", "queue:g:low"),
        ("BRPOP", "queue:f:low", "queue:g:low", 0),
    )
    house.tell("waiting", ("BRPOP", f"lock:f:{job_id}", "lock:f:99", 9), ("PING",))
    for name in ("both", "waiting", "client"):
        house.leave(name)
    assert not house.setup.sessions
    assert not house.engine.global_subscribers
    assert not house.setup.locks.waiting
    assert {job.state.name for job in house.engine.jobs.values()} == {"READY"}
    assert all(not job.subscribers for job in house.engine.jobs.values())
    assert not house.engine.workers
    assert not any(function.workers for function in house.engine.functions.values())
    house.pass_time(20)


def test_the_second_end_of_a_job_that_was_retried_has_a_lock_too() -> None:
    house = MonkeyHouse()
    job_id = push(house)
    pop(house)
    house.ask("worker", "HMSET", f"job:f:{job_id}", "status", "error", "output", "y")
    assert house.ask("client", "RPOP", f"lock:f:{job_id}") == b"OK"
    house.pass_time(1)
    failed = kept_job(house.store, job_id)
    assert failed is not None
    house.engine.retry(failed)
    house.turn()
    assert pop(house) == job_id
    house.ask("worker", "HMSET", f"job:f:{job_id}", "status", "success", "output", "y")
    assert house.ask("client", "RPOP", f"lock:f:{job_id}") == b"OK"


def test_memories_are_bounded() -> None:
    house = MonkeyHouse()
    house.engine.lost_starts.most = 2
    ids = [push(house) for _ in range(3)]
    for _ in ids:
        pop(house)
    house.leave("worker")
    assert len(house.engine.lost_starts) == 2
    late = house.ask("again", "HMSET", f"job:f:{ids[0]}", "status", "success", "output", "y")
    assert late == Error(b"ERR job 1 was not taken from its queue here")


def test_a_late_failure_of_an_earlier_start_does_not_count_for_the_present_one() -> None:
    house = MonkeyHouse()
    job_id = push(house)
    pop(house, "slow")
    slow = next(iter(house.engine.workers.values()))
    house.engine.remove_worker(slow)  # the server took it for lost, and its connection is still there
    assert pop(house, "fast") == job_id
    late = house.ask("slow", "HMSET", f"job:f:{job_id}", "status", "error", "output", "late")
    assert late == Error(b"ERR job %d was taken from its worker and will be tried again" % job_id)
    assert house.engine.jobs[job_id].state.name == "RUNNING"
    assert house.ask("fast", "HMSET", f"job:f:{job_id}", "status", "success", "output", "y") == OK


# --- tags and resources ---


def require(house: MonkeyHouse, requires: bytes) -> int:
    options = SubmitOptions(requires=requires)
    job = house.engine.submit(b"resize", b"", b"", NORMAL, Delivery.HANDLE, None, options)
    house.turn()
    return job.id


def test_a_worker_says_what_it_has_by_client_setinfo() -> None:
    house = MonkeyHouse()
    job_id = require(house, b"gpu,memory=48G")
    queues = [f"queue:resize:{priority}" for priority in ("high", "normal", "low")]
    assert house.ask("worker", "RPOP", queues[1]) is None
    assert house.ask("able", "CLIENT", "SETINFO", "tags", "gpu") == OK
    assert house.ask("able", "CLIENT", "SETINFO", "RESOURCES", "memory=64G") == OK
    second = require(house, b"memory=48G")
    assert house.ask("able", "BRPOP", *queues, 0)[1] == b"%d" % job_id
    assert house.ask("able", "RPOP", queues[1]) is None  # the first uses too much of its memory
    assert house.engine.jobs[second].worker is None


@pytest.mark.parametrize(("option", "text"), [("tags", "a b"), ("resources", "gpu"), ("resources", b"\xff=1")])
def test_what_is_no_tag_or_resource_is_refused(option: str, text: str) -> None:
    house = MonkeyHouse()
    assert isinstance(house.ask("able", "CLIENT", "SETINFO", option, text), Error)
