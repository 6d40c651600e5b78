"""What becomes of a job when one that it waits for ends without success: each edge says so for itself."""

from __future__ import annotations

import time

import pytest

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
from tests.engine.house import House, causes, ids, peer_of, state_of
from tests.engine.restarts import restarted

WAIT, SKIP, FAIL, RUN = EdgePolicy
BAD_ENDS = (FAILED, CANCELLED, EXPIRED)


def edges(*policies: EdgePolicy) -> bytes:
    return bytes(policies)


def end_badly(house: House, job: Job) -> None:
    house.engine.cancel(job)
    check_engine(house.engine)


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
    house: House, policy: EdgePolicy, state: JobState, cause: Cause, end: JobState | str
) -> None:
    first = house.submit(b"other", expires_us=house.at(5) if end is EXPIRED else 0, attempts_limit=1)
    job = house.submit(after=(first,), edges=edges(policy))
    worker = house.worker(b"other")
    if end is EXPIRED:
        house.pass_seconds(5)
    elif end is CANCELLED:
        house.engine.cancel(first)
    else:
        assert house.engine.take(worker) is first
        if end == "dead":
            house.engine.remove_worker(worker)
        else:
            house.engine.fail(worker, first.id)
    check_engine(house.engine)
    assert (state_of(job), causes(job)[-1]) == (state, cause)


@pytest.mark.parametrize("policy", EdgePolicy)
def test_a_predecessor_that_is_done_releases_whatever_the_edge_says(house: House, policy: EdgePolicy) -> None:
    first = house.submit(b"other")
    job = house.submit(after=(first,), edges=edges(policy))
    house.drain_with(house.worker(b"other"))
    assert causes(job)[-1] is Cause.RELEASED
    check_engine(house.engine)


@pytest.mark.parametrize(
    ("end", "words"),
    [(FAILED, "failed"), (CANCELLED, "was cancelled"), (EXPIRED, "expired")],
    ids=lambda value: str(value),
)
def test_the_error_names_the_predecessor_and_its_end(house: House, end: JobState, words: str) -> None:
    first = house.ended(end)
    job = house.submit(b"other", after=(first,), edges=edges(FAIL))
    house.pass_seconds(0)
    assert job.error == f"job {first.id}, which it waited for, {words}".encode()
    assert job.result_code == 1


def test_one_that_runs_anyway_may_still_have_to_wait_for_its_time(house: House) -> None:
    first = house.submit(b"other")
    job = house.submit(after=(first,), edges=edges(RUN), run_at_us=house.at(9))
    end_badly(house, first)
    assert state_of(job) is SCHEDULED


def test_one_that_runs_anyway_is_not_started_after_its_expiry(house: House) -> None:
    """Both expire while nobody looks, and the first to be met lets the other go on."""
    first = house.submit(b"other", expires_us=house.at(4))
    job = house.submit(after=(first,), edges=edges(RUN), expires_us=house.at(5))
    behind = house.submit(after=(job,), edges=edges(RUN))
    worker = house.worker()
    house.engine.grant(worker, 1)
    house.pass_seconds(6)
    assert (state_of(job), state_of(behind)) == (EXPIRED, RUNNING)
    check_engine(house.engine)


def test_watchers_are_told(house: House) -> None:
    client = RecordingPeer()
    first = house.submit(b"other")
    job = house.submit(after=(first,), edges=edges(FAIL), delivery=Delivery.WAIT, watcher=client)
    end_badly(house, first)
    assert client.heard == [("finished", job.id, FAILED)]


# --- several edges ---


def test_each_edge_speaks_for_itself(house: House) -> None:
    first, second, third = house.submit(b"other"), house.submit(b"other"), house.submit(b"other")
    job = house.submit(after=(first, second, third), edges=edges(RUN, FAIL, WAIT))
    end_badly(house, first)
    assert (state_of(job), job.blockers) == (WAITING, 2)
    end_badly(house, third)
    assert (state_of(job), job.blockers) == (WAITING, 2)
    end_badly(house, second)
    assert (state_of(job), job.blockers) == (FAILED, 0)
    assert house.engine.dependencies.successors == {}


def test_one_that_runs_anyway_waits_for_the_others(house: House) -> None:
    first, second = house.submit(b"bad"), house.submit(b"good")
    job = house.submit(after=(first, second), edges=edges(RUN, RUN))
    end_badly(house, first)
    assert state_of(job) is WAITING
    house.drain_with(house.worker(b"good"))
    assert state_of(job) is READY


def test_a_predecessor_named_twice_has_its_first_policy(house: House) -> None:
    first = house.submit(b"other")
    job = house.submit(predecessors=(first.id, first.id), edges=edges(RUN, FAIL))
    assert (job.predecessors, job.edges) == ((first.id,), edges(RUN))


def test_edges_that_all_say_wait_take_no_room(house: House) -> None:
    first = house.submit(b"other")
    assert house.submit(after=(first,), edges=edges(WAIT)).edges == b""


@pytest.mark.parametrize(
    ("given", "text"), [(b"\1\1", "2 edges for 1 predecessors"), (b"\4", "no edge policy 4")], ids=["count", "number"]
)
def test_edges_that_make_no_sense_are_refused(house: House, given: bytes, text: str) -> None:
    first = house.submit()
    with pytest.raises(ValueError, match=text):
        house.submit(after=(first,), edges=given, name=b"Anna")
    with pytest.raises(ValueError, match=text):
        house.engine.add_predecessors(house.submit(), (first.id,), given)
    assert dict(house.engine.names.items()) == {}
    check_engine(house.engine)


# --- those that wait for those that wait ---


def test_dependents_of_dependents_follow_their_own_edges(house: House) -> None:
    first = house.submit(b"other")
    failed = house.submit(after=(first,), edges=edges(FAIL))
    skipped = house.submit(after=(failed,), edges=edges(SKIP))
    waits = house.submit(after=(skipped,))
    runs = house.submit(after=(skipped,), edges=edges(RUN))
    end_badly(house, first)
    assert [state_of(job) for job in (failed, skipped, waits, runs)] == [FAILED, CANCELLED, WAITING, READY]
    assert skipped.error == b"job %d, which it waited for, failed" % failed.id


def test_news_come_in_the_order_of_the_ends(house: House) -> None:
    client = RecordingPeer()
    first = house.submit(b"other", watcher=client)
    second = house.submit(after=(first,), edges=edges(FAIL), watcher=client)
    third = house.submit(after=(second,), edges=edges(FAIL), watcher=client)
    end_badly(house, first)
    assert [news[1] for news in client.heard] == ids(first, second, third)


def test_a_long_chain_neither_recurses_nor_takes_long(house: House) -> None:
    first = house.submit(b"other")
    last = first
    for _ in range(100_000):
        last = house.submit(after=(last,), edges=edges(FAIL))
    began = time.perf_counter()
    house.engine.cancel(first)
    turns = turns_until_all_are_told(house)
    assert time.perf_counter() - began < 10  # seconds; a second on a slow machine, an hour if it were quadratic
    assert turns == 199  # after the first; in each, so many jobs end or let down others
    assert causes(last)[-1] is Cause.DOOMED
    assert not house.engine.jobs
    assert house.engine.dependencies.successors == {}
    assert house.engine.dependencies.has_failure_policy == set()


def test_any_number_of_successors_of_one_job(house: House) -> None:
    first = house.submit(b"other")
    jobs = [house.submit(after=(first,), edges=edges(policy)) for policy in EdgePolicy for _ in range(1000)]
    end_badly(house, first)
    turns_until_all_are_told(house)
    states = [state_of(job) for job in jobs]
    assert states == [WAITING] * 1000 + [CANCELLED] * 1000 + [FAILED] * 1000 + [READY] * 1000
    assert house.engine.dependencies.waiting_for(first.id) == jobs[:1000]


# --- a turn ends in between ---


def turns_until_all_are_told(house: House) -> int:
    """How many more turns it takes, in which no time passes."""
    turns = 0
    while house.engine.next_deadline_us is not None:
        assert house.engine.next_deadline_us <= house.now_us
        house.pass_seconds(0)
        turns += 1
    check_engine(house.engine)
    return turns


@pytest.fixture
def halted(house: House) -> tuple[House, list[Job]]:
    """A chain whose first job has ended, while the second has not heard of it yet."""
    house.engine.transitions.failures_per_turn = 1
    first = house.submit(b"other", payload=b"first")
    chain = [first]
    for _ in range(3):
        chain.append(house.submit(after=(chain[-1],), edges=edges(FAIL)))
    end_badly(house, first)
    assert [state_of(job) for job in chain] == [CANCELLED, WAITING, WAITING, WAITING]
    return house, chain


def test_the_rest_ends_in_the_turns_that_follow(halted: tuple[House, list[Job]]) -> None:
    house, chain = halted
    turns_until_all_are_told(house)
    assert [causes(job)[-1] for job in chain] == [Cause.CANCELLED] + [Cause.DOOMED] * 3


def test_setting_the_clock_back_does_not_hold_it_up(halted: tuple[House, list[Job]]) -> None:
    house, chain = halted
    house.set_clock(-3600)
    turns_until_all_are_told(house)
    assert state_of(chain[-1]) is FAILED


def test_a_crash_in_between_leads_to_the_same_end(halted: tuple[House, list[Job]]) -> None:
    house, chain = halted
    again, copies = restarted(house, *chain)
    turns_until_all_are_told(again)
    assert [state_of(copies[job.id]) for job in chain[1:]] == [FAILED] * 3


def test_a_job_that_is_retried_in_between_lets_nobody_down_unless_it_fails_again(
    halted: tuple[House, list[Job]],
) -> None:
    house, chain = halted
    house.engine.retry(chain[0])
    turns_until_all_are_told(house)
    assert [state_of(job) for job in chain] == [READY, WAITING, WAITING, WAITING]
    end_badly(house, chain[0])
    turns_until_all_are_told(house)
    assert [state_of(job) for job in chain] == [CANCELLED] + [FAILED] * 3


def test_one_that_is_cancelled_in_between_stays_cancelled_and_lets_down_those_behind_it(
    halted: tuple[House, list[Job]],
) -> None:
    house, chain = halted
    end_badly(house, chain[1])
    turns_until_all_are_told(house)
    assert [causes(job)[-1] for job in chain] == [Cause.CANCELLED] * 2 + [Cause.DOOMED] * 2


def test_other_ends_take_their_turn(halted: tuple[House, list[Job]]) -> None:
    house, chain = halted
    other = house.submit(b"other")
    successor = house.submit(after=(other,), edges=edges(RUN))
    end_badly(house, other)
    turns_until_all_are_told(house)
    assert (state_of(successor), state_of(chain[-1])) == (READY, FAILED)


def test_a_cascading_cancel_cancels_whatever_the_edges_say(house: House) -> None:
    first = house.submit(b"other")
    jobs = [house.submit(after=(first,), edges=edges(policy)) for policy in EdgePolicy]
    jobs.append(house.submit(after=(jobs[1], jobs[3]), edges=edges(FAIL, RUN)))
    worker = house.worker()
    house.engine.grant(worker, 9)
    ended = house.engine.cancel(first, cascade=True)
    assert {job.id for job in ended} == set(ids(first, *jobs))
    assert {causes(job)[-1] for job in ended} == {Cause.CANCELLED}
    assert peer_of(worker).heard == []
    check_engine(house.engine)


# --- a job that comes too late ---


@pytest.mark.parametrize("policy", [SKIP, FAIL])
def test_a_new_job_whose_predecessor_has_ended_badly_ends_in_the_next_turn(house: House, policy: EdgePolicy) -> None:
    first = house.ended(FAILED)
    client = RecordingPeer()
    job = house.submit(b"other", after=(first,), edges=edges(policy), watcher=client)
    assert (state_of(job), client.heard) == (WAITING, [])  # whoever submitted it has not been told its handle yet
    assert house.engine.next_deadline_us == house.now_us
    house.pass_seconds(0)
    assert state_of(job) is (CANCELLED if policy is SKIP else FAILED)
    assert client.words() == ["finished"]
    check_engine(house.engine)


def test_a_new_job_that_runs_anyway_is_ready_at_once(house: House) -> None:
    job = house.submit(b"other", after=(house.ended(FAILED),), edges=edges(RUN))
    assert causes(job) == [Cause.SUBMITTED]


def test_it_waits_on_if_its_predecessor_is_retried_in_time(house: House) -> None:
    first = house.ended(FAILED)
    job = house.submit(b"other", after=(first,), edges=edges(FAIL))
    house.engine.retry(first)
    house.pass_seconds(0)
    assert state_of(job) is WAITING
    house.drain_with(house.worker())
    assert state_of(job) is READY


def test_it_may_be_cancelled_before(house: House) -> None:
    job = house.submit(b"other", after=(house.ended(FAILED),), edges=edges(FAIL))
    house.engine.cancel(job)
    house.pass_seconds(0)
    assert causes(job)[-1] is Cause.CANCELLED
    check_engine(house.engine)


def test_it_may_be_withdrawn_before(house: House) -> None:
    job = house.submit(b"other", after=(house.ended(FAILED),), edges=edges(FAIL))
    assert house.engine.withdraw(job)
    house.pass_seconds(0)
    assert state_of(job) is WAITING
    check_engine(house.engine)


def test_setting_the_clock_does_not_save_it(house: House) -> None:
    job = house.submit(b"other", after=(house.ended(FAILED),), edges=edges(FAIL))
    house.set_clock(-3600)
    assert state_of(job) is FAILED


# --- more to wait for ---


def test_what_is_added_has_a_policy_too(house: House) -> None:
    first, second = house.submit(b"other"), house.submit(b"other")
    job = house.submit(after=(first,))
    house.engine.add_predecessors(job, (first.id, second.id), edges(RUN, FAIL))
    assert (job.predecessors, job.edges) == ((first.id, second.id), edges(WAIT, FAIL))
    end_badly(house, first)
    assert state_of(job) is WAITING
    end_badly(house, second)
    assert state_of(job) is FAILED


def test_what_is_added_without_one_is_waited_for(house: House) -> None:
    first, second = house.submit(b"other"), house.submit(b"other")
    job = house.submit(after=(first,), edges=edges(FAIL))
    house.engine.add_predecessors(job, (second.id,))
    assert job.edges == edges(FAIL, WAIT)
    end_badly(house, second)
    assert state_of(job) is WAITING


def test_a_running_job_that_is_told_to_wait_for_a_failed_one_is_held_back_and_ends(house: House) -> None:
    failed = house.ended(FAILED)
    _, job = house.running(b"other")
    house.engine.add_predecessors(job, (failed.id,), edges(FAIL))
    assert state_of(job) is WAITING
    house.pass_seconds(0)
    assert causes(job)[-2:] == [Cause.HELD_BACK, Cause.DOOMED]


def test_one_that_runs_anyway_is_not_held_back_for_a_failed_one(house: House) -> None:
    failed = house.ended(FAILED)
    _, job = house.running(b"other")
    house.engine.add_predecessors(job, (failed.id,), edges(RUN))
    assert state_of(job) is RUNNING
    check_engine(house.engine)


def test_a_circle_is_refused_whatever_the_edges_say(house: House) -> None:
    first = house.submit()
    second = house.submit(after=(first,), edges=edges(RUN))
    with pytest.raises(CycleRefused):
        house.engine.add_predecessors(first, (second.id,), edges(RUN))
    assert first.edges == b""


# --- once more ---


@pytest.mark.parametrize(("policy", "words"), [(SKIP, "be skipped"), (FAIL, "fail")], ids=["SKIP", "FAIL"])
def test_a_retry_that_would_end_at_once_is_refused_naming_whom_to_retry_first(
    house: House, policy: EdgePolicy, words: str
) -> None:
    first = house.submit(b"other")
    job = house.submit(after=(first,), edges=edges(policy))
    end_badly(house, first)
    text = f"job {job.id} would {words} at once, because job {first.id}, .* was cancelled; retry job {first.id} first"
    with pytest.raises(Refused, match=text) as refused:
        house.engine.retry(job)
    assert refused.value.reason == REFUSED_CONFLICT
    house.engine.retry(first)
    house.engine.retry(job)
    assert state_of(job) is WAITING
    house.drain_with(house.worker(b"other"))
    assert house.drain_with(house.worker()) == [job.id]


@pytest.mark.parametrize(("policy", "state"), [(WAIT, WAITING), (RUN, READY)], ids=["WAIT", "RUN"])
def test_a_retried_job_meets_its_edges_again(house: House, policy: EdgePolicy, state: JobState) -> None:
    first = house.submit(b"other")
    job = house.submit(after=(first,), edges=edges(policy))
    end_badly(house, first)
    if policy is WAIT:
        house.engine.cancel(job)
    else:
        worker = house.worker()
        house.engine.take(worker)
        house.engine.fail(worker, job.id)
    house.engine.retry(job)
    assert state_of(job) is state
    check_engine(house.engine)


def test_a_retried_job_that_waits_for_more_keeps_its_edges(house: House) -> None:
    first, second = house.submit(b"other"), house.submit(b"other")
    job = house.submit(after=(first,), edges=edges(FAIL))
    house.engine.cancel(job)
    house.engine.retry(job, (second.id,))
    assert job.edges == edges(FAIL, WAIT)
    check_engine(house.engine)


def test_one_that_went_on_does_not_wait_again_when_the_other_is_retried(house: House) -> None:
    first, second = house.submit(b"other"), house.submit(b"other")
    job = house.submit(after=(first, second), edges=edges(RUN, RUN))
    end_badly(house, first)
    house.engine.retry(first)
    end_badly(house, second)
    assert state_of(job) is READY


# --- after a restart ---


def test_edges_survive_a_restart(house: House) -> None:
    first = house.submit(b"other")
    jobs = [house.submit(after=(first,), edges=edges(policy)) for policy in EdgePolicy]
    again, copies = restarted(house, first, *jobs)
    again.engine.cancel(copies[first.id])
    assert [state_of(copies[job.id]) for job in jobs] == [WAITING, CANCELLED, FAILED, READY]


def test_a_crash_between_the_end_and_what_follows_leads_to_the_same_end(house: House) -> None:
    worker, first = house.running(b"other")
    jobs = [house.submit(after=(first,), edges=edges(policy)) for policy in EdgePolicy]
    chained = house.submit(after=(jobs[FAIL],), edges=edges(SKIP))
    kept = [Row(job).to_job(job.function) for job in (*jobs, chained)]
    house.engine.fail(worker, first.id)
    again, copies = restarted(house, first, *kept)
    assert [state_of(copies[job.id]) for job in jobs] == [WAITING, CANCELLED, FAILED, READY]
    assert state_of(copies[chained.id]) is CANCELLED
    assert copies[jobs[FAIL].id].error == b"job %d, which it waited for, failed" % first.id
    again.pass_seconds(1)
    check_engine(again.engine)


def test_a_job_that_was_to_end_in_the_next_turn_ends_after_a_crash(house: House) -> None:
    first = house.ended(FAILED)
    job = house.submit(b"other", after=(first,), edges=edges(FAIL))
    _, copies = restarted(house, first, job)
    assert state_of(copies[job.id]) is FAILED


def test_a_failure_that_was_forgotten_is_taken_for_done(house: House) -> None:
    house.engine.unsuccessful_jobs.most_jobs = 2
    old = house.ended(FAILED)
    for _ in range(2):
        house.ended(FAILED)
    job = house.submit(b"other", after=(old,), edges=edges(FAIL))
    assert state_of(job) is READY


def test_a_job_that_is_done_disappoints_nobody(house: House) -> None:
    first = house.submit(b"other")
    house.submit(after=(first,), edges=edges(FAIL))
    assert house.engine.dependencies.has_failure_policy == {first.id}
    house.drain_with(house.worker(b"other"))
    assert house.engine.dependencies.has_failure_policy == set()
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
    house = House(retention_us=60)
    job = house.submit(retention_us=own)
    if is_awaited:
        house.submit(predecessors=(job.id,), edges=edges(policy))
    worker = house.worker()
    assert house.engine.take(worker) is job
    if policy is RUN:
        house.engine.fail(worker, job.id)
    else:
        house.engine.complete(worker, job.id, b"")
    assert job.retention_us == kept
    check_engine(house.engine)


def test_a_retry_amid_the_telling_does_not_keep_the_next_failure_from_being_told(house: House) -> None:
    """Those that wait for a failed job hear of it over several turns; before all have, it is retried, and waits."""
    house.engine.transitions.failures_per_turn = 1
    blocker = house.submit(b"other")
    first = house.submit(after=(blocker,))
    successors = [house.submit(after=(first,), edges=edges(SKIP)) for _ in range(3)]
    house.engine.cancel(first)
    house.engine.retry(first)
    assert first.state is WAITING
    second = house.submit()
    waiting = house.submit(after=(second,), edges=edges(RUN))
    for _ in range(5):
        house.pass_seconds(1)
    house.engine.cancel(second)
    for _ in range(5):
        house.pass_seconds(1)
    assert waiting.state is READY
    assert {job.state for job in successors} <= {WAITING, CANCELLED}
    check_engine(house.engine)
