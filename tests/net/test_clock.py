"""The clock: monotonic by itself, and told of every step of the wall clock."""

from __future__ import annotations

import pytest

from switchgear.net.clock import LEAST_STEP_US, SystemClock

EPOCH_NS = 1_700_000_000 * 10**9


class Machine:
    """The two clocks of a machine, under the test's control."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ns = EPOCH_NS
        self.monotonic_ns = 5 * 10**9
        monkeypatch.setattr("switchgear.net.clock.time.time_ns", lambda: self.wall_ns)
        monkeypatch.setattr("switchgear.net.clock.time.monotonic_ns", lambda: self.monotonic_ns)

    def pass_time(self, seconds: float) -> None:
        self.wall_ns += round(seconds * 10**9)
        self.monotonic_ns += round(seconds * 10**9)

    def set_wall_clock(self, seconds: float) -> None:
        self.wall_ns += round(seconds * 10**9)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_it_starts_with_the_time_of_day(machine: Machine) -> None:
    assert SystemClock().now_us() == EPOCH_NS // 1000


def test_time_passes(machine: Machine) -> None:
    clock = SystemClock()
    machine.pass_time(1.5)
    assert clock.now_us() == EPOCH_NS // 1000 + 1_500_000
    assert clock.follow_wall_clock() == 0


@pytest.mark.parametrize("step_seconds", [3600.0, -3600.0, 1.0, -1.0, 86_400.5])
def test_a_step_is_not_seen_until_it_is_followed_and_then_once(machine: Machine, step_seconds: float) -> None:
    clock = SystemClock()
    before_us = clock.now_us()
    machine.set_wall_clock(step_seconds)
    assert clock.now_us() == before_us
    assert clock.follow_wall_clock() == round(step_seconds * 1_000_000)
    assert clock.now_us() == machine.wall_ns // 1000
    assert clock.follow_wall_clock() == 0


@pytest.mark.parametrize("step_us", [1, LEAST_STEP_US - 1, -1, 1 - LEAST_STEP_US])
def test_noise_is_not_a_step(machine: Machine, step_us: int) -> None:
    clock = SystemClock()
    before_us = clock.now_us()
    machine.set_wall_clock(step_us / 1_000_000)
    assert clock.follow_wall_clock() == 0
    assert clock.now_us() == before_us


def test_slow_drift_is_followed_once_it_is_a_second(machine: Machine) -> None:
    clock = SystemClock()
    steps = []
    for _ in range(25):
        machine.pass_time(60)
        machine.set_wall_clock(0.1)
        steps.append(clock.follow_wall_clock())
    assert [step for step in steps if step] == [1_000_000, 1_000_000]
    assert clock.now_us() == machine.wall_ns // 1000 - 500_000


def test_time_never_runs_backwards_by_itself(machine: Machine) -> None:
    clock = SystemClock()
    seen = [clock.now_us()]
    for step in (0.0, -5.0, 3.0, -100.0):
        machine.set_wall_clock(step)
        machine.pass_time(0.001)
        seen.append(clock.now_us())
    assert seen == sorted(seen)


def test_the_real_clocks() -> None:
    clock = SystemClock()
    assert clock.now_us() <= clock.now_us()
    assert clock.follow_wall_clock() == 0
