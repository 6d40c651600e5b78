"""The verb `audit`: actions of operators and refusals, read from the database of the job log."""

from __future__ import annotations

import asyncio
from typing import Any

from switchgear.joblog.audit import AuditQuery
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import Steps
from switchgear.protocols.pending_read import PendingRead, awaited
from switchgear.verbs.answers import AuditPage

__all__ = ["AuditOperations"]


class AuditOperations:
    """The verb `audit`."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context

    def audit(self, since: float, before_id: int, limit: int) -> Steps:
        """Entries that match, newest first; the database is read in a thread of its own."""
        recorder = self._context.recorder
        if recorder is None:
            none: AuditPage = {"entries": [], "next_before_id": None, "stored": False}
            return none
        read = PendingRead()
        query = AuditQuery(since=since, before_id=before_id, limit=limit)
        reading = asyncio.get_running_loop().run_in_executor(None, recorder.find_audit, query)

        def ended(future: asyncio.Future[Any]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            read.finish(None if future.cancelled() or error else future.result(), error)

        reading.add_done_callback(ended)
        found = yield from awaited(read)
        page: AuditPage = {
            "entries": [
                {
                    "id": entry.id,
                    "at": entry.at,
                    "identity": entry.identity,
                    "protocol": entry.protocol,
                    "address": entry.address,
                    "verb": entry.verb,
                    "target": entry.target,
                    "outcome": entry.outcome,
                    "host": entry.host,
                }
                for entry in found
            ],
            "next_before_id": found[-1].id if len(found) == limit else None,
            "stored": True,
        }
        return page
