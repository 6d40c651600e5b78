"""Figures of functions over time: points, blocks, the sampler, and the verb `series`."""

from __future__ import annotations

import random
from math import isnan
from typing import Any

import pytest

from switchgear.net.monitoring import series_recorder
from switchgear.net.monitoring.function_history import BLOCK_POINTS, WIDTH, FunctionHistory, PointBlocks
from tests.net.operator_harness import OperatorHarness

START = 1_700_000_000


def sample(operator: OperatorHarness, times: int = 1) -> None:
    """Let ten seconds pass so often, and take a sample each time."""
    for _ in range(times):
        operator.harness.clock.advance(10)
        operator.harness.turn()
        operator.operations.series_recorder.look_after()


def values(answer: dict[str, Any], metric: str) -> list[float]:
    return [value for value in answer["values"][metric] if value is not None]


def test_nothing_was_recorded_yet() -> None:
    answer = OperatorHarness().ask("series")
    assert answer["begins_at"] is None
    assert len(answer["times"]) == 361
    assert set(answer["values"]["done"]) == {None}


def test_counters_and_values_of_all_functions() -> None:
    operator = OperatorHarness()
    sample(operator)
    operator.submit(5)
    operator.finish()
    operator.finish(error=b"no")
    sample(operator)
    sample(operator)
    answer = operator.ask("series", metrics=["submitted", "done", "failed", "ready", "oldest", "workers"])
    assert answer["step"] == 10
    assert answer["begins_at"] == START + 10
    assert values(answer, "submitted") == [0, 5, 0]
    assert values(answer, "done") == [0, 1, 0]
    assert values(answer, "failed") == [0, 1, 0]
    assert values(answer, "ready") == [0, 3, 3]
    assert values(answer, "oldest") == [0, 10, 20]
    assert values(answer, "workers") == [1, 1, 1]
    assert "running" not in answer["values"]
    assert answer["times"][-1] == START + 30


def test_one_function_and_the_names_of_all() -> None:
    operator = OperatorHarness()
    sample(operator)
    operator.submit(2)
    sample(operator)
    answer = operator.ask("series", function="f", names=True)
    assert values(answer, "submitted") == [2]
    assert answer["functions"] == ["f"]
    with pytest.raises(LookupError, match="no series of g"):
        operator.ask("series", function="g")


def test_minutes_are_made_of_tens_of_seconds() -> None:
    operator = OperatorHarness()
    sample(operator, 5)
    for _ in range(30):
        operator.submit()
        sample(operator)
    answer = operator.ask("series", step=60, metrics=["submitted", "ready"])
    assert values(answer, "submitted") == [0, 5, 6, 6, 6, 6]
    assert values(answer, "ready")[-1] == sum(values(answer, "submitted"))
    assert all(time % 60 == 0 for time in answer["times"])


def test_longer_steps_and_steps_that_are_chosen() -> None:
    operator = OperatorHarness()
    now = operator.engine.now_us / 1e6
    for since, step in ((3600, 10), (6 * 3600, 10), (7 * 3600, 60), (30 * 3600, 60), (6 * 86_400, 600)):
        assert operator.ask("series", since=now - since)["step"] == step
    sample(operator, 400)
    operator.submit(7)
    sample(operator, 100)
    answer = operator.ask("series", step=600, metrics=["submitted", "ready"])
    assert sum(values(answer, "submitted")) == 7
    assert values(answer, "ready")[-1] == 7


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"step": 7}, "step: expected one of 10, 60, 600, 3600"),
        ({"step": 10, "since": 1}, "step: these would be more than 2200 points"),
        ({"since": 50, "until": 40}, "since: it is after the end"),
        ({"metrics": ["nonsense"]}, "metrics: expected a list"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        OperatorHarness().ask("series", **arguments)


def test_a_function_that_is_forgotten_keeps_its_series() -> None:
    operator = OperatorHarness()
    sample(operator)
    job = operator.submit(function=b"g")[0]
    sample(operator)
    operator.engine.cancel(job)
    operator.harness.end_turn()
    assert operator.engine.drop_function(operator.engine.functions[b"g"])
    sample(operator)
    answer = operator.ask("series", function="g", metrics=["submitted", "ready"])
    assert values(answer, "submitted") == [1, 0]
    assert values(answer, "ready") == [1, 0]


def test_functions_beyond_the_limit_are_recorded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_recorder, "MOST_RECORDED_FUNCTIONS", 3)
    operator = OperatorHarness()
    sample(operator)
    for number in range(5):
        operator.submit(1 + number, function=b"g%d" % number)
    operator.submit(function=b"other")
    sample(operator)
    answer = operator.ask("series", function="other", names=True)
    assert answer["functions"] == ["g0", "g1", "g2"]
    assert values(answer, "submitted") == [0, 4 + 5 + 1]
    assert values(answer, "oldest") == [0, 10]


def test_the_memory_is_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_recorder, "MOST_SERIES_BYTES", 15_000)
    operator = OperatorHarness()
    rng = random.Random(1)
    for _ in range(1_000):
        operator.submit(rng.randrange(3))
        while operator.engine.functions[b"f"].ready if b"f" in operator.engine.functions else False:
            operator.finish()
        sample(operator)
    assert 10_000 < operator.engine.memory.series_bytes <= 15_000
    answer = operator.ask("series", since=operator.engine.now_us / 1e6 - 10_000)
    assert answer["begins_at"] > START + 10


def test_a_clock_that_is_set() -> None:
    operator = OperatorHarness()
    sample(operator, 3)
    operator.harness.clock.set_wall_clock(-3600)
    operator.engine.clock_moved(operator.harness.clock.follow_wall_clock())
    operator.submit()
    sample(operator, 3)
    answer = operator.ask("series", metrics=["ready"])
    assert values(answer, "ready")[-3:] == [1, 1, 1]


# --- blocks ---


def test_points_are_found_again_and_old_ones_dropped() -> None:
    blocks = PointBlocks(300)
    for number in range(1000):
        blocks.add(number, [float(number)] * WIDTH)
    assert blocks.begins_at() == (999 - 300) // BLOCK_POINTS * BLOCK_POINTS
    assert blocks.values_at(990) == [990.0] * WIDTH
    assert blocks.values_at(700) == [700.0] * WIDTH
    assert blocks.values_at(100) is None
    assert blocks.values_at(1500) is None
    read = [value for portion in blocks.read(950, 1005, [0]) for value in portion[0]]
    assert read[:50] == [float(number) for number in range(950, 1000)]
    assert len(read) == 56
    assert all(map(isnan, read[50:]))


def test_an_idle_function_takes_next_to_nothing() -> None:
    history = FunctionHistory()
    for number in range(20_000):
        history.add(number, [0.0] * WIDTH)
    assert history.held_bytes < 5_000
    assert history.is_idle
    history.add(20_001, [1.0] * WIDTH)
    assert not history.is_idle


def test_a_busy_function_is_bounded_for_a_week() -> None:
    rng = random.Random(1)
    history = FunctionHistory()
    for number in range(7 * 24 * 360 + 1000):
        history.add(number, [float(rng.randrange(1000)) for _ in range(WIDTH)])
    assert history.held_bytes < 400_000
    at = history.values_at(7 * 24 * 3600)
    assert at is not None
    assert at[:2] == (7 * 24 * 3600.0, 10)
    at = history.values_at(3 * 24 * 3600 + 5)
    assert at is not None
    assert at[:2] == (3 * 24 * 3600.0, 60)
    assert history.values_at(100) is None
