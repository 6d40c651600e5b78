"""What anybody may ask: how the server is, where a task is, and which tasks there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchgear.engine.lifecycle import MOVES
from switchgear.errors import Refused
from switchgear.model import DONE, FINAL_STATES, READY, RUNNING, SCHEDULED, WAITING, Job
from switchgear.protocols.base import Message
from switchgear.protocols.dwork.codec import encode
from switchgear.protocols.dwork.desk import Desk, error_text, with_reason
from switchgear.protocols.dwork.messages import MOST_LISTED, LogEntry, LogState, Query, QueryType, Task
from switchgear.protocols.dwork.planning import shown

__all__ = ["on_list", "on_lookup", "on_status"]

# Ids are gone through so many at a time.  There may be gaps: other functions' jobs, and what a restart skipped.
WINDOW: Final = 100
MOST_WINDOWS: Final = 200

# A list is not made longer once it is about as long as this.
ENOUGH_BYTES = 8 * 1024 * 1024

LOG_STATES: Final = {
    WAITING: LogState.WAITING,
    SCHEDULED: LogState.PENDING,
    READY: LogState.READY,
    RUNNING: LogState.STARTED,
    DONE: LogState.DONE,
}
LOG_STATE_OF: Final = {cause: LOG_STATES.get(state, LogState.RECORDED) for cause, _, state in MOVES}


def on_status(desk: Desk, envelope: Message, query: Query) -> None:
    function = desk.function
    text = b"dhub: %d active tasks, %d ready." % (function.total, function.ready)
    desk.answer(envelope, encode(Query(QueryType.OK, name=text, n=function.ready)))


def on_lookup(desk: Desk, envelope: Message, query: Query) -> None:
    assert query.name is not None
    job = desk.engine.names.get(query.name)
    if job is None:
        job = desk.context.find_named(frozenset([query.name])).get(query.name)
    if job is None or job.function.name != desk.function.name:
        desk.answer(envelope, with_reason(QueryType.NOT_FOUND, f"there is no task {shown(query.name)}"))
        return
    worker = job.worker
    location = worker.name if worker is not None and worker.name else desk.setup.host
    answer = encode(Query(QueryType.OK, [describe(desk, job)], name=query.name, location=location))
    if job.state in FINAL_STATES:
        desk.answer_when_kept(envelope, answer)
    else:
        desk.answer(envelope, answer)


def on_list(desk: Desk, envelope: Message, query: Query) -> None:
    desk.context.work_off(list_in_steps(desk, envelope, query))


def list_in_steps(desk: Desk, envelope: Message, query: Query) -> Iterator[bool]:
    try:
        yield from list_page(desk, envelope, query)
    except Refused as refused:
        desk.answer(envelope, error_text(str(refused)))


def list_page(desk: Desk, envelope: Message, query: Query) -> Iterator[bool]:
    most = min(query.n or MOST_LISTED, MOST_LISTED)
    tasks: list[Task] = []
    size = 0
    end = desk.engine.next_job_id
    start = max(1, query.cursor or 0)
    for _ in range(MOST_WINDOWS):
        stop = min(start + WINDOW, end)
        for job in tasks_between(desk, start, stop):
            if len(tasks) >= most or size >= ENOUGH_BYTES:
                stop = job.id
                break
            tasks.append(describe(desk, job))
            size += size_of(tasks[-1])
        start = max(start, stop)
        if start >= end or len(tasks) >= most or size >= ENOUGH_BYTES:
            break
        yield False
    cursor = start if start < end else None
    desk.answer(envelope, encode(Query(QueryType.OK, tasks, cursor=cursor)))


def tasks_between(desk: Desk, start: int, stop: int) -> list[Job]:
    """The tasks with these ids, in their order, as far as engine and store have them."""
    engine = desk.engine
    found = [job for job_id in range(start, stop) if (job := engine.look_at(job_id)) is not None]
    if len(found) < stop - start:
        kept = desk.context.find_kept(stop, WINDOW)
        found += [job for job in kept if job.id >= start and not engine.has_job(job.id)]
        found.sort(key=lambda job: job.id)
    return [job for job in found if job.function.name == desk.function.name]


def describe(desk: Desk, job: Job) -> Task:
    return Task(
        name=name_of(desk, job),
        origin=job.origin.encode(),
        log=[LogEntry(LOG_STATE_OF[cause], time_us) for cause, time_us in job.log],
        error=job.error,
        id=job.id,
        state=int(job.state),
        after=job.predecessors,
    )


def name_of(desk: Desk, job: Job) -> bytes:
    """What a task is called: a job that was not created by name, by its payload."""
    if not job.name and job.payload is None:
        with_payload = desk.context.find_job(job.id)
        return (with_payload.payload if with_payload is not None else None) or b""
    return job.name or job.payload or b""


def size_of(task: Task) -> int:
    """About how long it is when it is sent."""
    return len(task.name) + len(task.error or b"") + 16 * (len(task.after) + len(task.log) + 1)
