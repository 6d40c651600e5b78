"""A WMP worker's jobs of different size, its end, and what it does not put up with."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.client.wmp import WmpTiming
from switchgear.errors import PeerError
from tests.client.wmp_play import PACE, Play, message, play

RETRYING = WmpTiming(lease_seconds=1000.0, lock_seconds=1000.0, retry_first_seconds=1.0, retry_most_seconds=8.0)

# --- jobs of different size ---


def test_a_job_takes_as_many_slots_as_it_needs() -> None:
    it = play(
        """
        start
            m0 hears READY
        m0 says WAKE large
            m0 hears GIVE
        m0 says TAKE 1 large
            m0 hears READY
            1 starts
        m0 says WAKE small
            m0 hears GIVE
        m0 says TAKE 2 small
            2 starts
        1 returns
            m0 hears DONE 1
            m0 hears READY
        """,
        managers=1,
        slots=4,
        roles={"small": 1, "large": 3},
    )
    assert it.working.free == 3


def test_managers_hear_of_what_there_is_room_for() -> None:
    it = Play(managers=1, slots=3, roles={"small": 1, "large": 3})
    offers: list[Any] = []
    for line in ("start", "m0 says TAKE 1 small", "m0 says WAKE", "m0 says NO", "1 returns"):
        it.do(line)
        offers += [(command, headers["roles"]) for _, command, headers, _ in it.sent if "roles" in headers]
        it.sent.clear()
    assert offers == [
        ("READY", ["small", "large"]),
        ("READY", ["small"]),  # after TAKE
        ("GIVE", ["small"]),
        ("READY", ["small"]),
        ("READY", ["small", "large"]),  # there is more room now than the manager knows
    ]


def test_who_does_not_say_what_the_job_is_gets_room_for_any() -> None:
    it = Play(managers=2, slots=3, roles={"small": 1, "large": 3})
    it.do("start")
    assert it.do("m0 says WAKE") == ["m0 hears GIVE"]
    assert it.working.free == 0
    assert it.do("m1 says WAKE") == []
    assert it.do("m0 says TAKE 1 small") == ["m0 hears READY", "m1 hears READY", "1 starts"]
    assert it.working.free == 2


def test_a_job_that_is_too_large_now_is_given_back() -> None:
    it = Play(managers=1, slots=3, roles={"small": 1, "large": 3})
    for line in ("start", "m0 says TAKE 1 small", "m0 says WAKE"):
        it.do(line)
    assert it.do("m0 says TAKE 2 large") == ["m0 hears DONE 2 returned"]
    assert it.do("1 returns") == ["m0 hears DONE 1", "m0 hears READY"]


@pytest.mark.parametrize("role", ["large", "cook"])
def test_a_call_for_what_there_is_no_room_for_is_not_answered_by_ready_at_once(role: str) -> None:
    """Else the manager would call again at once, and so on."""
    it = Play(managers=1, slots=3, roles={"small": 1, "large": 3}, timing=RETRYING)
    it.do("start")
    it.do("m0 says TAKE 1 small")
    assert it.do(f"m0 says WAKE {role}") == []
    assert it.pass_time(1) == ["m0 hears READY"]


# --- the end ---


def test_a_worker_that_stops_finishes_its_jobs_and_gives_back_what_still_comes() -> None:
    it = play(
        """
        start
            m0 hears READY
            m1 hears READY
        m0 says TAKE 1 f
            m0 hears READY
            1 starts
        m1 says WAKE
            m1 hears GIVE
        stop
        m0 says WAKE
        m1 says TAKE 2 f
            m1 hears DONE 2 returned
        3 s pass
            m0 hears STATUS 1
        1 returns
            m0 hears DONE 1
        """,
        slots=3,
    )
    assert it.working.is_settled
    assert it.pass_time(10_000) == []


def test_a_worker_that_stops_waits_for_the_answer_that_it_has_asked_for() -> None:
    it = Play(managers=1)
    for line in ("start", "m0 says WAKE", "stop"):
        it.do(line)
    assert not it.working.is_settled
    assert it.pass_time(5) == []
    assert it.working.is_settled


def test_what_does_not_end_in_time_is_for_others() -> None:
    it = play(
        """
        start
            m0 hears READY
        m0 says TAKE 1 f
            1 starts
        stop
        give up
            m0 hears DONE 1 returned
        1 is told to stop
        1 returns
        """,
        managers=1,
    )
    assert it.working.is_settled
    assert it.kept == ["DONE"]


# --- strangers, and mistakes of our own ---


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([], "BAD_FRAMES"),
        ([b"", b"WMP2", b"WAKE", b"\x80"], "BAD_VERSION"),
        (message("READY", roles=["f"]), "WRONG_WAY"),
        (message("DONE", b"", job=b"1"), "WRONG_WAY"),
        (message("WAKE", to=[b"another"]), "MISROUTED"),
        (message("WAKE", role=5), "BAD_HEADER"),
        (message("TAKE", b""), "BAD_HEADER"),
        (message("CANCEL"), "BAD_HEADER"),
    ],
)
def test_what_managers_must_not_say(frames: list[bytes], code: str) -> None:
    it = Play(managers=1)
    it.do("start")
    with pytest.raises(PeerError) as caught:
        it.hear(0, frames)
    assert caught.value.code == code
    assert it.working.free == 1
    it.did()
    assert it.do("m0 says WAKE") == ["m0 hears GIVE"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"managers": 0}, "a role and a manager"),
        ({"slots": 0}, "between 1 and all 0 slots"),
        ({"slots": 2, "roles": {"f": 3}}, "between 1 and all 2 slots"),
        ({"slots": 2, "roles": {"f": 0}}, "between 1 and all 2 slots"),
        ({"roles": {"f" * 600: 1}}, "600 bytes"),
        ({"headers": {"roles": ["x"], "path": []}}, "path, roles have a meaning already"),
        ({"headers": {"x": object()}}, "no manager would understand this"),
        ({"headers": {"x": b"x" * 70_000}}, "headers of 7"),
    ],
)
def test_what_a_worker_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Play(**options)


def test_times_are_more_than_nothing() -> None:
    with pytest.raises(ValueError, match="lock_seconds is more than 0"):
        WmpTiming(lock_seconds=0)
    assert PACE.lock_seconds == 5
