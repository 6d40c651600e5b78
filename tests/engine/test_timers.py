"""Timers: a peer asks to be called at a time, whatever happens until then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.engine.deadlines import LEAST_STALE_FOR_SWEEP
from switchgear.engine.timers import TIMER_BYTES
from switchgear.errors import Refused
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.house import House

MakeHouse = Callable[..., House]


def test_a_timer_fires_at_its_time_once(house: House) -> None:
    peer = RecordingPeer()
    timer = house.engine.set_timer(peer, house.at(5))
    assert house.engine.next_deadline_us == house.at(5)
    house.pass_seconds(4.999999)
    assert peer.heard == []
    house.pass_seconds(60)
    assert peer.heard == [("timer", timer)]
    assert not timer.is_set
    assert not peer.timers


def test_a_timer_can_be_cancelled_more_than_once(house: House) -> None:
    peer = RecordingPeer()
    cancelled, other = house.engine.set_timer(peer, house.at(5)), house.engine.set_timer(peer, house.at(5))
    for _ in range(2):
        house.engine.cancel_timer(cancelled)
    house.pass_seconds(5)
    assert peer.heard == [("timer", other)]
    house.engine.cancel_timer(other)
    assert house.engine.deadlines.stale == 0


def test_a_timer_is_no_worker(house: House) -> None:
    house.engine.set_timer(RecordingPeer(), house.at(5))
    assert not house.engine.workers


def test_the_timers_of_a_peer_that_is_gone_do_not_fire(house: House) -> None:
    stays, leaves = RecordingPeer(), RecordingPeer()
    for peer in (stays, leaves):
        house.engine.set_timer(peer, house.at(5))
        house.engine.set_timer(peer, house.at(6))
    house.engine.unsubscribe(leaves)
    house.pass_seconds(60)
    assert (stays.words(), leaves.words()) == (["timer", "timer"], [])


@pytest.mark.parametrize("hours", [1, -1])
def test_a_timer_measures_a_span_that_setting_the_clock_does_not_change(house: House, hours: int) -> None:
    peer = RecordingPeer()
    house.engine.set_timer(peer, house.at(5))
    house.set_clock(hours * 3600)
    check_engine(house.engine)
    house.pass_seconds(4.999999)
    assert peer.heard == []
    house.pass_seconds(0.000001)
    assert peer.words() == ["timer"]


def test_timers_count_in_the_memory_account_until_they_fire_or_are_cancelled(house: House) -> None:
    memory, peer = house.engine.memory, RecordingPeer()
    before = memory.registration_bytes
    timers = [house.engine.set_timer(peer, house.at(seconds)) for seconds in (1, 2, 3)]
    assert memory.registration_bytes == before + 3 * TIMER_BYTES
    house.engine.cancel_timer(timers[0])
    house.pass_seconds(2)
    assert memory.registration_bytes == before + TIMER_BYTES
    house.engine.unsubscribe(peer)
    assert memory.registration_bytes == before


def test_when_there_is_no_memory_a_timer_is_refused(make_house: MakeHouse) -> None:
    house, peer = make_house(memory_bytes=16 * 1024 * 1024), RecordingPeer()
    memory = house.engine.memory
    memory.registration_bytes = memory.registration_limit_bytes // 2 - TIMER_BYTES
    house.engine.set_timer(peer, house.at(5))
    with pytest.raises(Refused, match="no memory"):
        house.engine.set_timer(peer, house.at(5))
    house.pass_seconds(5)
    assert house.engine.set_timer(peer, house.at(5)).is_set


def test_cancelled_timers_do_not_fill_the_index(house: House) -> None:
    peer = RecordingPeer()
    for _ in range(4 * LEAST_STALE_FOR_SWEEP):
        house.engine.cancel_timer(house.engine.set_timer(peer, house.at(86_400)))
        house.pass_seconds(0)
        assert len(house.engine.deadlines) <= 2 * LEAST_STALE_FOR_SWEEP
