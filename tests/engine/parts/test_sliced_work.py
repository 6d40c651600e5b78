"""`SlicedWork`: work of many units, so many of them in each turn, shared by all that is pending."""

from __future__ import annotations

from collections.abc import Iterator

from switchgear.engine.sliced_work import SlicedKind, SlicedWork


def work(name: str, units: int, done: list[str]) -> Iterator[None]:
    for _ in range(units):
        done.append(name)
        yield


def small() -> tuple[SlicedWork, list[str]]:
    sliced_work = SlicedWork()
    sliced_work.units_per_turn = 4
    sliced_work.begin_turn()
    return sliced_work, []


def test_what_fits_into_the_turn_is_done_at_once() -> None:
    sliced_work, done = small()
    sliced_work.start(work("a", 3, done), SlicedKind.FREE, None)
    assert (done, len(sliced_work)) == (["a"] * 3, 0)


def test_the_rest_is_done_in_the_turns_to_come() -> None:
    sliced_work, done = small()
    sliced_work.start(work("a", 10, done), SlicedKind.FREE, None)
    assert (len(done), len(sliced_work)) == (4, 1)
    sliced_work.begin_turn()
    assert (len(done), len(sliced_work)) == (8, 1)
    sliced_work.begin_turn()
    assert (len(done), len(sliced_work)) == (10, 0)


def test_nothing_is_begun_when_the_turn_is_used_up() -> None:
    sliced_work, done = small()
    sliced_work.start(work("a", 4, done), SlicedKind.FREE, None)
    sliced_work.start(work("b", 1, done), SlicedKind.FREE, None)
    assert done == ["a"] * 4
    sliced_work.begin_turn()
    assert (done, len(sliced_work)) == (["a"] * 4 + ["b"], 0)


def test_all_that_is_pending_gets_its_share() -> None:
    sliced_work, done = small()
    sliced_work.start(work("a", 100, done), SlicedKind.FREE, None)
    sliced_work.start(work("b", 100, done), SlicedKind.FREE, None)
    done.clear()
    sliced_work.begin_turn()
    assert sorted(done) == ["a", "a", "b", "b"]


def test_everything_can_be_finished_or_forgotten() -> None:
    sliced_work, done = small()
    sliced_work.start(work("a", 100, done), SlicedKind.FREE, None)
    sliced_work.finish()
    assert (len(done), len(sliced_work)) == (100, 0)
    sliced_work.start(work("b", 100, done), SlicedKind.FREE, None)
    sliced_work.clear()
    sliced_work.begin_turn()
    assert "b" not in done
