"""Requests of very many tasks, which run in steps while other peers are served.

Each has the same effect as a short one. First the whole message is read and checked, which changes nothing, so a
refused request leaves nothing behind. Then it is applied, and nothing can stop that: a Create or Transfer is a long
graph of the engine (`GraphSubmission`). Other requests see the tasks that exist by then. The answer comes at the end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from switchgear.model import Job
from switchgear.protocols.dwork.codec import RequestReader, encode_task
from switchgear.protocols.dwork.create_requests import RETRY_MARGIN_US, Creation, provide_unsuccessful, refuse_if_closed
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from switchgear.protocols.dwork.protobuf import varint
from switchgear.protocols.dwork.request_rules import check_task
from switchgear.protocols.dwork.session_base import NOT_FOUND, OK, DworkSessionBase, shown
from switchgear.protocols.dwork.worker_requests import (
    ENOUGH_BYTES,
    MOST_REASONS,
    Taken,
    add_released,
    complete_one,
    hand_out,
    not_found_reason,
    not_held,
    on_steal,
    take_some,
)
from switchgear.protocols.multipart import Message
from switchgear.protocols.pending_read import Reading, Step

__all__ = ["FIELDS_PER_STEP", "TASKS_PER_STEP", "complete", "concerns_graph", "create", "steal", "transfer"]

# The work of one step takes about half a millisecond.
TASKS_PER_STEP = 50
BYTES_PER_STEP: Final = 16_384
FIELDS_PER_STEP: Final = 1_000
EDGES_PER_STEP: Final = 500


def parts_of(query: Query, reader: RequestReader) -> Iterator[list[Task]]:
    """The tasks of a message, checked, in portions."""
    reader.rewind()
    while tasks := reader.tasks(TASKS_PER_STEP, BYTES_PER_STEP):
        for task in tasks:
            check_task(query.type, task)
        yield tasks


def some_of(steps: Iterator[None], count: int) -> Iterator[Step]:
    """Yield once for each `count` steps."""
    for place, _ in enumerate(steps):
        if place % count == 0:
            yield False


def concerns_graph(session: DworkSessionBase, query: Query) -> bool:
    """Whether a request has to wait for the long graph in progress."""
    engine = session.engine
    for task in query.tasks:
        if query.type == QueryType.TRANSFER and task.predecessors:
            return True
        if query.type == QueryType.CREATE and engine.must_wait_for_graph(task.name, task.predecessors):
            return True
    return False


# --- Create ---


def create(session: DworkSessionBase, envelope: Message, query: Query, reader: RequestReader) -> Iterator[Step]:
    refuse_if_closed(session)
    graph = session.engine.new_graph(joins=True, is_long=True)
    while not graph.begin():
        yield False
    try:
        done = yield from created_before(session, query, reader)
        creation = Creation(session, graph)
        for tasks in parts_of(query, reader):
            yield from provide_unsuccessful(session.context, graph, tasks)
            creation.add(tasks, done)
            yield False
        yield from some_of(graph.check(), EDGES_PER_STEP)
        yield from some_of(graph.apply(), TASKS_PER_STEP)
    finally:
        graph.end()
    # Tasks that existed before, and are not confirmed to their creator yet.
    unkept = yield from unkept_of(graph.existing)
    for job in unkept:
        session.engine.promise(job)
    if done:
        session.await_commit()  # they may not be stored yet
    session.answer(envelope, OK)


def created_before(session: DworkSessionBase, query: Query, reader: RequestReader) -> Generator[Step, None, set[bytes]]:
    """The tasks of a repeated request that the first one created and that have finished since."""
    done: set[bytes] = set()
    if query.retry_us is None:
        return done
    engine = session.engine
    since_us = max(1, engine.now_us - query.retry_us - RETRY_MARGIN_US)
    unknown: set[bytes] = set()
    for tasks in parts_of(query, reader):
        unknown.update([task.name for task in tasks if engine.named(task.name) is None])
        if session.context.is_durable:  # in memory a single search for all names is faster
            yield from add_finished(session, unknown, since_us, done)
            unknown = set()
        yield False
    yield from add_finished(session, unknown, since_us, done)
    return done


def add_finished(session: DworkSessionBase, names: set[bytes], since_us: int, done: set[bytes]) -> Reading[None]:
    if names:
        found = yield from session.context.find_named(frozenset(names), since_us)
        done.update([name for name, job in found.items() if job.function.told_name == session.function.told_name])


def unkept_of(jobs: list[Job]) -> Generator[Step, None, list[Job]]:
    unkept: list[Job] = []
    for start in range(0, len(jobs), FIELDS_PER_STEP):
        unkept += [job for job in jobs[start : start + FIELDS_PER_STEP] if not job.kept]
        yield False
    return unkept


# --- workers ---


def complete(session: DworkSessionBase, envelope: Message, query: Query, reader: RequestReader) -> Iterator[Step]:
    assert query.location is not None
    for _ in parts_of(query, reader):  # nothing is done if a task is malformed
        yield False
    missing: list[bytes] = []
    reasons: list[str] = []
    count = 0
    for tasks in parts_of(query, reader):
        known = session.reporter(query.location, envelope[0])
        parts: list[bytes] = []
        for task in tasks:
            reason = complete_one(session, known, task)
            if not reason:
                continue
            body = encode_task(Task(task.name, task.origin))
            parts.append(b"\x12%b%b" % (varint(len(body)), body))
            count += 1
            if len(reasons) < MOST_REASONS:
                reasons.append(f"{shown(task.name)} {reason}")
        missing.append(b"".join(parts))
        yield False
    answer = OK
    if count:
        ending = not_found_reason(count, reasons)
        answer = b"".join((NOT_FOUND, *missing, ending.removeprefix(NOT_FOUND)))
    if count:
        session.await_commit()  # they may have ended a moment ago
    session.answer(envelope, answer)


def transfer(session: DworkSessionBase, envelope: Message, query: Query, reader: RequestReader) -> Iterator[Step]:
    assert query.location is not None
    graph = session.engine.new_graph(joins=True, is_long=True)
    while not graph.begin():
        yield False
    try:
        missing: list[Task] = []
        names: set[bytes] = set()
        for tasks in parts_of(query, reader):
            yield from provide_unsuccessful(session.context, graph, tasks)
            add_released(session, graph, session.reporter(query.location, envelope[0]), tasks, names, missing)
            yield False
        if missing:
            session.answer(envelope, not_held(missing))
            return
        yield from some_of(graph.check(), EDGES_PER_STEP)
        yield from some_of(graph.apply(), TASKS_PER_STEP)
    finally:
        graph.end()
    session.answer(envelope, OK)


def steal(session: DworkSessionBase, envelope: Message, query: Query) -> Iterator[Step]:
    """Handle a Steal of very many tasks."""
    assert query.location is not None
    wanted = query.n or 0
    taken = Taken()
    while len(taken.jobs) < wanted and taken.bytes < ENOUGH_BYTES:
        known = session.known_worker(query.location, envelope[0])
        if query.lease_ms is not None:
            known.lease_us = query.lease_ms * 1000
        if query.tags is not None or query.resources is not None:
            session.describe(known, query)
        worker = known.worker or session.register_worker(known)
        if taken.worker is not None and taken.worker is not worker:
            break  # the worker has sent Exit meanwhile, and all tasks were requeued
        taken.worker = worker
        if not take_some(session, known, min(TASKS_PER_STEP, wanted - len(taken.jobs)), taken):
            break
        yield False
    if not taken.jobs:
        on_steal(session, envelope, query)
        return
    if taken.worker is None or not taken.worker.alive:
        session.answer(envelope, NOT_FOUND)
        return
    hand_out(session, envelope, taken)
