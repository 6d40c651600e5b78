"""The verb `overview`: totals, rates, and what needs a person."""

from __future__ import annotations

from typing import Any

from switchgear.errors import Refused, StorageError
from switchgear.model import NORMAL, Delivery
from switchgear.net.monitoring.recent_counts import MOST_SAMPLES, RecentCounts
from switchgear.refusals import REFUSED_DRAINING
from switchgear.states import Cause
from tests.net.operator_harness import OperatorHarness


def codes(overview: dict[str, Any]) -> list[str]:
    return [alarm["code"] for alarm in overview["alarms"]]


def pass_time(operator: OperatorHarness, seconds: float) -> None:
    operator.harness.clock.advance(seconds)
    operator.harness.turn()


def test_a_server_without_anything() -> None:
    overview = OperatorHarness().ask("overview")
    assert overview["jobs"] == {"total": 0, "ready": 0, "running": 0, "waiting": 0, "scheduled": 0}
    assert overview["rates"]["over_seconds"] == 0
    assert overview["rates"]["done"] is None
    assert overview["oldest_ready"] is None
    assert overview["drain_seconds"] == 0
    assert overview["workers"] == {"total": 1, "busy": 0, "by_protocol": {"gearman": 1}}
    assert overview["alarms"] == []


def test_jobs_are_counted_by_state() -> None:
    operator = OperatorHarness()
    first, *_ = operator.submit(3)
    operator.submit(predecessors=(first.id,))
    operator.submit(run_at_us=operator.engine.now_us + 60_000_000)
    operator.take()
    overview = operator.ask("overview")
    assert overview["jobs"] == {"total": 5, "ready": 2, "running": 1, "waiting": 1, "scheduled": 1}
    assert overview["workers"]["busy"] == 1


def test_rates_and_the_time_to_drain() -> None:
    operator = OperatorHarness()
    operator.submit(30)
    assert operator.ask("overview")["drain_seconds"] is None
    for _ in range(10):
        pass_time(operator, 1)
        operator.finish()
    overview = operator.ask("overview")
    assert overview["rates"]["over_seconds"] == 10
    assert overview["rates"]["done"] == 1.0
    assert overview["rates"]["submitted"] == 0
    assert overview["counts"]["done"] == 10
    assert overview["drain_seconds"] == 20
    assert overview["oldest_ready"] == {"seconds": 10.0, "function": "f"}


def test_the_counts_of_a_function_that_was_forgotten_stay() -> None:
    operator = OperatorHarness()
    operator.submit()
    operator.finish()
    function = operator.engine.functions[b"f"]
    operator.engine.cannot_do(operator.worker, function)
    assert operator.engine.drop_function(function)
    overview = operator.ask("overview")
    assert overview["functions"] == 0
    assert overview["counts"]["done"] == 1


def test_a_function_without_worker_is_alarming_after_a_moment() -> None:
    operator = OperatorHarness()
    operator.submit(2, function=b"g")
    assert codes(operator.ask("overview")) == []
    pass_time(operator, 10)
    (alarm,) = operator.ask("overview")["alarms"]
    assert alarm == {
        "code": "no_worker",
        "level": "warning",
        "text": "g: 2 jobs wait, and no worker is registered",
        "function": "g",
        "count": 2,
    }
    operator.ask("pause", function="g")
    assert codes(operator.ask("overview")) == ["paused"]
    pass_time(operator, 900)
    assert codes(operator.ask("overview")) == ["oldest_wait", "paused"]


def test_only_the_longest_of_very_many_queues_are_named() -> None:
    operator = OperatorHarness()
    for number in range(25):
        operator.submit(1 + number, function=b"g%d" % number)
    pass_time(operator, 10)
    alarms = operator.ask("overview")["alarms"]
    assert [alarm["function"] for alarm in alarms] == [f"g{number}" for number in range(24, 14, -1)]


def test_dead_jobs_are_alarming_for_ten_minutes() -> None:
    operator = OperatorHarness(attempts=1)
    operator.ask("overview")
    operator.submit()
    operator.kill()
    pass_time(operator, 60)
    overview = operator.ask("overview")
    assert codes(overview) == ["dead_letters"]
    assert overview["counts"]["dead"] == 1
    for _ in range(10):
        pass_time(operator, 60)
        overview = operator.ask("overview")
    assert codes(overview) == []


def test_a_failing_store_and_a_server_that_drains() -> None:
    operator = OperatorHarness()
    operator.harness.storage_error = StorageError("the disk is full")
    operator.engine.refusal = Refused(REFUSED_DRAINING, "draining")
    overview = operator.ask("overview")
    assert codes(overview) == ["store_down", "draining"]
    assert overview["alarms"][0]["level"] == "critical"
    assert overview["store"]["error"] == "the disk is full"
    assert overview["draining"] is True


def test_full_memory() -> None:
    operator = OperatorHarness()
    operator.submit(function=b"g")
    operator.engine.memory.limit_bytes = 100
    assert codes(operator.ask("overview")) == ["memory_full"]


def test_very_many_functions_and_workers_are_added_up_in_steps() -> None:
    operator = OperatorHarness()
    for number in range(1_000):
        operator.engine.submit(b"g%d" % number, b"", b"", NORMAL, Delivery.HANDLE)
        operator.engine.add_worker(operator.harness.talker("many").session, "http")
    answers: list[Any] = []
    steps = list(operator.operations.in_steps("overview", {}, answers))
    assert len(steps) >= 8
    assert answers[0]["jobs"]["ready"] == 1_000
    assert answers[0]["workers"]["by_protocol"] == {"gearman": 1, "http": 1_000}
    for worker in list(operator.engine.workers.values()):
        operator.engine.remove_worker(worker, Cause.GIVEN_BACK)


# --- earlier values of counters ---


def test_samples_are_bounded_and_about_a_second_apart() -> None:
    recent = RecentCounts()
    for number in range(10_000):
        recent.note(number * 100_000, [number])
    assert len(recent._samples) <= MOST_SAMPLES
    assert recent.rates(1_000_000_000, [10_000]) == (10.0, [10.0])


def test_a_clock_that_was_set_back() -> None:
    recent = RecentCounts()
    recent.note(100_000_000, [5])
    recent.note(50_000_000, [6])
    assert recent.rates(51_000_000, [8]) == (1.0, [2.0])
    assert recent.rates(50_000_000, [8]) == (0.0, [None])
