"""The worker's side of the PING/PONG document, step by step, with a clock that is moved by hand."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.client.pingpong.worker_protocol import (
    Action,
    ConnectStep,
    DisconnectStep,
    PingPongWorkerProtocol,
    SendMessage,
    StartWork,
)

READY = SendMessage([b"", b"READY"])
PING = SendMessage([b"", b"PING"])
PONG = [b"", b"PONG"]
JOB = [b"", b"job"]
LEAVE = [b"", b"", b"LEAVE"]


class Diary:
    """A dialogue, and everything that it wanted to have done: when, and what."""

    def __init__(self, *, broker_timeout: float = 1, n_timeouts: int = 3, says_goodbye: bool = True) -> None:
        self.dialogue = PingPongWorkerProtocol(broker_timeout, n_timeouts, says_goodbye=says_goodbye)
        self.now = 100.0
        self.entries: list[tuple[float, Action]] = []
        self.note(self.dialogue.start(self.now))

    def note(self, actions: list[Action]) -> None:
        self.entries += [(self.now - 100, action) for action in actions]

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (deadline := self.dialogue.next_deadline) is not None and deadline <= end:
            self.now = deadline
            self.note(self.dialogue.advance(self.now))
        self.now = end
        assert self.dialogue.advance(self.now) == []

    def hear(self, frames: list[bytes]) -> None:
        self.note(self.dialogue.receive(frames, self.now))

    def finish(self, result: bytes) -> None:
        self.note(self.dialogue.finished(result, self.now))

    def fail(self) -> None:
        self.note(self.dialogue.failed(self.now))

    def leave(self) -> None:
        self.note(self.dialogue.leave(self.now))

    def take(self) -> list[tuple[float, Action]]:
        entries, self.entries = self.entries, []
        return entries


def idle(**options: Any) -> Diary:
    diary = Diary(**options)
    diary.take()
    return diary


def working(**options: Any) -> Diary:
    diary = idle(**options)
    diary.hear(JOB)
    diary.take()
    return diary


# --- worker is ready ---


def test_ready_1_a_worker_says_ready_when_it_starts() -> None:
    assert Diary().take() == [(0, ConnectStep()), (0, READY)]


# --- worker sends PING ---


def test_ping_1_every_second_while_idle() -> None:
    diary = idle()
    for _ in range(4):
        diary.pass_time(1)
        diary.hear(PONG)
    assert diary.take() == [(1, PING), (2, PING), (3, PING), (4, PING)]


def test_ping_1_none_while_working() -> None:
    diary = working()
    diary.pass_time(1000)
    assert diary.take() == []


def test_ping_1_again_a_second_after_the_result() -> None:
    diary = working()
    diary.pass_time(10.5)
    diary.finish(b"result")
    diary.pass_time(1)
    assert diary.take() == [(10.5, SendMessage([b"", b"result"])), (11.5, PING)]


def test_ping_4_a_pong_keeps_the_connection_open() -> None:
    diary = idle()
    for _ in range(10):
        diary.pass_time(2.9)
        diary.hear(PONG)
    assert not [action for _, action in diary.take() if isinstance(action, ConnectStep)]


# --- broker assigns a job ---


@pytest.mark.parametrize("job", [b"job", b"", b"PING", b"READY", b"PONG "])
def test_job_2_what_is_not_a_pong_is_a_job(job: bytes) -> None:
    diary = idle()
    diary.hear([b"", job])
    assert diary.take() == [(0, StartWork(job))]


def test_job_3_the_result_is_sent_when_the_job_is_done() -> None:
    diary = working()
    diary.pass_time(5)
    diary.finish(b"result")
    assert diary.take() == [(5, SendMessage([b"", b"result"]))]


def test_job_3_an_empty_result_is_a_result() -> None:
    diary = working()
    diary.finish(b"")
    assert diary.take() == [(0, SendMessage([b"", b""]))]


@pytest.mark.parametrize("frames", [[b""], [b"PONG"], [b"no delimiter", b"job"], [b"", b"two", b"frames"], LEAVE])
def test_what_makes_no_sense_is_a_sign_of_life_and_no_more(frames: list[bytes]) -> None:
    diary = idle()
    diary.pass_time(2.5)
    diary.take()
    diary.hear(frames)
    diary.pass_time(2.9)
    assert {type(action) for _, action in diary.take()} == {SendMessage}


# --- broker timeout ---


@pytest.mark.parametrize(
    ("broker_timeout", "n_timeouts", "expected"), [(1, 3, 3), (0.75, 2, 1.5), (5, 1, 5)], ids=["usual", "short", "one"]
)
def test_after_n_silent_periods_the_socket_is_made_anew_and_ready_sent(
    broker_timeout: float, n_timeouts: int, expected: float
) -> None:
    diary = idle(broker_timeout=broker_timeout, n_timeouts=n_timeouts)
    diary.pass_time(expected - 0.01)
    assert all(action == PING for _, action in diary.take())
    diary.pass_time(0.01)
    assert diary.take() == [(expected, ConnectStep()), (expected, READY)]


def test_as_long_as_there_is_silence_it_is_tried_again() -> None:
    diary = idle()
    diary.pass_time(9)
    assert [(at, action) for at, action in diary.take() if action != PING] == [
        (at, action) for at in (3, 6, 9) for action in (ConnectStep(), READY)
    ]


def test_a_job_ends_the_silence_as_well_as_a_pong() -> None:
    diary = idle()
    diary.pass_time(2.5)
    diary.hear(JOB)
    diary.finish(b"result")
    diary.take()
    diary.pass_time(2.75)
    assert {type(action) for _, action in diary.take()} == {SendMessage}
    diary.pass_time(0.25)
    assert diary.take()[0] == (5.5, ConnectStep())


def test_the_time_of_work_is_not_silence() -> None:
    diary = working()
    diary.pass_time(1000)
    diary.finish(b"result")
    diary.take()
    diary.pass_time(2.9)
    assert {type(action) for _, action in diary.take()} == {SendMessage}


def test_constants_with_which_no_pong_could_come_in_time_are_refused() -> None:
    with pytest.raises(ValueError, match=r"with a PING every 1 s no PONG can come within 3 times 0\.3 s"):
        PingPongWorkerProtocol(broker_timeout_seconds=0.3)


# --- a job that fails, for which there is no word ---


def test_after_a_failure_the_worker_comes_back_without_a_result() -> None:
    diary = working()
    diary.pass_time(5)
    diary.fail()
    assert diary.take() == [(5, DisconnectStep())]
    diary.pass_time(0)
    assert diary.take() == [(5, ConnectStep()), (5, READY)]


def test_not_before_a_ready_can_be_told_from_one_that_crossed_the_job() -> None:
    diary = working()
    diary.pass_time(0.25)
    diary.fail()
    assert diary.take() == [(0.25, DisconnectStep())]
    diary.pass_time(3)
    assert diary.take()[:2] == [(1, ConnectStep()), (1, READY)]


@pytest.mark.parametrize("word", [b"READY", b"PING"])
def test_a_word_as_a_result_is_a_failure(word: bytes) -> None:
    diary = working()
    diary.finish(word)
    assert diary.take() == [(0, DisconnectStep())]


# --- leaving ---


def test_an_idle_worker_says_that_it_leaves_and_goes_when_the_broker_has_heard_it() -> None:
    diary = idle()
    diary.leave()
    assert diary.take() == [(0, SendMessage(LEAVE))]
    assert not diary.dialogue.is_over
    diary.hear(PONG)  # to an earlier PING
    assert not diary.dialogue.is_over
    diary.hear(LEAVE)
    assert diary.dialogue.is_over
    assert diary.dialogue.next_deadline is None


def test_a_broker_that_does_not_answer_is_left_after_the_timeout() -> None:
    diary = idle(broker_timeout=5)
    diary.leave()
    diary.pass_time(4.99)
    assert not diary.dialogue.is_over
    diary.pass_time(0.01)
    assert diary.dialogue.is_over
    assert diary.take() == [(0, SendMessage(LEAVE))]  # and no PING, which would say that it is there


def test_a_job_that_crosses_the_goodbye_is_done() -> None:
    diary = idle()
    diary.leave()
    diary.hear(JOB)
    assert diary.take() == [(0, SendMessage(LEAVE)), (0, StartWork(b"job"))]
    diary.pass_time(100)
    diary.finish(b"result")
    assert diary.take() == [(100, SendMessage([b"", b"result"]))]
    diary.hear(LEAVE)
    assert diary.dialogue.is_over


def test_a_worker_that_is_to_leave_while_it_works_says_so_before_its_result() -> None:
    diary = working()
    diary.pass_time(10)
    diary.leave()
    diary.finish(b"result")
    assert diary.take() == [(10, SendMessage(LEAVE)), (10, SendMessage([b"", b"result"]))]
    assert not diary.dialogue.is_over
    diary.pass_time(1)
    assert diary.dialogue.is_over


def test_a_failure_while_leaving_is_the_end() -> None:
    diary = working()
    diary.leave()
    diary.fail()
    assert diary.dialogue.is_over


def test_a_worker_that_is_away_just_stays_away() -> None:
    diary = working()
    diary.fail()
    diary.take()
    diary.leave()
    assert diary.dialogue.is_over
    assert diary.take() == []


def test_leaving_twice_is_leaving_once() -> None:
    diary = idle()
    diary.leave()
    diary.leave()
    assert diary.take() == [(0, SendMessage(LEAVE))]


def test_a_worker_that_is_not_to_use_other_words_than_the_documents_just_goes() -> None:
    diary = idle(says_goodbye=False)
    diary.leave()
    assert diary.dialogue.is_over
    diary = working(says_goodbye=False)
    diary.leave()
    assert not diary.dialogue.is_over
    diary.finish(b"result")
    assert diary.dialogue.is_over
    assert diary.take() == [(0, SendMessage([b"", b"result"]))]
