"""The judge of the crash test, judged: it blames what it should, and nothing else."""

from __future__ import annotations

import pytest

from tests.system.crash_history import History


@pytest.fixture
def history() -> History:
    return History()


def submitted(history: History, handle: bytes = b"H:1", token: bytes = b"t1") -> bytes:
    history.created(token, handle, background=True, by="client")
    return handle


def run(history: History, handle: bytes, worker: str = "worker") -> None:
    history.assigned(handle, history.lives[handle].token, history.asks(worker), worker)


def finish(history: History, handle: bytes, worker: str = "worker", *, acknowledged: bool) -> None:
    history.reporting(handle, "WORK_COMPLETE", worker)
    question = history.asks(worker)
    if acknowledged:
        history.answered(question, worker)


def test_a_job_that_is_gone(history: History) -> None:
    submitted(history)
    history.crashed()
    history.listed([])
    assert "nobody ended it, and it is gone" in history.violations[0]


def test_a_job_that_is_still_there(history: History) -> None:
    handle = submitted(history)
    history.crashed()
    history.listed([handle, b"H:2, which nobody was told of"])
    assert not history.violations


def test_a_completion_that_was_acknowledged(history: History) -> None:
    handle = submitted(history)
    run(history, handle)
    finish(history, handle, acknowledged=True)
    history.crashed()
    history.listed([])
    assert not history.violations
    history.listed([handle])
    assert "is queued again" in history.violations[0]


def test_a_job_that_is_run_again_after_its_end(history: History) -> None:
    handle = submitted(history)
    run(history, handle)
    finish(history, handle, acknowledged=True)
    run(history, handle, "another worker")
    assert "was run again" in history.violations[0]


def test_a_completion_that_was_not_acknowledged_may_be_true_or_not(history: History) -> None:
    handle = submitted(history)
    run(history, handle)
    finish(history, handle, acknowledged=False)
    history.crashed()
    history.listed([])
    assert not history.violations
    history.listed([handle])
    run(history, handle)
    assert not history.violations
    history.crashed()
    history.listed([])  # but what was seen to be there is owed again
    assert history.violations


def test_an_answer_to_an_earlier_question_acknowledges_nothing(history: History) -> None:
    handle = submitted(history)
    question = history.asks("worker")
    history.assigned(handle, b"t1", question, "worker")
    earlier = history.asks("worker")
    history.reporting(handle, "WORK_COMPLETE", "worker")
    history.answered(earlier, "worker")
    history.crashed()
    history.listed([handle])
    assert not history.violations


def test_two_workers_with_one_job(history: History) -> None:
    handle = submitted(history)
    run(history, handle)
    history.closed("worker")
    run(history, handle, "the next worker")
    assert not history.violations
    run(history, handle, "one too many")
    assert "while the next worker had it" in history.violations[0]


def test_one_handle_for_two_jobs(history: History) -> None:
    submitted(history, b"H:1", b"t1")
    history.crashed()
    submitted(history, b"H:1", b"t2")
    assert "is the handle of another job too" in history.violations[0]


def test_a_cancel(history: History) -> None:
    handle = submitted(history)
    history.cancelling(handle, "operator")
    history.cancelled(handle, "operator")
    history.listed([])
    assert not history.violations
    history.listed([handle])
    assert history.violations


def test_a_cancel_of_a_job_that_should_be_known(history: History) -> None:
    handle = submitted(history)
    history.cancelling(handle, "operator")
    history.not_cancelled(handle, "operator")
    assert "the server does not know it" in history.violations[0]


@pytest.mark.parametrize("background_first", [True, False])
def test_an_end_that_a_waiting_client_was_told(history: History, background_first: bool) -> None:
    """It counts if the job was submitted in the background too, whichever of the two we read first."""
    if background_first:
        submitted(history)
    history.told_end(b"H:1", b"t1", "waiting client")
    if not background_first:
        submitted(history)
    history.crashed()
    history.listed([b"H:1"])
    assert "is queued again" in history.violations[0]
