"""Handler of Create, the request of creators of tasks.

A Create is a graph that joins existing tasks: a task with the name of an unfinished task is that task, which gets more
predecessors; a failed task is retried; and an unknown predecessor counts as done.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from switchgear.engine.engine import GraphSubmission, JobTemplate, SubmitOptions
from switchgear.errors import Refused
from switchgear.model import DONE, FINAL_STATES
from switchgear.protocols.context import Context
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from switchgear.protocols.dwork.session_base import OK, DworkSessionBase
from switchgear.protocols.multipart import Message
from switchgear.protocols.pending_read import Reading

__all__ = ["RETRY_MARGIN_US", "Creation", "must_read", "on_create", "provide_unsuccessful", "refuse_if_closed"]

# A repeated Create says how long ago it was first sent, but not how long each of the two took to arrive.
RETRY_MARGIN_US: Final = 1_000_000


def must_read(session: DworkSessionBase, query: Query) -> bool:
    """Whether the store has to be read for a Create or Transfer: it is a repeated one, or names failed tasks."""
    if query.type == QueryType.CREATE and query.retry_us is not None:
        return True
    if query.type not in (QueryType.CREATE, QueryType.TRANSFER) or not session.engine.has_unsuccessful_names:
        return False
    graph = session.engine.new_graph(joins=True)
    for task in query.tasks:
        if graph.unknown_among((task.name, *task.predecessors)):
            return True
        if query.type == QueryType.CREATE and graph.unsuccessful_among((task.name,)):
            return True
    return False


def on_create(session: DworkSessionBase, envelope: Message, query: Query) -> None:
    """Handle a Create that needs no read. Others run in steps (`long_requests.create`)."""
    refuse_if_closed(session)
    creation = Creation(session, session.engine.new_graph(joins=True))
    creation.add(query.tasks, ())
    session.engine.submit_graph(creation.graph)
    for job in creation.graph.existing:  # the answer also promises tasks that others have just created
        session.engine.promise(job)
    session.answer(envelope, OK)


def refuse_if_closed(session: DworkSessionBase) -> None:
    refusal = session.engine.refusal
    if refusal is not None:
        raise Refused(refusal.reason, str(refusal))


class Creation:
    """Adds the tasks of a Create to a graph."""

    def __init__(self, session: DworkSessionBase, graph: GraphSubmission) -> None:
        self.graph = graph
        self._session = session
        self._templates: dict[bytes, JobTemplate] = {}  # by origin and trace

    def add(self, tasks: Sequence[Task], done: Container[bytes]) -> None:
        """Add some of the tasks, except those in `done`. Raises Refused."""
        graph = self.graph
        templates = self._templates
        for task in tasks:
            name = task.name
            if name in done:
                continue
            trace = task.trace
            key = task.origin if not trace else b"%b\0%b" % (trace, task.origin)
            template = templates.get(key)
            if template is None:
                template = self._new_template(key, task.origin, trace)
            graph.add(template, name, name, (), task.predecessors)

    def _new_template(self, key: bytes, origin: bytes, trace: bytes) -> JobTemplate:
        options = SubmitOptions(origin=origin.decode("utf-8", "replace"), trace=trace)
        template = self._templates[key] = self.graph.template(self._session.function, options)
        return template


def provide_unsuccessful(context: Context, graph: GraphSubmission, tasks: Sequence[Task]) -> Reading[None]:
    """Look up failed tasks that a graph of these may retry or wait for; raises Refused if they cannot be read."""
    unknown = graph.unknown_among([name for task in tasks for name in (task.name, *task.predecessors)])
    if unknown:
        found_by_name = yield from context.find_named(frozenset(unknown))
        for job in found_by_name.values():
            if job.state in FINAL_STATES and job.state is not DONE:
                graph.recall(job)
    names = [task.name for task in tasks]
    while job_ids := graph.unsuccessful_among(names):  # others may fail meanwhile
        unkept = {job_id: ended for job_id in job_ids if (ended := context.find_unkept_end(job_id)) is not None}
        found = yield from context.find_jobs([job_id for job_id in job_ids if job_id not in unkept])
        for job_id in job_ids:
            graph.provide(job_id, unkept.get(job_id) or found.get(job_id))
