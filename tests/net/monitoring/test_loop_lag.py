"""A late event loop is told once, and again only after a while without delays; alarms and figures show it."""

from __future__ import annotations

import asyncio

from switchgear.net.monitoring.loop_lag import LATE_SECONDS, WINDOW_SECONDS, LoopLag
from tests.net.operator_harness import OperatorHarness


def test_a_delay_is_told_once() -> None:
    async def play() -> None:
        told: list[float] = []
        lag = LoopLag(told.append)
        lag.note(LATE_SECONDS / 2, 1.0)
        assert not told
        assert not lag.is_late
        for number in range(20):  # late again and again
            lag.note(0.2 + number, 2.0 + number)
        assert told == [0.2]
        assert lag.is_late
        for number in range(4):  # the figure forgets the delays
            lag.note(0.0, 30.0 + number * WINDOW_SECONDS)
        assert not lag.is_late
        lag.note(0.3, 200.0)
        assert told == [0.2, 0.3]

    asyncio.run(play())


def test_a_late_loop_is_an_alarm() -> None:
    operator = OperatorHarness()
    operator.operations.context.loop_lag_seconds = lambda: 0.25
    (alarm,) = operator.ask("overview")["alarms"]
    assert alarm["code"] == "loop_lag"
    assert "250 ms" in alarm["text"]
    operator.operations.context.loop_lag_seconds = lambda: LATE_SECONDS / 2
    assert not operator.ask("overview")["alarms"]
