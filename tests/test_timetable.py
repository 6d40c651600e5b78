"""When something is to happen again and again: expressions, intervals, and the two nights a year that are odd."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.errors import ConfigError
from switchgear.timetable import SECOND_US, Cron, Every, timetable_from_spec, timetable_of

HOUR_US = 3600 * SECOND_US
START_US = 1_700_000_000 * SECOND_US  # 2023-11-14 22:13:20 UTC, a Tuesday


def us(text: str) -> int:
    """The moment that is written so; UTC unless it says otherwise."""
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * SECOND_US)


def written(moment_us: int | None) -> str:
    assert moment_us is not None
    return datetime.fromtimestamp(moment_us / SECOND_US, UTC).strftime("%Y-%m-%d %H:%M:%S")


def upcoming(timetable: Cron | Every, after_us: int, count: int) -> list[str]:
    found = []
    for _ in range(count):
        next_us = timetable.next_after_us(after_us)
        assert next_us is not None
        assert next_us > after_us
        found.append(written(next_us))
        after_us = next_us
    return found


class TestExpressions:
    @pytest.mark.parametrize(
        ("expression", "first", "second"),
        [
            ("* * * * *", "2023-11-14 22:14:00", "2023-11-14 22:15:00"),
            ("*/5 * * * *", "2023-11-14 22:15:00", "2023-11-14 22:20:00"),
            ("0 3 * * *", "2023-11-15 03:00:00", "2023-11-16 03:00:00"),
            ("0 9-17/4 * * MON-FRI", "2023-11-15 09:00:00", "2023-11-15 13:00:00"),
            ("30 6 1,15 * *", "2023-11-15 06:30:00", "2023-12-01 06:30:00"),
            ("0 0 L * *", "2023-11-30 00:00:00", "2023-12-31 00:00:00"),
            ("0 8 * * FRI#2", "2023-12-08 08:00:00", "2024-01-12 08:00:00"),
            ("0 0 29 feb *", "2024-02-29 00:00:00", "2028-02-29 00:00:00"),
            ("@hourly", "2023-11-14 23:00:00", "2023-11-15 00:00:00"),
            ("@daily", "2023-11-15 00:00:00", "2023-11-16 00:00:00"),
            ("@Weekly", "2023-11-19 00:00:00", "2023-11-26 00:00:00"),
            ("@monthly", "2023-12-01 00:00:00", "2024-01-01 00:00:00"),
            ("@yearly", "2024-01-01 00:00:00", "2025-01-01 00:00:00"),
        ],
    )
    def test_what_comes_next(self, expression: str, first: str, second: str) -> None:
        assert upcoming(Cron(expression), START_US, 2) == [first, second]

    def test_a_moment_of_the_timetable_is_not_after_itself(self) -> None:
        at_us = us("2023-11-15 00:00:00")
        assert written(Cron("@daily").next_after_us(at_us)) == "2023-11-16 00:00:00"
        assert written(Cron("@daily").next_after_us(at_us - 1)) == "2023-11-15 00:00:00"

    def test_the_timezone_decides(self) -> None:
        assert upcoming(Cron("0 9 * * *", "America/New_York"), START_US, 1) == ["2023-11-15 14:00:00"]
        assert upcoming(Cron("0 9 * * *", "Asia/Kolkata"), START_US, 1) == ["2023-11-15 03:30:00"]

    def test_spaces_do_not_matter(self) -> None:
        assert Cron("  0  3 * *   * ").spec == "0 3 * * *"

    def test_one_that_never_comes(self) -> None:
        assert Cron("0 0 */20 * 1L").next_after_us(START_US) is None

    def test_the_end_of_the_calendar(self) -> None:
        cron = Cron("@daily", "Pacific/Auckland")
        assert cron.next_after_us(us("9999-12-31 12:00:00")) is None
        assert cron.next_after_us(10**30) is None

    @pytest.mark.parametrize(
        ("expression", "complaint"),
        [
            ("", "'' has 0 fields, not five: minute, hour, day-of-month, month, day-of-week"),
            ("* * * *", "has 4 fields, not five"),
            ("* * * * * *", "has 6 fields, not five"),
            ("60 * * * *", r"'60 \* \* \* \*': '60' is no minute \(0-59\)"),
            ("* 24 * * *", r"'24' is no hour \(0-23\)"),
            ("* * 32 * *", "'32' is no day-of-month"),
            ("* * * JAM *", r"'JAM' is no month \(1-12 or JAN-DEC\)"),
            ("* * * * MOO", "'MOO' is no day-of-week"),
            ("0 0 31 2 *", "'31' is no day-of-month .*, and the months named must have it"),
            ("*/0 * * * *", r"'\*/0' is no minute"),
            ("5-1 * * * *", "'5-1' is no minute"),
            ("@often", "'@often' is unknown; there are @hourly, @daily"),
            ("*" * 201, "at most 200 characters"),
        ],
    )
    def test_a_typo_is_named(self, expression: str, complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            Cron(expression)

    @pytest.mark.parametrize("zone", ["Europe/Berln", "Europe", "../../etc/passwd", "/etc/zone", "a\0b", "x" * 300])
    def test_an_unknown_timezone_is_named(self, zone: str) -> None:
        with pytest.raises(ConfigError, match="timezone"):
            Cron("* * * * *", zone)

    @given(st.text(alphabet="0123456789*/,-#LWMONFEB@ ²ß", max_size=30))
    def test_any_text_is_an_expression_or_a_mistake(self, text: str) -> None:
        try:
            cron = Cron(text)
        except ConfigError:
            return
        next_us = cron.next_after_us(START_US)
        assert next_us is None or next_us > START_US


class TestClocksThatAreSet:
    """In Berlin 2024, clocks went from 02:00 to 03:00 on 31 March (01:00 UTC), from 03:00 to 02:00 on 27 October."""

    @pytest.mark.parametrize(
        ("expression", "after", "expected"),
        [
            # A time on the wall that does not exist: when the clock has been set forward.
            ("30 2 * * *", "2024-03-30 12:00", ["2024-03-31 01:00:00", "2024-04-01 00:30:00"]),
            # Several of them, and one that exists at that moment, are one.
            ("0,30 2,3 * * *", "2024-03-31 00:00", ["2024-03-31 01:00:00", "2024-03-31 01:30:00"]),
            # The passing of time knows no gap.
            ("*/30 * * * *", "2024-03-31 00:15", ["2024-03-31 00:30:00", "2024-03-31 01:00:00"]),
            ("30 * * * *", "2024-03-31 00:15", ["2024-03-31 00:30:00", "2024-03-31 01:30:00"]),
            ("*/20 2 * * *", "2024-03-30 12:00", ["2024-04-01 00:00:00", "2024-04-01 00:20:00"]),
            # A time on the wall that comes twice: the first time only.
            ("30 2 * * *", "2024-10-26 12:00", ["2024-10-27 00:30:00", "2024-10-28 01:30:00"]),
            # Asked in between, and in the hour that comes again.
            ("30 2 * * *", "2024-10-27 00:45", ["2024-10-28 01:30:00"]),
            ("30 2 * * *", "2024-10-27 01:15", ["2024-10-28 01:30:00"]),
            # The passing of time happens both times.
            ("30 * * * *", "2024-10-27 00:00", ["2024-10-27 00:30:00", "2024-10-27 01:30:00", "2024-10-27 02:30:00"]),
            ("*/30 2 * * *", "2024-10-26 23:00", [f"2024-10-27 0{n // 2}:{n % 2 * 3}0:00" for n in range(4)]),
        ],
    )
    def test_in_berlin(self, expression: str, after: str, expected: list[str]) -> None:
        assert upcoming(Cron(expression, "Europe/Berlin"), us(after), len(expected)) == expected

    @pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Africa/Cairo"])
    @pytest.mark.parametrize("expression", ["0 0 * * *", "15 */6 * * *", "* 0 * * *", "30 1-3 * * *"])
    def test_a_year_is_in_order_and_without_repetition(self, zone: str, expression: str) -> None:
        cron = Cron(expression, zone)
        start_us, end_us = us("2018-01-01"), us("2019-01-01")
        step_by_step: list[int] = []
        moment_us = start_us
        while (next_us := cron.next_after_us(moment_us)) is not None and next_us <= end_us and len(step_by_step) < 800:
            step_by_step.append(next_us)
            moment_us = next_us
        assert step_by_step == sorted(set(step_by_step))
        assert cron.last_between_us(start_us, step_by_step[-1], 10_000) == step_by_step


class TestLookingBack:
    def test_the_last_ones_in_order(self) -> None:
        found = Cron("*/10 * * * *").last_between_us(0, START_US, 3)
        assert [written(at_us)[11:] for at_us in found] == ["21:50:00", "22:00:00", "22:10:00"]

    @pytest.mark.parametrize("timetable", [Cron("0 * * * *"), Every(HOUR_US)], ids=["cron", "interval"])
    def test_the_bounds(self, timetable: Cron | Every) -> None:
        noon_us = us("2023-11-15 12:00:00")
        assert timetable.last_between_us(noon_us - HOUR_US, noon_us, 5) == [noon_us]
        assert timetable.last_between_us(noon_us, noon_us + HOUR_US - 1, 5) == []
        assert timetable.last_between_us(noon_us, noon_us, 5) == []
        assert timetable.last_between_us(noon_us, noon_us - HOUR_US, 5) == []

    @pytest.mark.parametrize("timetable", [Cron("17 3 * * *"), Every(86_400 * SECOND_US)], ids=["cron", "interval"])
    def test_a_long_time_costs_no_more_than_what_is_wanted(self, timetable: Cron | Every) -> None:
        found = timetable.last_between_us(0, START_US, 50)
        assert len(found) == 50
        assert found[-1] <= START_US < (timetable.next_after_us(found[-1]) or 0)


class TestIntervals:
    def test_they_are_counted_from_the_epoch(self) -> None:
        assert upcoming(Every(HOUR_US), START_US, 2) == ["2023-11-14 23:00:00", "2023-11-15 00:00:00"]
        assert Every(SECOND_US // 5).next_after_us(START_US) == START_US + SECOND_US // 5

    @pytest.mark.parametrize("seconds", [0.05, -1, 1e12, float("inf"), float("nan")])
    def test_out_of_range(self, seconds: float) -> None:
        with pytest.raises(ConfigError, match="out of range"):
            timetable_of(every_seconds=seconds)


class TestAskingForOne:
    def test_one_of_the_two(self) -> None:
        for wrong in ({}, {"cron": "@daily", "every_seconds": 5}):
            with pytest.raises(ConfigError, match="one of the two"):
                timetable_of(**wrong)  # type: ignore[arg-type]

    def test_an_interval_has_no_timezone(self) -> None:
        with pytest.raises(ConfigError, match="a timezone goes with a cron expression"):
            timetable_of(every_seconds=60, timezone="Europe/Berlin")

    @pytest.mark.parametrize(
        ("wanted", "spec", "timezone"),
        [
            (timetable_of(cron="*/5 * * * *", timezone="Europe/Berlin"), "*/5 * * * *", "Europe/Berlin"),
            (timetable_of(cron="@daily"), "@daily", "UTC"),
            (timetable_of(every_seconds=30), "every 30 s", "UTC"),
            (timetable_of(every_seconds=0.2), "every 0.2 s", "UTC"),
            (timetable_of(every_seconds=1_000_000.000001), "every 1000000.000001 s", "UTC"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_it_says_of_itself_is_enough_to_make_it_again(
        self, wanted: Cron | Every, spec: str, timezone: str
    ) -> None:
        assert (wanted.spec, wanted.timezone) == (spec, timezone)
        again = timetable_from_spec(spec, timezone)
        assert (again.spec, again.timezone) == (spec, timezone)
        assert again.next_after_us(START_US) == wanted.next_after_us(START_US)

    @pytest.mark.parametrize("spec", ["every x s", "every 0 s", "often"])
    def test_what_is_no_timetable(self, spec: str) -> None:
        with pytest.raises(ConfigError):
            timetable_from_spec(spec, "UTC")
