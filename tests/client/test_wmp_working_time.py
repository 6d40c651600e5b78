"""What a WMP worker does as time passes: READY once more, signs of life."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.client.wmp import WmpTiming
from tests.client.wmp_play import Play, message, play

RETRYING = WmpTiming(lease_seconds=1000.0, lock_seconds=1000.0, retry_first_seconds=1.0, retry_most_seconds=8.0)

# --- READY once more ---


def test_ready_is_repeated_with_growing_pauses() -> None:
    ready = ["m0 hears READY"]
    it = Play(managers=1, timing=RETRYING)
    assert it.do("start") == ready
    for pause in (1, 2, 4, 8, 8, 8):
        assert it.pass_time(pause - 0.01) == []
        assert it.pass_time(0.01) == ready


def test_the_pause_is_short_again_when_the_manager_was_heard() -> None:
    it = Play(managers=1, timing=RETRYING)
    it.do("start")
    it.pass_time(100)
    assert it.do("m0 says WAKE") == ["m0 hears GIVE"]
    assert it.do("m0 says NO") == ["m0 hears READY"]
    assert it.pass_time(0.99) == []
    assert it.pass_time(0.01) == ["m0 hears READY"]


def test_nothing_is_repeated_while_there_is_no_room() -> None:
    it = Play(managers=2, timing=RETRYING)
    it.do("start")
    it.do("m0 says TAKE 1 f")
    assert it.pass_time(200) == []
    assert it.do("1 returns") == ["m0 hears DONE 1", "m0 hears READY", "m1 hears READY"]


def test_nothing_is_repeated_to_a_manager_that_is_about_to_answer() -> None:
    it = Play(managers=1, slots=2, timing=RETRYING)
    it.do("start")
    assert it.do("m0 says WAKE") == ["m0 hears GIVE"]
    assert it.pass_time(100) == []
    assert it.do("m0 says TAKE 1 f") == ["m0 hears READY", "1 starts"]


def test_a_new_connection_is_a_new_manager() -> None:
    play(
        """
        start
            m0 hears READY
            m1 hears READY
        m1 connects
            m1 hears READY
        m0 says TAKE 1 f
            1 starts
        m1 connects
        1 returns
            m0 hears DONE 1
            m0 hears READY
            m1 hears READY
        """
    )


# --- signs of life ---


def test_signs_of_life_of_every_job_more_than_three_times_in_each_lease() -> None:
    it = Play(managers=2, slots=2)
    for line in ("start", "m0 says TAKE 1 f"):
        it.do(line)
    assert it.pass_time(2.9) == []
    assert it.pass_time(0.1) == ["m0 hears STATUS 1"]
    it.do("m1 says TAKE 2 g")
    assert sorted(it.pass_time(12)) == ["m0 hears STATUS 1"] * 4 + ["m1 hears STATUS 2"] * 4
    it.do("1 returns")
    assert it.pass_time(12).count("m1 hears STATUS 2") == 4


def test_progress_is_a_sign_of_life_too_and_is_not_repeated_in_the_next() -> None:
    it = Play(managers=1)
    for line in ("start", "m0 says TAKE 1 f"):
        it.do(line)
    it.pass_time(2)
    assert it.do("1 progresses 1/4") == ["m0 hears STATUS 1 1/4"]
    assert it.pass_time(2.9) == []
    assert it.pass_time(0.1) == ["m0 hears STATUS 1"]


def test_no_manager_has_so_little_patience_that_it_hears_nothing_but_signs_of_life() -> None:
    it = Play(managers=1)
    it.do("start")
    it.hear(0, message("TAKE", b"x", path=[b"m0"], job=b"1", role="f", lease=5e-324))
    it.did()
    assert len(it.pass_time(1)) == 20


@pytest.mark.parametrize(("understood", "signs"), [(4, 12), (12, 4), (40, 4), (0.4, 120)])
def test_a_manager_that_has_less_patience_hears_more(understood: float, signs: int) -> None:
    it = Play(managers=1)
    it.do("start")
    it.hear(0, message("TAKE", b"x", path=[b"m0"], job=b"1", role="f", lease=understood))
    it.did()
    assert abs(it.pass_time(12).count("m0 hears STATUS 1") - signs) <= 1


@pytest.mark.parametrize(
    ("told", "heard"),
    [((1, 2, None), "1/2"), ((-1, -5, None), "0/0"), ((2.5, 2**70, None), f"2/{2**63 - 1}")],
)
def test_progress_is_made_to_fit(told: tuple[Any, Any, Any], heard: str) -> None:
    it = Play(managers=1)
    for line in ("start", "m0 says TAKE 1 f"):
        it.do(line)
    it.jobs["1"].progress(*told)
    assert it.did() == [f"m0 hears STATUS 1 {heard}"]


def test_only_the_latest_progress_is_told() -> None:
    it = Play(managers=1)
    it.working._tell = lambda job: told.append(job)  # somebody who takes his time
    told: list[Any] = []
    for line in ("start", "m0 says TAKE 1 f"):
        it.do(line)
    for n in range(5):
        it.jobs["1"].progress(n, 5)
    assert len(told) == 1
    it.working.progress(told[0], it.now)
    assert it.did() == ["m0 hears STATUS 1 4/5"]
    it.jobs["1"].progress(5, 5)
    assert len(told) == 2
