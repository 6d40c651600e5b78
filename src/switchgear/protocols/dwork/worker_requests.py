"""Handlers of the requests of workers: Steal, Complete, Transfer and Exit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from switchgear.engine.engine import GraphSubmission
from switchgear.errors import PeerError
from switchgear.model import WAITING, Cause, Job, Worker
from switchgear.protocols.dwork.codec import encode
from switchgear.protocols.dwork.known_workers import KnownWorker
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from switchgear.protocols.dwork.metadata import described_metadata
from switchgear.protocols.dwork.session_base import (
    EXIT,
    NOT_FOUND,
    OK,
    DworkSessionBase,
    Handout,
    shown,
    traces_of,
    with_reason,
)
from switchgear.protocols.multipart import Message
from switchgear.protocols.pending_read import PendingRead, Step, awaited
from switchgear.text import harmless

__all__ = [
    "ENOUGH_BYTES",
    "MOST_REASONS",
    "Taken",
    "add_released",
    "complete_one",
    "hand_out",
    "not_found_reason",
    "not_held",
    "on_complete",
    "on_exit",
    "on_steal",
    "on_transfer",
    "take_some",
]

# An answer to Steal ends at about this many bytes; other tasks wait for the next Steal.
ENOUGH_BYTES = 8 * 1024 * 1024

MOST_REASONS: Final = 3


def on_steal(session: DworkSessionBase, envelope: Message, query: Query) -> None:
    assert query.location is not None
    known = session.known_worker(query.location, envelope[0])
    if query.tags is not None or query.resources is not None:
        session.describe(known, query)
    if query.lease_ms is not None:
        known.lease_us = query.lease_ms * 1000
        if known.worker is not None:
            session.engine.renew_lease(known.worker, known.lease_us)
    wanted = 1 if query.n is None else query.n
    if take_tasks(session, known, wanted, envelope):
        return
    worker = known.worker or session.register_worker(known)
    wait = session.context.awaited_payload(worker) if wanted > 0 and not query.wait_ms else None
    if wait is not None:
        session.work_off(session.while_connected(envelope[0], steal_when_read(session, envelope, query, wait)))
        return
    reason = why_not(session, known) if wanted > 0 else ""
    may_wait = query.wait_ms and wanted > 0 and not reason
    if may_wait and session.wait(known, worker, envelope, (query.wait_ms or 0) * 1000):
        return
    payload = session.nothing_ready()
    if payload is EXIT:
        session.sent_home(known)
    elif reason:
        payload = with_reason(QueryType.NOT_FOUND, reason)
    session.answer(envelope, payload)


def steal_when_read(session: DworkSessionBase, envelope: Message, query: Query, wait: PendingRead) -> Iterator[Step]:
    """Answer when the payload of the next task is read: a worker that gets no task may leave."""
    yield from awaited(wait)
    on_steal(session, envelope, query)


def take_tasks(session: DworkSessionBase, known: KnownWorker, wanted: int, envelope: Message) -> bool:
    """Assign up to the wanted number of tasks to a worker; False if there are none."""
    taken = Taken()
    take_some(session, known, wanted, taken)
    if not taken.jobs:
        return False
    hand_out(session, envelope, taken)
    return True


class Taken:
    """Tasks that are about to be sent to a worker."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.names: list[bytes] = []
        self.jobs: list[Job] = []
        self.bytes = 0


def take_some(session: DworkSessionBase, known: KnownWorker, wanted: int, taken: Taken) -> bool:
    """Take up to this many more tasks for a worker; False if there are no more, or the worker should get no more."""
    engine = session.engine
    worker = taken.worker = known.worker or session.register_worker(known)
    names = taken.names
    for _ in range(wanted):
        if taken.bytes >= ENOUGH_BYTES:
            return False
        job = engine.take(worker)
        if job is None:
            return False
        name = session.task_name(known, job)
        known.listed = True
        names.append(name)
        taken.jobs.append(job)
        taken.bytes += len(name)
    return True


def hand_out(session: DworkSessionBase, envelope: Message, taken: Taken) -> None:
    """Answer a Steal with the tasks that the worker was assigned."""
    assert taken.worker is not None
    now_us = session.engine.now_us
    answer = Handout(envelope, taken.worker, taken.jobs, now_us)
    payload = session.transfers.write(taken.names, now_us, traces_of(taken.jobs))
    session.answer(answer, payload)


def why_not(session: DworkSessionBase, known: KnownWorker) -> str:
    """Why a worker gets nothing although tasks may be ready; empty if there are none."""
    engine = session.engine
    if engine.refusal is not None and not engine.handing_out:
        return str(engine.refusal)
    most = engine.settings.jobs_per_worker
    if most and known.worker is not None and len(known.worker.running) >= most:
        return f"this worker has {most} tasks already"
    return ""


def on_complete(session: DworkSessionBase, envelope: Message, query: Query) -> None:
    assert query.location is not None
    known = session.reporter(query.location, envelope[0])
    missing: list[Task] = []
    reasons: list[str] = []
    for task in query.tasks:
        reason = complete_one(session, known, task)
        if reason:
            missing.append(Task(task.name, task.origin))
            if len(reasons) < MOST_REASONS:
                reasons.append(f"{shown(task.name)} {reason}")
    if missing:
        session.await_commit()  # they may have ended a moment ago
    session.answer(envelope, not_found(missing, reasons) if missing else OK)


def complete_one(session: DworkSessionBase, known: KnownWorker, task: Task) -> str:
    """Complete a task; returns the error, if any."""
    job = session.job_held(known, task.name)
    if job is None:
        return complete_unowned(session, task)
    assert job.worker is not None
    message = metadata_of(session, task, job)
    if message:
        session.engine.set_message(job, message)
    if task.error is None:
        session.engine.complete(job.worker, job.id, b"")
    else:
        session.engine.fail(job.worker, job.id, 1, task.error)
    return ""


def complete_unowned(session: DworkSessionBase, task: Task) -> str:
    """Complete a task that its sender does not have; returns the error, if any."""
    job = session.engine.named(task.name)
    if job is None or job.function is not session.function:
        return "is not an unfinished task"
    if task.error is not None:
        return "is not this worker's, to say that it failed"
    if session.engine.complete_unowned(job, message=metadata_of(session, task, job)):
        return ""
    return "waits for others" if job.state is WAITING else f"is {job.state.name.lower()}"


def metadata_of(session: DworkSessionBase, task: Task, job: Job) -> bytes:
    """What the worker returns with a task beside its end; empty if that is only what the server has told it."""
    origin = task.origin
    if not task.log and (not origin or origin == session.setup.host):
        return b""
    return described_metadata(task, (session.setup.host, job.origin.encode()))


def on_transfer(session: DworkSessionBase, envelope: Message, query: Query) -> None:
    assert query.location is not None
    known = session.reporter(query.location, envelope[0])
    graph = session.engine.new_graph(joins=True)
    missing: list[Task] = []
    add_released(session, graph, known, query.tasks, set(), missing)
    if missing:
        session.answer(envelope, not_held(missing))
        return
    session.engine.submit_graph(graph)
    session.answer(envelope, OK)


def add_released(
    session: DworkSessionBase,
    graph: GraphSubmission,
    known: KnownWorker,
    tasks: Sequence[Task],
    names: set[bytes],
    missing: list[Task],
) -> None:
    """Release tasks of a worker, with further predecessors; notes their names, and those that the worker does not
    have."""
    for task in tasks:
        if task.name in names:
            raise PeerError("Transfer names a task twice", code="MALFORMED")
        names.add(task.name)
        job = session.job_held(known, task.name)
        if job is None or job.worker is None:
            missing.append(Task(task.name, task.origin))
        else:
            graph.release(job.worker, job, task.predecessors)


def on_exit(session: DworkSessionBase, envelope: Message, query: Query) -> None:
    assert query.location is not None
    known = session.known_workers.get(query.location)
    if known is not None:
        session.forget(known, Cause.GIVEN_BACK)
    if known is None or not known.listed:
        session.answer(envelope, NOT_FOUND)
    else:
        session.answer(envelope, OK)


def not_held(tasks: Sequence[Task]) -> bytes:
    return not_found(tasks, [f"{shown(task.name)} is not this worker's" for task in tasks[:MOST_REASONS]])


def not_found(tasks: Sequence[Task], reasons: list[str]) -> bytes:
    return encode(Query(QueryType.NOT_FOUND, tasks, reason=reason_for(len(tasks), reasons)))


def not_found_reason(count: int, reasons: list[str]) -> bytes:
    """The reason without the tasks, if there are very many."""
    return encode(Query(QueryType.NOT_FOUND, reason=reason_for(count, reasons)))


def reason_for(count: int, reasons: list[str]) -> bytes:
    more = count - len(reasons)
    text = "; ".join(reasons) + (f"; and {more} more" if more else "")
    return harmless(text).encode()
