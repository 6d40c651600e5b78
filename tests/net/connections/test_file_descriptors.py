"""Connections and file descriptors: no more are taken than the system permits."""

from __future__ import annotations

import resource

import pytest

from switchgear.config import LimitsConfig
from switchgear.net.connections.file_descriptors import SPARE_DESCRIPTORS, check_descriptors, permitted_limits
from switchgear.telemetry import Telemetry


def permit(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda kind: (count, resource.RLIM_INFINITY))


@pytest.mark.parametrize(
    ("permitted", "wanted", "taken"),
    [
        (1024, 10_000, 1024 - SPARE_DESCRIPTORS),
        (1024, 1024 - SPARE_DESCRIPTORS, 1024 - SPARE_DESCRIPTORS),
        (1024, 10, 10),
        (20_000, 10_000, 10_000),
        (100, 10_000, 50),
        (resource.RLIM_INFINITY, 1_000_000, 1_000_000),
    ],
)
def test_connections_are_limited_by_what_the_system_permits(
    monkeypatch: pytest.MonkeyPatch, permitted: int, wanted: int, taken: int
) -> None:
    permit(monkeypatch, permitted)
    telemetry = Telemetry(lambda: 0.0)
    limits = LimitsConfig(connections=wanted, packet_bytes=1000)
    assert permitted_limits(limits, telemetry) == LimitsConfig(connections=taken, packet_bytes=1000)
    assert telemetry.counts["connections_clamped"] == (wanted > taken)
    assert permitted_limits(limits, None).connections == taken


def test_as_long_as_there_are_descriptors_nothing_is_said() -> None:
    telemetry = Telemetry(lambda: 0.0)
    check_descriptors(telemetry)
    assert not telemetry.counts
