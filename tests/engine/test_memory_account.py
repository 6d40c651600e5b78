"""Whatever happens to jobs, the account has exactly what they hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import Refused
from switchgear.model import FINAL_STATES, NORMAL, SECOND_US, Delivery, Job
from switchgear.testing import RecordingPeer, check_engine
from tests.engine.harness import Harness

SIZES = st.integers(0, 40)
MOST_OF_ONE_JOB = 2_000
REPORTS = ["data", "warn", "progress", "complete", "fail", "retry_later", "hand_back"]
OTHERS = ["settle", "cancel", "retry", "leave", "lose", "store", "time"]
VERBS = st.sampled_from(["submit", "submit", "unique", "take", "take", *REPORTS, *OTHERS])
STEPS = st.lists(st.tuples(VERBS, SIZES, st.integers(0, 5)), max_size=60)


class Memory:
    """An engine with little memory, and all jobs that were ever in it."""

    def __init__(self) -> None:
        self.harness = Harness(memory_bytes=16_000, collected_bytes=60, warning_bytes=30, attempts=2)
        self.engine = self.harness.engine
        self.client = RecordingPeer()
        self.jobs: list[Job] = []
        self.new_worker()

    def new_worker(self) -> None:
        self.worker = self.engine.add_worker(RecordingPeer(), "test")
        self.engine.can_do(self.worker, self.harness.function(b"f"))

    def step(self, verb: str, size: int, number: int) -> None:
        engine, worker = self.engine, self.worker
        data = b"x" * size
        running = list(worker.running)
        job_id = running[number % len(running)] if running else 0
        job = self.jobs[number % len(self.jobs)] if self.jobs else None
        if verb in ("submit", "unique"):
            self.submit(b"k" if verb == "unique" else b"", data, number)
        elif verb == "take":
            engine.take(worker)
        elif verb == "data":
            engine.data(worker, job_id, data)
        elif verb == "warn":
            engine.warning(worker, job_id, data)
        elif verb == "progress":
            engine.progress(worker, job_id, 1, 2, text=data, message=data)
        elif verb == "complete":
            engine.complete(worker, job_id, data)
        elif verb == "fail":
            engine.fail(worker, job_id, 1, data, data)
        elif verb == "retry_later":
            engine.retry_later(worker, job_id, SECOND_US, data)
        elif verb == "hand_back":
            engine.release(worker, job_id)
        elif verb == "leave":
            engine.unsubscribe(self.client)
        elif verb == "lose":
            engine.remove_worker(worker)
            self.new_worker()
        elif verb == "store":
            for ended in engine.take_changes()[0]:
                if ended.state in FINAL_STATES:
                    engine.drop_contents(ended)
        elif verb == "time":
            self.harness.pass_seconds(number)
        elif job is not None:
            self.change(verb, job, data)

    def submit(self, unique: bytes, payload: bytes, number: int) -> None:
        delivery = Delivery(number % 3)
        watcher = self.client if delivery is Delivery.WAIT else None
        options = SubmitOptions(
            timeout_us=number * SECOND_US,
            expires_us=self.harness.at(number) if number else 0,
            unique_policy=number % 3 if unique else 0,
            unique_for_us=number * SECOND_US if unique else 0,
            predecessors=tuple(job.id for job in self.jobs[-number:]) if number > 3 else (),
        )
        has_room = self.engine.memory.has_room(MOST_OF_ONE_JOB)
        try:
            job = self.engine.submit(b"f", unique, payload, NORMAL, delivery, watcher, options)
        except Refused as refused:
            is_expected = refused.reason == "unique" or "keys are held" in str(refused)
            if not is_expected and has_room:
                raise
            return
        if job not in self.jobs:
            self.jobs.append(job)

    def change(self, verb: str, job: Job, data: bytes) -> None:
        if verb == "settle":
            self.engine.complete_unowned(job, data)
        elif verb == "cancel":
            self.engine.cancel(job)
        elif verb == "retry" and job.payload is not None:
            try:
                self.engine.retry(job)
            except Refused:
                return


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_the_account_is_exact(steps: list[tuple[str, int, int]]) -> None:
    memory = Memory()
    for step in steps:
        memory.step(*step)
        check_engine(memory.engine, memory.jobs)
    memory.step("store", 0, 0)
    held = sum(job.entry_bytes + job.content_bytes for job in memory.jobs if job.id in memory.engine.jobs)
    assert memory.engine.memory.job_bytes == held
