"""The engine held against a small, slow, obviously right model: whatever is asked of both, both answer the same.

SWITCHGEAR_MODEL_EXAMPLES sets how many conversations are tried; beyond the default they differ from run to run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import Refused
from switchgear.model import (
    BEST_FIRST,
    SECOND_US,
    WAITING,
    Delivery,
    EdgePolicy,
    Job,
    UniquePolicy,
    UniqueScope,
    Worker,
)
from switchgear.model.job import place_of
from switchgear.refusals import REFUSED_DRAINING
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.harness import Harness, causes
from tests.engine.reference import Model
from tests.engine.reference_words import ModelWorker, News, RefusedByModel

EXAMPLES = int(os.environ.get("SWITCHGEAR_MODEL_EXAMPLES", "0"))
TAG_SETS = (frozenset[bytes](), frozenset({b"gpu"}), frozenset({b"gpu", b"large"}))
NAMES = (b"mail", b"resize", b"index")

# Times of different kinds differ in the fraction of a second, so that no two of them fall on one moment.
EXPIRY_US, LIMIT_US, LEASE_US, NEGLECT_US, PATIENCE_US, HOLD_US = range(100_000, 700_000, 100_000)

numbers = st.integers(0, 30)
functions = st.sampled_from(NAMES)
delays = st.sampled_from((1, 2, 5))
# The model knows no error handlers; the simulation has them, and tests/engine/test_edges.py.
policies = st.sampled_from((EdgePolicy.WAIT, EdgePolicy.WAIT, EdgePolicy.SKIP, EdgePolicy.FAIL, EdgePolicy.RUN))


class EngineAndModel(RuleBasedStateMachine):
    """Does everything twice."""

    @initialize(
        order=st.sampled_from(("fair", "registration", "round-robin")),
        attempts=st.integers(0, 3),
        wakeups=st.integers(0, 2),
        keeps=st.booleans(),
        released_first=st.sets(functions),
    )
    def begin(self, order: str, attempts: int, wakeups: int, keeps: bool, released_first: set[bytes]) -> None:
        unanswered_wakeup_us = SECOND_US + NEGLECT_US
        self.harness = Harness(
            keeps=keeps,
            function_order=order,
            attempts=attempts,
            wakeups=wakeups,
            unanswered_wakeup_us=unanswered_wakeup_us,
        )
        self.engine = self.harness.engine
        self.model = Model(self.harness.now_us, order, attempts, wakeups, unanswered_wakeup_us)
        self.jobs: list[Job] = []
        self.workers: list[Worker] = []
        self.clients = [(RecordingPeer(), list[News]()) for _ in range(3)]
        for name in NAMES:
            self.engine.function_named(name).released_first = name in released_first
            self.model.function(name).released_first = name in released_first

    # --- asking both ---

    def ask(self, engine_side: Callable[[], Any], model_side: Callable[[], Any]) -> Any:
        """What the engine answers; the model must answer the same, or refuse for the same reason."""
        expected: Any
        answer: Any
        try:
            expected = model_side()
        except RefusedByModel as refused:
            expected = refused.reason
        try:
            answer = engine_side()
        except Refused as refused:
            answer = refused.reason
        assert plain(answer) == plain(expected)
        return answer

    def some_job(self, number: int) -> Job:
        """Mostly a recent one."""
        return self.jobs[-1 - number % len(self.jobs)]

    def some_worker(self, number: int) -> tuple[Worker, ModelWorker]:
        living = [worker for worker in self.workers if worker.alive]
        worker = living[number % len(living)]
        return worker, self.model.workers[worker.id - 1]

    def has_jobs(self) -> bool:
        return bool(self.jobs)

    def has_workers(self) -> bool:
        return any(worker.alive for worker in self.workers)

    # --- clients ---

    @rule(
        function=functions,
        unique=st.sampled_from((b"", b"", b"", b"red", b"green")),
        priority=st.sampled_from(BEST_FIRST),
        delivery=st.sampled_from(Delivery),
        client=st.integers(0, 2),
        watches=st.booleans(),
    )
    def submit(
        self, function: bytes, unique: bytes, priority: int, delivery: Delivery, client: int, watches: bool
    ) -> None:
        self.do_submit(function, unique, priority, delivery, client if watches or not delivery else None)

    @rule(
        function=functions,
        delivery=st.sampled_from(Delivery),
        client=st.none() | st.integers(0, 2),
        name=st.sampled_from((b"", b"", b"Anna")),
        delay=st.sampled_from((0, 0, 2, 10)),
        expiry=st.sampled_from((0, 0, 1, 4)),
        timeout=st.sampled_from((0, 1, 3)),
        attempts_limit=st.integers(-1, 2),
        crash_limit=st.sampled_from((-1, -1, 0, 1, 2)),
        after=st.lists(st.tuples(numbers, policies), max_size=3),
        requires=st.sampled_from((b"", b"", b"gpu", b"gpu,large")),
    )
    def submit_with_options(
        self,
        function: bytes,
        delivery: Delivery,
        client: int | None,
        name: bytes,
        delay: int,
        expiry: int,
        timeout: int,
        attempts_limit: int,
        crash_limit: int,
        after: list[tuple[int, EdgePolicy]],
        requires: bytes,
    ) -> None:
        newest = self.engine.next_job_id
        options = {
            "run_at_us": self.harness.at(delay) if delay else 0,
            "expires_us": self.harness.at(expiry) + EXPIRY_US + newest if expiry else 0,
            "timeout_us": timeout * SECOND_US + LIMIT_US if timeout else 0,
            "attempts_limit": attempts_limit,
            "crash_limit": crash_limit,
            "predecessors": tuple(max(0, newest - 1 - number // 3) for number, _ in after),
            "edges": bytes(policy for _, policy in after),
            "requires": requires,
        }
        self.do_submit(function, b"", 1, delivery, client, name=name, **options)

    @rule(
        unique=st.sampled_from((b"red", b"green")),
        delivery=st.sampled_from(Delivery),
        client=st.none() | st.integers(0, 2),
        scope=st.sampled_from(UniqueScope),
        policy=st.sampled_from(UniquePolicy),
        hold=st.sampled_from((0, 0, 1, 5)),
        delay=st.sampled_from((0, 0, 2)),
    )
    def submit_with_a_key(
        self,
        unique: bytes,
        delivery: Delivery,
        client: int | None,
        scope: UniqueScope,
        policy: UniquePolicy,
        hold: int,
        delay: int,
    ) -> None:
        options: dict[str, Any] = {
            "run_at_us": self.harness.at(delay) if delay else 0,
            "unique_scope": scope,
            "unique_policy": policy,
            "unique_for_us": hold * SECOND_US + HOLD_US + self.engine.next_job_id if hold else 0,
        }
        self.do_submit(NAMES[0], unique, 1, delivery, client, **options)

    def do_submit(
        self,
        function: bytes,
        unique: bytes,
        priority: int,
        delivery: Delivery,
        client: int | None,
        name: bytes = b"",
        **options: Any,
    ) -> None:
        peer, heard = self.clients[client] if client is not None else (None, None)
        given = SubmitOptions(name=name, **options) if options or name else None
        answer = self.ask(
            lambda: self.engine.submit(function, unique, b"", priority, delivery, peer, given),
            lambda: self.model.submit(function, unique, priority, bool(delivery), heard, own_name=name, **options),
        )
        if isinstance(answer, Job) and answer not in self.jobs:
            self.jobs.append(answer)

    @rule(client=st.integers(0, 2))
    def client_leaves(self, client: int) -> None:
        peer, heard = self.clients[client]
        self.engine.unsubscribe(peer)
        self.model.unwatch(heard)

    # --- workers ---

    @rule(functions=st.lists(functions, min_size=1, max_size=3, unique=True), timeout=st.sampled_from((0, 0, 2)))
    def worker_comes(self, functions: list[bytes], timeout: int) -> None:
        worker = self.engine.add_worker(RecordingPeer(), "test")
        self.workers.append(worker)
        self.model.workers.append(ModelWorker(worker.id, []))
        for name in functions:
            self.can_do(worker, self.model.workers[-1], name, timeout)

    def can_do(self, worker: Worker, model_worker: ModelWorker, name: bytes, timeout: int) -> None:
        timeout_us = timeout * SECOND_US + LIMIT_US if timeout else 0
        self.engine.can_do(worker, self.engine.function_named(name), timeout_us)
        self.model.can_do(model_worker, self.model.function(name), timeout_us)

    @precondition(has_workers)
    @rule(number=numbers, name=functions, learns=st.booleans())
    def worker_changes_functions(self, number: int, name: bytes, learns: bool) -> None:
        worker, model_worker = self.some_worker(number)
        if learns:
            self.can_do(worker, model_worker, name, 0)
        else:
            self.engine.cannot_do(worker, self.engine.function_named(name))
            self.model.cannot_do(model_worker, self.model.function(name))

    @precondition(has_workers)
    @rule(number=numbers, tags=st.sampled_from(TAG_SETS))
    def worker_changes_tags(self, number: int, tags: frozenset[bytes]) -> None:
        worker, model_worker = self.some_worker(number)
        self.engine.describe_worker(worker, tags)
        self.model.set_tags(model_worker, tags)

    @precondition(has_workers)
    @rule(number=numbers)
    def worker_leaves(self, number: int) -> None:
        worker, model_worker = self.some_worker(number)
        self.engine.remove_worker(worker)
        self.model.remove_worker(model_worker)

    @precondition(has_workers)
    @rule(number=numbers, lease=delays)
    def worker_gives_sign_of_life(self, number: int, lease: int) -> None:
        worker, model_worker = self.some_worker(number)
        lease_us = lease * SECOND_US + LEASE_US + worker.id
        self.engine.renew_lease(worker, lease_us)
        model_worker.lease_until_us = self.model.now_us + lease_us

    @precondition(has_workers)
    @rule(number=numbers)
    def worker_need_not_give_a_sign(self, number: int) -> None:
        worker, model_worker = self.some_worker(number)
        self.engine.suspend_lease(worker)
        model_worker.lease_until_us = 0

    @precondition(has_workers)
    @rule(number=numbers)
    def worker_takes(self, number: int) -> None:
        worker, model_worker = self.some_worker(number)
        self.ask(lambda: self.engine.take(worker), lambda: self.model.take(model_worker))

    @precondition(has_workers)
    @rule(number=numbers, name=functions, priority=st.sampled_from(BEST_FIRST))
    def worker_takes_one_of_a_priority(self, number: int, name: bytes, priority: int) -> None:
        worker, model_worker = self.some_worker(number)
        self.ask(
            lambda: self.engine.take_of(worker, self.engine.function_named(name), priority),
            lambda: self.model.take_of(model_worker, self.model.function(name), priority),
        )

    @precondition(has_workers)
    @rule(number=numbers)
    def worker_sleeps(self, number: int) -> None:
        worker, model_worker = self.some_worker(number)
        self.ask(lambda: self.engine.sleep(worker), lambda: self.model.sleep(model_worker))

    @precondition(has_workers)
    @rule(number=numbers, credit=st.integers(0, 3))
    def worker_grants(self, number: int, credit: int) -> None:
        worker, model_worker = self.some_worker(number)
        if credit:
            self.engine.grant(worker, credit)
            self.model.grant(model_worker, credit)
        else:
            self.engine.withdraw_credit(worker)
            self.model.withdraw_credit(model_worker)

    @precondition(has_workers)
    @rule(number=numbers, patience=st.sampled_from((0, 1, 1, 5)))
    def worker_waits_for_a_job(self, number: int, patience: int) -> None:
        worker, model_worker = self.some_worker(number)
        until_us = self.harness.at(patience) + PATIENCE_US + self.model.last_ticket
        self.ask(
            lambda: self.engine.grant_until(worker, until_us),
            lambda: self.model.grant_until(model_worker, until_us),
        )

    @precondition(has_workers)
    @rule(
        number=numbers,
        held=numbers,
        verb=st.sampled_from(("complete", "complete", "fail", "hand back", "retry later", "renew")),
        delay=delays,
        limit=st.sampled_from((-1, -1, 0, 2)),
        holds=st.sampled_from((True, True, True, False)),
    )
    def worker_reports(self, number: int, held: int, verb: str, delay: int, limit: int, holds: bool) -> None:
        worker, model_worker = self.some_worker(number)
        mine = list(worker.running)
        job_id = mine[held % len(mine)] if mine and holds else held
        delay_us = delay * SECOND_US
        engine_side: dict[str, Callable[[], Job | None]] = {
            "complete": lambda: self.engine.complete(worker, job_id, b"result"),
            "fail": lambda: self.engine.fail(worker, job_id),
            "hand back": lambda: self.engine.release(worker, job_id),
            "retry later": lambda: self.engine.retry_later(worker, job_id, delay_us, None, limit),
            "renew": lambda: self.engine.renew_run(worker, job_id),
        }
        self.ask(engine_side[verb], lambda: self.model.report(model_worker, job_id, verb, delay_us, limit))

    # --- operators ---

    @precondition(has_jobs)
    @rule(number=numbers, cascade=st.booleans())
    def cancel(self, number: int, cascade: bool) -> None:
        job = self.some_job(number)
        self.ask(
            lambda: self.engine.cancel(job, cascade=cascade),
            lambda: self.model.cancel(self.model.job(job.id), cascade),
        )

    @precondition(has_jobs)
    @rule(number=numbers)
    def retry(self, number: int) -> None:
        job = self.some_job(number)
        self.ask(lambda: self.engine.retry(job), lambda: self.model.retry(self.model.job(job.id)))

    @precondition(has_jobs)
    @rule(number=numbers, others=st.lists(st.tuples(numbers, policies), min_size=1, max_size=3))
    def add_predecessors(self, number: int, others: list[tuple[int, EdgePolicy]]) -> None:
        job = self.some_job(number)
        job_ids = tuple(self.some_job(other).id for other, _ in others)
        edges = bytes(policy for _, policy in others)
        self.ask(
            lambda: self.engine.add_predecessors(job, job_ids, edges),
            lambda: self.model.add_predecessors(self.model.job(job.id), job_ids, edges),
        )

    @precondition(has_jobs)
    @rule(number=numbers, priority=st.sampled_from((-1, *BEST_FIRST)), delay=st.sampled_from((-2, -1, 0, 1, 5)))
    def change(self, number: int, priority: int, delay: int) -> None:
        job = self.some_job(number)
        run_at_us = self.harness.at(delay) if delay > 0 else delay + 1  # -1: it stays, 0 and 1: long ago
        self.ask(
            lambda: self.engine.change(job, priority=priority, run_at_us=run_at_us),
            lambda: self.model.change(self.model.job(job.id), priority, run_at_us),
        )

    @precondition(has_jobs)
    @rule(number=numbers)
    def settle(self, number: int) -> None:
        job = self.some_job(number)
        self.ask(lambda: self.engine.complete_unowned(job), lambda: self.model.settle(self.model.job(job.id)))

    @rule(name=functions, pauses=st.booleans())
    def pause_or_resume(self, name: bytes, pauses: bool) -> None:
        function, model_function = self.engine.function_named(name), self.model.function(name)
        if pauses:
            self.engine.pause(function)
        else:
            self.engine.resume(function)
        was_paused, model_function.paused = model_function.paused, pauses
        if was_paused and not pauses:
            self.model.offer(model_function)

    @rule(ends=st.booleans())
    def drain(self, ends: bool) -> None:
        if not ends:
            self.engine.drain()
            self.model.refusal, self.model.handing_out = REFUSED_DRAINING, False
            return
        self.engine.refusal = None
        self.engine.start_handing_out()
        self.model.refusal, self.model.handing_out = "", True
        for function in self.model.functions:
            self.model.offer(function)

    # --- time ---

    @rule(seconds=st.sampled_from((1, 1, 1, 2, 3, 10)))
    def time_passes(self, seconds: int) -> None:
        self.harness.pass_seconds(seconds)
        self.model.advance(self.harness.now_us)

    @rule(seconds=st.sampled_from((-5, -1, 1, 60)))
    def clock_is_set(self, seconds: int) -> None:
        self.model.clock_moved(seconds * SECOND_US)
        self.harness.set_clock(seconds)
        self.model.advance(self.harness.now_us)

    # --- the same in every respect ---

    def check_invariants(self, *arguments: Any, **options: Any) -> None:
        if hasattr(self, "engine"):
            check_engine(self.engine)
            self.compare_jobs()
            self.compare_functions()
            self.compare_news()

    def compare_jobs(self) -> None:
        assert len(self.jobs) == len(self.model.jobs)
        for job, expected in zip(self.jobs, self.model.jobs):
            assert (job.id, job.state, job.attempts) == (expected.id, expected.state, expected.attempts)
            assert (job.priority, job.run_at_us) == (expected.priority, expected.run_at_us)
            assert causes(job) == expected.causes
            assert bool(job.delivery) == expected.durable
            assert list(job.predecessors) == expected.predecessors
            assert list(job.edges or bytes(len(job.predecessors))) == expected.edges
            assert (job.losses, job.attempts_limit) == (expected.losses, expected.attempts_limit)
            assert (job.unique, job.unique_until_us) == (expected.unique, expected.held_until_us)
            assert (job.worker and job.worker.id) == (expected.worker and expected.worker.id)

    def compare_functions(self) -> None:
        for expected in self.model.functions:
            function = self.engine.functions[expected.name]
            unfinished = [job for job in self.model.unfinished() if job.function is expected]
            assert function.total == len(unfinished)
            keys = {job.unique: job.id for job in self.model.jobs if job.has_key and job.function is expected}
            assert {key: job.id for key, job in function.uniques.items()} == keys
            assert function.running == sum(job.worker is not None for job in unfinished)
            assert function.waiting == sum(job.state is WAITING for job in unfinished)
            for priority in BEST_FIRST:
                queued = [job.id for job in expected.queue if job.priority == priority]
                assert function.ready_of(priority) == len(queued)
                entries = sorted(function.next_entries(priority), key=place_of)
                assert [job.id for job in entries] == queued
            assert [worker.id for worker in function.sleepers] == [worker.id for worker in expected.sleepers]
            assert [worker.id for worker in function.pushers] == [worker.id for worker in expected.pushers]

    def compare_news(self) -> None:
        for peer, heard in self.clients:
            assert peer.heard == heard
        for worker, expected in zip(self.workers, self.model.workers):
            assert isinstance(worker.peer, RecordingPeer)
            assert worker.peer.heard == expected.heard
            assert worker.alive == expected.alive
            assert list(worker.running) == [job.id for job in expected.holds]
            assert worker.credits == expected.credits
            assert list((worker.tickets or {}).items()) == expected.tickets


def plain(answer: Any) -> Any:
    """Jobs of either side by their ids."""
    if isinstance(answer, list):
        return [plain(each) for each in answer]
    return getattr(answer, "id", answer)


TestEngineAndModel = EngineAndModel.TestCase
TestEngineAndModel.settings = settings(
    max_examples=EXAMPLES or 60,
    stateful_step_count=50,
    deadline=None,
    derandomize=not EXAMPLES,
    database=None,
    suppress_health_check=list(HealthCheck),
)
