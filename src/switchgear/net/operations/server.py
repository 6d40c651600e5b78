"""The verbs about the server itself: `server`, `open_dashboard`, `nodes` and `workers`."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import msgspec

from switchgear.dashboard.address import NO_DASHBOARD, dashboard_url
from switchgear.errors import ConfigError, Refused
from switchgear.json_bytes import plain
from switchgear.model import SECOND_US, Worker
from switchgear.net.operations.connections import memory_figures
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import Steps, in_steps
from switchgear.protocols.pending_read import awaited
from switchgear.refusals import REFUSED_CONFLICT
from switchgear.resources import shown_amounts
from switchgear.tags import shown_tags
from switchgear.verbs.answers import DashboardAnswer, JobLogFigures, NodeAnswer, ServerAnswer, WorkerAnswer
from switchgear.version import VERSION

__all__ = ["ServerOperations"]

# A list of workers names at most this many jobs and functions of each worker.
MOST_NAMED: Final = 100


class ServerOperations:
    """The verbs about the server as a whole and its workers."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self._engine = context.engine

    def server(self) -> ServerAnswer:
        context, engine, hub = self._context, self._engine, self._context.hub
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "uptime_seconds": (hub.clock.now_us() - context.started_us) / SECOND_US,
            "handle_prefix": context.handle_prefix,
            "store": hub.store.url,
            "storage_error": str(hub.storage_error or ""),
            "jobs": context.job_count(),
            "functions": len(context.functions()),
            "workers": len(context.workers()),
            "connections": context.connections(),
            "draining": engine.refusal is not None and engine.refusal.reason == "draining",
            "memory": memory_figures(engine.memory),
            "listeners": context.listeners(),
            "joblog": self._joblog(),
            "events": dict(hub.telemetry.counts),
        }

    def _joblog(self) -> JobLogFigures | None:
        recorder = self._context.recorder
        if recorder is None:
            return None
        return {
            "url": recorder.url,
            "written": recorder.written,
            "waiting": recorder.waiting,
            "dropped": recorder.dropped,
        }

    def open_dashboard(self, port: int) -> Steps:
        context = self._context
        with suppress(ConfigError):
            answer: DashboardAnswer = {"url": dashboard_url(each["url"] for each in context.listeners())}
            return answer
        if context.open_dashboard is None:
            raise Refused(REFUSED_CONFLICT, NO_DASHBOARD)
        yield from awaited(context.open_dashboard(port))
        answer = {"url": dashboard_url(each["url"] for each in context.listeners())}
        return answer

    def nodes(self) -> list[NodeAnswer]:
        return self._context.nodes()

    def workers(self) -> Steps:
        return in_steps(self._worker, self._context.workers())

    def _worker(self, worker: Worker) -> WorkerAnswer:
        transport = getattr(worker.peer, "transport", None)
        return {
            "id": worker.id,
            "name": plain(worker.name),
            "protocol": worker.protocol,
            "address": f"{transport.host}:{transport.port}" if transport is not None and transport.host else "",
            "functions": [plain(function.name) for function in islice(worker.timeouts_us, MOST_NAMED)],
            "functions_count": len(worker.timeouts_us),
            "tags": shown_tags(worker.tags),
            "resources": shown_amounts(worker.resources.items()),
            "resources_free": shown_amounts(worker.offer.free.items() if worker.offer is not None else ()),
            "running": [self._context.handle(job_id) for job_id in islice(worker.running, MOST_NAMED)],
            "running_count": len(worker.running),
            "asleep": worker.asleep,
            "connected_at": worker.since_us / SECOND_US,
            "status": status_of(worker),
            "answered_control": worker.answered_control,
        }


def status_of(worker: Worker) -> dict[str, Any] | None:
    """What the worker says of itself; `None` if it says nothing that can be read."""
    if worker.status is None:
        return None
    try:
        found = msgspec.json.decode(worker.status, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return found
