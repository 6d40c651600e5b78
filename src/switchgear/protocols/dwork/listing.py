"""Handlers of the read-only requests: the state of the server, one task, and lists of tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchgear.engine.lifecycle import MOVES
from switchgear.model import DONE, FINAL_STATES, READY, RUNNING, SCHEDULED, WAITING, Job
from switchgear.protocols.dwork.codec import encode
from switchgear.protocols.dwork.messages import MOST_LISTED, LogEntry, LogState, Query, QueryType, Task
from switchgear.protocols.dwork.session_base import DworkSessionBase, shown, with_reason
from switchgear.protocols.multipart import Message
from switchgear.protocols.pending_read import Reading, Step

__all__ = ["on_list", "on_lookup", "on_status"]

# Ids are searched in portions of this size. There may be gaps: jobs of other functions, and ids that a restart skipped.
WINDOW: Final = 100
MOST_WINDOWS: Final = 200

# A list ends when it has about this many bytes.
ENOUGH_BYTES = 8 * 1024 * 1024

LOG_STATES: Final = {
    WAITING: LogState.WAITING,
    SCHEDULED: LogState.PENDING,
    READY: LogState.READY,
    RUNNING: LogState.STARTED,
    DONE: LogState.DONE,
}
LOG_STATE_OF: Final = {cause: LOG_STATES.get(state, LogState.RECORDED) for cause, _, state in MOVES}


def on_status(session: DworkSessionBase, envelope: Message, query: Query) -> None:
    function = session.function
    text = b"dhub: %d active tasks, %d ready." % (function.total, function.ready)
    session.answer(envelope, encode(Query(QueryType.OK, name=text, n=function.ready)))


def on_lookup(session: DworkSessionBase, envelope: Message, query: Query) -> Iterator[Step]:
    assert query.name is not None
    job = session.engine.named(query.name)
    if job is None:
        found = yield from session.context.find_named(frozenset([query.name]))
        job = session.engine.named(query.name) or found.get(query.name)
    if job is None or job.function.told_name != session.function.told_name:
        session.answer(envelope, with_reason(QueryType.NOT_FOUND, f"there is no task {shown(query.name)}"))
        return
    worker = job.worker
    location = worker.name if worker is not None and worker.name else session.setup.host
    names = yield from names_of(session, [job])
    answer = encode(Query(QueryType.OK, [describe(job, names[job.id])], name=query.name, location=location))
    if job.state in FINAL_STATES:
        session.await_commit()  # the state may not be stored yet
    session.answer(envelope, answer)


def end_of_ids(session: DworkSessionBase) -> int:
    """No task has this id or a higher one; ids of tasks that came by another node may be above the next one of this."""
    end = session.engine.next_job_id
    if session.engine.placement is not None:
        newest = next(session.engine.newest_first(0), None)
        end = max(end, newest.id + 1 if newest is not None else 0)
    return end


def on_list(session: DworkSessionBase, envelope: Message, query: Query) -> Iterator[Step]:
    most = min(query.n or MOST_LISTED, MOST_LISTED)
    tasks: list[Task] = []
    size = 0
    end = end_of_ids(session)
    start = max(1, query.cursor or 0)
    for _ in range(MOST_WINDOWS):
        stop = min(start + WINDOW, end)
        jobs = yield from tasks_between(session, start, stop)
        names = yield from names_of(session, jobs)
        for job in jobs:
            if len(tasks) >= most or size >= ENOUGH_BYTES:
                stop = job.id
                break
            tasks.append(describe(job, names[job.id]))
            size += size_of(tasks[-1])
        start = max(start, stop)
        if not jobs and session.engine.placement is not None:
            start = yield from next_used_id(session, start, end)
        if start >= end or len(tasks) >= most or size >= ENOUGH_BYTES:
            break
        yield False
    cursor = start if start < end else None
    session.answer(envelope, encode(Query(QueryType.OK, tasks, cursor=cursor)))


def next_used_id(session: DworkSessionBase, start: int, end: int) -> Reading[int]:
    """An id before which there are no jobs from `start` on, and soon after which there is one, or `end`. The ids of
    several nodes come in blocks of millions, of which most are never used."""
    step = WINDOW
    while start < end:
        stop = min(start + step, end)
        first = next(iter(session.engine.jobs.values(start)), None)
        kept = yield from session.context.find_kept(stop, 1)
        if not (first is not None and first.id < stop) and not (kept and kept[0].id >= start):
            start = stop
            step *= 2
        elif step <= WINDOW:
            break
        else:
            step = max(WINDOW, step // 2)
    return start


def tasks_between(session: DworkSessionBase, start: int, stop: int) -> Reading[list[Job]]:
    """The tasks with ids in this range, in order, from the engine and the store."""
    engine = session.engine
    found: dict[int, Job] = {}
    if not all(engine.has_job(job_id) for job_id in range(start, stop)):
        kept = yield from session.context.find_kept(stop, WINDOW)
        found = {job.id: job for job in kept if job.id >= start}
    for job_id in range(start, stop):
        job = engine.look_at(job_id)
        if job is not None:
            found[job_id] = job
    return [job for _, job in sorted(found.items()) if job.function.told_name == session.function.told_name]


def describe(job: Job, name: bytes) -> Task:
    return Task(
        name=name,
        origin=job.origin.encode(),
        log=[LogEntry(LOG_STATE_OF[cause], time_us) for cause, time_us in job.log],
        error=job.error,
        id=job.id,
        state=int(job.state),
        after=job.predecessors,
    )


def names_of(session: DworkSessionBase, jobs: list[Job]) -> Reading[dict[int, bytes]]:
    """The names of tasks by id; a job that was not created by name is named by its payload."""
    names = {job.id: job.name or job.payload or b"" for job in jobs}
    unnamed = [job.id for job in jobs if not job.name and job.payload is None]
    if unnamed:
        payloads = yield from session.context.read_payloads(unnamed)
        names |= payloads
    return names


def size_of(task: Task) -> int:
    """The approximate size of a task in an answer, in bytes."""
    return len(task.name) + len(task.error or b"") + 16 * (len(task.after) + len(task.log) + 1)
