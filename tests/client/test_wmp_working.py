"""The WMP worker's rules, step by step as the protocol has them."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.client.wmp import WmpResult
from switchgear.errors import PeerError
from tests.client.wmp_play import Play, message, play

# --- the scheme ---


def test_the_scheme_of_the_protocol() -> None:
    play(
        """
        start
            m0 hears READY
            m1 hears READY
        m0 says WAKE
            m0 hears GIVE
        m0 says TAKE 1 f
            1 starts
        1 returns result
            m0 hears DONE 1
            m0 hears READY
        m1 says WAKE
            m1 hears GIVE
        m1 says NO
            m1 hears READY
        """
    )


def test_what_the_messages_carry() -> None:
    it = Play(managers=1, slots=2, headers={"memory_gb": 64, "place": {"rack": 7}})
    it.do("start")
    assert it.sent.pop() == (
        0,
        "READY",
        {"roles": ["f", "g"], "slots": 2, "lease": 12.0, "memory_gb": 64, "place": {"rack": 7}},
        None,
    )
    way = [b"\0\0", b"\0\3", b"m"]
    it.hear(0, message("WAKE", path=way))
    it.did()
    assert it.sent.pop() == (0, "GIVE", {"to": way, "roles": ["f", "g"], "lease": 12.0}, None)
    it.hear(0, message("TAKE", b"payload", path=way, job=b"\0\xff", role=b"f"))
    it.did()
    (job,) = it.jobs.values()
    assert (job.role, job.payload, job.reference, job.manager) == ("f", b"payload", b"\0\xff", b"m")
    job.progress(1, 4, 2.7)
    it.did()
    expected = {"to": way, "job": b"\0\xff", "numerator": 1, "denominator": 4, "time_left": 2}
    assert it.sent.pop() == (0, "STATUS", expected, None)


@pytest.mark.parametrize(
    ("end", "headers", "payload"),
    [
        ("returns result", {}, b"result"),
        ("returns", {}, b""),
        ("fails out of paper", {"status": "failed", "error": b"out of paper"}, b""),
        ("gives back", {"status": "returned"}, b""),
    ],
)
def test_how_a_job_may_end(end: str, headers: dict[str, Any], payload: bytes) -> None:
    it = Play(managers=1)
    for line in ("start", "m0 says TAKE 1 f", f"1 {end}"):
        it.do(line)
    done = next(sent for sent in it.sent if sent[1] == "DONE")
    assert done == (0, "DONE", {"to": [b"m0"], "job": b"1", **headers}, payload)


def test_only_the_end_of_a_job_must_not_be_lost() -> None:
    it = play(
        """
        start
            m0 hears READY
        m0 says WAKE
            m0 hears GIVE
        m0 says TAKE 1 f
            1 starts
        1 progresses 1/2
            m0 hears STATUS 1 1/2
        1 returns
            m0 hears DONE 1
            m0 hears READY
        """,
        managers=1,
    )
    assert it.kept == ["DONE"]


def test_an_error_has_to_fit_into_the_headers() -> None:
    it = Play(managers=1)
    for line in ("start", "m0 says TAKE 1 f", "1 fails " + "x" * 100_000):
        it.do(line)
    done = next(sent for sent in it.sent if sent[1] == "DONE")
    assert len(done[2]["error"]) == 16 * 1024


# --- several jobs at once ---


def test_ready_is_sent_again_right_after_take_and_before_the_job_begins() -> None:
    play(
        """
        start
            m0 hears READY
        m0 says WAKE
            m0 hears GIVE
        m0 says TAKE 1 f
            m0 hears READY
            1 starts
        m0 says WAKE
            m0 hears GIVE
        m0 says TAKE 2 f
            m0 hears READY
            2 starts
        m0 says WAKE
            m0 hears GIVE
        m0 says TAKE 3 g
            3 starts
        2 returns
            m0 hears DONE 2
            m0 hears READY
        """,
        managers=1,
        slots=3,
    )


def test_a_call_is_ignored_while_everything_is_taken_and_ready_follows_when_it_is_not() -> None:
    play(
        """
        start
            m0 hears READY
            m1 hears READY
            m2 hears READY
        m0 says WAKE
            m0 hears GIVE
        m1 says WAKE
        m0 says TAKE 1 f
            1 starts
        m1 says WAKE
        1 returns
            m0 hears DONE 1
            m0 hears READY
            m1 hears READY
        """,
        managers=3,
    )


def test_managers_that_call_together_share_what_there_is() -> None:
    play(
        """
        start
            m0 hears READY
            m1 hears READY
            m2 hears READY
        m0 says WAKE
            m0 hears GIVE
        m1 says WAKE
            m1 hears GIVE
        m2 says WAKE
        m1 says TAKE 1 f
            1 starts
        m0 says NO
            m0 hears READY
            m1 hears READY
            m2 hears READY
        """,
        managers=3,
        slots=2,
    )


# --- locks ---


def test_a_lock_ends_when_its_time_is_over() -> None:
    play(
        """
        start
            m0 hears READY
            m1 hears READY
        m0 says WAKE
            m0 hears GIVE
        m1 says WAKE
        4.9 s pass
        m1 says WAKE
        0.1 s pass
            m0 hears READY
            m1 hears READY
        m1 says WAKE
            m1 hears GIVE
        m0 says TAKE 1 f
            m0 hears DONE 1 returned
        """
    )


def test_an_answer_that_comes_too_late_is_still_an_answer() -> None:
    play(
        """
        start
            m0 hears READY
        m0 says WAKE
            m0 hears GIVE
        5 s pass
            m0 hears READY
        m0 says TAKE 1 f
            1 starts
        m0 says NO
        """,
        managers=1,
    )


def test_a_lock_belongs_to_the_manager_that_called() -> None:
    it = Play(managers=1, slots=1)
    it.do("start")
    it.hear(0, message("WAKE", path=[b"\0\0", b"one"]))
    assert it.did() == ["m0 hears GIVE"]
    it.hear(0, message("NO", path=[b"\0\1", b"two"]))  # another behind the same device
    assert it.working.free == 0
    it.hear(0, message("NO", path=[b"\0\0", b"one"]))
    assert it.working.free == 1
    assert it.did() == ["m0 hears READY"]


def test_a_job_that_nobody_asked_for_is_done_if_there_is_room() -> None:
    play(
        """
        start
            m0 hears READY
            m1 hears READY
        m0 says TAKE 1 f
            1 starts
        m1 says TAKE 2 f
            m1 hears DONE 2 returned
        1 returns
            m0 hears DONE 1
            m0 hears READY
            m1 hears READY
        """
    )


def test_a_job_that_we_cannot_do_is_for_others() -> None:
    """And READY follows after a while, not to be given the same job again at once."""
    play(
        """
        start
            m0 hears READY
        m0 says TAKE 1 cook
            m0 hears DONE 1 returned
        99 s pass
        1 s passes
            m0 hears READY
        """,
        managers=1,
    )


@pytest.mark.parametrize("headers", [{}, {"role": 5}, {"role": "f", "lease": "soon"}, {"role": "f", "manager": "text"}])
def test_a_job_that_is_not_described_properly_is_given_back(headers: dict[str, Any]) -> None:
    it = Play(managers=1)
    it.do("start")
    it.do("m0 says WAKE")
    take = message("TAKE", b"x", path=[b"m0"], job=b"1", **headers)
    if headers:
        with pytest.raises(PeerError):
            it.hear(0, take)
    else:
        it.hear(0, take)
    assert it.did() == ["m0 hears DONE 1 returned"]
    assert it.working.free == 1


# --- whose job it is ---


def test_the_manager_that_take_names_counts_and_the_lock_is_that_of_the_path() -> None:
    it = Play(managers=2, slots=1)
    it.do("start")
    it.do("m0 says WAKE")
    it.hear(0, message("TAKE", b"x", path=[b"m0"], job=b"1", role="f", manager=b"far away"))
    assert it.did() == ["1 starts"]
    job = it.jobs["1"]
    assert job.manager == b"far away"
    it.do("m0 says CANCEL 1")  # another job of that number
    assert not job.cancelled.is_set()
    it.hear(0, message("CANCEL", path=[b"m0"], job=b"1", manager=b"far away"))
    assert job.cancelled.is_set()
    job.progress(1, 2)
    it.working.finished(job, WmpResult(), it.now)
    it.did()
    for _, _, headers, _ in it.sent[-3:-1]:
        assert (headers["to"], headers["manager"]) == ([b"m0"], b"far away")
    assert it.working.free == 1


def test_equal_references_of_two_managers_are_two_jobs() -> None:
    it = play(
        """
        start
            m0 hears READY
            m1 hears READY
        m0 says TAKE 1 f
            m0 hears READY
            1 starts
        m1 says TAKE 1 f
            1 starts
        m1 says CANCEL 1
        1 is told to stop
        1 stops
            m1 hears DONE 1 cancelled
            m1 hears READY
        """,
        slots=2,
    )
    assert it.working.free == 1


def test_a_job_that_is_being_done_is_not_begun_again() -> None:
    play(
        """
        start
            m0 hears READY
        m0 says TAKE 1 f
            m0 hears READY
            1 starts
        m0 says WAKE
            m0 hears GIVE
        m0 says TAKE 1 f
            m0 hears READY
        1 returns
            m0 hears DONE 1
        """,
        managers=1,
        slots=2,
    )


# --- cancelling ---


def test_a_cancelled_job_is_told_so_and_its_slot_is_free_when_it_stops() -> None:
    play(
        """
        start
            m0 hears READY
        m0 says TAKE 1 f
            1 starts
        m0 says CANCEL 1
        1 is told to stop
        m0 says WAKE
        1 stops
            m0 hears DONE 1 cancelled
            m0 hears READY
        """,
        managers=1,
    )


def test_a_cancelled_job_that_goes_on_ends_as_it_ends() -> None:
    play(
        """
        start
            m0 hears READY
        m0 says TAKE 1 f
            1 starts
        m0 says CANCEL 1
        1 returns
            m0 hears DONE 1
            m0 hears READY
        """,
        managers=1,
    )


def test_what_is_not_there_cannot_be_cancelled() -> None:
    play(
        """
        start
            m0 hears READY
        m0 says CANCEL 1
        m0 says TAKE 1 f
            1 starts
        1 returns
            m0 hears DONE 1
            m0 hears READY
        m0 says CANCEL 1
        """,
        managers=1,
    )


def test_a_job_given_again_after_it_was_cancelled_is_a_new_one_and_the_old_one_is_silent() -> None:
    it = Play(managers=1, slots=2)
    for line in ("start", "m0 says TAKE 1 f"):
        it.do(line)
    old = it.jobs["1"]
    it.do("m0 says CANCEL 1")
    assert it.do("m0 says TAKE 1 f") == ["1 starts"]
    assert it.jobs["1"] is not old
    old.progress(1, 2)
    it.working.finished(old, WmpResult(), it.now)
    assert it.did() == ["m0 hears READY"]
    assert it.do("1 returns")[0] == "m0 hears DONE 1"
