"""The verb `flows`: jobs by the protocols of their submitters and workers."""

from __future__ import annotations

from typing import Any

from switchgear.engine.engine import Engine
from switchgear.engine.protocol_flows import MOST_SOURCES, Flows
from switchgear.model import NORMAL, Delivery, Peer
from switchgear.net.operations.flows import share_within
from tests.net.operator_harness import OperatorHarness
from tests.protocols.http.harness import HttpHarness


def pairs(answer: dict[str, Any]) -> dict[tuple[str, str], tuple[int, int]]:
    return {(flow["submitter"], flow["worker"]): (flow["done"], flow["failed"]) for flow in answer["flows"]}


def test_nothing_has_flowed_yet() -> None:
    answer = OperatorHarness().ask("flows")
    assert answer["flows"] == answer["submitters"] == answer["workers"] == []


def test_a_job_is_counted_by_its_submitter_and_its_worker() -> None:
    harness = HttpHarness()
    gearman = harness.engine.add_worker(Peer(), "gearman")
    harness.engine.can_do(gearman, harness.engine.function_named(b"f"))
    for _ in range(3):
        harness.ask("c", "POST", "/v1/functions/f/jobs", b"")
    job = harness.engine.take(gearman)
    assert job is not None
    harness.clock.advance(0.5)
    harness.turn()
    harness.engine.complete(gearman, job.id, b"")
    job = harness.engine.take(gearman)
    assert job is not None
    harness.engine.fail(gearman, job.id)
    taken = harness.ask("w", "POST", "/v1/functions/f/take").headers
    harness.ask("w", "PUT", f"/v1/jobs/{taken['switchgear-job']}/result", b"", {"Switchgear-Attempt": "1"})
    answer = harness.ask("c", "GET", "/v1/flows").json
    assert pairs(answer) == {("http", "gearman"): (1, 1), ("http", "http"): (1, 0)}
    assert (answer["submitters"], answer["workers"]) == (["http"], ["gearman", "http"])
    assert answer["flows"][0]["mean_seconds"] == 0.25
    assert answer["flows"][0]["p99_seconds"] == 1.024
    assert answer["flows"][0]["rate"] is None


def test_rates() -> None:
    operator = OperatorHarness()
    operator.submit(20)
    operator.finish()
    operator.ask("flows")
    for _ in range(10):
        operator.harness.clock.advance(1)
        operator.harness.turn()
        operator.finish()
    (flow,) = operator.ask("flows")["flows"]
    assert (flow["submitter"], flow["done"], flow["rate"]) == ("unknown", 11, 1.0)


def test_a_schedule_is_a_submitter() -> None:
    operator = OperatorHarness()
    operator.ask("schedule", name="s", function="f", every_seconds=60)
    operator.ask("run_schedule", name="s")
    operator.finish()
    assert pairs(operator.ask("flows")) == {("schedule", "gearman"): (1, 0)}


def test_a_packed_job_keeps_its_submitter() -> None:
    """Of very many queued jobs most are numbers in arrays."""
    engine = Engine()
    engine.reports_changes = True
    engine.packed_queues.segment_jobs = engine.packed_queues.head_jobs = 2
    engine.packed_queues.pack_from = 4
    peer = Peer()
    peer.source = engine.source_of("carrier")
    engine.speaker = peer
    jobs = [
        engine.submit(b"f", b"", b"", NORMAL, Delivery.HANDLE if number % 2 else Delivery.THROW_AWAY)
        for number in range(20)
    ]
    engine.speaker = None
    for job in jobs:
        job.kept = 1
        job.revision = 1
    engine.take_changes()
    engine.pack([engine.functions[b"f"]])
    assert engine.packed_queues.job_count
    found = list(engine.unfinished_jobs())
    assert [job.source for job in found] == [peer.source] * 20
    assert [job.delivery for job in found] == [Delivery.THROW_AWAY, Delivery.HANDLE] * 10


def test_very_many_protocols_are_unknown() -> None:
    flows = Flows()
    counters = flows.of_workers("w")
    numbers = [flows.source(f"p{number}") for number in range(100)]
    assert max(numbers) == MOST_SOURCES - 1
    assert numbers[-1] == flows.source("") == 0
    assert len(counters) == len(flows.sources) == MOST_SOURCES


def test_shares() -> None:
    assert share_within([0] * 11, 0.99) == 0.001
    assert share_within([99, 1] + [0] * 9, 0.99) == 0.001
    assert share_within([98, 2] + [0] * 9, 0.99) == 0.004
    assert share_within([0] * 10 + [1], 0.99) is None
