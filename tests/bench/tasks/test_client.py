"""The client of the benchmark of tasks, with a library that runs each task at once, or wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.task_peers import client
from bench.task_peers.marks import Marks


class AtOnce:
    """A library without a broker: what is submitted has run when `submit_many` returns."""

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self.results: list[int] = []
        self.waits = 0

    def submit_many(self, numbers: range) -> Any:
        for number in numbers:
            self.call(number)
        return numbers[-1]

    def call(self, number: int) -> int:
        self.marks.mark(number)
        self.results.append(number)
        return number

    def result(self, submitted: Any) -> int | None:
        return int(submitted)

    def kept(self) -> int | None:
        return len(self.results)

    def waiting(self) -> int:
        return self.waits


class RunsTwice(AtOnce):
    def call(self, number: int) -> int:
        self.marks.mark(number)
        return super().call(number)


class Loses(AtOnce):
    def submit_many(self, numbers: range) -> Any:
        return super().submit_many(numbers[:-1])


class Forgets(AtOnce):
    def kept(self) -> int | None:
        return 0


class Confuses(AtOnce):
    def call(self, number: int) -> int:
        return super().call(number) + 1

    def result(self, submitted: Any) -> int | None:
        return int(submitted) + 1


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks.create(tmp_path / "marks", 5)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE_SECONDS", 0.01)


def test_bulk_ends_when_all_have_run_and_their_results_are_kept(marks: Marks) -> None:
    findings = client.bulk(AtOnce(marks), 5, marks)
    assert findings["fault"] == ""
    assert 0 < findings["submit_seconds"] <= findings["seconds"]


@pytest.mark.parametrize(
    ("library", "fault"),
    [
        (RunsTwice, "of 5 tasks 0 were not run and 5 more than once"),
        (Loses, "of 5 tasks 1 were not run and 0 more than once"),
        (Forgets, "the results are not all kept"),
        (Confuses, "the last result is not what the task returned"),
    ],
)
def test_bulk_tells_what_a_library_does_wrong(marks: Marks, library: type[AtOnce], fault: str) -> None:
    assert client.bulk(library(marks), 5, marks)["fault"] == fault


def test_round_trips_are_timed_one_by_one(marks: Marks) -> None:
    findings = client.round_trips(AtOnce(marks), 5, marks)
    assert findings["fault"] == ""
    assert len(findings["trips"]) == 5
    assert sum(findings["trips"]) <= findings["seconds"]


def test_a_wrong_result_of_a_round_trip_is_told(marks: Marks) -> None:
    assert client.round_trips(Confuses(marks), 5, marks)["fault"] == "task 0 has a wrong result"


def test_submissions_must_all_wait_at_the_broker(marks: Marks) -> None:
    library = AtOnce(marks)
    library.waits = 5 + client.WARM_UP_SUBMISSIONS
    assert client.submit(library, 5, marks)["fault"] == ""
    library.waits -= 1
    assert client.submit(library, 5, marks)["fault"] == "14 tasks wait, not 15"
