"""A peer on ZeroMQ that is known to have closed its connection: what only it wanted is held no longer."""

from __future__ import annotations

from switchgear.engine.engine import EngineSettings
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from switchgear.protocols.dwork.session_base import LONGEST_WAIT_US
from tests.protocols.dwork.harness import NOT_FOUND, DworkHarness
from tests.protocols.pingpong.harness import JOB, READY, RESULT, Broker

DAY_SECONDS = LONGEST_WAIT_US / 1e6


def steal(location: bytes, wait_ms: int) -> Query:
    return Query(QueryType.STEAL, location=location, wait_ms=wait_ms)


def busy_dwork(settings: EngineSettings | None = None) -> DworkHarness:
    """One in which there is a task, so that whoever asks for another may wait."""
    world = DworkHarness(settings=settings)
    world.ask(Query(QueryType.CREATE, [task("a")]))
    world.ask(Query(QueryType.STEAL, location=b"busy"))
    return world


def task(name: str) -> Task:
    return Task(name.encode(), b"")


# --- PING/PONG ---


def test_a_request_whose_client_has_gone_is_dropped() -> None:
    broker = Broker()
    broker.frontend.send(b"\0gone", *JOB)
    broker.frontend.send(b"other", *JOB)
    broker.frontend.session.peer_gone(b"\0gone")
    assert len(broker.engine.jobs) == 1
    broker.backend.send(b"worker", *READY)
    broker.backend.send(b"worker", *RESULT)
    assert broker.frontend.heard(b"\0gone") == []
    assert broker.frontend.heard(b"other") == [RESULT]


def test_a_client_with_a_name_of_its_own_may_come_back_for_its_answer() -> None:
    broker = Broker()
    broker.frontend.send(b"client", *JOB)
    broker.frontend.session.peer_gone(b"client")
    broker.backend.send(b"worker", *READY)
    broker.backend.send(b"worker", *RESULT)
    assert broker.frontend.heard(b"client") == [RESULT]


def test_what_a_request_came_in_counts_until_it_is_answered() -> None:
    broker = Broker()
    broker.frontend.send(b"client", *[b"frame" * 100] * 5, *JOB)
    assert broker.engine.memory.job_bytes > 2500


def test_a_worker_that_has_gone_is_not_waited_for() -> None:
    broker = Broker()
    broker.backend.send(b"gone", *READY)
    broker.backend.session.peer_gone(b"gone")
    broker.frontend.send(b"client", *JOB)
    broker.backend.send(b"worker", *READY)
    assert broker.backend.heard(b"worker") == [JOB]
    broker.backend.session.peer_gone(b"worker")
    broker.backend.send(b"third", *READY)
    assert broker.backend.heard(b"third") == [JOB], "at once, and not when a minute is over"
    broker.backend.send(b"worker", *RESULT)
    assert broker.frontend.heard(b"client") == [RESULT], "the first result counts"


# --- dwork ---


def test_steals_of_somebody_who_has_gone_wait_no_more() -> None:
    world = busy_dwork()
    before = world.engine.memory.registration_bytes
    world.send(steal(b"w1", 10_000), b"gone")
    world.send(steal(b"w1", 10_000), b"there")
    held = world.engine.memory.registration_bytes
    world.session.peer_gone(b"gone")
    assert before < world.engine.memory.registration_bytes < held
    world.ask(Query(QueryType.CREATE, [task("b"), task("c")]))
    assert len(world.heard(b"there")) == 1
    assert world.heard(b"gone") == []
    assert sum(worker.credits for worker in world.engine.workers.values()) == 0


def test_a_steal_that_finds_no_memory_is_answered_at_once() -> None:
    world = busy_dwork(EngineSettings(memory_bytes=1_000_000))
    world.send(steal(b"w1", 10_000))
    assert world.heard() == []
    world.engine.memory.registration_bytes += world.engine.memory.registration_limit_bytes
    world.send(steal(b"w1", 10_000), b"other")
    assert world.heard(b"other") == [NOT_FOUND]


def test_no_steal_waits_for_longer_than_a_day() -> None:
    world = busy_dwork()
    world.send(steal(b"w1", 2**31 - 1))
    world.harness.pass_time(DAY_SECONDS - 1)
    assert world.heard() == []
    world.harness.pass_time(1)
    assert world.heard() == [NOT_FOUND]


def test_tasks_that_find_no_memory_are_refused_as_a_whole() -> None:
    world = DworkHarness(settings=EngineSettings(memory_bytes=20_000))
    answer = world.ask(Query(QueryType.CREATE, [task(f"t{number}") for number in range(20)]))
    assert answer.type == QueryType.ERROR
    assert b"no memory" in (answer.reason or b"")
    assert not world.engine.jobs
    assert world.ask(Query(QueryType.CREATE, [task("t1")])).type == QueryType.OK
