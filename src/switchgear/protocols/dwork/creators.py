"""What creators of tasks ask: Create."""

from __future__ import annotations

from typing import Final

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import Refused
from switchgear.model import NORMAL, Delivery, Job
from switchgear.protocols.base import Message
from switchgear.protocols.dwork.desk import OK, Desk
from switchgear.protocols.dwork.messages import Query
from switchgear.protocols.dwork.planning import Plan

__all__ = ["RETRY_MARGIN_US", "on_create", "refuse_if_closed"]

# A repeated Create says how long ago it was first sent, but not how long each of the two was on its way.
RETRY_MARGIN_US: Final = 1_000_000


def on_create(desk: Desk, envelope: Message, query: Query) -> None:
    refuse_if_closed(desk)
    done = created_before(desk, query)
    plan = Plan(desk.engine, desk.function, desk.failed)
    plan.create(query.tasks, done)
    jobs = carry_out(desk, plan)
    if jobs or plan.more or plan.revived or done:
        desk.answer_when_kept(envelope, OK, jobs)
    else:
        desk.answer(envelope, OK)


def refuse_if_closed(desk: Desk) -> None:
    refusal = desk.engine.refusal
    if refusal is not None:
        raise Refused(refusal.reason, str(refusal))


def created_before(desk: Desk, query: Query) -> frozenset[bytes]:
    """The tasks of a repeated request that the first one created and that are finished since."""
    if query.retry_us is None:
        return frozenset()
    unknown = frozenset(task.name for task in query.tasks if task.name not in desk.engine.names)
    since_us = max(1, desk.engine.now_us - query.retry_us - RETRY_MARGIN_US)
    found = desk.context.find_named(unknown, since_us)
    return frozenset(name for name, job in found.items() if job.function.name == desk.function.name)


def carry_out(desk: Desk, plan: Plan) -> list[Job]:
    """Change the graph as planned; returns the jobs that the answer promises and that are not kept yet."""
    engine = desk.engine
    function_name = desk.function.name
    origins: dict[bytes, str] = {}
    jobs = [job for job in plan.existing if not job.kept]
    handle = Delivery.HANDLE
    options = SubmitOptions()  # one for all: the engine takes what is in it, and making one is a tenth of the work
    for name, origin, after in plan.new:
        text = origins.get(origin)
        if text is None:
            text = origins[origin] = origin.decode("utf-8", "replace")
        options.name = name
        options.predecessors = after
        options.origin = text
        jobs.append(engine.submit(function_name, b"", name, NORMAL, handle, None, options))
    for job_id, job in plan.revived.items():
        engine.retry(job, tuple(plan.more.pop(job_id, ())))
    for job_id, more in plan.more.items():
        unfinished = engine.job(job_id)
        assert unfinished is not None
        engine.add_predecessors(unfinished, tuple(more), is_checked=True)
        desk.edges_were_added()
    return jobs
