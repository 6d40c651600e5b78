"""Requests of very many tasks: they are worked off in steps, and others are served in between.

Each is carried out as a short one would be.  First the whole message is read and checked, which changes nothing, so one
that is refused leaves nothing behind.  Only then is it carried out, and nothing can stop it any more: the names of
tasks that a Create is about to make are reserved, and while it is under way no other request of the listener changes
what existing tasks wait for.  Other requests see the tasks that are there by then.  The answer comes at the end.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Sequence
from typing import Final

from switchgear.engine.options import SubmitOptions
from switchgear.errors import PeerError
from switchgear.model import Job
from switchgear.protocols.base import Message
from switchgear.protocols.dwork.codec import RequestReader, encode_task, varint
from switchgear.protocols.dwork.creators import RETRY_MARGIN_US, refuse_if_closed
from switchgear.protocols.dwork.desk import NOT_FOUND, OK, Desk
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from switchgear.protocols.dwork.planning import Plan, shown
from switchgear.protocols.dwork.requests import check_task
from switchgear.protocols.dwork.workers import (
    ENOUGH_BYTES,
    MOST_REASONS,
    Taken,
    complete_one,
    hand_out,
    not_found,
    not_found_reason,
    on_steal,
    take_some,
)

__all__ = ["FIELDS_PER_STEP", "TASKS_PER_STEP", "complete", "concerns_change", "create", "steal", "transfer"]

# What is done between two steps takes about half a millisecond.
TASKS_PER_STEP = 50
BYTES_PER_STEP: Final = 16_384
FIELDS_PER_STEP: Final = 1_000
NODES_PER_STEP: Final = 200

# A plan calls the tasks that it will make by numbers from here on, since it is not known yet which ids they will get.
FIRST_PLANNED: Final = 1 << 60


def parts_of(query: Query, reader: RequestReader) -> Iterator[list[Task]]:
    """The tasks of a message, checked, some at a time."""
    reader.rewind()
    while tasks := reader.tasks(TASKS_PER_STEP, BYTES_PER_STEP):
        for task in tasks:
            check_task(query.type, task)
        yield tasks


def some_of(steps: Iterator[None], count: int) -> Iterator[bool]:
    """The steps, so many at a time."""
    for place, _ in enumerate(steps):
        if place % count == 0:
            yield False


def concerns_change(desk: Desk, query: Query) -> bool:
    """Whether a request has to wait for the long one that is under way: it names a task that is about to be made, or it
    may change what existing tasks wait for."""
    if query.type == QueryType.TRANSFER:
        return any(task.predecessors for task in query.tasks)
    if query.type != QueryType.CREATE:
        return False
    names = desk.engine.names
    is_reserved = desk.engine.backlog.is_reserved
    for task in query.tasks:
        if is_reserved(task.name) or (task.predecessors and task.name in names):
            return True
        for name in task.predecessors:
            if is_reserved(name):
                return True
    return False


# --- Create ---


def create(desk: Desk, envelope: Message, query: Query, reader: RequestReader) -> Iterator[bool]:
    refuse_if_closed(desk)
    while desk.is_changing:
        yield False
    desk.is_changing = True
    plan = Plan(desk.engine, desk.function, desk.failed, FIRST_PLANNED)
    reserved = desk.engine.backlog.reserved_names
    reserved.append(plan.new_ids)
    try:
        done = yield from created_before(desk, query, reader)
        for tasks in parts_of(query, reader):
            plan.add(tasks, done)
            yield False
        yield from some_of(plan.sort_in_steps(), NODES_PER_STEP)
        refuse_if_closed(desk)
        plan.check_room()
        is_changed = bool(plan.new or plan.more or plan.revived or done)
        yield from carry_out(desk, plan)
    finally:
        desk.is_changing = False
        reserved[:] = [names for names in reserved if names is not plan.new_ids]
    # Those that were there before, and that their creator was not promised yet either.
    unkept = yield from unkept_of(plan.existing)
    if is_changed or unkept:
        desk.answer_when_kept(envelope, OK, unkept)
    else:
        desk.answer(envelope, OK)


def created_before(desk: Desk, query: Query, reader: RequestReader) -> Generator[bool, None, set[bytes]]:
    """The tasks of a repeated request that the first one created and that are finished since."""
    done: set[bytes] = set()
    if query.retry_us is None:
        return done
    since_us = max(1, desk.engine.now_us - query.retry_us - RETRY_MARGIN_US)
    unknown: set[bytes] = set()
    for tasks in parts_of(query, reader):
        unknown.update(task.name for task in tasks if task.name not in desk.engine.names)
        if desk.context.keeps:  # the store has an index of names; in memory one search for all of them is quicker
            add_finished(desk, unknown, since_us, done)
            unknown = set()
        yield False
    add_finished(desk, unknown, since_us, done)
    return done


def add_finished(desk: Desk, names: set[bytes], since_us: int, done: set[bytes]) -> None:
    if names:
        found = desk.context.find_named(frozenset(names), since_us)
        done.update(name for name, job in found.items() if job.function.name == desk.function.name)


def carry_out(desk: Desk, plan: Plan) -> Iterator[bool]:
    """Change the graph as planned.  Nothing of this can be refused, unless the server stops or its store fails."""
    engine = desk.engine
    origins: dict[bytes, str] = {}
    ids = array("q")
    options = SubmitOptions()  # one for all: the engine takes what is in it
    tasks = plan.new
    tasks.reverse()
    while tasks:  # they are thrown away on the way, because to free millions at once takes long
        name, origin, after = tasks.pop()
        text = origins.get(origin)
        if text is None:
            text = origins[origin] = origin.decode("utf-8", "replace")
        options.name = name
        options.predecessors = actual(after, ids)
        options.origin = text
        del plan.new_ids[name]
        ids.append(engine.submit_checked(desk.function, name, options).id)
        if len(ids) % TASKS_PER_STEP == 0:
            yield False
    for job_id, job in plan.revived.items():
        more = actual(plan.more.pop(job_id, ()), ids)
        unfinished = engine.job(job_id)
        if unfinished is None:
            engine.retry(job, more)
        else:  # somebody was quicker
            engine.add_predecessors(unfinished, more, is_checked=True)
        yield False
    for place, (job_id, planned) in enumerate(plan.more.items()):
        unfinished = engine.job(job_id)
        if unfinished is not None:  # a task that a worker has taken meanwhile is taken back from it
            engine.add_predecessors(unfinished, actual(planned, ids), is_checked=True)
        if place % TASKS_PER_STEP == 0:
            yield False
    desk.edges_were_added()


def actual(planned: Sequence[int], ids: array[int]) -> tuple[int, ...]:
    """The ids that tasks got which a plan has numbered."""
    return tuple([ids[number - FIRST_PLANNED] if number >= FIRST_PLANNED else number for number in planned])


def unkept_of(jobs: list[Job]) -> Generator[bool, None, list[Job]]:
    unkept: list[Job] = []
    for start in range(0, len(jobs), FIELDS_PER_STEP):
        unkept += [job for job in jobs[start : start + FIELDS_PER_STEP] if not job.kept]
        yield False
    return unkept


# --- workers ---


def complete(desk: Desk, envelope: Message, query: Query, reader: RequestReader) -> Iterator[bool]:
    assert query.location is not None
    for _ in parts_of(query, reader):  # nothing is done if one of them is malformed
        yield False
    missing: list[bytes] = []
    reasons: list[str] = []
    count = 0
    for tasks in parts_of(query, reader):
        location = desk.reporter(query.location)
        parts: list[bytes] = []
        for task in tasks:
            reason = complete_one(desk, location, task)
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
    desk.answer_when_kept(envelope, answer)


def transfer(desk: Desk, envelope: Message, query: Query, reader: RequestReader) -> Iterator[bool]:
    assert query.location is not None
    while desk.is_changing:
        yield False
    desk.is_changing = True
    try:
        jobs: list[Job] = []
        missing: list[Task] = []
        names: set[bytes] = set()
        plan = Plan(desk.engine, desk.function, desk.failed, FIRST_PLANNED)
        for tasks in parts_of(query, reader):
            location = desk.reporter(query.location)
            for task in tasks:
                if task.name in names:
                    raise PeerError("Transfer names a task twice", code="MALFORMED")
                names.add(task.name)
                job = desk.job_held(location, task.name)
                if job is None:
                    missing.append(Task(task.name, task.origin))
                else:
                    jobs.append(job)
                    plan.add_transfers([job], [task])
            yield False
        if missing:
            reasons = [f"{shown(task.name)} is not this worker's" for task in missing[:MOST_REASONS]]
            desk.answer(envelope, not_found(missing, reasons))
            return
        yield from some_of(plan.sort_in_steps(), NODES_PER_STEP)
        worker = desk.reporter(query.location).worker
        for place, job in enumerate(reversed(jobs)):
            if worker is not None and job.worker is worker:  # or it was taken from it meanwhile
                if job.id in plan.more:
                    desk.engine.add_predecessors(job, tuple(plan.more[job.id]), is_checked=True)
                else:
                    desk.engine.hand_back(worker, job.id)
            if place % TASKS_PER_STEP == 0:
                yield False
        desk.edges_were_added()
        desk.answer_when_kept(envelope, OK)
    finally:
        desk.is_changing = False


def steal(desk: Desk, envelope: Message, query: Query) -> Iterator[bool]:
    """A Steal of very many tasks."""
    assert query.location is not None
    wanted = query.n or 0
    taken = Taken()
    while len(taken.jobs) < wanted and taken.bytes < ENOUGH_BYTES:
        location = desk.location_of(query.location)
        if query.lease_ms is not None:
            location.lease_us = query.lease_ms * 1000
        worker = location.worker or desk.hire(location)
        if taken.worker is not None and taken.worker is not worker:
            break  # it said goodbye meanwhile, and all went back
        taken.worker = worker
        if not take_some(desk, location, min(TASKS_PER_STEP, wanted - len(taken.jobs)), taken):
            break
        yield False
    if not taken.jobs:
        on_steal(desk, envelope, query)
        return
    if taken.worker is None or not taken.worker.alive:
        desk.answer(envelope, NOT_FOUND)
        return
    hand_out(desk, envelope, taken)
