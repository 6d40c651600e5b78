"""The index of deadlines: order, a clock that is set, and stale entries that are removed in portions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from switchgear.engine.deadlines import LEAST_STALE_FOR_SWEEP, Deadline, DeadlineIndex, DeadlineKind, Deadlines
from switchgear.model import SECOND_US, Function
from tests.engine.sweeping import sweep

SUBJECT = Function(b"mail")


def entry(at_us: int, serial: int) -> Deadline:
    return at_us, serial, DeadlineKind.DUE, SUBJECT, 0


def drained(index: DeadlineIndex) -> list[Deadline]:
    entries = []
    while (first := index.first()) is not None:
        entries.append(first)
        index.pop()
    return entries


@given(st.lists(st.integers(0, 50)), st.integers(1, 5), st.lists(st.integers(0, 10)))
def test_entries_come_in_the_order_of_their_times_however_many_heaps_there_are(
    times_us: list[int], heap_entries: int, later_us: list[int]
) -> None:
    index = DeadlineIndex(heap_entries)
    entries = [entry(at_us, serial) for serial, at_us in enumerate(times_us)]
    for each in entries:
        index.add(each)
    assert sorted(index) == sorted(entries)
    half = len(entries) // 2
    for expected in sorted(entries)[:half]:
        assert index.first() == expected
        index.pop()
    more = [entry(at_us, 1000 + serial) for serial, at_us in enumerate(later_us)]
    for each in more:
        index.add(each)
    assert drained(index) == sorted(sorted(entries)[half:] + more)
    assert len(index) == 0


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans())), st.integers(1, 5))
def test_sweeping_removes_what_is_stale_and_nothing_else(entries: list[tuple[int, bool]], heap_entries: int) -> None:
    index = DeadlineIndex(heap_entries)
    live = set()
    for serial, (at_us, is_live) in enumerate(entries):
        index.add(entry(at_us, serial))
        if is_live:
            live.add(serial)
    for _ in range(index.heap_count):
        index.sweep_one(lambda each: each[1] in live)
    expected = sorted(entry(at_us, serial) for serial, (at_us, is_live) in enumerate(entries) if is_live)
    assert len(index) == len(expected)
    assert drained(index) == expected


def test_one_call_looks_at_a_bounded_number_of_entries() -> None:
    deadlines = Deadlines()
    for number in range(100_000):
        deadlines.add(number, DeadlineKind.RUN_LIMIT, SUBJECT)
    deadlines.note_stale(99_999)
    looked_at = 0

    def is_live(deadline: Deadline) -> bool:
        nonlocal looked_at
        looked_at += 1
        return deadline[0] == 77_777

    calls = 0
    while len(deadlines) > 1:
        before = looked_at
        deadlines.sweep_some(is_live)
        assert looked_at - before <= 8192
        calls += 1
    assert calls > 10
    while deadlines.stale:
        deadlines.sweep_some(is_live)
    assert deadlines.next_us == 77_777


def test_what_becomes_stale_during_a_pass_is_still_counted() -> None:
    deadlines = Deadlines()
    for number in range(20_000):
        deadlines.add(number, DeadlineKind.RUN_LIMIT, SUBJECT)
    deadlines.note_stale(15_000)
    deadlines.sweep_some(lambda deadline: deadline[0] >= 15_000)
    deadlines.note_stale(3)
    for _ in range(10):
        deadlines.sweep_some(lambda deadline: deadline[0] >= 15_000)
    assert (len(deadlines), deadlines.stale) == (5_000, 3)


def test_a_clock_that_is_set_moves_spans_and_not_moments() -> None:
    deadlines = Deadlines()
    deadlines.add(5 * SECOND_US, DeadlineKind.DUE, SUBJECT)
    deadlines.add(4 * SECOND_US, DeadlineKind.LEASE, SUBJECT)
    deadlines.shift_spans(2 * SECOND_US)
    assert sorted(each[0] for each in deadlines) == [5 * SECOND_US, 6 * SECOND_US]
    assert deadlines.next_us == 5 * SECOND_US
    assert [deadlines.pop_due(9 * SECOND_US) for _ in range(3)] == [
        (5 * SECOND_US, 1, DeadlineKind.DUE, SUBJECT, 0),
        (6 * SECOND_US, 2, DeadlineKind.LEASE, SUBJECT, 0),
        None,
    ]


def test_a_few_stale_entries_are_not_worth_a_pass() -> None:
    deadlines = Deadlines()
    for _ in range(LEAST_STALE_FOR_SWEEP - 1):
        deadlines.add(1, DeadlineKind.DUE, SUBJECT)
        deadlines.note_stale()
    deadlines.sweep_some(lambda deadline: False)
    assert len(deadlines) == LEAST_STALE_FOR_SWEEP - 1


STEPS = st.one_of(
    st.tuples(st.just("moment"), st.integers(0, 50)),
    st.tuples(st.just("span"), st.integers(0, 50)),
    st.tuples(st.just("pop"), st.integers(0, 60)),
    st.tuples(st.just("shift"), st.integers(-20, 20)),
    st.tuples(st.just("sweep"), st.integers(0, 60)),
    st.tuples(st.just("clear"), st.just(0)),
)


@given(st.lists(STEPS, max_size=60))
def test_the_next_time_is_always_that_of_the_earliest_entry(steps: list[tuple[str, int]]) -> None:
    deadlines = Deadlines()
    for step, number in steps:
        if step == "moment":
            deadlines.add(number, DeadlineKind.DUE, SUBJECT)
        elif step == "span":
            deadlines.add(number, DeadlineKind.LEASE, SUBJECT)
        elif step == "pop":
            before_us = deadlines.next_us
            popped = deadlines.pop_due(number)
            assert (popped[0] if popped is not None else None) == (
                before_us if before_us is not None and before_us <= number else None
            )
        elif step == "shift":
            deadlines.shift_spans(number)
        elif step == "sweep":
            sweep(deadlines, lambda entry, latest_us=number: entry[0] <= latest_us)  # type: ignore[misc]
        else:
            deadlines.clear()
        assert deadlines.next_us == min((entry[0] for entry in deadlines), default=None)
