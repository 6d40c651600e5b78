"""`PackedQueues`, `Limiters`, `KeyDistribution`, `UnsuccessfulJobs`, `CrossFunctionEdges`, `StuckFunctions` and
`PayloadArrivals`."""

from __future__ import annotations

from random import Random

from switchgear.engine.cross_function_edges import CrossFunctionEdges
from switchgear.engine.deadlines import DeadlineKind
from switchgear.engine.unsuccessful_jobs import LONGEST_NAME_BYTES, UnsuccessfulJobs
from switchgear.memory import MemoryAccount
from switchgear.model import CANCELLED, FAILED, KEPT, NORMAL, READY, Cause, Job, JobState
from switchgear.model.segments import FIRST_REVISION
from switchgear.policy import Policy
from tests.engine.harness import state_of
from tests.engine.parts.parts import Parts, heard

# --- PackedQueues ---


def packed(count: int = 20) -> tuple[Parts, list[Job]]:
    """A queue of jobs that the store has, all of which are packed but for some at its ends."""
    parts = Parts()
    parts.packed.segment_jobs, parts.packed.head_jobs, parts.packed.pack_from = 4, 4, 5
    jobs = [parts.submit(unique=b"key %d" % number) for number in range(count)]
    for job in jobs:
        job.kept = KEPT
        job.revision = FIRST_REVISION
    parts.state.take_changes()
    parts.queues.pack([parts.function()])
    return parts, jobs


def test_the_middle_of_a_long_queue_is_packed_and_found_by_id_and_by_key() -> None:
    parts, jobs = packed()
    middle = jobs[9]
    assert parts.packed.job_count > 0
    assert parts.state.jobs.get(middle.id) is None
    assert (parts.packed.has_job(middle.id), parts.packed.state_of(middle.id)) == (True, READY)
    assert parts.packed.has_holder(parts.function(), b"key 9")
    copy = parts.packed.look_at(middle.id)
    assert copy is not None
    assert (copy.id, copy.unique, parts.state.jobs.get(middle.id)) == (middle.id, b"key 9", None)
    assert parts.packed.unfinished_count() == len(jobs)


def test_a_packed_job_that_is_asked_for_is_an_object_again() -> None:
    parts, jobs = packed()
    job = parts.packed.job(jobs[9].id)
    assert job is parts.state.jobs.get(jobs[9].id) is parts.packed.holder(parts.function(), b"key 9")


def test_packed_jobs_are_listed_and_handed_out_in_their_order() -> None:
    parts, jobs = packed()
    ids = [job.id for job in jobs]
    assert [job.id for job in parts.packed.unfinished_jobs()] == ids
    assert [job.id for job in parts.packed.newest_first()] == ids[::-1]
    assert [job.id for job in parts.packed.newest_first(before_id=10)] == ids[8::-1]
    for job_id in ids:
        popped = parts.queues.pop(parts.function(), parts.registered())
        if popped is None:  # its payload is in the store
            job = parts.packed.job(job_id)
            assert job is not None
            parts.payload_arrivals.arrived(job, b"x")
            parts.payload_arrivals.want_again(parts.function())
            popped = parts.queues.pop(parts.function(), parts.registered())
        assert popped is not None
        assert popped.id == job_id


# --- Limiters ---


def test_a_function_without_limits_is_open_while_it_has_jobs() -> None:
    parts = Parts()
    function = parts.function()
    assert not parts.limiters.is_open(function)
    parts.submit()
    assert (parts.limiters.is_open(function), parts.limiters.room(function)) == (True, 1)


def test_concurrency_closes_a_function_until_a_job_ends() -> None:
    parts = Parts()
    function, worker = parts.function(), parts.registered()
    parts.key_distribution.use_policy(function, Policy(concurrency=1))
    first, second = parts.submit(), parts.submit()
    assert parts.dispatcher.take(worker) is first
    assert (parts.limiters.is_open(function), parts.limiters.room(function)) == (False, 0)
    closed = parts.limiters.why_closed(second)
    assert closed is not None
    parts.reports.complete(worker, first.id, b"")
    assert parts.limiters.is_open(function)


def test_a_rate_closes_a_function_until_a_token_comes() -> None:
    parts = Parts()
    function, worker = parts.function(), parts.registered()
    parts.key_distribution.use_policy(function, Policy(rate=(1, 1_000)))
    parts.submit()
    parts.submit()
    parts.dispatcher.take(worker)
    assert not parts.limiters.is_open(function)
    assert (DeadlineKind.LIMITER, function.limiter) in parts.due(1_000)
    parts.state.now_us += 1_000
    assert parts.limiters.is_open(function)


def test_keys_take_turns() -> None:
    parts = Parts()
    function, worker = parts.function(), parts.registered()
    parts.key_distribution.use_policy(function, Policy(fair=True))
    for key in (b"a", b"a", b"a", b"b"):
        parts.submit(key=key)
    taken = [parts.dispatcher.take(worker) for _ in range(4)]
    assert [job.key for job in taken if job is not None] == [b"a", b"b", b"a", b"a"]
    limiter = function.limiter
    assert limiter is not None
    assert not any(limiter.order)
    assert NORMAL in range(len(limiter.order))


def test_ready_jobs_move_to_the_queues_of_their_keys_in_steps_and_back() -> None:
    parts = Parts()
    function, worker = parts.function(), parts.registered()
    jobs = [parts.submit(key=key) for key in (b"a", b"a", b"b")]
    to_keys = parts.key_distribution.use_policy(function, Policy(fair=True))
    limiter = function.limiter
    assert limiter is not None
    assert limiter.keyed_jobs == 0
    for _ in to_keys:
        pass
    assert limiter.keyed_jobs == 3
    for _ in parts.key_distribution.use_policy(function, Policy()):
        pass
    assert function.limiter is None
    assert [parts.dispatcher.take(worker) for _ in range(3)] == jobs


# --- UnsuccessfulJobs ---


def test_an_unsuccessful_job_is_known_by_its_id_and_its_name() -> None:
    jobs = UnsuccessfulJobs(MemoryAccount())
    long_name = b"x" * (LONGEST_NAME_BYTES + 1)
    jobs.add(1, FAILED, b"a", {})
    jobs.add(2, CANCELLED, b"a", {})
    jobs.add(3, FAILED, long_name, {})
    assert (jobs.named(b"a"), jobs.named(long_name), jobs.named(b"b")) == (2, 3, 0)
    jobs.remove(2)
    assert (jobs.named(b"a"), len(jobs)) == (0, 2)


def test_the_oldest_are_forgotten_unless_a_job_waits_for_them() -> None:
    jobs = UnsuccessfulJobs(MemoryAccount())
    jobs.most_jobs = 2
    waited_for = {1: None}
    for job_id in range(1, 5):
        jobs.add(job_id, FAILED, b"%d" % job_id, waited_for)
    assert list(jobs.states) == [1, 4]
    assert not jobs.is_complete
    jobs.recall(2, FAILED, b"2")
    assert jobs.named(b"2") == 2


def test_a_restart_says_whether_the_store_has_more() -> None:
    jobs = UnsuccessfulJobs(MemoryAccount())
    jobs.restore({1: JobState.FAILED}, {1: b"a"}, is_complete=False)
    assert (jobs.named(b"a"), jobs.is_complete) == (1, False)
    jobs.clear()
    assert (len(jobs), jobs.has_names) == (0, False)


# --- CrossFunctionEdges ---


def test_functions_wait_for_each_other_as_long_as_their_jobs_do() -> None:
    parts = Parts()
    load, resize, mail = (parts.job(name) for name in (b"load", b"resize", b"mail"))
    edges = CrossFunctionEdges()
    edges.add(load, resize.function)
    edges.add(load, resize.function)
    edges.add(resize, mail.function)
    assert edges.waits_for(mail.function) == {mail.function, resize.function, load.function}
    edges.remove(load.id, resize.function)
    assert edges.waits_for(resize.function) == {resize.function, load.function}
    edges.remove(load.id, resize.function)
    assert edges.waits_for(resize.function) == {resize.function}
    edges.ended(resize.id)
    assert (edges.waits_for(mail.function), len(edges)) == ({mail.function}, 0)
    edges.retried(resize, [mail, resize])
    assert edges.waits_for(mail.function) == {mail.function, resize.function}
    edges.clear()
    assert len(edges) == 0


def test_jobs_of_several_functions_wait_for_one_job() -> None:
    """As a plain table of counts would say, whatever comes and goes in which order."""
    parts = Parts()
    load, *others = (parts.job(name) for name in (b"load", b"resize", b"mail", b"log"))
    for seed in range(50):
        random = Random(seed)
        edges, counts = CrossFunctionEdges(), dict.fromkeys([job.function for job in others], 0)
        for _ in range(30):
            function = random.choice(others).function
            if random.random() < 0.5:
                edges.add(load, function)
                counts[function] += 1
            else:
                edges.remove(load.id, function)
                counts[function] = max(0, counts[function] - 1)
            waiting = {other for other in counts if load.function in edges.waits_for(other)}
            assert waiting == {other for other, count in counts.items() if count}
            assert len(edges) == bool(waiting)
        edges.ended(load.id)
        assert all(edges.waits_for(other) == {other} for other in counts)


# --- StuckFunctions ---


def test_a_function_is_stuck_when_all_its_jobs_wait_for_unsuccessful_ones() -> None:
    parts = Parts()
    function = parts.function()
    assert not parts.stuck.is_stuck(function), "it has no jobs"
    first = parts.submit(b"load")
    parts.submit(predecessors=(first.id,))
    assert not parts.stuck.is_stuck(function), "the other function has a job that can run"
    parts.transitions.end(first, Cause.CANCELLED)
    assert parts.stuck.is_stuck(function)
    parts.submit()
    assert not parts.stuck.is_stuck(function)


# --- PayloadArrivals ---


def without_payload(parts: Parts) -> Job:
    """A ready job whose payload only the store has."""
    job = parts.submit()
    parts.state.memory.job_bytes -= len(job.payload or b"")
    job.payload = None
    return job


def test_a_job_is_handed_out_when_its_payload_has_come() -> None:
    parts = Parts()
    job, worker = without_payload(parts), parts.registered()
    assert parts.dispatcher.take(worker) is None
    assert parts.state.take_wanted_payloads() == [job]
    parts.wakeups.sleep(worker)
    held = parts.state.memory.job_bytes
    parts.payload_arrivals.arrived(job, b"payload")
    parts.payload_arrivals.offer(job.function, 1)
    assert parts.state.memory.job_bytes == held + len(b"payload")
    assert (heard(worker), parts.dispatcher.take(worker)) == ([("wake", worker.id)], job)


def test_a_job_whose_payload_is_lost_fails() -> None:
    parts = Parts()
    job = without_payload(parts)
    parts.payload_arrivals.lost(job, b"its payload is lost")
    assert (state_of(job), job.result_code, job.error) == (FAILED, 255, b"its payload is lost")
    parts.payload_arrivals.arrived(job, b"too late")
    assert job.payload is None


def test_a_payload_that_could_not_be_read_is_wanted_again() -> None:
    parts = Parts()
    job, worker = without_payload(parts), parts.registered()
    for _ in range(2):
        assert parts.dispatcher.take(worker) is None
        assert parts.state.take_wanted_payloads() == [job]
        assert job.function.unloaded is job
        parts.payload_arrivals.want_again(job.function)
        assert job.function.unloaded is None
