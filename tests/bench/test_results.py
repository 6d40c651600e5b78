"""Readings, cells, and the rounds that visit them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from switchgear.bench.results import Cell, Reading, figure_of, one_line, run_cells, to_document, write_json
from tests.bench.documents import cell


def noted(log: list[str], name: str, rounds: int = 3) -> Cell:
    def measure() -> Reading:
        log.append(name)
        return Reading(10, 1.0, 5.0)

    return Cell("group", name, "switchgear", "", measure, rounds=rounds)


def test_a_reading_knows_its_rate() -> None:
    assert Reading(10, 2.0).jobs_per_second == 5
    assert Reading(10, 0.0).jobs_per_second == 0


def test_the_best_reading_is_the_one_with_the_least_processor_time() -> None:
    slow_but_cheap, fast_but_dear = Reading(10, 9.0, 4.0), Reading(10, 1.0, 5.0)
    found = cell("g", "w", "p", fast_but_dear, slow_but_cheap)
    assert found.best is slow_but_cheap
    assert found.spread == pytest.approx(0.25)


def test_without_processor_time_the_best_reading_is_the_fastest() -> None:
    slow, fast = Reading(10, 3.0), Reading(20, 3.0)
    found = cell("g", "w", "p", slow, fast)
    assert found.best is fast
    assert found.spread == pytest.approx(1.0)


def test_where_the_rate_is_judged_the_best_reading_is_the_fastest() -> None:
    slow_but_cheap, fast_but_dear = Reading(10, 3.0, 4.0, 7.0), Reading(10, 2.0, 5.0, 9.0)
    found = cell("g", "w", "p", slow_but_cheap, fast_but_dear)
    found.judged_by = "jobs_per_second"
    assert found.best is fast_but_dear
    assert found.spread == pytest.approx(0.5)
    found.judged_by = "p50_us"
    assert found.best is slow_but_cheap


def test_a_figure_of_a_row_is_the_best_of_its_kind() -> None:
    cheap = Reading(10, 4.0, 4.0, 80.0, notes={"bytes per queued job": 400.0})
    fast = Reading(10, 2.0, 5.0, 90.0, notes={"bytes per queued job": 500.0})
    row = to_document([cell("g", "w", "p", cheap, fast)], {})["rows"][0]
    assert figure_of(row, "cpu_us") == 4
    assert figure_of(row, "jobs_per_second") == 5
    assert figure_of(row, "p50_us") == 80  # of the round that is shown
    assert figure_of(row, "bytes per queued job") == 400
    assert figure_of(row, "no such note") is None
    failed = to_document([cell("g", "w", "p", cheap, Reading(0, 0.0, fault="lost"))], {})["rows"][0]
    assert figure_of(failed, "cpu_us") is None


def test_one_reading_has_no_spread() -> None:
    assert cell("g", "w", "p", Reading(1, 1.0, 1.0)).spread is None


def test_one_fault_spoils_a_cell() -> None:
    found = cell("g", "w", "p", Reading(1, 1.0, 1.0), Reading(0, 0.0, fault="lost a job"))
    assert found.fault == "lost a job"
    row = to_document([found], {})["rows"][0]
    assert row["fault"] == "lost a job"


def test_each_round_visits_all_cells() -> None:
    log: list[str] = []
    run_cells([noted(log, "a"), noted(log, "b", rounds=1), noted(log, "c")], 3, lambda _: None)
    assert log == ["a", "b", "c", "a", "c", "a", "c"]


def test_rounds_that_were_asked_for_are_run_by_every_cell() -> None:
    log: list[str] = []
    run_cells([noted(log, "a"), noted(log, "b", rounds=1)], 4, lambda _: None, is_exact=True)
    assert log == ["a", "b"] * 4


def test_against_the_clock_further_rounds_of_some_come_first() -> None:
    log: list[str] = []
    first = noted(log, "b")
    first.goes_first = True
    cells = [noted(log, "a"), first, noted(log, "c")]
    run_cells(cells, 3, lambda _: None, seconds=1000)
    assert log == ["a", "b", "c", "b", "b", "a", "c", "a", "c"]
    log.clear()
    run_cells(cells, 2, lambda _: None)
    assert log == ["a", "b", "c", "a", "b", "c"]


def test_when_the_time_is_up_every_cell_has_had_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("switchgear.bench.results.time.monotonic", lambda: now[0])

    def measure() -> Reading:
        now[0] += 10
        return Reading(1, 1.0)

    cells = [Cell("g", name, "p", "", measure) for name in "ab"]
    told: list[str] = []
    run_cells(cells, 3, told.append, seconds=25)
    assert [len(each.readings) for each in cells] == [2, 1]
    assert told[-1] == "time is up in round 2 of 3"


def test_the_first_round_is_whole_however_long_it_takes() -> None:
    log: list[str] = []
    run_cells([noted(log, "a"), noted(log, "b")], 3, lambda _: None, seconds=0)
    assert log == ["a", "b"]


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit("odd")])
def test_a_cell_that_breaks_fails_alone(error: BaseException) -> None:
    def measure() -> Reading:
        raise error

    log: list[str] = []
    broken = Cell("g", "w", "p", "", measure)
    run_cells([broken, noted(log, "a")], 2, lambda _: None)
    assert broken.fault == f"{type(error).__name__}: odd"
    assert len(broken.readings) == 1  # it is not tried again
    assert log == ["a", "a"]


def test_a_long_fault_is_told_in_a_line() -> None:
    assert one_line("it did not start:\n  Traceback\n\n  OSError: full\n") == "it did not start: ... OSError: full"
    assert one_line("lost a job") == "lost a job"
    assert one_line("") == ""


def test_a_document_is_plain_json(tmp_path: Path) -> None:
    found = cell("g", "w", "p", Reading(10, 2.0, 5.0, notes={"bytes per queued job": 400.0}))
    path = tmp_path / "deep" / "results.json"
    write_json(path, to_document([found], {"cores": "2"}))
    read = json.loads(path.read_text())
    assert read["machine"] == {"cores": "2"}
    (row,) = read["rows"]
    assert (row["group"], row["workload"], row["peer"]) == ("g", "w", "p")
    assert row["best"]["jobs_per_second"] == 5
    assert row["readings"][0]["notes"] == {"bytes per queued job": 400.0}
