"""Who makes the server hold what: the connections, and why submissions are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from switchgear.engine.core import REFUSED_DRAINING
from switchgear.memory import MemoryAccount
from switchgear.model.job import JOB_BYTES
from switchgear.net.hub import Hub
from switchgear.net.steps import Steps, in_steps
from switchgear.net.tcp import Connection
from switchgear.net.values import plain, whole
from switchgear.units import short_bytes

__all__ = ["ConnectionOperations", "memory_figures"]

MOST_LISTED: Final = 1_000
USUALLY_LISTED: Final = 100
# So many of the jobs that a connection waits for are added up; of one that waits for more, it is these.
MOST_JOBS_MEASURED: Final = 2_000
CONNECTIONS_PER_STEP: Final = 5

# Where the bytes of the account are, in words.
HOLDERS: Final = {
    "jobs": "unfinished jobs",
    "held_keys": "unique keys that are held for a time",
    "limiters": "keys with limits of their own",
    "history": "finished jobs",
    "drafts": "GearMonkey jobs that are not pushed yet",
    "subscriptions": "subscriptions",
    "schedules": "schedules",
}


class Office(Protocol):
    """What is needed of the other operations."""

    hub: Hub
    open_connections: Callable[[], Sequence[Connection]]


def memory_figures(memory: MemoryAccount) -> dict[str, int]:
    """What peers make the server hold, in bytes; a limit of zero means that there is none."""
    return {
        "limit": memory.limit_bytes,
        "held": memory.held_bytes,
        "jobs": memory.job_bytes,
        "held_keys": memory.key_bytes,
        "limiters": memory.limiter_bytes,
        "history": memory.history_bytes,
        "drafts": memory.draft_bytes,
        "subscriptions": memory.subscription_bytes,
        "schedules": memory.schedule_bytes,
        "registrations": memory.registration_bytes,
        "input": memory.input_bytes,
        "output": memory.output_bytes,
    }


class ConnectionOperations:
    """The verbs `connections` and `explain_server`."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._hub = office.hub
        self._engine = office.hub.engine

    def verbs(self) -> dict[str, Callable[..., Any]]:
        """The verbs by name."""
        return {"connections": self.connections, "explain_server": self.explain_server}

    def connections(self, limit: int = USUALLY_LISTED) -> Steps:
        """The connections that make the server hold most, the largest first, and how many there are in all."""
        limit = max(1, min(whole(limit), MOST_LISTED))
        connections = list(self._office.open_connections())
        found = yield from in_steps(self._measured, connections, CONNECTIONS_PER_STEP)
        found.sort(key=lambda connection: -connection["held"])
        return {"connections": found[:limit], "count": len(connections)}

    def _measured(self, connection: Connection) -> dict[str, Any]:
        session = connection.session
        watching = session.watching if session is not None else {}
        workers = getattr(session, "workers", None) or {None: getattr(session, "worker", None)}
        subscriptions = [getattr(session, "channels", ()), getattr(session, "patterns", ())]
        jobs = islice(watching.values(), MOST_JOBS_MEASURED)
        waiting_bytes = sum(job.entry_bytes + job.content_bytes for job in jobs)
        return {
            **connection.describe(),
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
        """Why submissions are refused, or that they are not; and who holds most if memory is short."""
        refusal = self._engine.refusal
        memory = self._engine.memory
        reasons: list[dict[str, Any]] = []
        if refusal is not None:
            word = "draining" if refusal.reason == REFUSED_DRAINING else refusal.reason
            reasons.append(reason(word, f"submissions are refused: {refusal}", {}))
        if not memory.has_room(JOB_BYTES):
            reasons += yield from self._about_memory()
        if not reasons:
            reasons.append(reason("accepting", "submissions are taken", {}))
        return {"reasons": reasons, "memory": memory_figures(memory)}

    def _about_memory(self) -> Steps:
        figures = memory_figures(self._engine.memory)
        largest = max(HOLDERS, key=lambda name: figures[name])
        text = f"memory is full: {short_bytes(figures['held'])} of {short_bytes(figures['limit'])} are held"
        text += f" (limits.memory_bytes), most of it for {HOLDERS[largest]}: {short_bytes(figures[largest])}"
        reasons = [reason("memory_full", text, figures)]
        functions = self._engine.functions.values()
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


def reason(word: str, text: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"word": word, "text": text, "data": data}
