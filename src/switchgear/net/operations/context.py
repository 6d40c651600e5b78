"""`OperationsContext`: what the handlers of all verbs share: the hub, job handles, and figures of the listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from switchgear.errors import StorageError
from switchgear.joblog.recorder import Recorder
from switchgear.model import Function, Job, Worker
from switchgear.model.duration_histogram import DurationHistogram
from switchgear.net.connections.tcp_connection import Connection
from switchgear.net.hub import Hub
from switchgear.net.monitoring.recent_counts import RecentCounts
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.pending_read import PendingRead, Reading
from switchgear.verbs.answers import ListenerFigures, NodeAnswer

__all__ = ["OperationsContext", "done_at_once", "done_in_thread"]


def done_at_once(work: Callable[[], Any]) -> PendingRead:
    """A read that has ended: where there is no event loop that could wait for a thread."""
    read = PendingRead()
    try:
        read.finish(work())
    except Exception as error:
        read.finish(None, error)
    return read


def done_in_thread(work: Callable[[], Any]) -> PendingRead:
    """A read that a thread does while the event loop goes on."""
    read = PendingRead()

    def ended(future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            read.finish(None, StorageError("the read was abandoned"))
        elif (error := future.exception()) is not None:
            read.finish(None, error if isinstance(error, Exception) else StorageError(str(error)))
        else:
            read.finish(future.result())

    asyncio.get_running_loop().run_in_executor(None, work).add_done_callback(ended)
    return read


class OperationsContext:
    """Shared state of the operator verbs of one server."""

    is_one_of_several = False  # servers that own functions: the engine may have jobs of others

    def __init__(self, hub: Hub, handle_prefix: str) -> None:
        self.hub = hub
        self.engine = hub.engine
        self.handle_prefix = handle_prefix
        self.started_us = hub.clock.now_us()
        # Not every server has these; the service sets them.
        self.connections: Callable[[], int] = lambda: 0
        self.listeners: Callable[[], list[ListenerFigures]] = list
        self.open_connections: Callable[[], Sequence[Connection]] = tuple
        self.nodes: Callable[[], list[NodeAnswer]] = list
        # Opens an HTTP listener for the dashboard, at a port; None: the server listens only where it was told to.
        self.open_dashboard: Callable[[int], PendingRead] | None = None
        self.recorder: Recorder | None = None
        self.waiting_changes: Callable[[], int] = lambda: 0  # jobs that the store does not have in their latest state
        self.commit_times = DurationHistogram()
        self.loop_lag_seconds: Callable[[], float] = lambda: 0.0  # see `net.monitoring.loop_lag`
        # Does something that may take long apart from the event loop; raises what that raises.
        self.in_thread: Callable[[Callable[[], Any]], PendingRead] = done_at_once
        self.recent_counts = RecentCounts()  # of all functions together
        self.recent_events = RecentCounts()  # of the telemetry
        self._prefix = handle_prefix.encode()

    # --- what this server has; one of several that own functions has only its own: see `net.owners` ---

    def functions(self) -> list[Function]:
        """The functions of which this server has the jobs."""
        return list(self.engine.functions.values())

    def job_count(self) -> int:
        """How many unfinished jobs there are."""
        return self.engine.job_count()

    def workers(self) -> list[Worker]:
        """The workers that are connected to this server."""
        return list(self.engine.workers.values())

    def worker_count(self, function: Function) -> int:
        """How many workers that are connected to this server can do a function."""
        return len(function.workers)

    def has_own(self, job: Job) -> bool:
        """Whether the function of a job is this server's."""
        return True

    def find_schedule_function(self, name: bytes) -> Reading[bytes | None]:
        """The function of the schedule with this name, or `None`; raises Refused."""
        yield from ()
        schedule = self.engine.schedules.get(name)
        return None if schedule is None else schedule.function_name

    # --- jobs by their handles ---

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
