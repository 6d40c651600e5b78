"""What workers ask: Steal, Complete, Transfer and Exit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from switchgear.errors import PeerError
from switchgear.model import WAITING, Cause, Job, Worker
from switchgear.protocols.base import Message
from switchgear.protocols.dwork.codec import encode
from switchgear.protocols.dwork.desk import EXIT, NOT_FOUND, OK, Desk, Handout, with_reason
from switchgear.protocols.dwork.locations import Location
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from switchgear.protocols.dwork.planning import Plan, shown
from switchgear.text import harmless

__all__ = [
    "ENOUGH_BYTES",
    "MOST_REASONS",
    "Taken",
    "complete_one",
    "hand_out",
    "not_found",
    "not_found_reason",
    "on_complete",
    "on_exit",
    "on_steal",
    "on_transfer",
    "take_some",
]

# An answer to Steal is not made longer once it is as long as this; the other tasks are there for the next.
ENOUGH_BYTES = 8 * 1024 * 1024

MOST_REASONS: Final = 3


def on_steal(desk: Desk, envelope: Message, query: Query) -> None:
    assert query.location is not None
    location = desk.location_of(query.location)
    if query.lease_ms is not None:
        location.lease_us = query.lease_ms * 1000
        if location.worker is not None:
            desk.engine.renew_lease(location.worker, location.lease_us)
    wanted = 1 if query.n is None else query.n
    if take_tasks(desk, location, wanted, envelope):
        return
    worker = location.worker or desk.hire(location)
    reason = why_not(desk, location) if wanted > 0 else ""
    may_wait = query.wait_ms and wanted > 0 and not reason
    if may_wait and desk.wait(location, worker, envelope, (query.wait_ms or 0) * 1000):
        return
    payload = desk.nothing_ready()
    if payload is EXIT:
        desk.dismiss(location)
    elif reason:
        payload = with_reason(QueryType.NOT_FOUND, reason)
    desk.answer(envelope, payload)


def take_tasks(desk: Desk, location: Location, wanted: int, envelope: Message) -> bool:
    """Give a worker up to as many tasks as it wants; False if there are none."""
    taken = Taken()
    take_some(desk, location, wanted, taken)
    if not taken.jobs:
        return False
    hand_out(desk, envelope, taken)
    return True


class Taken:
    """The tasks that a worker is about to be sent."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.names: list[bytes] = []
        self.jobs: list[Job] = []
        self.bytes = 0
        self.must_be_kept = False  # should the server die now, it must remember that one of these attempts was made


def take_some(desk: Desk, location: Location, wanted: int, taken: Taken) -> bool:
    """Take up to so many tasks more for a worker; False if there are no more, or it should get no more."""
    engine = desk.engine
    worker = taken.worker = location.worker or desk.hire(location)
    keeps = desk.context.keeps
    names = taken.names
    for _ in range(wanted):
        if taken.bytes >= ENOUGH_BYTES:
            return False
        job = engine.take(worker)
        if job is None or (job.payload is None and not desk.has_payload(worker, job)):
            return False
        name = desk.task_name(location, job)
        location.listed = True
        names.append(name)
        taken.jobs.append(job)
        taken.bytes += len(name)
        if keeps and job.delivery and engine.start_must_be_kept(job):
            taken.must_be_kept = True
    return True


def hand_out(desk: Desk, envelope: Message, taken: Taken) -> None:
    """Send a worker its tasks."""
    assert taken.worker is not None
    now_us = desk.engine.now_us
    answer = Handout(envelope, taken.worker, taken.jobs, now_us)
    payload = desk.transfers.write(taken.names, now_us)
    if taken.must_be_kept:
        desk.answer_when_kept(answer, payload)
    else:
        desk.answer(answer, payload)


def why_not(desk: Desk, location: Location) -> str:
    """Why a worker gets nothing although there may be something; empty if there is nothing."""
    engine = desk.engine
    if engine.refusal is not None and not engine.handing_out:
        return str(engine.refusal)
    most = engine.settings.jobs_per_worker
    if most and location.worker is not None and len(location.worker.running) >= most:
        return f"this worker has {most} tasks already"
    return ""


def on_complete(desk: Desk, envelope: Message, query: Query) -> None:
    assert query.location is not None
    location = desk.reporter(query.location)
    missing: list[Task] = []
    reasons: list[str] = []
    for task in query.tasks:
        reason = complete_one(desk, location, task)
        if reason:
            missing.append(Task(task.name, task.origin))
            if len(reasons) < MOST_REASONS:
                reasons.append(f"{shown(task.name)} {reason}")
    desk.answer_when_kept(envelope, not_found(missing, reasons) if missing else OK)


def complete_one(desk: Desk, location: Location, task: Task) -> str:
    """Complete a task; returns what speaks against it."""
    job = desk.job_held(location, task.name)
    if job is None:
        return settle(desk, task)
    assert job.worker is not None
    if task.error is None:
        desk.engine.complete(job.worker, job.id, b"")
    else:
        desk.engine.fail(job.worker, job.id, 1, task.error)
        desk.failed.note(job)
    return ""


def settle(desk: Desk, task: Task) -> str:
    """Complete a task that its sender does not have; returns what speaks against it."""
    job = desk.engine.names.get(task.name)
    if job is None or job.function is not desk.function:
        return "is not an unfinished task"
    if task.error is not None:
        return "is not this worker's, to say that it failed"
    if desk.engine.settle(job):
        return ""
    return "waits for others" if job.state is WAITING else f"is {job.state.name.lower()}"


def on_transfer(desk: Desk, envelope: Message, query: Query) -> None:
    assert query.location is not None
    location = desk.reporter(query.location)
    if len({task.name for task in query.tasks}) < len(query.tasks):
        raise PeerError("Transfer names a task twice", code="MALFORMED")
    jobs: list[Job] = []
    missing: list[Task] = []
    for task in query.tasks:
        job = desk.job_held(location, task.name)
        if job is None:
            missing.append(Task(task.name, task.origin))
        else:
            jobs.append(job)
    if missing:
        reasons = [f"{shown(task.name)} is not this worker's" for task in missing[:MOST_REASONS]]
        desk.answer(envelope, not_found(missing, reasons))
        return
    plan = Plan(desk.engine, desk.function, desk.failed)
    plan.transfer(jobs, query.tasks)
    for job in reversed(jobs):
        assert job.worker is not None
        if job.id in plan.more:
            desk.engine.add_predecessors(job, tuple(plan.more[job.id]), is_checked=True)
        else:
            desk.engine.hand_back(job.worker, job.id)
    desk.answer_when_kept(envelope, OK)


def on_exit(desk: Desk, envelope: Message, query: Query) -> None:
    assert query.location is not None
    location = desk.locations.get(query.location)
    if location is not None:
        desk.forget(location, Cause.GIVEN_BACK)
    if location is None or not location.listed:
        desk.answer(envelope, NOT_FOUND)
    else:
        desk.answer_when_kept(envelope, OK)


def not_found(tasks: Sequence[Task], reasons: list[str]) -> bytes:
    return encode(Query(QueryType.NOT_FOUND, tasks, reason=reason_for(len(tasks), reasons)))


def not_found_reason(count: int, reasons: list[str]) -> bytes:
    """The same without the tasks, of which there are so many."""
    return encode(Query(QueryType.NOT_FOUND, reason=reason_for(count, reasons)))


def reason_for(count: int, reasons: list[str]) -> bytes:
    more = count - len(reasons)
    text = "; ".join(reasons) + (f"; and {more} more" if more else "")
    return harmless(text).encode()
