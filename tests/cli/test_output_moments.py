"""Times as the commands show them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from switchgear.app.server_answers import _moment
from switchgear.cli.output import moment


@pytest.mark.parametrize("seconds", [1e12, 3e12, 1e15, 1e300, -1e15])
def test_a_time_beyond_the_calendar_is_shown_all_the_same(seconds: float) -> None:
    assert "since 1970" in moment(seconds)
    assert _moment(seconds) == datetime.max.replace(tzinfo=UTC)


def test_no_time_is_nothing() -> None:
    assert moment(None) == moment(0) == ""
    assert _moment(None) is None
