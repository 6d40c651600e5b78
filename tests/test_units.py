"""Durations, moments and sizes as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.units import (
    BYTES_PER_UNIT,
    SECONDS_PER_UNIT,
    exact_bytes,
    exact_duration,
    parse_bytes,
    parse_duration,
    parse_quantity,
    parse_when,
    utc_text,
)

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0", 0),
        ("1.5", 1.5),
        ("250ms", 0.25),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86_400),
        ("1w", 604_800),
        ("1h30m", 5400),
        ("1m30s500ms", 90.5),
        (" 5M ", 300),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-5", "5 m", "m", "5y", "1h30", "1e3", "inf", "nan", "9" * 400, "٣"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|long"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("+30s", NOW + 30),
        ("+5m", NOW + 300),
        ("+90", NOW + 90),
        ("+1h30m", NOW + 5400),
        ("1896109200", 1_896_109_200),
        ("1896109200.5", 1_896_109_200.5),
        ("2030-01-31T18:00:00Z", datetime(2030, 1, 31, 18, tzinfo=UTC).timestamp()),
        ("2030-01-31 18:00+01:00", datetime(2030, 1, 31, 17, tzinfo=UTC).timestamp()),
        ("2030-01-31T18:00", datetime(2030, 1, 31, 18).timestamp()),
        ("2030-01-31", datetime(2030, 1, 31).timestamp()),
    ],
)
def test_moments(text: str, moment: float) -> None:
    assert parse_when(text, NOW) == pytest.approx(moment)


@pytest.mark.parametrize("text", ["", "tomorrow", "+", "+tea", "-5m", "2030-13-01", "9" * 30, "0001-01-01", "18:00"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_when(text, NOW)


@given(st.text())
def test_whatever_is_written_is_a_moment_or_a_value_error(text: str) -> None:
    try:
        assert parse_when(text, NOW) >= 0
    except ValueError:
        pass


@given(st.datetimes(min_value=datetime(1971, 1, 1), timezones=st.just(UTC)))
def test_iso_times_come_back(moment: datetime) -> None:
    if moment.year < 9999:
        assert parse_when(moment.isoformat(), NOW) == pytest.approx(moment.timestamp())


@pytest.mark.parametrize(
    ("text", "count"), [("65536", 65_536), ("64KiB", 65_536), ("1_000", 1000), ("1 MB", 10**6), ("1.5kib", 1536)]
)
def test_sizes(text: str, count: int) -> None:
    assert parse_quantity(text, BYTES_PER_UNIT) == count


@pytest.mark.parametrize(
    ("text", "count"), [("500M", 500 * 10**6), ("1.5GiB", 3 * 2**29), ("2g", 2 * 10**9), ("0.7K", 700), ("12", 12)]
)
def test_sizes_of_memory(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "M", "-1", "1e3", "5 parsecs", "9" * 5000, "x" * 5000])
def test_what_is_no_size_of_memory(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_bytes(text)
    assert 0 < len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["", "x", "5 parsecs", "1e3", "1h30m", "--5"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError):
        parse_quantity(text, SECONDS_PER_UNIT)


@given(st.integers(0, 2**63))
def test_an_exact_size_comes_back(count: int) -> None:
    assert parse_quantity(exact_bytes(count), BYTES_PER_UNIT) == count


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "1s"),
        (60, "1m"),
        (90, "90s"),
        (3600, "1h"),
        (86_400, "1d"),
        (0.25, "250ms"),
        (7200, "2h"),
        (0.0005, "0.0005s"),
    ],
)
def test_exact_durations_can_be_read_back(seconds: float, text: str) -> None:
    assert exact_duration(seconds) == text
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_700_000_000_123_456, "2023-11-14T22:13:20.123456Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        (253_402_300_800_000_000, "253402300800000000 µs"),
        (-1, "-1 µs"),
    ],
)
def test_a_time_in_microseconds_is_shown_in_utc(time_us: int, text: str) -> None:
    assert utc_text(time_us) == text
