"""The checker of the torture suite finds what it should, and nothing else."""

from __future__ import annotations

import pytest

from torture.history import History

OTHER = "another worker"


@pytest.fixture
def history() -> History:
    made = History()
    made.record("settings", 0, 0.0)
    return made


def submitted(history: History, number: int = 1, token: str = "t1", unique: str = "", attempts: int = -1) -> None:
    history.record("submitting", token, "mail", unique, attempts, 0)
    history.record("acknowledged", token, number, "submitter")


def run(history: History, token: str = "t1", number: int = 1, by: str = "worker") -> None:
    question = history.record("asks", by)
    history.record("assigned", token, number, question, by, 0, 1e6)
    history.record("answered", question)


def finish(history: History, token: str = "t1", *, acknowledged: bool, by: str = "worker") -> None:
    history.record("reporting", token, "WORK_COMPLETE", by)
    question = history.record("asks", by)
    if acknowledged:
        history.record("answered", question)


def listed(history: History, *numbers: int, unique: str = "") -> list[str]:
    """The owed jobs that are missing."""
    rows = [[number, "mail", unique, ""] for number in numbers]
    return [job.tokens[0] for job in history.record("listed", rows)]


def kinds(history: History) -> list[str]:
    return [violation.kind for violation in history.violations]


def test_an_ordinary_life(history: History) -> None:
    submitted(history)
    assert listed(history, 1) == []
    run(history)
    finish(history, acknowledged=True)
    history.record("gone")
    assert listed(history) == []
    assert not history.violations
    assert history.counts["ended"] == 1


def test_a_server_that_stops_takes_jobs_back_from_workers_that_have_vanished(history: History) -> None:
    submitted(history, attempts=1)
    history.record("assigned", "t1", 1, 0, "worker", 0, 0.0)
    history.record("stopping")
    history.record("assigned", "t1", 1, 0, OTHER, 0, 0.0)
    assert not history.violations
    history.record("assigned", "t1", 1, 0, OTHER, 0, 0.0)
    assert kinds(history) == ["attempts"]


def test_a_job_that_was_acknowledged_and_is_gone(history: History) -> None:
    submitted(history)
    history.record("gone")
    assert listed(history) == ["t1"]
    history.record("missing", "t1", "there is no such job")
    assert kinds(history) == ["lost"]


def test_a_job_that_was_never_acknowledged_may_be_there_or_not(history: History) -> None:
    history.record("submitting", "t1", "mail", "", -1, 0)
    history.record("gone")
    assert listed(history) == []
    assert listed(history, 1) == []
    assert not history.violations


def test_an_acknowledged_end_that_is_forgotten(history: History) -> None:
    submitted(history)
    run(history)
    finish(history, acknowledged=True)
    history.record("gone")
    listed(history, 1)
    assert kinds(history) == ["run again"]


def test_a_job_that_is_handed_out_after_its_end(history: History) -> None:
    submitted(history)
    run(history)
    finish(history, acknowledged=True)
    run(history, by=OTHER)
    assert kinds(history) == ["run again"]


def test_a_worker_that_asked_before_the_end_may_have_been_given_the_job_before_it(history: History) -> None:
    submitted(history)
    question = history.record("asks", OTHER)
    run(history)
    finish(history, acknowledged=True)
    history.record("assigned", "t1", 1, question, OTHER, 0, 1e6)
    assert not history.violations


def test_an_end_that_was_not_acknowledged_may_be_kept_or_not(history: History) -> None:
    submitted(history)
    run(history)
    finish(history, acknowledged=False)
    history.record("gone")
    assert listed(history) == []
    assert listed(history, 1) == []
    history.record("gone")
    assert listed(history) == ["t1"], "what was seen to be there is owed again"


def test_an_answer_to_an_earlier_question_acknowledges_nothing(history: History) -> None:
    submitted(history)
    run(history)
    earlier = history.record("asks", "worker")
    history.record("reporting", "t1", "WORK_COMPLETE", "worker")
    history.record("answered", earlier)
    history.record("gone")
    assert listed(history, 1) == []
    assert not history.violations


def test_two_workers_with_one_job(history: History) -> None:
    submitted(history)
    run(history)
    history.record("closed", "worker")
    run(history, by=OTHER)
    assert not history.violations
    run(history, by="one too many")
    assert kinds(history) == ["held"]


def test_more_starts_than_attempts(history: History) -> None:
    submitted(history, attempts=2)
    for by in ("first", "second"):
        run(history, by=by)
        history.record("closed", by)
    assert not history.violations
    run(history, by="third")
    assert kinds(history) == ["attempts"]


def test_a_job_that_was_given_back_has_not_spent_an_attempt(history: History) -> None:
    submitted(history, attempts=1)
    run(history)
    history.record("releasing", "t1", "worker")
    run(history, by=OTHER)
    assert not history.violations


def test_a_job_may_only_be_dead_if_its_attempts_have_an_end(history: History) -> None:
    submitted(history, attempts=1)
    history.record("dead", "t1")
    assert not history.violations
    submitted(history, 2, "t2", attempts=0)
    history.record("dead", "t2")
    assert kinds(history) == ["lost"]


def test_one_key_and_two_jobs(history: History) -> None:
    submitted(history, 1, "t1", unique="key")
    submitted(history, 1, "t2", unique="key")
    assert not history.violations
    submitted(history, 2, "t3", unique="key")
    assert kinds(history) == ["doubled"]


def test_a_key_is_free_again_after_the_end(history: History) -> None:
    submitted(history, 1, "t1", unique="key")
    run(history)
    finish(history, acknowledged=True)
    submitted(history, 2, "t2", unique="key")
    assert not history.violations


def test_two_listed_jobs_with_one_key(history: History) -> None:
    listed(history, 1, 2, unique="key")
    assert kinds(history) == ["doubled"]


def test_submissions_that_turn_out_to_be_one_job(history: History) -> None:
    """A worker has the payload of the one, and a submitter the number for the other."""
    for token in ("t1", "t2"):
        history.record("submitting", token, "mail", "key", -1, 0)
    run(history, "t1", number=0)
    history.record("acknowledged", "t2", 7, "submitter")
    history.record("acknowledged", "t1", 7, "submitter")
    finish(history, "t1", acknowledged=True)
    assert listed(history) == []
    assert not history.violations


def test_one_job_with_two_numbers(history: History) -> None:
    submitted(history, 1)
    history.record("gone")
    submitted(history, 2)
    assert kinds(history) == ["reused"]


def test_a_job_before_its_time(history: History) -> None:
    history.record("submitting", "t1", "mail", "", -1, history.now_ns / 1e9 + 100)
    run(history)
    assert kinds(history) == ["early"]


def test_a_cancel(history: History) -> None:
    submitted(history)
    history.record("cancelling", 1, "operator")
    history.record("cancelled", 1, "operator")
    assert listed(history) == []
    assert not history.violations
    listed(history, 1)
    assert kinds(history) == ["run again"]


def test_a_cancel_of_a_job_that_should_be_known(history: History) -> None:
    submitted(history)
    history.record("cancelling", 1, "operator")
    history.record("not_cancelled", 1, "operator")
    assert kinds(history) == ["lost"]


@pytest.mark.parametrize("background_first", [True, False])
def test_an_end_that_a_waiting_client_was_told(history: History, background_first: bool) -> None:
    """It counts if the job was submitted in the background too, whichever of the two we read first."""
    if background_first:
        submitted(history)
    history.record("told_end", "t1", 1, "waiting client")
    if not background_first:
        submitted(history)
    history.record("gone")
    listed(history, 1)
    assert kinds(history) == ["run again"]


def test_a_refusal_needs_a_reason(history: History) -> None:
    history.record("submitting", "t1", "mail", "", -1, 0)
    history.record("faults", True)
    history.record("refused", "t1", "storage failed", "submitter")
    assert not history.violations
    history.record("faults", False)
    history.record("refused", "t1", "storage failed", "submitter")
    assert kinds(history) == ["refused"]
