"""What becomes of a job when one that it waits for ends without success: each edge says so for itself."""

from __future__ import annotations

import time

import pytest

from switchgear.engine.transitions import FAILURES_PER_TURN
from switchgear.errors import CycleRefused, Refused
from switchgear.model import (
    CANCELLED,
    DONE,
    EXPIRED,
    FAILED,
    READY,
    RUNNING,
    SCHEDULED,
    WAITING,
    Cause,
    Delivery,
    EdgePolicy,
    Job,
    JobState,
)
from switchgear.refusals import REFUSED_CONFLICT
from switchgear.testing import RecordingPeer, check_engine
from switchgear.testing.simulation.store import Row
from tests.engine.harness import Harness, causes, ids, peer_of, state_of
from tests.engine.restarts import restarted

WAIT, SKIP, FAIL, RUN, ERROR = EdgePolicy
BAD_ENDS = (FAILED, CANCELLED, EXPIRED)


def edges(*policies: EdgePolicy) -> bytes:
    return bytes(policies)


def end_badly(harness: Harness, job: Job) -> None:
    harness.engine.cancel(job)
    check_engine(harness.engine)


# --- one edge ---

MEETINGS = [
    # policy, state then, last cause
    (WAIT, WAITING, Cause.SUBMITTED_WAITING),
    (SKIP, CANCELLED, Cause.SKIPPED),
    (FAIL, FAILED, Cause.DOOMED),
    (RUN, READY, Cause.RELEASED),
]


@pytest.mark.parametrize(("policy", "state", "cause"), MEETINGS, ids=[policy.name for policy, _, _ in MEETINGS])
@pytest.mark.parametrize("end", [*BAD_ENDS, "dead"], ids=lambda end: end if isinstance(end, str) else end.name)
def test_each_policy_at_each_end(
    harness: Harness, policy: EdgePolicy, state: JobState, cause: Cause, end: JobState | str
) -> None:
    first = harness.submit(b"other", expires_us=harness.at(5) if end is EXPIRED else 0, attempts_limit=1)
    job = harness.submit(after=(first,), edges=edges(policy))
    worker = harness.worker(b"other")
    if end is EXPIRED:
        harness.pass_seconds(5)
    elif end is CANCELLED:
        harness.engine.cancel(first)
    else:
        assert harness.engine.take(worker) is first
        if end == "dead":
            harness.engine.remove_worker(worker)
        else:
            harness.engine.fail(worker, first.id)
    check_engine(harness.engine)
    assert (state_of(job), causes(job)[-1]) == (state, cause)


@pytest.mark.parametrize("policy", [WAIT, SKIP, FAIL, RUN])
def test_a_predecessor_that_is_done_releases_whatever_the_edge_says(harness: Harness, policy: EdgePolicy) -> None:
    first = harness.submit(b"other")
    job = harness.submit(after=(first,), edges=edges(policy))
    harness.drain_with(harness.worker(b"other"))
    assert causes(job)[-1] is Cause.RELEASED
    check_engine(harness.engine)


@pytest.mark.parametrize(
    ("end", "words"),
    [(FAILED, "failed"), (CANCELLED, "was cancelled"), (EXPIRED, "expired")],
    ids=lambda value: str(value),
)
def test_the_error_names_the_predecessor_and_its_end(harness: Harness, end: JobState, words: str) -> None:
    first = harness.ended(end)
    job = harness.submit(b"other", after=(first,), edges=edges(FAIL))
    harness.pass_seconds(0)
    assert job.error == f"job {first.id}, which it waited for, {words}".encode()
    assert job.result_code == 1


def test_one_that_runs_anyway_may_still_have_to_wait_for_its_time(harness: Harness) -> None:
    first = harness.submit(b"other")
    job = harness.submit(after=(first,), edges=edges(RUN), run_at_us=harness.at(9))
    end_badly(harness, first)
    assert state_of(job) is SCHEDULED


def test_one_that_runs_anyway_is_not_started_after_its_expiry(harness: Harness) -> None:
    """Both expire while nobody looks, and the first to be met lets the other go on."""
    first = harness.submit(b"other", expires_us=harness.at(4))
    job = harness.submit(after=(first,), edges=edges(RUN), expires_us=harness.at(5))
    behind = harness.submit(after=(job,), edges=edges(RUN))
    worker = harness.worker()
    harness.engine.grant(worker, 1)
    harness.pass_seconds(6)
    assert (state_of(job), state_of(behind)) == (EXPIRED, RUNNING)
    check_engine(harness.engine)


def test_watchers_are_told(harness: Harness) -> None:
    client = RecordingPeer()
    first = harness.submit(b"other")
    job = harness.submit(after=(first,), edges=edges(FAIL), delivery=Delivery.WAIT, watcher=client)
    end_badly(harness, first)
    assert client.heard == [("finished", job.id, FAILED)]


# --- several edges ---


def test_each_edge_speaks_for_itself(harness: Harness) -> None:
    first, second, third = harness.submit(b"other"), harness.submit(b"other"), harness.submit(b"other")
    job = harness.submit(after=(first, second, third), edges=edges(RUN, FAIL, WAIT))
    end_badly(harness, first)
    assert (state_of(job), job.blockers) == (WAITING, 2)
    end_badly(harness, third)
    assert (state_of(job), job.blockers) == (WAITING, 2)
    end_badly(harness, second)
    assert (state_of(job), job.blockers) == (FAILED, 0)
    assert not len(harness.engine.dependencies.successors)


def test_one_that_runs_anyway_waits_for_the_others(harness: Harness) -> None:
    first, second = harness.submit(b"bad"), harness.submit(b"good")
    job = harness.submit(after=(first, second), edges=edges(RUN, RUN))
    end_badly(harness, first)
    assert state_of(job) is WAITING
    harness.drain_with(harness.worker(b"good"))
    assert state_of(job) is READY


def test_a_predecessor_named_twice_has_its_first_policy(harness: Harness) -> None:
    first = harness.submit(b"other")
    job = harness.submit(predecessors=(first.id, first.id), edges=edges(RUN, FAIL))
    assert (job.predecessors, job.edges) == ((first.id,), edges(RUN))


def test_edges_that_all_say_wait_take_no_room(harness: Harness) -> None:
    first = harness.submit(b"other")
    assert harness.submit(after=(first,), edges=edges(WAIT)).edges == b""


@pytest.mark.parametrize(
    ("given", "text"), [(b"\1\1", "2 edges for 1 predecessors"), (b"\5", "no edge policy 5")], ids=["count", "number"]
)
def test_edges_that_make_no_sense_are_refused(harness: Harness, given: bytes, text: str) -> None:
    first = harness.submit()
    with pytest.raises(ValueError, match=text):
        harness.submit(after=(first,), edges=given, name=b"Anna")
    with pytest.raises(ValueError, match=text):
        harness.engine.add_predecessors(harness.submit(), (first.id,), given)
    assert dict(harness.engine.names.items()) == {}
    check_engine(harness.engine)


# --- those that wait for those that wait ---


def test_dependents_of_dependents_follow_their_own_edges(harness: Harness) -> None:
    first = harness.submit(b"other")
    failed = harness.submit(after=(first,), edges=edges(FAIL))
    skipped = harness.submit(after=(failed,), edges=edges(SKIP))
    waits = harness.submit(after=(skipped,))
    runs = harness.submit(after=(skipped,), edges=edges(RUN))
    end_badly(harness, first)
    assert [state_of(job) for job in (failed, skipped, waits, runs)] == [FAILED, CANCELLED, WAITING, READY]
    assert skipped.error == b"job %d, which it waited for, was cancelled" % first.id  # the root cause


def test_news_come_in_the_order_of_the_ends(harness: Harness) -> None:
    client = RecordingPeer()
    first = harness.submit(b"other", watcher=client)
    second = harness.submit(after=(first,), edges=edges(FAIL), watcher=client)
    third = harness.submit(after=(second,), edges=edges(FAIL), watcher=client)
    end_badly(harness, first)
    assert [news[1] for news in client.heard] == ids(first, second, third)


def test_a_long_chain_neither_recurses_nor_takes_long(harness: Harness) -> None:
    first = harness.submit(b"other")
    last = first
    for _ in range(100_000):
        last = harness.submit(after=(last,), edges=edges(FAIL))
    began = time.process_time()
    harness.engine.cancel(first)
    turns = turns_until_all_are_told(harness)
    assert time.process_time() - began < 10  # seconds; a second on a slow machine, an hour if it were quadratic
    assert turns == 2 * 100_000 // FAILURES_PER_TURN - 1  # so many end or let down others in each
    assert causes(last)[-1] is Cause.DOOMED
    assert not harness.engine.jobs
    assert not len(harness.engine.dependencies.successors)
    assert not len(harness.engine.dependencies.has_failure_policy)


def test_any_number_of_successors_of_one_job(harness: Harness) -> None:
    first = harness.submit(b"other")
    policies = (WAIT, SKIP, FAIL, RUN)
    jobs = [harness.submit(after=(first,), edges=edges(policy)) for policy in policies for _ in range(1000)]
    end_badly(harness, first)
    turns_until_all_are_told(harness)
    states = [state_of(job) for job in jobs]
    assert states == [WAITING] * 1000 + [CANCELLED] * 1000 + [FAILED] * 1000 + [READY] * 1000
    assert harness.engine.dependencies.waiting_for(first.id) == jobs[:1000]


# --- a turn ends in between ---


def turns_until_all_are_told(harness: Harness) -> int:
    """How many more turns it takes, in which no time passes."""
    turns = 0
    while harness.engine.next_deadline_us is not None:
        assert harness.engine.next_deadline_us <= harness.now_us
        harness.pass_seconds(0)
        turns += 1
    check_engine(harness.engine)
    return turns


@pytest.fixture
def halted(harness: Harness) -> tuple[Harness, list[Job]]:
    """A chain whose first job has ended, while the second has not heard of it yet."""
    harness.engine.transitions.failures_per_turn = 1
    first = harness.submit(b"other", payload=b"first")
    chain = [first]
    for _ in range(3):
        chain.append(harness.submit(after=(chain[-1],), edges=edges(FAIL)))
    end_badly(harness, first)
    assert [state_of(job) for job in chain] == [CANCELLED, WAITING, WAITING, WAITING]
    return harness, chain


def test_the_rest_ends_in_the_turns_that_follow(halted: tuple[Harness, list[Job]]) -> None:
    harness, chain = halted
    turns_until_all_are_told(harness)
    assert [causes(job)[-1] for job in chain] == [Cause.CANCELLED] + [Cause.DOOMED] * 3


def test_setting_the_clock_back_does_not_hold_it_up(halted: tuple[Harness, list[Job]]) -> None:
    harness, chain = halted
    harness.set_clock(-3600)
    turns_until_all_are_told(harness)
    assert state_of(chain[-1]) is FAILED


def test_a_crash_in_between_leads_to_the_same_end(halted: tuple[Harness, list[Job]]) -> None:
    harness, chain = halted
    again, copies = restarted(harness, *chain)
    turns_until_all_are_told(again)
    assert [state_of(copies[job.id]) for job in chain[1:]] == [FAILED] * 3


def test_a_job_that_is_retried_in_between_lets_nobody_down_unless_it_fails_again(
    halted: tuple[Harness, list[Job]],
) -> None:
    harness, chain = halted
    harness.engine.retry(chain[0])
    turns_until_all_are_told(harness)
    assert [state_of(job) for job in chain] == [READY, WAITING, WAITING, WAITING]
    end_badly(harness, chain[0])
    turns_until_all_are_told(harness)
    assert [state_of(job) for job in chain] == [CANCELLED] + [FAILED] * 3


def test_one_that_is_cancelled_in_between_stays_cancelled_and_lets_down_those_behind_it(
    halted: tuple[Harness, list[Job]],
) -> None:
    harness, chain = halted
    end_badly(harness, chain[1])
    turns_until_all_are_told(harness)
    assert [causes(job)[-1] for job in chain] == [Cause.CANCELLED] * 2 + [Cause.DOOMED] * 2


def test_other_ends_take_their_turn(halted: tuple[Harness, list[Job]]) -> None:
    harness, chain = halted
    other = harness.submit(b"other")
    successor = harness.submit(after=(other,), edges=edges(RUN))
    end_badly(harness, other)
    turns_until_all_are_told(harness)
    assert (state_of(successor), state_of(chain[-1])) == (READY, FAILED)


def test_a_cascading_cancel_cancels_whatever_the_edges_say(harness: Harness) -> None:
    first = harness.submit(b"other")
    jobs = [harness.submit(after=(first,), edges=edges(policy)) for policy in EdgePolicy]
    jobs.append(harness.submit(after=(jobs[1], jobs[3]), edges=edges(FAIL, RUN)))
    worker = harness.worker()
    harness.engine.grant(worker, 9)
    ended = harness.engine.cancel(first, cascade=True)
    assert {job.id for job in ended} == set(ids(first, *jobs))
    assert {causes(job)[-1] for job in ended} == {Cause.CANCELLED}
    assert peer_of(worker).heard == []
    check_engine(harness.engine)


# --- a job that comes too late ---


@pytest.mark.parametrize("policy", [SKIP, FAIL])
def test_a_new_job_whose_predecessor_has_ended_badly_ends_in_the_next_turn(
    harness: Harness, policy: EdgePolicy
) -> None:
    first = harness.ended(FAILED)
    client = RecordingPeer()
    job = harness.submit(b"other", after=(first,), edges=edges(policy), watcher=client)
    assert (state_of(job), client.heard) == (WAITING, [])  # whoever submitted it has not been told its handle yet
    assert harness.engine.next_deadline_us == harness.now_us
    harness.pass_seconds(0)
    assert state_of(job) is (CANCELLED if policy is SKIP else FAILED)
    assert client.words() == ["finished"]
    check_engine(harness.engine)


def test_a_new_job_that_runs_anyway_is_ready_at_once(harness: Harness) -> None:
    job = harness.submit(b"other", after=(harness.ended(FAILED),), edges=edges(RUN))
    assert causes(job) == [Cause.SUBMITTED]


def test_it_waits_on_if_its_predecessor_is_retried_in_time(harness: Harness) -> None:
    first = harness.ended(FAILED)
    job = harness.submit(b"other", after=(first,), edges=edges(FAIL))
    harness.engine.retry(first)
    harness.pass_seconds(0)
    assert state_of(job) is WAITING
    harness.drain_with(harness.worker())
    assert state_of(job) is READY


def test_it_may_be_cancelled_before(harness: Harness) -> None:
    job = harness.submit(b"other", after=(harness.ended(FAILED),), edges=edges(FAIL))
    harness.engine.cancel(job)
    harness.pass_seconds(0)
    assert causes(job)[-1] is Cause.CANCELLED
    check_engine(harness.engine)


def test_it_may_be_withdrawn_before(harness: Harness) -> None:
    job = harness.submit(b"other", after=(harness.ended(FAILED),), edges=edges(FAIL))
    assert harness.engine.withdraw(job)
    harness.pass_seconds(0)
    assert state_of(job) is WAITING
    check_engine(harness.engine)


def test_setting_the_clock_does_not_save_it(harness: Harness) -> None:
    job = harness.submit(b"other", after=(harness.ended(FAILED),), edges=edges(FAIL))
    harness.set_clock(-3600)
    assert state_of(job) is FAILED


# --- more to wait for ---


def test_what_is_added_has_a_policy_too(harness: Harness) -> None:
    first, second = harness.submit(b"other"), harness.submit(b"other")
    job = harness.submit(after=(first,))
    harness.engine.add_predecessors(job, (first.id, second.id), edges(RUN, FAIL))
    assert (job.predecessors, job.edges) == ((first.id, second.id), edges(WAIT, FAIL))
    end_badly(harness, first)
    assert state_of(job) is WAITING
    end_badly(harness, second)
    assert state_of(job) is FAILED


def test_what_is_added_without_one_is_waited_for(harness: Harness) -> None:
    first, second = harness.submit(b"other"), harness.submit(b"other")
    job = harness.submit(after=(first,), edges=edges(FAIL))
    harness.engine.add_predecessors(job, (second.id,))
    assert job.edges == edges(FAIL, WAIT)
    end_badly(harness, second)
    assert state_of(job) is WAITING


def test_a_running_job_that_is_told_to_wait_for_a_failed_one_is_held_back_and_ends(harness: Harness) -> None:
    failed = harness.ended(FAILED)
    _, job = harness.running(b"other")
    harness.engine.add_predecessors(job, (failed.id,), edges(FAIL))
    assert state_of(job) is WAITING
    harness.pass_seconds(0)
    assert causes(job)[-2:] == [Cause.HELD_BACK, Cause.DOOMED]


def test_one_that_runs_anyway_is_not_held_back_for_a_failed_one(harness: Harness) -> None:
    failed = harness.ended(FAILED)
    _, job = harness.running(b"other")
    harness.engine.add_predecessors(job, (failed.id,), edges(RUN))
    assert state_of(job) is RUNNING
    check_engine(harness.engine)


def test_a_circle_is_refused_whatever_the_edges_say(harness: Harness) -> None:
    first = harness.submit()
    second = harness.submit(after=(first,), edges=edges(RUN))
    with pytest.raises(CycleRefused):
        harness.engine.add_predecessors(first, (second.id,), edges(RUN))
    assert first.edges == b""


# --- once more ---


@pytest.mark.parametrize(("policy", "words"), [(SKIP, "be skipped"), (FAIL, "fail")], ids=["SKIP", "FAIL"])
def test_a_retry_that_would_end_at_once_is_refused_naming_whom_to_retry_first(
    harness: Harness, policy: EdgePolicy, words: str
) -> None:
    first = harness.submit(b"other")
    job = harness.submit(after=(first,), edges=edges(policy))
    end_badly(harness, first)
    text = f"job {job.id} would {words} at once, because job {first.id}, .* was cancelled; retry job {first.id} first"
    with pytest.raises(Refused, match=text) as refused:
        harness.engine.retry(job)
    assert refused.value.reason == REFUSED_CONFLICT
    harness.engine.retry(first)
    harness.engine.retry(job)
    assert state_of(job) is WAITING
    harness.drain_with(harness.worker(b"other"))
    assert harness.drain_with(harness.worker()) == [job.id]


@pytest.mark.parametrize(("policy", "state"), [(WAIT, WAITING), (RUN, READY)], ids=["WAIT", "RUN"])
def test_a_retried_job_meets_its_edges_again(harness: Harness, policy: EdgePolicy, state: JobState) -> None:
    first = harness.submit(b"other")
    job = harness.submit(after=(first,), edges=edges(policy))
    end_badly(harness, first)
    if policy is WAIT:
        harness.engine.cancel(job)
    else:
        worker = harness.worker()
        harness.engine.take(worker)
        harness.engine.fail(worker, job.id)
    harness.engine.retry(job)
    assert state_of(job) is state
    check_engine(harness.engine)


def test_a_retried_job_that_waits_for_more_keeps_its_edges(harness: Harness) -> None:
    first, second = harness.submit(b"other"), harness.submit(b"other")
    job = harness.submit(after=(first,), edges=edges(FAIL))
    harness.engine.cancel(job)
    harness.engine.retry(job, (second.id,))
    assert job.edges == edges(FAIL, WAIT)
    check_engine(harness.engine)


def test_one_that_went_on_does_not_wait_again_when_the_other_is_retried(harness: Harness) -> None:
    first, second = harness.submit(b"other"), harness.submit(b"other")
    job = harness.submit(after=(first, second), edges=edges(RUN, RUN))
    end_badly(harness, first)
    harness.engine.retry(first)
    end_badly(harness, second)
    assert state_of(job) is READY


# --- after a restart ---


def test_edges_survive_a_restart(harness: Harness) -> None:
    first = harness.submit(b"other")
    jobs = [harness.submit(after=(first,), edges=edges(policy)) for policy in (WAIT, SKIP, FAIL, RUN)]
    again, copies = restarted(harness, first, *jobs)
    again.engine.cancel(copies[first.id])
    assert [state_of(copies[job.id]) for job in jobs] == [WAITING, CANCELLED, FAILED, READY]


def test_a_crash_between_the_end_and_what_follows_leads_to_the_same_end(harness: Harness) -> None:
    worker, first = harness.running(b"other")
    jobs = [harness.submit(after=(first,), edges=edges(policy)) for policy in EdgePolicy]
    chained = harness.submit(after=(jobs[FAIL],), edges=edges(SKIP))
    kept = [Row(job).to_job(job.function) for job in (*jobs, chained)]
    harness.engine.fail(worker, first.id)
    again, copies = restarted(harness, first, *kept)
    assert [state_of(copies[job.id]) for job in jobs] == [WAITING, CANCELLED, FAILED, READY, READY]
    assert state_of(copies[chained.id]) is CANCELLED
    assert copies[jobs[FAIL].id].error == b"job %d, which it waited for, failed" % first.id
    again.pass_seconds(1)
    check_engine(again.engine)


def test_a_job_that_was_to_end_in_the_next_turn_ends_after_a_crash(harness: Harness) -> None:
    first = harness.ended(FAILED)
    job = harness.submit(b"other", after=(first,), edges=edges(FAIL))
    _, copies = restarted(harness, first, job)
    assert state_of(copies[job.id]) is FAILED


def test_a_failure_that_was_forgotten_is_taken_for_done(harness: Harness) -> None:
    harness.engine.unsuccessful_jobs.most_jobs = 2
    old = harness.ended(FAILED)
    for _ in range(2):
        harness.ended(FAILED)
    job = harness.submit(b"other", after=(old,), edges=edges(FAIL))
    assert state_of(job) is READY


def test_a_job_that_is_done_disappoints_nobody(harness: Harness) -> None:
    first = harness.submit(b"other")
    harness.submit(after=(first,), edges=edges(FAIL))
    assert set(harness.engine.dependencies.has_failure_policy) == {first.id}
    harness.drain_with(harness.worker(b"other"))
    assert not len(harness.engine.dependencies.has_failure_policy)
    assert state_of(first) is DONE


# --- what successors need of those that they waited for ---

RETENTIONS = [
    # its own, whether another waits for it, what counts
    (0, True, -1),
    (59, True, -1),
    (60, True, 60),
    (61, True, 61),
    (-1, True, -1),
    (0, False, 0),
]


@pytest.mark.parametrize(("own", "is_awaited", "kept"), RETENTIONS)
@pytest.mark.parametrize("policy", [WAIT, RUN], ids=["done", "failed"])
def test_a_job_that_others_waited_for_is_kept_as_long_as_any(
    own: int, is_awaited: bool, kept: int, policy: EdgePolicy
) -> None:
    harness = Harness(retention_us=60)
    job = harness.submit(retention_us=own)
    if is_awaited:
        harness.submit(predecessors=(job.id,), edges=edges(policy))
    worker = harness.worker()
    assert harness.engine.take(worker) is job
    if policy is RUN:
        harness.engine.fail(worker, job.id)
    else:
        harness.engine.complete(worker, job.id, b"")
    assert job.retention_us == kept
    check_engine(harness.engine)


def test_a_retry_amid_the_telling_does_not_keep_the_next_failure_from_being_told(harness: Harness) -> None:
    """Those that wait for a failed job hear of it over several turns; before all have, it is retried, and waits."""
    harness.engine.transitions.failures_per_turn = 1
    blocker = harness.submit(b"other")
    first = harness.submit(after=(blocker,))
    successors = [harness.submit(after=(first,), edges=edges(SKIP)) for _ in range(3)]
    harness.engine.cancel(first)
    harness.engine.retry(first)
    assert first.state is WAITING
    second = harness.submit()
    waiting = harness.submit(after=(second,), edges=edges(RUN))
    for _ in range(5):
        harness.pass_seconds(1)
    harness.engine.cancel(second)
    for _ in range(5):
        harness.pass_seconds(1)
    assert waiting.state is READY
    assert {job.state for job in successors} <= {WAITING, CANCELLED}
    check_engine(harness.engine)


# --- error handlers ---


def really_fail(harness: Harness, job: Job) -> None:
    worker = harness.worker(job.function.name)
    assert harness.engine.take(worker) is job
    harness.engine.fail(worker, job.id)


@pytest.mark.parametrize(
    ("end", "state", "cause"),
    [
        (FAILED, READY, Cause.RELEASED),
        (EXPIRED, READY, Cause.RELEASED),
        (CANCELLED, CANCELLED, Cause.SKIPPED),
        (DONE, CANCELLED, Cause.SKIPPED),
    ],
    ids=str,
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_error_handler_runs_only_if_a_predecessor_failed(
    harness: Harness, end: JobState, state: JobState, cause: Cause, when: str
) -> None:
    if when == "after":  # the handler is submitted after the end
        job = harness.submit(after=(harness.ended(end),), edges=edges(ERROR))
        harness.pass_seconds(0)
    else:
        first = harness.submit(b"other", expires_us=harness.at(5) if end is EXPIRED else 0)
        job = harness.submit(after=(first,), edges=edges(ERROR))
        if end is DONE:
            harness.drain_with(harness.worker(b"other"))
        elif end is EXPIRED:
            harness.pass_seconds(5)
        elif end is CANCELLED:
            harness.engine.cancel(first)
        else:
            really_fail(harness, first)
    assert state_of(job) is state
    if when == "before" or state is CANCELLED:
        assert causes(job)[-1] is cause
    check_engine(harness.engine)


def test_an_error_handler_of_several_runs_once_when_all_have_ended(harness: Harness) -> None:
    first, second, third = (harness.submit(b"other") for _ in range(3))
    handler = harness.submit(after=(first, second, third), edges=bytes([ERROR] * 3))
    unneeded = harness.submit(after=(first, third), edges=bytes([ERROR] * 2))
    worker = harness.worker(b"other")
    assert harness.engine.take(worker) is first
    harness.engine.complete(worker, first.id, b"")
    assert harness.engine.take(worker) is second
    harness.engine.fail(worker, second.id)
    assert (state_of(handler), state_of(unneeded)) == (WAITING, WAITING)
    assert harness.engine.take(worker) is third
    harness.engine.complete(worker, third.id, b"")
    assert (state_of(handler), state_of(unneeded)) == (READY, CANCELLED)
    assert unneeded.error == b"no job that it waited for has failed"
    check_engine(harness.engine)


def test_that_one_has_failed_survives_a_restart(harness: Harness) -> None:
    first, second = harness.submit(b"other"), harness.submit(b"other")
    handler = harness.submit(after=(first, second), edges=bytes([ERROR] * 2))
    unneeded = harness.submit(after=(second,), edges=edges(ERROR))
    really_fail(harness, first)
    again, copies = restarted(harness, second, handler, unneeded)
    again.drain_with(again.worker(b"other"))
    assert [state_of(copies[job.id]) for job in (handler, unneeded)] == [READY, CANCELLED]
    check_engine(again.engine)


def test_what_waits_for_a_handler_that_is_skipped_follows_its_own_edge(harness: Harness) -> None:
    first = harness.submit(b"other")
    handler = harness.submit(after=(first,), edges=edges(ERROR))
    follower = harness.submit(after=(handler,), edges=edges(SKIP))
    harness.drain_with(harness.worker(b"other"))
    assert [state_of(job) for job in (handler, follower)] == [CANCELLED, CANCELLED]


# --- root causes ---


def test_a_job_at_the_end_of_a_chain_tells_the_first_that_failed_and_why(harness: Harness) -> None:
    worker, first = harness.running(b"shop.load")
    jobs = [first]
    for _ in range(2_500):
        jobs.append(harness.submit(after=(jobs[-1],), edges=edges(FAIL)))
    harness.engine.fail(worker, first.id, error=b"ValueError: no such file\n\nTraceback ...")
    turns_until_all_are_told(harness)
    text = f"job {first.id}, which it waited for, failed: shop.load: ValueError: no such file"
    assert {job.error for job in jobs[1:]} == {text.encode()}


def test_a_job_that_is_submitted_after_the_failure_is_told_the_root_cause_too(harness: Harness) -> None:
    worker, first = harness.running(b"shop.load")
    second = harness.submit(after=(first,), edges=edges(FAIL))
    harness.engine.fail(worker, first.id, error=b"ValueError: no such file")
    late = harness.submit(after=(second,), edges=edges(SKIP))
    harness.pass_seconds(0)
    assert late.error == second.error == b"job 1, which it waited for, failed: shop.load: ValueError: no such file"
