"""The verbs `connections` and `explain_server`: memory of each connection, and why submissions are refused."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from switchgear.json_bytes import plain
from switchgear.memory import MemoryAccount
from switchgear.model.job import JOB_BYTES
from switchgear.net.connections.tcp_connection import Connection
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import Steps, in_steps
from switchgear.refusals import REFUSED_DRAINING
from switchgear.units import short_bytes
from switchgear.verbs.answers import ConnectionAnswer, ConnectionsAnswer, MemoryFigures, ReasonAnswer, ServerExplanation

__all__ = ["ConnectionOperations", "memory_figures"]

# The sizes of this many jobs that a connection waits for are added up; further jobs are not counted.
MOST_JOBS_MEASURED: Final = 2_000
CONNECTIONS_PER_STEP: Final = 5

# Descriptions of the parts of the memory account.
HOLDERS: Final = {
    "jobs": "unfinished jobs",
    "held_keys": "unique keys that are held for a time",
    "limiters": "keys with limits of their own",
    "history": "finished jobs",
    "failures": "names and errors of jobs that ended without success",
    "drafts": "GearMonkey jobs that are not pushed yet",
    "subscriptions": "subscriptions",
    "schedules": "schedules",
    "series": "figures of functions over time",
}


def memory_figures(memory: MemoryAccount) -> MemoryFigures:
    """The memory account as figures for operators."""
    return {
        "limit": memory.limit_bytes,
        "held": memory.held_bytes,
        "jobs": memory.job_bytes,
        "held_keys": memory.key_bytes,
        "limiters": memory.limiter_bytes,
        "history": memory.history_bytes,
        "failures": memory.failure_bytes,
        "drafts": memory.draft_bytes,
        "subscriptions": memory.subscription_bytes,
        "schedules": memory.schedule_bytes,
        "series": memory.series_bytes,
        "registrations": memory.registration_bytes,
        "input": memory.input_bytes,
        "output": memory.output_bytes,
    }


class ConnectionOperations:
    """The verbs `connections` and `explain_server`."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self._engine = context.engine

    def connections(self, limit: int) -> Steps:
        """The connections that hold most memory, the largest first, and the total number of connections."""
        connections = list(self._context.open_connections())
        found = yield from in_steps(self._measured, connections, CONNECTIONS_PER_STEP)
        found.sort(key=lambda connection: -connection["held"])
        answer: ConnectionsAnswer = {"connections": found[:limit], "count": len(connections)}
        return answer

    def _measured(self, connection: Connection) -> ConnectionAnswer:
        session = connection.session
        watching = session.subscriptions if session is not None else {}
        workers = getattr(session, "workers", None) or {None: getattr(session, "worker", None)}
        subscriptions = [getattr(session, "channels", ()), getattr(session, "patterns", ())]
        jobs = islice(watching.values(), MOST_JOBS_MEASURED)
        waiting_bytes = sum(job.entry_bytes + job.content_bytes for job in jobs)
        return {
            "address": f"{connection.host}:{connection.port}",
            "input": connection.input_bytes,
            "output": connection.output_bytes,
            "protocol": session.protocol if session is not None else "",
            "client_id": plain(getattr(session, "client_id", b"")),
            "received": connection.received_bytes,
            "waits_for": len(watching),
            "waits_for_bytes": waiting_bytes,
            "running": sum(len(worker.running) for worker in workers.values() if worker is not None),
            "subscriptions": sum(map(len, subscriptions)),
            "held": connection.held_bytes + waiting_bytes,
        }

    def explain_server(self) -> Steps:
        """Why submissions are refused, if they are; if memory is short, also which connections hold most."""
        refusal = self._engine.refusal
        memory = self._engine.memory
        reasons: list[ReasonAnswer] = []
        if refusal is not None:
            word = "draining" if refusal.reason == REFUSED_DRAINING else refusal.reason
            reasons.append(reason(word, f"submissions are refused: {refusal}", {}))
        if not memory.has_room(JOB_BYTES):
            reasons += yield from self._about_memory()
        if not reasons:
            reasons.append(reason("accepting", "submissions are taken", {}))
        answer: ServerExplanation = {"reasons": reasons, "memory": memory_figures(memory)}
        return answer

    def _about_memory(self) -> Steps:
        figures = memory_figures(self._engine.memory)
        by_name: Mapping[str, Any] = figures
        largest = max(HOLDERS, key=lambda name: by_name[name])
        text = f"memory is full: {short_bytes(figures['held'])} of {short_bytes(figures['limit'])} are held"
        text += f" (limits.memory_bytes), most of it for {HOLDERS[largest]}: {short_bytes(by_name[largest])}"
        reasons = [reason("memory_full", text, figures)]
        functions = self._context.functions()
        function = max(functions, key=lambda function: function.total, default=None)
        if function is not None and function.total:
            name = plain(function.name)
            text = f"the function with most jobs is {name!r}, with {function.total}"
            reasons.append(reason("largest_function", text, {"function": name, "jobs": function.total}))
        found = yield from self.connections(1)
        for connection in found["connections"]:
            text = f"the connection that holds most is {connection['address']}: {short_bytes(connection['held'])}"
            reasons.append(reason("largest_connection", text, connection))
        return reasons


def reason(word: str, text: str, data: Mapping[str, Any]) -> ReasonAnswer:
    return {"word": word, "text": text, "data": dict(data)}
