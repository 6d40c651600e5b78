"""Figures of functions over time: points, blocks, the sampler, and the verb `series`."""

from __future__ import annotations

import random
from math import isnan
from typing import Any

import pytest

from switchgear.net import series_recorder
from switchgear.net.series import BLOCK_POINTS, WIDTH, FunctionHistory, PointBlocks
from tests.net.office import Office

START = 1_700_000_000


def sample(office: Office, times: int = 1) -> None:
    """Let ten seconds pass so often, and take a sample each time."""
    for _ in range(times):
        office.harness.clock.advance(10)
        office.harness.turn()
        office.operations.series_recorder.look_after()


def values(answer: dict[str, Any], metric: str) -> list[float]:
    return [value for value in answer["values"][metric] if value is not None]


def test_nothing_was_recorded_yet() -> None:
    answer = Office().ask("series")
    assert answer["begins_at"] is None
    assert len(answer["times"]) == 361
    assert set(answer["values"]["done"]) == {None}


def test_counters_and_values_of_all_functions() -> None:
    office = Office()
    sample(office)
    office.submit(5)
    office.finish()
    office.finish(error=b"no")
    sample(office)
    sample(office)
    answer = office.ask("series", metrics=["submitted", "done", "failed", "ready", "oldest", "workers"])
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
    office = Office()
    sample(office)
    office.submit(2)
    sample(office)
    answer = office.ask("series", function="f", names=True)
    assert values(answer, "submitted") == [2]
    assert answer["functions"] == ["f"]
    with pytest.raises(LookupError, match="no series of g"):
        office.ask("series", function="g")


def test_minutes_are_made_of_tens_of_seconds() -> None:
    office = Office()
    sample(office, 5)
    for _ in range(30):
        office.submit()
        sample(office)
    answer = office.ask("series", step=60, metrics=["submitted", "ready"])
    assert values(answer, "submitted") == [0, 5, 6, 6, 6, 6]
    assert values(answer, "ready")[-1] == sum(values(answer, "submitted"))
    assert all(time % 60 == 0 for time in answer["times"])


def test_longer_steps_and_steps_that_are_chosen() -> None:
    office = Office()
    now = office.engine.now_us / 1e6
    for since, step in ((3600, 10), (6 * 3600, 10), (7 * 3600, 60), (30 * 3600, 60), (6 * 86_400, 600)):
        assert office.ask("series", since=now - since)["step"] == step
    sample(office, 400)
    office.submit(7)
    sample(office, 100)
    answer = office.ask("series", step=600, metrics=["submitted", "ready"])
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
        Office().ask("series", **arguments)


def test_a_function_that_is_forgotten_keeps_its_series() -> None:
    office = Office()
    sample(office)
    job = office.submit(function=b"g")[0]
    sample(office)
    office.engine.cancel(job)
    office.harness.end_turn()
    assert office.engine.drop_function(office.engine.functions[b"g"])
    sample(office)
    answer = office.ask("series", function="g", metrics=["submitted", "ready"])
    assert values(answer, "submitted") == [1, 0]
    assert values(answer, "ready") == [1, 0]


def test_functions_beyond_the_limit_are_recorded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_recorder, "MOST_RECORDED_FUNCTIONS", 3)
    office = Office()
    sample(office)
    for number in range(5):
        office.submit(1 + number, function=b"g%d" % number)
    office.submit(function=b"other")
    sample(office)
    answer = office.ask("series", function="other", names=True)
    assert answer["functions"] == ["g0", "g1", "g2"]
    assert values(answer, "submitted") == [0, 4 + 5 + 1]
    assert values(answer, "oldest") == [0, 10]


def test_the_memory_is_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_recorder, "MOST_SERIES_BYTES", 15_000)
    office = Office()
    rng = random.Random(1)
    for _ in range(1_000):
        office.submit(rng.randrange(3))
        while office.engine.functions[b"f"].ready if b"f" in office.engine.functions else False:
            office.finish()
        sample(office)
    assert 10_000 < office.engine.memory.series_bytes <= 15_000
    answer = office.ask("series", since=office.engine.now_us / 1e6 - 10_000)
    assert answer["begins_at"] > START + 10


def test_a_clock_that_is_set() -> None:
    office = Office()
    sample(office, 3)
    office.harness.clock.set_wall_clock(-3600)
    office.engine.clock_moved(office.harness.clock.follow_wall_clock())
    office.submit()
    sample(office, 3)
    answer = office.ask("series", metrics=["ready"])
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
