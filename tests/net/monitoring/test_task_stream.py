"""The task stream: recorded while somebody watches, sampled when too much happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.errors import Refused
from switchgear.model import Cause
from switchgear.net.monitoring import task_stream
from tests.net.operator_harness import OperatorHarness
from tests.protocols.http.test_live_feed import Viewers


def rows(answer: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The function, job and outcome of each attempt."""
    return [(answer["functions"][row[1]], row[2], row[5]) for row in answer["rows"]]


def pass_time(operator: OperatorHarness, seconds: float) -> None:
    operator.harness.clock.advance(seconds)
    operator.harness.turn()


def test_nothing_is_recorded_before_somebody_watches_and_after() -> None:
    operator = OperatorHarness()
    operator.submit(3)
    operator.finish()
    assert operator.engine.global_subscribers == []
    assert rows(operator.ask("stream")) == []
    assert len(operator.engine.global_subscribers) == 1
    operator.finish()
    answer = operator.ask("stream")
    assert rows(answer) == [("f", "H:t:2", "done")]
    assert answer["sampled"] is False
    assert answer["dropped"] == 0
    for _ in range(4):
        pass_time(operator, 29)
        operator.ask("stream")
    pass_time(operator, 31)
    assert operator.engine.global_subscribers == []
    operator.submit(0)
    operator.engine.cancel(next(operator.engine.unfinished_jobs()))
    operator.harness.end_turn()
    assert operator.engine.memory.subscription_bytes == 0
    assert operator.engine.next_deadline_us is None


def test_starts_ends_and_workers() -> None:
    operator = OperatorHarness()
    operator.submit(2)
    first = operator.take()
    operator.ask("stream")
    pass_time(operator, 2)
    operator.engine.complete(operator.worker, first.id, b"")
    second = operator.take()
    pass_time(operator, 1)
    answer = operator.ask("stream")
    now = operator.engine.now_us / 1e6
    number = operator.worker.id
    assert answer["columns"] == ["worker", "function", "job", "start", "end", "outcome"]
    assert answer["rows"] == [[number, 0, "H:t:1", now - 3, now - 1, "done"]]
    assert answer["running"] == [[number, 0, f"H:t:{second.id}", now - 1, None, "running"]]
    assert answer["workers"] == {str(number): {"name": "hand", "protocol": "gearman"}}


def test_every_way_in_which_an_attempt_can_end() -> None:
    operator = OperatorHarness()
    operator.ask("stream")
    operator.submit(5)
    operator.finish(error=b"no")
    operator.finish()
    job = operator.take()
    operator.engine.cancel(job)
    operator.engine.complete(operator.worker, job.id, b"")  # too late
    job = operator.take()
    operator.engine.release(operator.worker, job.id)
    job = operator.take()
    operator.engine.retry_later(operator.worker, job.id, 1_000_000, b"again")
    operator.engine.cancel(next(operator.engine.unfinished_jobs()))  # which nobody runs
    operator.harness.end_turn()
    outcomes = [outcome for _, _, outcome in rows(operator.ask("stream"))]
    assert outcomes == ["failed", "done", "cancelled", "requeued", "requeued"]
    operator.submit()
    operator.kill()
    assert rows(operator.ask("stream"))[-1][2] == "requeued"


def test_a_cursor_and_a_time() -> None:
    operator = OperatorHarness()
    answer = operator.ask("stream")
    operator.submit(5)
    operator.finish()
    answer = operator.ask("stream", cursor=answer["next"])
    assert len(answer["rows"]) == 1
    assert operator.ask("stream", cursor=answer["next"])["rows"] == []
    pass_time(operator, 5)
    operator.finish()
    now = operator.engine.now_us / 1e6
    assert len(operator.ask("stream", since=now - 1)["rows"]) == 1
    assert len(operator.ask("stream", since=now - 5)["rows"]) == 2
    assert operator.ask("stream", since=now + 1)["rows"] == []
    assert operator.ask("stream", cursor=10**9)["rows"] == []


def test_of_very_many_some_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_stream, "RING_ROWS", 100)
    operator = OperatorHarness()
    operator.ask("stream")
    operator.submit(250)
    for _ in range(250):
        operator.finish()
    answer = operator.ask("stream", cursor=0, limit=10)
    assert (len(answer["rows"]), answer["dropped"], answer["next"]) == (10, 240, 250)
    assert [row[2] for row in answer["rows"]][:2] == ["H:t:151", "H:t:161"]
    assert len(operator.ask("stream", limit=1000)["rows"]) == 100


def test_when_too_much_happens_samples_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_stream, "MOST_ENDS_PER_SECOND", 20)
    monkeypatch.setattr(task_stream, "FEW_ENDS_PER_SECOND", 10)
    operator = OperatorHarness()
    operator.submit(100)
    operator.ask("stream")
    for _ in range(30):
        operator.finish()
    pass_time(operator, 1)
    answer = operator.ask("stream")
    assert (answer["sampled"], len(answer["rows"])) == (True, 30)
    assert operator.engine.global_subscribers == []
    job = operator.take()
    pass_time(operator, 0.2)
    for _ in range(20):
        operator.finish()
    answer = operator.ask("stream", cursor=answer["next"])
    assert (answer["sampled"], answer["rows"]) == (True, [])
    assert [row[2] for row in answer["running"]] == [f"H:t:{job.id}"]
    operator.engine.complete(operator.worker, job.id, b"")
    pass_time(operator, 0.2)
    for _ in range(20):
        operator.finish()
    answer = operator.ask("stream", cursor=answer["next"])
    assert rows(answer) == [("f", f"H:t:{job.id}", "sampled")]
    pass_time(operator, 10)
    assert operator.ask("stream")["sampled"] is False
    operator.finish()
    assert rows(operator.ask("stream", cursor=answer["next"]))[-1][2] == "done"
    pass_time(operator, 40)
    assert operator.engine.global_subscribers == []


def test_workers_that_come_and_go_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_stream, "MOST_WORKER_NAMES", 5)
    monkeypatch.setattr(task_stream, "MOST_FUNCTION_NAMES", 3)
    operator = OperatorHarness()
    operator.ask("stream")
    for number in range(10):
        operator.submit(function=b"g%d" % number)
        worker = operator.engine.add_worker(operator.harness.talker(f"w{number}").session, "gearman")
        operator.engine.can_do(worker, operator.engine.function_named(b"g%d" % number))
        job = operator.engine.take(worker)
        assert job is not None
        operator.engine.complete(worker, job.id, b"")
        operator.engine.remove_worker(worker, Cause.GIVEN_BACK)
        operator.harness.end_turn()
    answer = operator.ask("stream")
    assert len(answer["workers"]) == 5
    assert answer["functions"] == ["g0", "g1", "g2", "other"]


def test_no_memory_for_a_recording() -> None:
    operator = OperatorHarness()
    operator.engine.use_settings(EngineSettings(memory_bytes=1_000_000))
    with pytest.raises(Refused, match="no memory"):
        operator.ask("stream")
    assert operator.engine.global_subscribers == []


# --- the topic ---


def test_the_topic_tells_of_ends_five_times_a_second_while_it_is_watched() -> None:
    harness = Viewers()
    ((name, first), _) = harness.watch("v", "stream")
    assert (name, first["kind"], first["data"]["rows"]) == ("stream", "snapshot", [])
    harness.submit()
    taken = harness.ask("w", "POST", "/v1/functions/f/take").headers
    harness.pass_time(0.2)
    ((_, delta), _) = harness.events("v")
    assert [row[2] for row in delta["data"]["running"]] == ["H:t:1"]
    harness.ask("w", "PUT", f"/v1/jobs/{taken['switchgear-job']}/result", b"", {"Switchgear-Attempt": "1"})
    harness.pass_time(0.2)
    ((_, delta), _) = harness.events("v")
    assert rows(delta["data"]) == [("f", "H:t:1", "done")]
    assert delta["data"]["running"] == []
    harness.pass_time(2)
    assert harness.events("v") == []
    harness.leave("v")
    harness.pass_time(6)
    assert harness.engine.global_subscribers == []


def test_what_very_many_workers_are_running_is_noted_over_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_stream, "WORKERS_PER_TURN", 4)
    operator = OperatorHarness()
    operator.submit(10)
    workers = [operator.engine.add_worker(operator.harness.talker(f"w{number}").session, "t") for number in range(10)]
    for worker in workers:
        operator.engine.can_do(worker, operator.engine.function_named(b"f"))
        assert operator.engine.take(worker) is not None
    later: list[Callable[[], object]] = []
    stream = task_stream.TaskStream(operator.engine, later.append)
    stream.watch(30)
    counts = [len(stream.running(100))]
    while later:
        later.pop()()
        counts.append(len(stream.running(100)))
    assert counts == [2, 4, 6, 8, 10, 10]  # the last one has no job
    stream.end()
