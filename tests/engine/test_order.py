"""The order in which the jobs of a function are handed out, where some may go ahead of others; and after a restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.errors import Refused
from switchgear.model import FINAL_STATES, HIGH, NORMAL, SECOND_US, Cause, Job, Worker
from switchgear.model.job import RANKS_BETWEEN
from switchgear.storage.sqlite_rows import JobRow, job_from_row, job_row
from switchgear.testing import check_engine
from tests.engine.harness import Harness, ids, peer_of

MakeHarness = Callable[..., Harness]


@pytest.fixture
def graph(harness: Harness) -> Harness:
    """A harness in whose function mail jobs that had to wait go ahead."""
    harness.function().released_first = True
    return harness


def take(harness: Harness, worker: Worker, count: int) -> list[Job]:
    taken = [harness.engine.take(worker) for _ in range(count)]
    return [job for job in taken if job is not None]


def do(harness: Harness, *jobs: Job) -> None:
    """Somebody does these, wherever they are in the queue."""
    for job in jobs:
        assert harness.engine.complete_unowned(job)


# --- where released jobs go first ---


def test_jobs_that_are_ready_when_they_are_submitted_come_first_in_first_out(graph: Harness) -> None:
    jobs = [graph.submit() for _ in range(3)]
    assert graph.drain_with(graph.worker()) == ids(*jobs)


def test_a_released_job_goes_ahead_of_all_that_were_submitted(graph: Harness) -> None:
    first, second = graph.submit(), graph.submit()
    successor = graph.submit(after=(first,))
    do(graph, first)
    assert graph.drain_with(graph.worker()) == ids(successor, second)


def test_the_last_released_comes_first(graph: Harness) -> None:
    sources = [graph.submit() for _ in range(3)]
    successors = [graph.submit(after=(source,)) for source in sources]
    do(graph, sources[1], sources[2], sources[0])
    assert graph.drain_with(graph.worker()) == ids(successors[0], successors[2], successors[1])


def test_jobs_released_together_are_released_in_the_order_in_which_they_began_to_wait(graph: Harness) -> None:
    source, other = graph.submit(), graph.submit()
    held_back = graph.submit()
    first = graph.submit(after=(other,))
    second = graph.submit(after=(source,))
    graph.engine.add_predecessors(held_back, (source.id,))
    third = graph.submit(after=(source,))
    graph.engine.add_predecessors(first, (source.id,))  # it has waited all the time
    do(graph, other, source)
    assert graph.drain_with(graph.worker()) == ids(third, held_back, second, first)


def test_a_graph_is_worked_through_in_depth(graph: Harness) -> None:
    """Two chains of three; with one worker the first is done before the second is begun."""
    chains: list[list[Job]] = []
    for _ in range(2):
        chain = [graph.submit()]
        for _ in range(2):
            chain.append(graph.submit(after=(chain[-1],)))
        chains.append(chain)
    assert graph.drain_with(graph.worker()) == ids(*chains[0], *chains[1])


def test_one_that_waited_for_its_time_goes_ahead(graph: Harness) -> None:
    delayed, other = graph.submit(run_at_us=graph.at(1)), graph.submit()
    graph.pass_seconds(1)
    assert graph.drain_with(graph.worker()) == ids(delayed, other)


def test_what_a_lost_worker_held_goes_ahead_the_last_taken_first(graph: Harness) -> None:
    jobs = [graph.submit() for _ in range(4)]
    lost = graph.worker()
    take(graph, lost, 3)
    graph.engine.remove_worker(lost)
    assert graph.drain_with(graph.worker()) == ids(jobs[2], jobs[1], jobs[0], jobs[3])


def test_what_a_worker_held_that_says_goodbye_goes_ahead_too(graph: Harness) -> None:
    jobs = [graph.submit() for _ in range(3)]
    leaving = graph.worker()
    take(graph, leaving, 1)
    graph.engine.remove_worker(leaving, Cause.GIVEN_BACK)
    assert graph.drain_with(graph.worker()) == ids(*jobs)


def test_one_that_took_too_long_goes_ahead(graph: Harness) -> None:
    slow, other = graph.submit(timeout_us=SECOND_US), graph.submit()
    take(graph, graph.worker(), 1)
    graph.pass_seconds(1)
    assert graph.drain_with(graph.worker()) == ids(slow, other)


def test_one_that_is_handed_back_goes_to_the_end_in_the_order_of_handing_back(graph: Harness) -> None:
    jobs = [graph.submit() for _ in range(4)]
    worker = graph.worker()
    take(graph, worker, 3)
    for job in (jobs[2], jobs[0], jobs[1]):
        graph.engine.release(worker, job.id)
    assert graph.drain_with(worker) == ids(jobs[3], jobs[2], jobs[0], jobs[1])


def test_one_that_is_retried_goes_to_the_end(graph: Harness) -> None:
    cancelled, other = graph.submit(), graph.submit()
    graph.engine.cancel(cancelled)
    graph.engine.retry(cancelled)
    assert graph.drain_with(graph.worker()) == ids(other, cancelled)


def test_going_ahead_is_among_jobs_of_one_priority(graph: Harness) -> None:
    source, urgent = graph.submit(priority=HIGH), graph.submit(priority=HIGH)
    successor, other = graph.submit(after=(source,)), graph.submit()
    do(graph, source)
    assert graph.drain_with(graph.worker()) == ids(urgent, successor, other)


def test_a_released_job_is_pushed_or_wakes_somebody(graph: Harness) -> None:
    source = graph.submit()
    first, second = graph.submit(after=(source,)), graph.submit(after=(source,))
    graph.engine.pause(graph.function())
    pushed, sleeper = graph.worker(), graph.worker()
    graph.engine.grant(pushed, 1)
    graph.engine.sleep(sleeper)
    graph.engine.resume(graph.function())
    assert peer_of(pushed).words() == ["assign"]
    graph.engine.complete(pushed, source.id, b"")
    assert peer_of(sleeper).words() == ["wake"]
    assert graph.drain_with(sleeper) == ids(second, first)


def test_a_function_that_is_not_told_so_is_first_in_first_out_for_all(harness: Harness) -> None:
    source, other = harness.submit(), harness.submit()
    successor = harness.submit(after=(source,))
    delayed = harness.submit(run_at_us=harness.at(1))
    lost = harness.worker()
    take(harness, lost, 1)
    harness.engine.complete(lost, source.id, b"")
    harness.pass_seconds(1)
    take(harness, lost, 1)
    harness.engine.remove_worker(lost)
    assert harness.drain_with(harness.worker()) == ids(successor, delayed, other)


# --- jobs that leave the queue and come back ---


def leave_and_go_ahead(harness: Harness, job: Job) -> None:
    """The job has to wait for another, and is released at once."""
    other = harness.submit(b"other")
    harness.engine.add_predecessors(job, (other.id,))
    do(harness, other)


def test_one_that_goes_ahead_comes_at_its_new_place(graph: Harness) -> None:
    first, comeback, last = (graph.submit() for _ in range(3))
    for _ in range(3):
        leave_and_go_ahead(graph, comeback)
    assert graph.function().ready_of(NORMAL) == 3
    assert graph.drain_with(graph.worker()) == ids(comeback, first, last)


def test_one_that_went_ahead_and_then_to_the_end_comes_last(graph: Harness) -> None:
    comeback, other = graph.submit(), graph.submit()
    leave_and_go_ahead(graph, comeback)
    graph.engine.cancel(comeback)
    graph.engine.retry(comeback)
    assert graph.drain_with(graph.worker()) == ids(other, comeback)


def test_one_that_went_ahead_and_was_released_goes_to_the_end(graph: Harness) -> None:
    other, comeback, last = (graph.submit() for _ in range(3))
    leave_and_go_ahead(graph, comeback)
    worker = graph.worker()
    assert take(graph, worker, 1) == [comeback]
    graph.engine.release(worker, comeback.id)
    assert graph.drain_with(worker) == ids(other, last, comeback)


def test_one_that_went_ahead_and_could_not_be_kept_is_gone(graph: Harness) -> None:
    comeback, other = graph.submit(), graph.submit()
    leave_and_go_ahead(graph, comeback)
    assert graph.engine.withdraw(comeback)
    assert graph.drain_with(graph.worker()) == ids(other)


def test_one_that_went_ahead_keeps_its_place_while_others_leave(graph: Harness) -> None:
    first, comeback = graph.submit(), graph.submit()
    leave_and_go_ahead(graph, comeback)
    for job in [graph.submit() for _ in range(257)]:
        graph.engine.cancel(job)
    assert list(graph.function().queues[NORMAL]) == [comeback, first]
    assert graph.drain_with(graph.worker()) == ids(comeback, first)


# --- after a restart ---


class Kept:
    """A harness whose engine may be stopped at any time; another goes on with the rows that were kept."""

    def __init__(self, *, restarts: bool = True) -> None:
        self.restarts = restarts
        self.rows: dict[int, JobRow] = {}
        self.finished: dict[int, Job] = {}
        self.build(Harness(attempts=0))

    def build(self, harness: Harness) -> None:
        self.harness = harness
        self.engine = harness.engine
        harness.function(b"graph").released_first = True
        harness.function(b"plain")
        self.worker = harness.worker(b"graph", b"plain", timeout_seconds=4)

    def keep(self) -> None:
        for job in self.engine.take_changes()[0]:
            job.revision += 1
            self.rows[job.id] = job_row(job, 1 if job.function.released_first else 2)
            self.finished.pop(job.id, None)
            if job.state in FINAL_STATES:
                self.finished[job.id] = job
        check_engine(self.engine)

    def stop(self) -> None:
        """All workers hand back what they have.  Then the server is restarted, or goes on."""
        for job_id in list(self.worker.running):
            self.engine.release(self.worker, job_id)
        self.engine.remove_worker(self.worker)
        self.keep()
        if self.restarts:
            self.restart()
        else:
            self.worker = self.harness.worker(b"graph", b"plain", timeout_seconds=4)

    def restart(self) -> None:
        next_job_id = self.engine.next_job_id
        self.build(Harness(attempts=0, clock=self.harness.clock))
        jobs = [self.job_of(row) for _, row in sorted(self.rows.items())]
        unfinished = [job for job in jobs if job.state not in FINAL_STATES]
        self.finished = {job.id: job for job in jobs if job.state in FINAL_STATES}
        unsuccessful = {job.id: job.state for job in self.finished.values() if job.state.name != "DONE"}
        self.engine.restore(unfinished, unsuccessful, next_job_id)
        self.keep()

    def job_of(self, row: JobRow) -> Job:
        plain = tuple(bytes(value) if isinstance(value, bytearray) else value for value in row)
        error = None if plain[16] == 0 else plain[16]  # as the statement that stores it has it
        return job_from_row(
            (*plain[:16], error, *plain[17:]), self.harness.function(b"graph" if row[1] == 1 else b"plain")
        )

    def order(self) -> list[int]:
        """Everything that will be handed out from now on, as it is handed out."""
        handed_out = self.harness.drain_with(self.worker)
        self.harness.pass_seconds(3600)
        return handed_out + self.harness.drain_with(self.worker)


def test_a_restart_keeps_the_order_of_those_that_went_ahead_and_to_the_end() -> None:
    kept = Kept()
    harness = kept.harness
    source, first, second, handed_back = (harness.submit(b"graph") for _ in range(4))
    early, late = (harness.submit(b"graph", after=(source,)) for _ in range(2))
    do(harness, source)
    taken = take(harness, kept.worker, 5)
    assert taken == [late, early, first, second, handed_back]
    harness.engine.release(kept.worker, handed_back.id)
    harness.engine.release(kept.worker, first.id)
    newest = harness.submit(b"graph")
    harness.engine.remove_worker(kept.worker)  # which had the two that went ahead, and another
    kept.stop()
    assert kept.order() == ids(second, early, late, handed_back, first, newest)


def test_a_job_that_ran_when_the_server_stopped_comes_where_it_was_taken_from() -> None:
    kept = Kept()
    harness = kept.harness
    source, *others = (harness.submit(b"graph") for _ in range(3))
    first, second = (harness.submit(b"graph", after=(source,)) for _ in range(2))
    do(harness, source)
    assert take(harness, kept.worker, 3) == [second, first, others[0]]
    kept.keep()
    kept.restart()
    assert kept.order() == ids(second, first, *others)


def test_those_that_go_ahead_after_a_restart_pass_those_that_did_before() -> None:
    kept = Kept()
    sources = [kept.harness.submit(b"graph") for _ in range(3)]
    successors = [kept.harness.submit(b"graph", after=(source,)).id for source in sources]
    do(kept.harness, *sources[:2])
    kept.stop()
    do(kept.harness, kept.engine.jobs[sources[2].id])
    kept.stop()
    assert kept.order() == [successors[2], successors[1], successors[0]]


def test_those_that_go_to_the_end_after_a_restart_do_so_behind_those_that_did_before() -> None:
    kept = Kept()
    jobs = [kept.harness.submit(b"graph").id for _ in range(3)]
    for _ in range(2):
        take(kept.harness, kept.worker, 1)
        kept.stop()  # which hands it back
    assert kept.order() == [jobs[2], jobs[0], jobs[1]]


@pytest.mark.parametrize("function", [b"graph", b"plain"])
def test_those_that_come_due_at_one_moment_do_so_in_the_order_in_which_they_began_to_wait(function: bytes) -> None:
    kept = Kept()
    harness = kept.harness
    retried, other = harness.submit(function), harness.submit(function)
    at_us = harness.at(1)
    released = harness.submit(function, after=(other,), run_at_us=at_us)
    delayed = harness.submit(function, run_at_us=at_us)
    assert take(harness, kept.worker, 2) == [retried, other]
    harness.engine.retry_later(kept.worker, retried.id, SECOND_US)
    harness.engine.complete(kept.worker, other.id, b"")
    kept.stop()
    order = ids(delayed, retried, released)
    assert kept.order() == (order if function == b"plain" else order[::-1])


VERBS = (
    *("submit", "submit", "submit", "submit after", "submit after", "submit later", "take", "take", "take"),
    *("complete", "complete", "complete", "hand back", "retry later", "lose", "hold back", "hold back", "settle"),
    *("cancel", "retry", "wait", "stop"),
)
COMMANDS = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 7), st.integers(0, 7)), max_size=60)


def play(commands: list[tuple[str, int, int]], *, restarts: bool) -> list[int]:
    """The order in which everything is handed out after these commands, which find a small graph."""
    kept = Kept(restarts=restarts)
    for number in range(4):
        for function in (b"graph", b"graph", b"plain"):
            kept.harness.submit(function, predecessors=tuple({number, max(0, 3 * number - 4)}))
    for verb, number, other in commands:
        obey(kept, verb, number, other)
        kept.keep()
    kept.stop()
    return kept.order()


def obey(kept: Kept, verb: str, number: int, other: int) -> None:
    harness, engine, worker = kept.harness, kept.engine, kept.worker
    function = (b"graph", b"graph", b"plain")[number % 3]
    newest = engine.next_job_id - 1
    recent = [engine.jobs[job_id] for job_id in range(newest, 0, -1) if job_id in engine.jobs]
    job = recent[number % len(recent)] if recent else None
    held = list(worker.running)
    held_id = held[number % len(held)] if held else 0
    match verb:
        case "submit":
            harness.submit(function, priority=other % 3)
        case "submit after":
            harness.submit(function, predecessors=(newest - number, newest - other))
        case "submit later":
            harness.submit(function, run_at_us=harness.at(1 + other % 2))
        case "take":
            engine.take(worker)
        case "complete":
            engine.complete(worker, held_id, b"")
        case "hand back":
            engine.release(worker, held_id)
        case "retry later":
            engine.retry_later(worker, held_id, (1 + other % 2) * SECOND_US)
        case "lose":
            engine.remove_worker(worker)
            kept.worker = harness.worker(b"graph", b"plain", timeout_seconds=4)
        case "settle" if job is not None:
            engine.complete_unowned(job)
        case "cancel" if job is not None:
            engine.cancel(job)
        case "hold back" if job is not None:
            try:
                engine.add_predecessors(job, (newest - other,))
            except Refused:
                pass
        case "retry" if kept.finished:
            try:
                engine.retry(kept.finished[sorted(kept.finished)[-1 - number % len(kept.finished)]])
            except Refused:
                pass
        case "wait":
            harness.pass_seconds(1)
        case "stop":
            kept.stop()


@settings(max_examples=300, deadline=None)
@given(COMMANDS)
def test_a_restart_changes_nothing_about_the_order(commands: list[tuple[str, int, int]]) -> None:
    assert play(commands, restarts=True) == play(commands, restarts=False)


def test_ranks_fit_where_they_are_kept() -> None:
    """In a signed number of 64 bits: for a million jobs a second, for a hundred days."""
    assert 1_000_000 * 86_400 * 100 * RANKS_BETWEEN < 2**63
