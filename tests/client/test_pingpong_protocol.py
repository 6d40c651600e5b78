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


class RecordedDialogue:
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


def idle(**options: Any) -> RecordedDialogue:
    recorded = RecordedDialogue(**options)
    recorded.take()
    return recorded


def working(**options: Any) -> RecordedDialogue:
    recorded = idle(**options)
    recorded.hear(JOB)
    recorded.take()
    return recorded


# --- worker is ready ---


def test_ready_1_a_worker_says_ready_when_it_starts() -> None:
    assert RecordedDialogue().take() == [(0, ConnectStep()), (0, READY)]


# --- worker sends PING ---


def test_ping_1_every_second_while_idle() -> None:
    recorded = idle()
    for _ in range(4):
        recorded.pass_time(1)
        recorded.hear(PONG)
    assert recorded.take() == [(1, PING), (2, PING), (3, PING), (4, PING)]


def test_ping_1_none_while_working() -> None:
    recorded = working()
    recorded.pass_time(1000)
    assert recorded.take() == []


def test_ping_1_again_a_second_after_the_result() -> None:
    recorded = working()
    recorded.pass_time(10.5)
    recorded.finish(b"result")
    recorded.pass_time(1)
    assert recorded.take() == [(10.5, SendMessage([b"", b"result"])), (11.5, PING)]


def test_ping_4_a_pong_keeps_the_connection_open() -> None:
    recorded = idle()
    for _ in range(10):
        recorded.pass_time(2.9)
        recorded.hear(PONG)
    assert not [action for _, action in recorded.take() if isinstance(action, ConnectStep)]


# --- broker assigns a job ---


@pytest.mark.parametrize("job", [b"job", b"", b"PING", b"READY", b"PONG "])
def test_job_2_what_is_not_a_pong_is_a_job(job: bytes) -> None:
    recorded = idle()
    recorded.hear([b"", job])
    assert recorded.take() == [(0, StartWork(job))]


def test_job_3_the_result_is_sent_when_the_job_is_done() -> None:
    recorded = working()
    recorded.pass_time(5)
    recorded.finish(b"result")
    assert recorded.take() == [(5, SendMessage([b"", b"result"]))]


def test_job_3_an_empty_result_is_a_result() -> None:
    recorded = working()
    recorded.finish(b"")
    assert recorded.take() == [(0, SendMessage([b"", b""]))]


@pytest.mark.parametrize("frames", [[b""], [b"PONG"], [b"no delimiter", b"job"], [b"", b"two", b"frames"], LEAVE])
def test_what_makes_no_sense_is_a_sign_of_life_and_no_more(frames: list[bytes]) -> None:
    recorded = idle()
    recorded.pass_time(2.5)
    recorded.take()
    recorded.hear(frames)
    recorded.pass_time(2.9)
    assert {type(action) for _, action in recorded.take()} == {SendMessage}


# --- broker timeout ---


@pytest.mark.parametrize(
    ("broker_timeout", "n_timeouts", "expected"), [(1, 3, 3), (0.75, 2, 1.5), (5, 1, 5)], ids=["usual", "short", "one"]
)
def test_after_n_silent_periods_the_socket_is_made_anew_and_ready_sent(
    broker_timeout: float, n_timeouts: int, expected: float
) -> None:
    recorded = idle(broker_timeout=broker_timeout, n_timeouts=n_timeouts)
    recorded.pass_time(expected - 0.01)
    assert all(action == PING for _, action in recorded.take())
    recorded.pass_time(0.01)
    assert recorded.take() == [(expected, ConnectStep()), (expected, READY)]


def test_as_long_as_there_is_silence_it_is_tried_again() -> None:
    recorded = idle()
    recorded.pass_time(9)
    assert [(at, action) for at, action in recorded.take() if action != PING] == [
        (at, action) for at in (3, 6, 9) for action in (ConnectStep(), READY)
    ]


def test_a_job_ends_the_silence_as_well_as_a_pong() -> None:
    recorded = idle()
    recorded.pass_time(2.5)
    recorded.hear(JOB)
    recorded.finish(b"result")
    recorded.take()
    recorded.pass_time(2.75)
    assert {type(action) for _, action in recorded.take()} == {SendMessage}
    recorded.pass_time(0.25)
    assert recorded.take()[0] == (5.5, ConnectStep())


def test_the_time_of_work_is_not_silence() -> None:
    recorded = working()
    recorded.pass_time(1000)
    recorded.finish(b"result")
    recorded.take()
    recorded.pass_time(2.9)
    assert {type(action) for _, action in recorded.take()} == {SendMessage}


def test_constants_with_which_no_pong_could_come_in_time_are_refused() -> None:
    with pytest.raises(ValueError, match=r"with a PING every 1 s no PONG can come within 3 times 0\.3 s"):
        PingPongWorkerProtocol(broker_timeout_seconds=0.3)


# --- a job that fails, for which there is no word ---


def test_after_a_failure_the_worker_comes_back_without_a_result() -> None:
    recorded = working()
    recorded.pass_time(5)
    recorded.fail()
    assert recorded.take() == [(5, DisconnectStep())]
    recorded.pass_time(0)
    assert recorded.take() == [(5, ConnectStep()), (5, READY)]


def test_not_before_a_ready_can_be_told_from_one_that_crossed_the_job() -> None:
    recorded = working()
    recorded.pass_time(0.25)
    recorded.fail()
    assert recorded.take() == [(0.25, DisconnectStep())]
    recorded.pass_time(3)
    assert recorded.take()[:2] == [(1, ConnectStep()), (1, READY)]


@pytest.mark.parametrize("word", [b"READY", b"PING"])
def test_a_word_as_a_result_is_a_failure(word: bytes) -> None:
    recorded = working()
    recorded.finish(word)
    assert recorded.take() == [(0, DisconnectStep())]


# --- leaving ---


def test_an_idle_worker_says_that_it_leaves_and_goes_when_the_broker_has_heard_it() -> None:
    recorded = idle()
    recorded.leave()
    assert recorded.take() == [(0, SendMessage(LEAVE))]
    assert not recorded.dialogue.is_over
    recorded.hear(PONG)  # to an earlier PING
    assert not recorded.dialogue.is_over
    recorded.hear(LEAVE)
    assert recorded.dialogue.is_over
    assert recorded.dialogue.next_deadline is None


def test_a_broker_that_does_not_answer_is_left_after_the_timeout() -> None:
    recorded = idle(broker_timeout=5)
    recorded.leave()
    recorded.pass_time(4.99)
    assert not recorded.dialogue.is_over
    recorded.pass_time(0.01)
    assert recorded.dialogue.is_over
    assert recorded.take() == [(0, SendMessage(LEAVE))]  # and no PING, which would say that it is there


def test_a_job_that_crosses_the_goodbye_is_done() -> None:
    recorded = idle()
    recorded.leave()
    recorded.hear(JOB)
    assert recorded.take() == [(0, SendMessage(LEAVE)), (0, StartWork(b"job"))]
    recorded.pass_time(100)
    recorded.finish(b"result")
    assert recorded.take() == [(100, SendMessage([b"", b"result"]))]
    recorded.hear(LEAVE)
    assert recorded.dialogue.is_over


def test_a_worker_that_is_to_leave_while_it_works_says_so_before_its_result() -> None:
    recorded = working()
    recorded.pass_time(10)
    recorded.leave()
    recorded.finish(b"result")
    assert recorded.take() == [(10, SendMessage(LEAVE)), (10, SendMessage([b"", b"result"]))]
    assert not recorded.dialogue.is_over
    recorded.pass_time(1)
    assert recorded.dialogue.is_over


def test_a_failure_while_leaving_is_the_end() -> None:
    recorded = working()
    recorded.leave()
    recorded.fail()
    assert recorded.dialogue.is_over


def test_a_worker_that_is_away_just_stays_away() -> None:
    recorded = working()
    recorded.fail()
    recorded.take()
    recorded.leave()
    assert recorded.dialogue.is_over
    assert recorded.take() == []


def test_leaving_twice_is_leaving_once() -> None:
    recorded = idle()
    recorded.leave()
    recorded.leave()
    assert recorded.take() == [(0, SendMessage(LEAVE))]


def test_a_worker_that_is_not_to_use_other_words_than_the_documents_just_goes() -> None:
    recorded = idle(says_goodbye=False)
    recorded.leave()
    assert recorded.dialogue.is_over
    recorded = working(says_goodbye=False)
    recorded.leave()
    assert not recorded.dialogue.is_over
    recorded.finish(b"result")
    assert recorded.dialogue.is_over
    assert recorded.take() == [(0, SendMessage([b"", b"result"]))]
