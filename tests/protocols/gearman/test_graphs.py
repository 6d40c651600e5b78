"""Graphs over the wire: GRAPH_BEGIN, GRAPH_PART and GRAPH_COMMIT."""

from __future__ import annotations

import struct

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.model import FAILED, READY, WAITING
from switchgear.testing.invariants import check_engine
from tests.protocols.gearman.harness import Harness
from tests.protocols.gearman.transcript import MANNERS, Transcript, framed, load, play
from tests.support.wire import REQ

BEGIN, PART, COMMIT = 1030, 1032, 1033


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("transcript", load("graphs"), ids=str)
def test_conversations(transcript: Transcript, manner: str) -> None:
    check_engine(play(transcript, manner).engine)


def template(function: bytes, options: bytes = b"{}") -> bytes:
    return b"T" + struct.pack(">I", len(function)) + function + struct.pack(">I", len(options)) + options


def job(payload: bytes, *predecessors: int, policy: int = 2) -> bytes:
    start = b"J" + struct.pack(">IIBI", 0, len(predecessors), policy, len(payload))
    return start + struct.pack(f">{len(predecessors)}Q", *predecessors) + payload


def submit(harness: Harness, count: int, *parts: bytes) -> bytes:
    """Submit a graph; returns all answers."""
    client = harness.talker("client")
    client.send(framed(REQ, BEGIN, [str(count)]))
    first = client.wire.written.rpartition(b"H:t:")[2]
    handle = b"H:t:" + first
    for part in parts:
        body = handle + b"\0" + part
        client.send(struct.pack(">4sII", REQ, PART, len(body)) + body)
    client.send(struct.pack(">4sII", REQ, COMMIT, len(handle)) + handle)
    answer, client.wire.written = client.wire.written, b""
    return answer


@pytest.mark.parametrize("keeps", [False, True])
def test_a_graph_of_many_turns(keeps: bool) -> None:
    harness = Harness(keeps=keeps, packet_bytes=10**6)
    count = 5_000
    jobs = [job(b"%d" % number, *((number - 1,) if number > 1 else ())) for number in range(1, count + 1)]
    parts = [b"".join(jobs[start : start + 700]) for start in range(0, count, 700)]
    assert b"GRAPH" not in (answer := submit(harness, count, template(b"f"), *parts))
    assert answer.endswith(b"H:t:1\x005000")
    assert len(harness.engine.jobs) == count
    assert [found.state for found in list(harness.engine.jobs.values())[:2]] == [READY, WAITING]
    assert not harness.engine.memory.draft_bytes
    check_engine(harness.engine)


def test_a_job_of_very_many_predecessors() -> None:
    harness = Harness(packet_bytes=10**6)
    count = 2_500
    more = b"".join(
        b"P" + struct.pack(">IB", 500, 2) + struct.pack(">500Q", *range(start, start + 500))
        for start in range(501, count, 500)
    )
    jobs = b"".join(job(b"x") for _ in range(count))
    submit(harness, count + 1, template(b"f") + jobs + job(b"last", *range(1, 501)) + more)
    last = harness.engine.job(count + 1)
    assert last is not None
    assert (last.state, last.blockers, set(last.edges)) == (WAITING, count, {2})
    worker = harness.talker("worker")
    worker.send(framed(REQ, 1, ["f"]), framed(REQ, 9, []), framed(REQ, 14, ["H:t:1"]))
    assert last.state is FAILED
    check_engine(harness.engine)


def test_parts_are_in_the_memory_account_and_their_limit_refuses_the_graph() -> None:
    harness = Harness(settings=EngineSettings(memory_bytes=200_000), packet_bytes=10**6)
    client = harness.talker("client")
    client.send(framed(REQ, BEGIN, ["9"]))
    client.wire.written = b""
    memory = harness.engine.memory
    body = b"H:t:1\0" + template(b"f") + b"".join(job(b"x" * 6_000) for _ in range(5))
    client.send(struct.pack(">4sII", REQ, PART, len(body)) + body)
    assert memory.draft_bytes == len(body) - 6
    for _ in range(9):
        client.send(struct.pack(">4sII", REQ, PART, len(body)) + body)
    assert not memory.draft_bytes
    client.send(framed(REQ, COMMIT, ["H:t:1"]))
    assert b"no memory for the graph" in client.wire.written
    assert not len(harness.engine.jobs)


def test_ids_that_are_never_used_are_limited() -> None:
    harness = Harness()
    client = harness.talker("client")
    for _ in range(1_000):
        client.send(framed(REQ, BEGIN, ["10000000"]))
    client.wire.written = b""
    client.send(framed(REQ, BEGIN, ["10000000"]))
    assert b"ARGUMENT_TOO_LARGE\0more than 10000000000 ids would be reserved and not used" in client.wire.written
