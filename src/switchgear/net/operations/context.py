"""`OperationsContext`: what the handlers of all verbs share: the hub, job handles, and figures of the listeners."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from switchgear.joblog.recorder import Recorder
from switchgear.model import Job
from switchgear.net.hub import Hub
from switchgear.net.recent_counts import RecentCounts
from switchgear.net.tcp import Connection
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.pending_read import Reading
from switchgear.verbs.answers import ListenerFigures

__all__ = ["OperationsContext"]


class OperationsContext:
    """Shared state of the operator verbs of one server."""

    def __init__(self, hub: Hub, handle_prefix: str) -> None:
        self.hub = hub
        self.engine = hub.engine
        self.handle_prefix = handle_prefix
        self.started_us = hub.clock.now_us()
        # Not every server has these; the service sets them.
        self.connections: Callable[[], int] = lambda: 0
        self.listeners: Callable[[], list[ListenerFigures]] = list
        self.open_connections: Callable[[], Sequence[Connection]] = tuple
        self.recorder: Recorder | None = None
        self.waiting_changes: Callable[[], int] = lambda: 0  # jobs that the store does not have in their latest state
        self.recent_counts = RecentCounts()  # of all functions together
        self.recent_events = RecentCounts()  # of the telemetry
        self._prefix = handle_prefix.encode()

    def handle(self, job_id: int) -> str:
        """The handle of a job."""
        return f"{self.handle_prefix}{job_id}"

    def job_id(self, handle: str) -> int:
        """The id of the job with this complete handle, or 0."""
        return number_in_handle(handle.encode(), self._prefix)

    def named_job(self, handle: str) -> Reading[Job]:
        """A job by its handle, or by its id alone, which is the end of the handle; raises LookupError."""
        job_id = self.job_id(handle) or number_in_handle(handle.encode(), b"")
        job = yield from self.hub.find_job(job_id)
        if job is None:
            raise LookupError("there is no such job, or it finished so long ago that it was dropped from the history")
        return job
