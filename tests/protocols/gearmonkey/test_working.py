"""Waiting, being a worker, and what is left behind."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import EngineSettings, SubmitOptions
from switchgear.model import NORMAL, SECOND_US, Cause, Delivery
from switchgear.protocols.gearmonkey import key_commands, listener_state, session
from switchgear.testing import RecordingPeer
from tests.protocols.gearmonkey.harness import TRIO, MonkeyHarness, pop, push
from tests.support.reads import kept_job
from tests.support.resp_wire import OK, Error, NullArray, command

# --- waiting ---


def test_what_is_sent_behind_a_command_that_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_BEHIND", 3)
    for more in (command("PING") * 4, command("ECHO", "x" * 9_990) + command("PING")):
        harness = MonkeyHarness()
        talker = harness.talker("client")
        talker.send(command("BRPOP", *TRIO, 0))
        talker.send(more)
        assert talker.wire.is_closed
        assert len(harness.bad_input) == 1
        assert not harness.setup.sessions


def test_what_waits_counts_as_held() -> None:
    harness = MonkeyHarness()
    talker = harness.talker("client")
    talker.send(command("BRPOP", *TRIO, 1))
    talker.send(command("ECHO", "x" * 1000))
    assert talker.session.buffered_bytes > 1000
    harness.pass_time(1)
    assert talker.session.buffered_bytes == 0


def test_who_stops_sending_while_it_waits_is_gone() -> None:
    harness = MonkeyHarness()
    harness.tell("worker", ("BRPOP", *TRIO, 0))
    harness.talker("worker").stop_sending()
    assert harness.talker("worker").wire.is_closed
    assert not harness.engine.workers
    job_id = push(harness)
    assert pop(harness, "second") == job_id


def test_who_leaves_while_it_waits_for_an_end_is_forgotten() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    harness.tell("first", ("BRPOP", f"lock:f:{job_id}", 5))
    harness.tell("second", ("BRPOP", f"lock:f:{job_id}", 5))
    harness.leave("first")
    pop(harness)
    harness.ask("worker", "HMSET", f"job:f:{job_id}", "status", "success", "output", "y")
    assert harness.heard("second") == [[b"lock:f:%d" % job_id, b"OK"]]
    assert not harness.setup.locks.waiting
    harness.pass_time(10)


def test_a_fraction_of_a_second() -> None:
    harness = MonkeyHarness()
    harness.tell("worker", ("BRPOP", *TRIO, "0.25"))
    harness.pass_time(0.24)
    assert harness.heard("worker") == []
    harness.pass_time(0.01)
    assert harness.heard("worker") == [NullArray()]


@pytest.mark.parametrize("keys", [TRIO, TRIO[:1], ("lock:f:1",)])
@pytest.mark.parametrize("moved_seconds", [-3600, 3600])
def test_waiting_takes_its_time_when_the_clock_is_set(keys: tuple[str, ...], moved_seconds: int) -> None:
    harness = MonkeyHarness()
    harness.tell("waiting", ("BRPOP", *keys, 1))
    harness.pass_time(0.5)
    harness.clock.set_wall_clock(moved_seconds)
    harness.engine.clock_moved(harness.clock.follow_wall_clock())
    harness.pass_time(0.45)
    assert harness.heard("waiting") == []
    harness.pass_time(0.05)
    assert harness.heard("waiting") == [NullArray()]


def test_what_was_waited_for_long_ago_does_not_end_the_next_wait() -> None:
    harness = MonkeyHarness()
    harness.tell("some", ("BRPOP", TRIO[1], 1))
    harness.pass_time(0.1)
    job_id = push(harness)
    harness.pass_time(0.2)
    assert harness.heard("some") == [[b"queue:f:normal", b"%d" % job_id]]
    harness.tell("some", ("BRPOP", *TRIO, 5))
    harness.pass_time(4.9)
    assert harness.heard("some") == []


def test_for_ever_is_long() -> None:
    harness = MonkeyHarness()
    harness.tell("worker", ("BRPOP", *TRIO, 0))
    harness.tell("some", ("BRPOP", TRIO[0], 0))
    harness.tell("client", ("BRPOP", "lock:f:1", 0))
    harness.pass_time(60)
    assert harness.heard("worker") == harness.heard("some") == harness.heard("client") == []


@pytest.mark.parametrize("timeout", [0, 5])
def test_who_waits_at_one_queue_is_sent_its_jobs_at_once_and_no_others(timeout: int) -> None:
    harness = MonkeyHarness()
    harness.tell("high", ("BRPOP", TRIO[0], timeout))
    harness.tell("all", ("BRPOP", *TRIO, timeout))
    high = push(harness, queue=TRIO[0])
    assert harness.heard("high") == [[b"queue:f:high", b"%d" % high]]
    harness.tell("high", ("BRPOP", TRIO[0], timeout))
    normal = push(harness)
    assert harness.heard("all") == [[b"queue:f:normal", b"%d" % normal]]
    assert harness.heard("high") == []
    assert len(harness.engine.workers) == 2


def test_a_connection_may_wait_at_one_queue_and_then_at_all_of_them() -> None:
    harness = MonkeyHarness()
    harness.tell("worker", ("BRPOP", TRIO[0], 1))
    harness.pass_time(1)
    assert harness.heard("worker") == [NullArray()]
    harness.tell("worker", ("BRPOP", *TRIO, 1))
    job_id = push(harness)
    assert harness.heard("worker") == [[b"queue:f:normal", b"%d" % job_id]]
    assert len(harness.engine.workers) == 1


@pytest.mark.parametrize("timeout", ["1e300", "99999999999999", "inf", "nan", "1_0", " 1", "-0.1", ""])
def test_no_time_that_makes_sense(timeout: str) -> None:
    reply = MonkeyHarness().ask("client", "BRPOP", *TRIO, timeout)
    assert isinstance(reply, Error)
    assert reply.text.startswith(b"ERR timeout is ")


def test_waiting_leaves_no_trace_in_the_engine() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    for _ in range(3):
        harness.tell("client", ("BRPOP", f"lock:f:{job_id}", "lock:f:77", 1))
        harness.tell("some", ("BRPOP", "queue:f:low", 1))
        harness.pass_time(1.2)
        assert harness.heard("client") == harness.heard("some") == [NullArray()]
    assert not harness.engine.jobs[job_id].subscribers
    assert all(not worker.tickets and not worker.peer.timers for worker in harness.engine.workers.values())


def test_while_a_function_is_paused_nothing_is_given_out() -> None:
    harness = MonkeyHarness()
    harness.engine.pause(harness.engine.function_named(b"f"))
    job_id = push(harness)
    assert harness.ask("worker", "RPOP", "queue:f:normal") is None
    harness.tell("worker", ("BRPOP", *TRIO, 5))
    harness.engine.resume(harness.engine.functions[b"f"])
    harness.turn()
    assert harness.heard("worker") == [[b"queue:f:normal", b"%d" % job_id]]


# --- workers ---


def test_a_connection_holds_a_limited_number_of_jobs() -> None:
    harness = MonkeyHarness(settings=EngineSettings(jobs_per_worker=2))
    ids = [push(harness) for _ in range(3)]
    assert [pop(harness), pop(harness)] == ids[:2]
    refusal = Error(b"ERR this connection has 2 jobs that it has not reported on")
    assert harness.ask("worker", "BRPOP", *TRIO, 0) == harness.ask("worker", "BRPOP", TRIO[1], 0) == refusal
    harness.ask("worker", "HMSET", f"job:f:{ids[0]}", "status", "success", "output", "")
    assert pop(harness) == ids[2]


def test_a_connection_pops_from_a_limited_number_of_sets_of_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_WORKERS", 2)
    harness = MonkeyHarness()
    for name in "aba":
        assert harness.ask("worker", "RPOP", f"queue:{name}:low") is None
    assert harness.ask("worker", "RPOP", "queue:c:low") == Error(
        b"ERR a connection may pop from 2 different sets of queues"
    )
    assert len(harness.engine.workers) == 2


def test_the_count_has_the_workers_of_other_protocols_in_it() -> None:
    harness = MonkeyHarness()
    other = harness.engine.add_worker(RecordingPeer(), "other")
    harness.engine.can_do(other, harness.engine.function_named(b"f"))
    assert harness.ask("worker", "INCR", "count:f") == 2
    harness.tell("worker", ("BRPOP", *TRIO, 0))  # the engine knows it as a worker, too
    assert harness.ask("client", "GET", "count:f") == b"2"
    harness.leave("worker")
    assert harness.ask("client", "GET", "count:f") == b"1"
    harness.engine.remove_worker(other)
    assert harness.ask("client", "GET", "count:f") == b"0"


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_commands, "MOST_COUNTED", 2)
    monkeypatch.setattr(listener_state, "MOST_COUNTED_NAMES", 2)
    harness = MonkeyHarness()
    harness.tell("worker", ("INCR", "count:a"), ("INCR", "count:b"), ("INCR", "count:a"))
    refusal = Error(b"ERR a connection may register workers for 2 functions")
    assert harness.ask("worker", "INCR", "count:c") == refusal
    harness.leave("worker")
    assert harness.ask("client", "GET", "count:a") == b"0"
    harness.ask("worker", "INCR", "count:c")
    assert harness.ask("client", "GET", "count:a") is None  # room was short, and nobody counts there


def test_a_job_that_timed_out_is_taken_from_its_worker() -> None:
    harness = MonkeyHarness()
    options = SubmitOptions(timeout_us=SECOND_US)
    job = harness.engine.submit(b"f", b"", b"x", NORMAL, Delivery.HANDLE, options=options)
    assert pop(harness) == job.id
    harness.pass_time(1)
    assert harness.ask("client", "HGET", "job:f:1", "status") == b"idle"
    assert harness.ask("worker", "HMSET", "job:f:1", "status", "busy") == Error(
        b"ERR job 1 was not taken from its queue here"
    )
    assert harness.ask("worker", "HMSET", "job:f:1", "status", "success", "output", "late") == OK
    assert harness.ask("client", "HGET", "job:f:1", "output") == b"late"


def test_a_job_dies_when_its_attempts_are_spent_and_whoever_listens_hears_of_it() -> None:
    harness = MonkeyHarness(settings=EngineSettings(attempts=2))
    harness.tell("listener", ("SUBSCRIBE", "channel:f"))
    job_id = push(harness)
    for _ in range(2):
        assert pop(harness) == job_id
        harness.leave("worker")
    assert harness.heard("listener") == [[b"message", b"channel:f", b"finish:%d" % job_id]]
    status, output = harness.ask("client", "HMGET", f"job:f:{job_id}", "status", "output")
    assert (status, output) == (b"error", b"worker lost in attempt 2, the last one")


def test_jobs_that_were_given_back_by_a_server_that_stops_can_still_be_reported_on() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    pop(harness)
    (worker,) = harness.engine.workers.values()
    harness.engine.remove_worker(worker)
    assert harness.ask("worker", "HMSET", f"job:f:{job_id}", "status", "success", "output", "y") == OK
    assert harness.ask("client", "HGET", f"job:f:{job_id}", "status") == b"success"
    assert harness.ask("worker", "RPOP", "queue:f:low") is None  # as a new worker
    harness.leave("worker")
    assert not harness.engine.workers


def test_a_job_that_a_worker_of_another_protocol_has_is_not_ended_by_whoever_comes_along() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    job = harness.engine.jobs[job_id]
    first = harness.engine.add_worker(RecordingPeer(), "other")
    second = harness.engine.add_worker(RecordingPeer(), "other")
    for worker in (first, second):
        harness.engine.can_do(worker, job.function)
    harness.engine.take(first)
    harness.engine.remove_worker(first, Cause.GIVEN_BACK)
    harness.engine.take(second)
    report = ("HMSET", f"job:f:{job_id}", "status", "success", "output", "y")
    assert harness.ask("client", *report) == Error(b"ERR job 1 was not taken from its queue here")
    assert job.worker is second
    harness.engine.remove_worker(second, Cause.GIVEN_BACK)
    assert harness.ask("client", *report) == OK  # nobody has it, and nobody knows who had it before the server stopped


def test_a_job_may_wait_for_a_lock_of_another_function_in_vain() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    pop(harness)
    harness.ask("worker", "HMSET", f"job:f:{job_id}", "status", "success", "output", "y")
    assert harness.ask("client", "RPOP", f"lock:g:{job_id}") is None
    assert harness.ask("client", "RPOP", f"lock:f:{job_id}", 0) == NullArray()
    assert harness.ask("client", "RPOP", f"lock:f:{job_id}", 3) == [b"OK"]


# --- what is left behind ---


def test_a_session_leaves_nothing_behind() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    push(harness)
    harness.tell(
        "both",
        ("INCR", "count:f"),
        ("HELLO", 3),
        ("SUBSCRIBE", "a"),
        ("PSUBSCRIBE", "b*"),
        ("BRPOP", *TRIO, 1),
        ("RPOP", "queue:g:low"),
        ("BRPOP", "queue:f:low", "queue:g:low", 0),
    )
    harness.tell("waiting", ("BRPOP", f"lock:f:{job_id}", "lock:f:99", 9), ("PING",))
    for name in ("both", "waiting", "client"):
        harness.leave(name)
    assert not harness.setup.sessions
    assert not harness.engine.global_subscribers
    assert not harness.setup.locks.waiting
    assert {job.state.name for job in harness.engine.jobs.values()} == {"READY"}
    assert all(not job.subscribers for job in harness.engine.jobs.values())
    assert not harness.engine.workers
    assert not any(function.workers for function in harness.engine.functions.values())
    harness.pass_time(20)


def test_the_second_end_of_a_job_that_was_retried_has_a_lock_too() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    pop(harness)
    harness.ask("worker", "HMSET", f"job:f:{job_id}", "status", "error", "output", "y")
    assert harness.ask("client", "RPOP", f"lock:f:{job_id}") == b"OK"
    harness.pass_time(1)
    failed = kept_job(harness.store, job_id)
    assert failed is not None
    harness.engine.retry(failed)
    harness.turn()
    assert pop(harness) == job_id
    harness.ask("worker", "HMSET", f"job:f:{job_id}", "status", "success", "output", "y")
    assert harness.ask("client", "RPOP", f"lock:f:{job_id}") == b"OK"


def test_memories_are_bounded() -> None:
    harness = MonkeyHarness()
    harness.engine.lost_starts.most = 2
    ids = [push(harness) for _ in range(3)]
    for _ in ids:
        pop(harness)
    harness.leave("worker")
    assert len(harness.engine.lost_starts) == 2
    late = harness.ask("again", "HMSET", f"job:f:{ids[0]}", "status", "success", "output", "y")
    assert late == Error(b"ERR job 1 was not taken from its queue here")


def test_a_late_failure_of_an_earlier_start_does_not_count_for_the_present_one() -> None:
    harness = MonkeyHarness()
    job_id = push(harness)
    pop(harness, "slow")
    slow = next(iter(harness.engine.workers.values()))
    harness.engine.remove_worker(slow)  # the server took it for lost, and its connection is still there
    assert pop(harness, "fast") == job_id
    late = harness.ask("slow", "HMSET", f"job:f:{job_id}", "status", "error", "output", "late")
    assert late == Error(b"ERR job %d was taken from its worker and will be tried again" % job_id)
    assert harness.engine.jobs[job_id].state.name == "RUNNING"
    assert harness.ask("fast", "HMSET", f"job:f:{job_id}", "status", "success", "output", "y") == OK


# --- tags and resources ---


def require(harness: MonkeyHarness, requires: bytes) -> int:
    options = SubmitOptions(requires=requires)
    job = harness.engine.submit(b"resize", b"", b"", NORMAL, Delivery.HANDLE, None, options)
    harness.turn()
    return job.id


def test_a_worker_says_what_it_has_by_client_setinfo() -> None:
    harness = MonkeyHarness()
    job_id = require(harness, b"gpu,memory=48G")
    queues = [f"queue:resize:{priority}" for priority in ("high", "normal", "low")]
    assert harness.ask("worker", "RPOP", queues[1]) is None
    assert harness.ask("able", "CLIENT", "SETINFO", "tags", "gpu") == OK
    assert harness.ask("able", "CLIENT", "SETINFO", "RESOURCES", "memory=64G") == OK
    second = require(harness, b"memory=48G")
    assert harness.ask("able", "BRPOP", *queues, 0)[1] == b"%d" % job_id
    assert harness.ask("able", "RPOP", queues[1]) is None  # the first uses too much of its memory
    assert harness.engine.jobs[second].worker is None


@pytest.mark.parametrize(("option", "text"), [("tags", "a b"), ("resources", "gpu"), ("resources", b"\xff=1")])
def test_what_is_no_tag_or_resource_is_refused(option: str, text: str) -> None:
    harness = MonkeyHarness()
    assert isinstance(harness.ask("able", "CLIENT", "SETINFO", option, text), Error)
