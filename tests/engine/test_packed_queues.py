"""Jobs of long queues are packed, and nobody can tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchgear.engine.engine import Engine, EngineSettings, SubmitOptions
from switchgear.errors import Refused
from switchgear.model import (
    BEST_FIRST,
    HIGH,
    LOW,
    NORMAL,
    READY,
    RESIDENT,
    RUNNING,
    SECOND_US,
    Delivery,
    Job,
    UniqueScope,
    Worker,
)
from switchgear.policy import Policy
from switchgear.refusals import REFUSED_FULL
from switchgear.testing import FakeClock, RecordingPeer, check_engine
from switchgear.testing.simulation.store import SimulatedStore

NAMES = (b"mail", b"resize")
KEYS = (b"", b"", b"red", b"green", b"green and blue", b"blue")


class Side:
    """An engine with its store and two workers, with segments of this many jobs or without any."""

    def __init__(self, segment_jobs: int = 0, head_jobs: int = 1, key_mask: int = -1, jobs: int = 0) -> None:
        self.segment_jobs, self.head_jobs, self.key_mask = segment_jobs, head_jobs, key_mask
        self.jobs = jobs
        self.clock = FakeClock()
        self.store = SimulatedStore()
        self.start()

    def start(self) -> None:
        self.engine = Engine(EngineSettings(jobs=self.jobs))
        self.engine.reports_changes = True
        if self.segment_jobs:
            self.engine.packed_queues.segment_jobs = self.segment_jobs
            self.engine.packed_queues.head_jobs = self.head_jobs
            self.engine.packed_queues.pack_from = self.head_jobs + 1
            self.engine.packed_queues.key_mask = self.key_mask
        self.engine.advance(self.clock.now_us())
        self.peer = RecordingPeer()
        self.store.load(self.engine, plain_apart=bool(self.segment_jobs))
        self.workers = [self.engine.add_worker(self.peer, "test") for _ in range(2)]
        for worker in self.workers:
            for name in NAMES:
                self.engine.can_do(worker, self.engine.function_named(name))

    def submit(self, number: int = 0, unique: bytes = b"", priority: int = NORMAL, **options: object) -> Job:
        chosen = SubmitOptions(**options) if options else None  # type: ignore[arg-type]
        return self.engine.submit(NAMES[number % 2], unique, b"payload", priority, Delivery.HANDLE, None, chosen)

    def commit(self) -> int:
        """Keep all, and pack what can be; returns how many bytes are freed."""
        self.store.stage(self.engine)
        self.store.begin_commit()
        self.store.end_commit(self.engine)
        return self.engine.pack(self.engine.functions.values()) if self.segment_jobs else 0

    def fill(self, count: int, unique: bytes = b"", priority: int = NORMAL) -> list[int]:
        """Submit so many jobs, each with a key of its own if there is one to begin with."""
        keys = (unique and b"%b%d" % (unique, number) for number in range(count))
        ids = [self.submit(0, key, priority).id for key in keys]
        self.commit()
        check_engine(self.engine)
        return ids

    def crash(self) -> None:
        self.store.crash(in_flight_is_kept=False)
        self.start()

    def take(self, number: int = 0) -> int:
        self.load_payloads()
        job = self.engine.take(self.workers[number % 2])
        return job.id if job is not None else 0

    def load_payloads(self) -> None:
        """Read the payloads of those that may come next."""
        for function in self.engine.functions.values():
            for ready_queue in function.ready_queues():
                for queue in ready_queue.queues:
                    for job in list(queue)[:1]:
                        if job.payload is None:
                            self.engine.payload_arrivals.arrived(job, self.store.payload_of(job.id) or b"")

    def drain(self) -> list[int]:
        """Hand out and complete everything."""
        taken = []
        while job_id := self.take():
            taken.append(job_id)
            self.engine.complete(self.workers[0], job_id, b"")
        return taken

    def shown(self) -> object:
        """What can be seen from outside."""
        engine = self.engine
        jobs = {job.id: (job.state, job.unique, job.priority, job.attempts) for job in engine.unfinished_jobs()}
        holders = {
            (name, key): job.id
            for name in NAMES
            for key in {*KEYS, *(unique for _, unique, _, _ in jobs.values())} - {b""}
            for job in [engine.look_at_holder(engine.function_named(name), key)]
            if job is not None
        }
        functions = [engine.function_named(name) for name in NAMES]
        queues = [[job.id for job in engine.ready_jobs(function)] for function in functions]
        counts = [(each.total, each.ready, [each.ready_of(priority) for priority in BEST_FIRST]) for each in functions]
        listed = sorted(job.id for job in engine.newest_first())
        return sorted(jobs.items()), sorted(holders.items()), queues, counts, listed, engine.job_count()


# --- both do the same ---


def submit_plain(side: Side, number: int, other: int) -> object:
    return side.submit(number, priority=(NORMAL, NORMAL, NORMAL, HIGH)[other % 4]).id


def submit_many(side: Side, number: int, other: int) -> object:
    ids = [side.submit(number).id for _ in range(other + 3)]
    side.commit()
    return ids


def submit_with_key(side: Side, number: int, other: int) -> object:
    return side.submit(number, KEYS[other % len(KEYS)]).id


def submit_special(side: Side, number: int, other: int) -> object:
    predecessors = (other,) if number % 3 == 0 and side.engine.has_job(other) else ()
    scope = UniqueScope.QUEUED if number % 2 else UniqueScope.UNFINISHED
    return side.submit(
        number, KEYS[other % len(KEYS)], predecessors=predecessors, unique_scope=scope, key=KEYS[number % len(KEYS)]
    ).id


def submit_and_wait(side: Side, number: int, other: int) -> object:
    watcher = side.peer
    return side.engine.submit(
        NAMES[number % 2], KEYS[other % len(KEYS)], b"", NORMAL, Delivery.WAIT, watcher, None
    ).id  # fmt: skip


def take(side: Side, number: int, other: int) -> object:
    return [side.take(number) for _ in range(other % 3 + 1)]


def complete(side: Side, number: int, other: int) -> object:
    worker = side.workers[number % 2]
    held = list(worker.running)
    return [side.engine.complete(worker, job_id, b"") is not None for job_id in held[: other % 3 + 1]]


def hand_back(side: Side, number: int, other: int) -> object:
    worker = side.workers[number % 2]
    return [side.engine.release(worker, job_id) is not None for job_id in list(worker.running)[:1]]


def lose_worker(side: Side, number: int, other: int) -> object:
    side.engine.remove_worker(side.workers[number % 2])
    worker = side.workers[number % 2] = side.engine.add_worker(side.peer, "test")
    for name in NAMES:
        side.engine.can_do(worker, side.engine.function_named(name))
    return None


def cancel(side: Side, number: int, other: int) -> object:
    job = side.engine.job(number * 7 + other)
    return [each.id for each in side.engine.cancel(job)] if job is not None else None


def cancel_a_copy(side: Side, number: int, other: int) -> object:
    ready = list(side.engine.ready_jobs(side.engine.function_named(NAMES[number % 2])))
    return [each.id for each in side.engine.cancel(ready[other % len(ready)])] if ready else None


def change(side: Side, number: int, other: int) -> object:
    ready = list(side.engine.ready_jobs(side.engine.function_named(NAMES[number % 2])))
    if not ready:
        return None
    run_at_us = side.clock.now_us() + other * 1000 if number % 3 == 0 else -1
    job = side.engine.change(ready[other % len(ready)], priority=other % 3, run_at_us=run_at_us)
    return job.id, job.state, job.priority, job.run_at_us


def retry(side: Side, number: int, other: int) -> object:
    side.store.stage(side.engine)
    job = side.store.get(number * 7 + other, side.engine)
    if job is None:
        return None
    try:
        side.engine.retry(job)
    except Refused as refused:
        return str(refused)
    return job.id


def wait_for_more(side: Side, number: int, other: int) -> object:
    job = side.engine.job(number * 7 + other)
    if job is None or not side.engine.has_job(other):
        return None
    try:
        side.engine.add_predecessors(job, (other,))
    except Refused as refused:
        return str(refused)
    return job.state


def explain(side: Side, number: int, other: int) -> object:
    job = side.engine.look_at(number * 7 + other)
    return [reason.text for reason in side.engine.explain(job)] if job is not None else None


def pause_or_resume(side: Side, number: int, other: int) -> object:
    function = side.engine.function_named(NAMES[number % 2])
    (side.engine.resume if function.paused else side.engine.pause)(function)
    return None


def set_policy(side: Side, number: int, other: int) -> object:
    policies = (Policy(), Policy(concurrency=2), Policy(fair=True), Policy(key_concurrency=1))
    side.engine.set_policy(side.engine.function_named(NAMES[number % 2]), policies[other % 4])
    return None


def commit(side: Side, number: int, other: int) -> object:
    side.commit()
    side.clock.advance(0.001)
    side.engine.advance(side.clock.now_us())
    return None


def crash(side: Side, number: int, other: int) -> object:
    if other % 3 == 0:
        side.crash()
    return None


COMMANDS: tuple[Callable[[Side, int, int], object], ...] = (
    *(submit_plain,) * 6,
    *(submit_many,) * 4,
    *(submit_with_key,) * 3,
    submit_special,
    submit_and_wait,
    *(take,) * 3,
    *(complete,) * 2,
    hand_back,
    lose_worker,
    cancel,
    cancel_a_copy,
    change,
    retry,
    wait_for_more,
    explain,
    pause_or_resume,
    set_policy,
    *(commit,) * 5,
    crash,
)

commands = st.tuples(st.sampled_from(COMMANDS), st.integers(0, 9), st.integers(0, 9))


@given(
    st.lists(commands, min_size=20, max_size=100),
    st.integers(1, 8),
    st.integers(1, 4),
    st.sampled_from((-1, 0)),
)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_an_engine_that_packs_behaves_like_one_without(
    script: list[tuple[Callable[[Side, int, int], object], int, int]], segment_jobs: int, head_jobs: int, key_mask: int
) -> None:
    packed, plain = Side(segment_jobs, head_jobs, key_mask), Side()
    for command, number, other in script:
        assert command(packed, number, other) == command(plain, number, other), command.__name__
        check_engine(packed.engine)
        assert packed.shown() == plain.shown(), command.__name__
    for side in (packed, plain):
        for function in side.engine.functions.values():
            side.engine.resume(function)
            side.engine.set_policy(function, Policy())
    assert packed.drain() == plain.drain()


# --- packing ---


def test_the_middle_of_a_long_queue_is_no_objects() -> None:
    side = Side(segment_jobs=4, head_jobs=2)
    ids = side.fill(100, b"key")
    function = side.engine.functions[NAMES[0]]
    assert len(side.engine.jobs) == 2 + 4 + 2  # the head, and at the end less than two segments
    assert side.engine.packed_queues.job_count == 92
    assert len(function.uniques) == 8
    assert (side.engine.job_count(), function.total, function.ready) == (100, 100, 100)
    assert side.drain() == ids
    check_engine(side.engine)
    assert side.engine.job_count() == side.engine.packed_queues.job_count == 0
    assert (function.uniques, function.packed_keys, function.is_segmented) == ({}, [], False)


def test_payloads_that_were_counted_are_told() -> None:
    side = Side(segment_jobs=4, head_jobs=2)
    jobs = [side.submit() for _ in range(14)]
    for number, job in enumerate(jobs):
        job.kept = RESIDENT if number % 2 else 0
    side.store.stage(side.engine)
    side.store.begin_commit()
    side.store.end_commit(side.engine)
    for number, job in enumerate(jobs):
        job.kept = RESIDENT if number % 2 else 1
    assert side.engine.pack(side.engine.functions.values()) == 4 * len(b"payload")
    assert side.engine.packed_queues.job_count == 8


def test_a_short_queue_and_one_that_is_not_kept_stay_at_hand() -> None:
    side = Side(segment_jobs=4, head_jobs=2)
    side.engine.packed_queues.pack_from = 20
    side.fill(19)
    assert side.engine.packed_queues.job_count == 0
    for _ in range(30):
        side.submit()
    side.engine.pack(side.engine.functions.values())
    assert side.engine.packed_queues.job_count == 16  # of those that the store has
    side.commit()
    assert side.engine.packed_queues.job_count == 40


@pytest.mark.parametrize(
    "spoil",
    [
        lambda side, job: side.engine.subscribe(job, side.peer),
        lambda side, job: side.engine.add_predecessors(job, ()),
        lambda side, job: setattr(job, "revision", 2),
        lambda side, job: setattr(job, "attempts", 1),
        lambda side, job: side.engine.changed.update({job: None}),
    ],
)
def test_a_job_with_more_to_it_stays_an_object_at_its_place(spoil: Callable[[Side, Job], None]) -> None:
    side = Side(segment_jobs=4, head_jobs=1)
    jobs = [side.submit() for _ in range(20)]
    side.store.stage(side.engine)
    side.store.begin_commit()
    side.store.end_commit(side.engine)
    spoil(side, jobs[6])
    side.engine.pack(side.engine.functions.values())
    assert side.engine.packed_queues.job_count == 11
    assert side.engine.jobs[jobs[6].id] is jobs[6]
    assert side.drain() == [job.id for job in jobs]


def test_a_new_job_goes_behind_the_segments_and_one_that_goes_ahead_before_them() -> None:
    side = Side(segment_jobs=3, head_jobs=1)
    side.engine.function_named(NAMES[0]).released_first = True
    ids = side.fill(12)
    blocker = side.submit(1).id
    waiting = side.submit(predecessors=(blocker,)).id
    late = side.submit().id
    side.commit()
    worker = side.workers[0]
    job = side.engine.take_of(worker, side.engine.function_named(NAMES[1]), NORMAL)
    assert job is not None
    side.engine.complete(worker, blocker, b"")
    check_engine(side.engine)
    assert side.drain() == [waiting, *ids, late]


def test_each_priority_has_segments_of_its_own() -> None:
    side = Side(segment_jobs=2, head_jobs=1)
    low, high = side.fill(9, priority=LOW), side.fill(9, priority=HIGH)
    assert side.engine.packed_queues.job_count == 12
    assert side.drain() == high + low


# --- finding ---


def test_a_job_is_found_by_its_id_and_is_one_object_from_then_on() -> None:
    side = Side(segment_jobs=4)
    ids = side.fill(40, b"key")
    number = ids[10]
    assert (number in side.engine.jobs, side.engine.has_job(number)) == (False, True)
    assert side.engine.state_of(number) is READY
    copy = side.engine.look_at(number)
    assert copy is not None
    assert (copy.unique, number in side.engine.jobs) == (b"key10", False)
    job = side.engine.job(number)
    assert job is not None
    assert job is not copy
    assert side.engine.job(number) is side.engine.look_at(number) is job
    assert side.engine.packed_queues.holder(job.function, b"key10") is job
    check_engine(side.engine)
    assert side.engine.job(ids[-1] + 1) is None
    assert side.drain() == ids


def test_a_job_that_was_packed_after_a_worker_was_woken_for_it_is_handed_out_once() -> None:
    side = Side(segment_jobs=2, head_jobs=8)
    chosen: list[Job] = []
    worker = side.workers[0]

    def policy(job: Job, workers: Sequence[Worker]) -> Sequence[Worker]:
        """Have the worker woken for the third job; later, each may have any."""
        is_wanted = job.unique == b"2" or bool(chosen)
        if is_wanted:
            chosen.append(job)
        return workers if is_wanted else ()

    side.engine.wake_policy = policy
    assert side.engine.sleep(worker)
    for number in range(8):
        side.submit(unique=b"%d" % number)
    assert [job.unique for job in chosen] == [b"2"]
    side.engine.packed_queues.head_jobs = 1
    side.engine.packed_queues.pack_from = 2
    side.submit()
    side.commit()
    assert chosen[0].id not in side.engine.jobs  # it is packed
    taken = side.engine.take(worker)
    assert taken is not None
    assert side.engine.job(taken.id) is taken
    check_engine(side.engine)


def test_a_second_submission_of_a_key_meets_the_job_that_is_packed() -> None:
    side = Side(segment_jobs=4)
    ids = side.fill(40, b"key")
    assert side.submit(0, b"key20").id == ids[20]
    assert side.submit(1, b"key20").id not in ids  # another function's
    assert side.submit(0, b"key2").id == ids[2]
    assert side.submit(0, b"key").id not in ids  # a part of others
    check_engine(side.engine)
    watched = side.engine.submit(NAMES[0], b"key21", b"", NORMAL, Delivery.WAIT, side.peer)
    assert (watched.id, watched.subscribers) == (ids[21], [side.peer])


def test_keys_of_one_hash_are_told_apart() -> None:
    side = Side(segment_jobs=4, key_mask=0)
    ids = side.fill(40, b"key")
    assert sum(map(len, side.engine.functions[NAMES[0]].packed_keys)) == 1
    assert [side.submit(0, b"key%d" % number).id for number in range(40)] == ids
    assert side.submit(0, b"another").id not in ids
    assert side.drain()[:40] == ids


def test_the_limit_counts_what_is_packed() -> None:
    side = Side(segment_jobs=4, jobs=40)
    side.fill(40)
    with pytest.raises(Refused) as refused:
        side.submit()
    assert refused.value.reason == REFUSED_FULL


def test_lists_begin_with_the_newest_or_below_an_id() -> None:
    side = Side(segment_jobs=3)
    for number in range(60):
        side.submit(number)
    side.commit()
    for _ in range(7):
        side.take()
    assert side.engine.packed_queues.job_count > 20
    assert [job.id for job in side.engine.newest_first()] == list(range(60, 0, -1))
    assert [job.id for job in side.engine.newest_first(31)] == list(range(30, 0, -1))


def test_a_job_that_waits_again_does_not_take_its_key_from_one_that_is_packed() -> None:
    side = Side(segment_jobs=2)
    first = side.submit(0, b"red", unique_scope=UniqueScope.QUEUED)
    assert side.take() == first.id
    side.fill(4)
    second = side.submit(0, b"red").id
    side.fill(8)
    assert second not in side.engine.jobs
    side.engine.release(side.workers[0], first.id)
    check_engine(side.engine)
    assert first.unique == b""
    assert side.submit(0, b"red").id == second


# --- leaving ---


def test_whoever_cancels_a_copy_means_the_job() -> None:
    side = Side(segment_jobs=4)
    ids = side.fill(30)
    copy = next(job for job in side.engine.ready_jobs(side.engine.functions[NAMES[0]]) if job.id == ids[10])
    assert copy.id not in side.engine.jobs
    assert [job.id for job in side.engine.cancel(copy)] == [copy.id]
    check_engine(side.engine)
    assert not side.engine.has_job(copy.id)
    assert side.engine.cancel(copy) == []
    assert side.drain() == [*ids[:10], *ids[11:]]


def test_packed_jobs_that_are_cancelled_leave_their_segments() -> None:
    count = 1024
    side = Side(segment_jobs=16)
    ids = side.fill(count, b"key")
    for number in ids[1::2]:
        job = side.engine.job(number)
        assert job is not None
        assert side.engine.cancel(job) == [job]
    function = side.engine.functions[NAMES[0]]
    assert function.ready == function.ready_of(NORMAL) == count // 2
    check_engine(side.engine)
    for number in ids[::4]:
        job = side.engine.job(number)
        assert job is not None
        side.engine.cancel(job)
    check_engine(side.engine)
    assert function.ready_of(NORMAL) == count // 4
    assert side.drain() == ids[2::4]


def test_a_job_retried_after_it_was_cancelled_while_packed_goes_to_the_end() -> None:
    side = Side(segment_jobs=4)
    ids = side.fill(30)
    job = side.engine.job(ids[9])
    assert job is not None
    side.engine.cancel(job)
    side.engine.retry(job)
    check_engine(side.engine)
    assert side.drain() == [*ids[:9], *ids[10:], ids[9]]


def test_another_policy_finds_all_jobs() -> None:
    side = Side(segment_jobs=4)
    ids = side.fill(30, b"key")
    function = side.engine.functions[NAMES[0]]
    side.engine.set_policy(function, Policy(fair=True))
    check_engine(side.engine)
    assert side.engine.packed_queues.job_count == 0
    side.commit()
    assert side.engine.packed_queues.job_count == 0  # keys are told apart
    side.engine.set_policy(function, Policy(concurrency=1))
    side.commit()
    check_engine(side.engine)
    assert side.engine.packed_queues.job_count > 0
    assert side.drain() == ids


def test_a_function_in_which_all_was_cancelled_can_be_forgotten() -> None:
    side = Side(segment_jobs=4)
    ids = side.fill(30)
    function = side.engine.functions[NAMES[0]]
    jobs = [job for number in ids if (job := side.engine.job(number)) is not None]
    for job in jobs:
        side.engine.cancel(job)
    for worker in side.workers:
        side.engine.forget_functions(worker)
    assert side.engine.drop_function(function)
    check_engine(side.engine)


# --- restarts ---


def test_a_restart_packs_plain_jobs_at_once() -> None:
    side = Side(segment_jobs=4, head_jobs=2)
    ids = side.fill(50, b"key")
    side.crash()
    check_engine(side.engine)
    assert len(side.engine.jobs) <= 2 + 4 + 4
    assert side.submit(0, b"key30").id == ids[30]
    assert side.drain() == ids


def test_a_restart_finds_jobs_of_all_kinds_at_their_places() -> None:
    side = Side(segment_jobs=3)
    before = side.fill(10)
    special = side.submit(key=b"red").id
    after = side.fill(10)
    taken = side.take()
    job = side.engine.job(before[5])
    assert job is not None
    side.engine.cancel(job)
    side.commit()
    side.engine.retry(job)
    last = side.fill(10)
    side.crash()
    check_engine(side.engine)
    left = [number for number in before if number != job.id]
    assert taken == left[0]
    assert side.drain() == [*left, special, *after, job.id, *last]


def test_after_a_restart_a_job_waits_for_one_that_is_packed() -> None:
    side = Side(segment_jobs=3)
    waiting = side.submit(1)
    ids = side.fill(20)
    side.engine.add_predecessors(waiting, (ids[10],))
    side.commit()
    side.crash()
    check_engine(side.engine)
    assert [job.id for job in side.engine.dependencies.waiting_for(ids[10])] == [waiting.id]
    drained = side.drain()
    assert drained.index(waiting.id) > drained.index(ids[10])
    assert sorted(drained) == [waiting.id, *ids]


def test_after_a_restart_a_key_is_that_of_the_job_that_waits_with_it() -> None:
    """One that gave it up when it was started comes back without."""
    side = Side(segment_jobs=2)
    first = side.submit(0, b"red", unique_scope=UniqueScope.QUEUED)
    assert side.take() == first.id
    ids = side.fill(4)
    second = side.submit(0, b"red")
    more = side.fill(8)
    assert first.state is RUNNING
    side.crash()
    check_engine(side.engine)
    assert side.submit(0, b"red").id == second.id
    assert side.drain() == [first.id, *ids, second.id, *more]


def test_time_means_nothing_to_a_job_that_is_packed() -> None:
    side = Side(segment_jobs=4)
    ids = side.fill(30)
    side.engine.clock_moved(3600 * SECOND_US)
    check_engine(side.engine)
    job = side.engine.look_at(ids[10])
    assert job is not None
    assert job.created_us == side.clock.now_us()


def test_keys_are_told_apart_while_jobs_are_packed() -> None:
    side = Side(segment_jobs=4, head_jobs=4)
    ids = side.fill(40)
    side.commit()
    engine = side.engine
    engine.sliced_work.units_per_turn = 3
    engine.advance(side.clock.now_us())
    packed = engine.packed_queues.job_count
    assert packed > 20
    engine.set_policy(engine.functions[b"mail"], Policy(fair=True))
    check_engine(engine)
    assert engine.packed_queues.job_count > packed - 10  # the others stay packed until it is their turn
    for job_id in (ids[-1], ids[20]):
        job = engine.job(job_id)
        assert job is not None
        engine.cancel(job)
        ids.remove(job_id)
        check_engine(engine)
    ids.append(side.submit().id)
    while len(engine.sliced_work):
        engine.advance(side.clock.now_us())
        side.commit()
        check_engine(engine)
    assert engine.packed_queues.job_count == 0
    assert [job.id for job in engine.ready_jobs(engine.functions[b"mail"])] == ids
