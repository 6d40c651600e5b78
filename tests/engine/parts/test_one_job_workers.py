"""`OneJobWorkers`: reports do not name their job, so a worker gets no second one while it may be at the first."""

from __future__ import annotations

import pytest

from switchgear.engine import one_job_workers
from switchgear.engine.one_job_workers import OneJobWorkers
from switchgear.errors import Refused
from switchgear.model import DONE, READY, RUNNING, SECOND_US, Cause, Job, Worker
from switchgear.states import LateReport
from switchgear.testing import RecordingPeer
from tests.engine.harness import state_of
from tests.engine.parts.parts import Parts

CROSSING_US = SECOND_US
SILENCE_US = 3 * SECOND_US
W = b"w"


class Pool(RecordingPeer):
    """Tells the workers' table of the engine's events, as a session does."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.parts = parts
        self.workers: OneJobWorkers = parts.one_job_workers(self, silence_us=SILENCE_US, crossing_us=CROSSING_US)
        self.sent: list[tuple[bytes, int]] = []
        self.removed_soon: list[Worker] = []

    def assign(self, worker: Worker, job: Job) -> None:
        identity = self.workers.identity_of(worker)
        self.workers.assigned(worker, job, [identity, job.id])
        self.sent.append((identity, job.id))

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        self.workers.revoked(worker, job)
        self.removed_soon.append(worker)

    def expired(self, worker: Worker) -> None:
        self.workers.expired(worker)

    def next_turn(self, seconds: float = 0) -> None:
        self.parts.deadline_dispatch.advance(self.parts.state.now_us + round(seconds * SECOND_US))
        for worker in self.removed_soon:
            self.parts.workers.remove(worker, Cause.WORKER_LOST)
        self.removed_soon.clear()

    def pings(self, identity: bytes = W) -> None:
        self.workers.is_there(identity, identity, has_started=False)

    def starts(self, identity: bytes = W) -> None:
        self.workers.is_there(identity, identity, has_started=True)

    def reports(self, identity: bytes = W, result: bytes = b"result") -> LateReport:
        verdict, _ = self.workers.report(identity, result)
        if verdict is not LateReport.UNKNOWN:
            self.workers.has_reported(identity)
        return verdict

    def state(self, identity: bytes = W) -> str:
        known = self.workers.known.get(identity)
        if known is not None:
            return "idle" if known.sent is None else "at work"
        return "owing" if identity in self.workers.owing else "unknown"


def pool(**settings: int) -> Pool:
    return Pool(Parts(**settings))


def at_work() -> tuple[Pool, Job]:
    workers = pool()
    workers.pings()
    job = workers.parts.submit()
    assert workers.state() == "at work"
    return workers, job


def owing() -> tuple[Pool, Job]:
    """A worker whose connection was lost while it was at work; its job is ready again."""
    workers, job = at_work()
    workers.workers.gone(W)
    assert (workers.state(), state_of(job)) == ("owing", READY)
    return workers, job


def test_a_worker_that_is_there_is_idle_and_is_sent_one_job() -> None:
    workers, job = at_work()
    workers.parts.submit()
    assert (workers.sent, state_of(job)) == ([(W, job.id)], RUNNING)
    assert workers.reports() is LateReport.ACCEPTED
    assert (state_of(job), len(workers.sent), workers.state()) == (DONE, 2, "at work")


def test_an_idle_worker_that_is_silent_for_too_long_is_forgotten() -> None:
    workers = pool()
    workers.pings()
    workers.next_turn(2)
    workers.workers.sign_of_life(W)
    workers.next_turn(2)
    assert workers.state() == "idle"
    workers.next_turn(1)
    assert (workers.state(), workers.parts.state.workers) == ("unknown", {})


def test_a_worker_at_work_does_not_expire_and_its_ping_means_nothing() -> None:
    workers, job = at_work()
    workers.next_turn(100)
    workers.pings()
    assert (workers.state(), state_of(job), workers.sent) == ("at work", RUNNING, [(W, job.id)])


@pytest.mark.parametrize(("seconds", "state"), [(0.5, "at work"), (1, "owing")])
def test_a_start_means_that_the_job_is_lost_unless_it_may_have_crossed_it(seconds: float, state: str) -> None:
    workers, _ = at_work()
    workers.next_turn(seconds)
    workers.starts()
    assert workers.state() == state


def test_a_worker_that_owes_is_idle_when_it_says_so_again_a_moment_later() -> None:
    workers, _ = owing()
    workers.parts.transitions.end(workers.parts.state.jobs[1], Cause.CANCELLED)
    workers.next_turn(1)
    workers.starts()
    workers.next_turn(0.4)
    workers.starts()
    assert workers.state() == "owing"
    workers.next_turn(0.1)
    workers.pings()
    assert workers.state() == "idle"


def test_a_start_on_a_new_connection_counts_however_soon_it_comes() -> None:
    workers, job = owing()
    workers.next_turn(0.2)
    workers.starts()  # on a new connection, so it has not crossed the job
    workers.next_turn(0.4)
    workers.pings()
    assert (workers.state(), state_of(job)) == ("owing", READY)
    workers.next_turn(0.1)
    workers.pings()
    assert (workers.state(), workers.sent) == ("at work", [(W, job.id)] * 2)


def test_a_start_that_may_have_crossed_a_job_that_was_revoked_does_not_count() -> None:
    workers, job = at_work()
    workers.parts.attempts.revoke(job, Cause.TIMED_OUT)
    workers.next_turn(0.2)
    assert workers.state() == "owing"
    workers.starts()
    for _ in range(5):
        workers.next_turn(1)
        workers.pings()
    assert workers.state() == "owing"


def test_the_first_result_counts_also_if_it_comes_from_a_worker_that_owes_it() -> None:
    workers, job = owing()
    assert workers.reports() is LateReport.ACCEPTED
    assert (state_of(job), workers.state()) == (DONE, "idle")


def test_a_result_that_comes_second_is_dropped() -> None:
    workers, job = owing()
    workers.pings(b"other")
    assert workers.reports(b"other") is LateReport.ACCEPTED
    assert workers.reports() is LateReport.DROPPED
    assert (job.result, workers.state(), workers.reports()) == (b"result", "idle", LateReport.UNKNOWN)


def test_a_result_of_a_cancelled_job_is_expected_and_changes_nothing() -> None:
    workers, job = at_work()
    workers.parts.transitions.end(job, Cause.CANCELLED)
    workers.next_turn()
    assert (workers.state(), workers.parts.state.workers) == ("owing", {})
    assert workers.reports() is LateReport.UNWANTED
    assert workers.state() == "idle"


def test_a_worker_that_leaves_reports_first() -> None:
    workers, job = at_work()
    workers.workers.leave(W)
    assert workers.state() == "at work"
    workers.reports()
    assert (state_of(job), workers.state(), workers.parts.state.workers) == (DONE, "unknown", {})


def test_a_job_that_could_not_be_delivered_costs_no_attempt() -> None:
    workers, job = at_work()
    message = workers.workers.message_to(next(iter(workers.parts.state.workers.values())))
    workers.workers.not_delivered(W, ["another"])
    assert workers.state() == "at work"
    workers.workers.not_delivered(W, message)
    assert (workers.state(), state_of(job), job.attempts) == ("unknown", READY, 0)


def test_a_job_that_was_revoked_before_it_was_sent_leaves_an_idle_worker() -> None:
    workers, job = at_work()
    (worker,) = workers.parts.state.workers.values()
    workers.parts.attempts.detach(job)
    workers.workers.revoked_unsent(worker)
    workers.workers.take_back(worker, job.id)
    assert (workers.state(), worker.credits) == ("idle", 1)


def test_a_job_that_the_peer_has_no_words_for_fails() -> None:
    workers = pool()
    workers.pings()
    (worker,) = workers.parts.state.workers.values()
    job = workers.parts.job()
    worker.credits = 0
    workers.parts.attempts.start(job, worker)
    workers.workers.assigned(worker, job, None)
    assert (workers.state(), worker.lease_until_us) == ("idle", 0)
    workers.workers.refuse_job(worker, job.id, b"no words")
    assert (job.error, worker.credits, bool(worker.lease_until_us)) == (b"no words", 1, True)


def test_only_so_many_that_owe_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_job_workers, "MOST_OWING", 1)
    workers = pool()
    for identity in (b"first", b"second"):
        workers.pings(identity)
        workers.parts.submit()
        workers.workers.gone(identity)
        workers.parts.transitions.end(workers.parts.state.jobs[workers.parts.state.next_job_id - 1], Cause.CANCELLED)
    assert (workers.state(b"first"), workers.state(b"second")) == ("unknown", "owing")


def test_a_worker_that_cannot_be_registered_is_refused() -> None:
    workers = pool(functions=1)
    workers.parts.job(b"other")
    with pytest.raises(Refused):
        workers.pings()
    assert workers.state() == "unknown"
