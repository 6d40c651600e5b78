"""Timers: a peer asks to be called at a time, whatever happens until then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.engine.deadlines import LEAST_STALE_FOR_SWEEP
from switchgear.engine.timers import TIMER_BYTES
from switchgear.errors import Refused
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.harness import Harness

MakeHarness = Callable[..., Harness]


def test_a_timer_fires_at_its_time_once(harness: Harness) -> None:
    peer = RecordingPeer()
    timer = harness.engine.set_timer(peer, harness.at(5))
    assert harness.engine.next_deadline_us == harness.at(5)
    harness.pass_seconds(4.999999)
    assert peer.heard == []
    harness.pass_seconds(60)
    assert peer.heard == [("timer", timer)]
    assert not timer.is_set
    assert not peer.timers


def test_a_timer_can_be_cancelled_more_than_once(harness: Harness) -> None:
    peer = RecordingPeer()
    cancelled, other = harness.engine.set_timer(peer, harness.at(5)), harness.engine.set_timer(peer, harness.at(5))
    for _ in range(2):
        harness.engine.cancel_timer(cancelled)
    harness.pass_seconds(5)
    assert peer.heard == [("timer", other)]
    harness.engine.cancel_timer(other)
    assert harness.engine.deadlines.stale == 0


def test_a_timer_is_no_worker(harness: Harness) -> None:
    harness.engine.set_timer(RecordingPeer(), harness.at(5))
    assert not harness.engine.workers


def test_the_timers_of_a_peer_that_is_gone_do_not_fire(harness: Harness) -> None:
    stays, leaves = RecordingPeer(), RecordingPeer()
    for peer in (stays, leaves):
        harness.engine.set_timer(peer, harness.at(5))
        harness.engine.set_timer(peer, harness.at(6))
    harness.engine.unsubscribe(leaves)
    harness.pass_seconds(60)
    assert (stays.words(), leaves.words()) == (["timer", "timer"], [])


@pytest.mark.parametrize("hours", [1, -1])
def test_a_timer_measures_a_span_that_setting_the_clock_does_not_change(harness: Harness, hours: int) -> None:
    peer = RecordingPeer()
    harness.engine.set_timer(peer, harness.at(5))
    harness.set_clock(hours * 3600)
    check_engine(harness.engine)
    harness.pass_seconds(4.999999)
    assert peer.heard == []
    harness.pass_seconds(0.000001)
    assert peer.words() == ["timer"]


def test_timers_count_in_the_memory_account_until_they_fire_or_are_cancelled(harness: Harness) -> None:
    memory, peer = harness.engine.memory, RecordingPeer()
    before = memory.registration_bytes
    timers = [harness.engine.set_timer(peer, harness.at(seconds)) for seconds in (1, 2, 3)]
    assert memory.registration_bytes == before + 3 * TIMER_BYTES
    harness.engine.cancel_timer(timers[0])
    harness.pass_seconds(2)
    assert memory.registration_bytes == before + TIMER_BYTES
    harness.engine.unsubscribe(peer)
    assert memory.registration_bytes == before


def test_when_there_is_no_memory_a_timer_is_refused(make_harness: MakeHarness) -> None:
    harness, peer = make_harness(memory_bytes=16 * 1024 * 1024), RecordingPeer()
    memory = harness.engine.memory
    memory.registration_bytes = memory.registration_limit_bytes // 2 - TIMER_BYTES
    harness.engine.set_timer(peer, harness.at(5))
    with pytest.raises(Refused, match="no memory"):
        harness.engine.set_timer(peer, harness.at(5))
    harness.pass_seconds(5)
    assert harness.engine.set_timer(peer, harness.at(5)).is_set


def test_cancelled_timers_do_not_fill_the_index(harness: Harness) -> None:
    peer = RecordingPeer()
    for _ in range(4 * LEAST_STALE_FOR_SWEEP):
        harness.engine.cancel_timer(harness.engine.set_timer(peer, harness.at(86_400)))
        harness.pass_seconds(0)
        assert len(harness.engine.deadlines) <= 2 * LEAST_STALE_FOR_SWEEP
