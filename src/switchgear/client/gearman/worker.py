"""`Worker`: runs asyncio handlers for the jobs of any number of Gearman servers."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from switchgear.backoff import ReconnectBackoff
from switchgear.client.address import DEFAULT_URL, Locator, ServerAddress
from switchgear.client.cluster_nodes import ClusterNodes, server_at
from switchgear.client.gearman.assigned_job import AssignedJob, Complete, Fail, Outcome
from switchgear.client.gearman.packets import name_text
from switchgear.client.gearman.worker_connection import WorkerConnection
from switchgear.client.gearman.worker_events import JobAssigned, JobUnrunnable, RefusedByServer, WorkerEvent
from switchgear.client.gearman.worker_protocol import WorkerIntroduction
from switchgear.errors import JobFailed, ServerRefused
from switchgear.resources import canonical_resources
from switchgear.tags import canonical_tags, shown_tags

__all__ = ["DEFAULT_DRAIN_SECONDS", "Handler", "Slots", "Worker", "WorkerJob", "WorkerObserver"]

DEFAULT_DRAIN_SECONDS: Final = 30.0
_LARGEST_PROGRESS: Final = 2**32 - 1  # the largest number that servers keep


class WorkerJob:
    """A job as its handler sees it."""

    def __init__(self, connection: WorkerConnection[RunningHandler], assignment: AssignedJob) -> None:
        self.handle = assignment.handle
        self.function = assignment.function
        self.unique = assignment.unique
        self.payload = assignment.payload
        assert connection.address is not None
        self.server = connection.address
        self._connection = connection

    def __repr__(self) -> str:
        return f"WorkerJob({self.handle!r}, {self.function!r})"

    def progress(self, numerator: int, denominator: int) -> None:
        """Report the progress of the job: parts done, and parts in all."""
        done, total = (max(0, min(number, _LARGEST_PROGRESS)) for number in (numerator, denominator))
        if self._is_present:
            self._connection.protocol.progress(self.handle, done, total)
            self._connection.flush_soon()

    def data(self, data: bytes) -> None:
        """Send part of the result ahead of its end."""
        if self._is_present:
            self._connection.protocol.data(self.handle, data)
            self._connection.flush_soon()

    def warn(self, data: bytes) -> None:
        """Send a warning, which is not part of the result."""
        if self._is_present:
            self._connection.protocol.warning(self.handle, data)
            self._connection.flush_soon()

    @property
    def _is_present(self) -> bool:
        """Whether this is the attempt that a report would count for.

        A server that takes a job back after its time limit may assign it to the same worker again.
        """
        running = self._connection.jobs.get(self.handle)
        return running is not None and running.job is self

    async def drain(self) -> None:
        """Wait until the server takes more: for handlers that send much."""
        await self._connection.drain()


Handler = Callable[[WorkerJob], Awaitable[bytes]]


class WorkerObserver:
    """Callbacks for what a worker does, which do nothing unless overridden.  Must not raise."""

    def connected(self, server: ServerAddress) -> None:
        """The worker is connected, and has announced its functions."""

    def disconnected(self, server: ServerAddress, problem: str, retry_seconds: float) -> None:
        """There is no connection; another attempt follows after a pause."""

    def refused(self, server: ServerAddress, error: ServerRefused) -> None:
        """The server answered with an error, such as to the result of a job that another worker has now."""

    def job_started(self, job: WorkerJob) -> None:
        """A handler is about to be called."""

    def job_ended(self, job: WorkerJob, failure: str | None, seconds: float) -> None:
        """The end of a job was reported; `failure` is None if it has succeeded."""

    def job_dropped(self, job: WorkerJob) -> None:
        """A handler was cancelled; the server will have the job run again."""


class Slots:
    """How many jobs run at once, over all servers, and how many at all.

    When only some jobs are to be run, the slot of the last ones is not given back.
    """

    def __init__(self, parallel: int, total: int = 0) -> None:
        self.finished = 0
        self.total = total  # 0: no limit
        self._free = min(parallel, total) if total else parallel
        self._unstarted = total - self._free

    @property
    def all_finished(self) -> bool:
        """Whether as many jobs as wanted have been run."""
        return bool(self.total) and self.finished >= self.total

    def acquire(self) -> bool:
        """Take a slot; False if none is free."""
        if not self._free:
            return False
        self._free -= 1
        return True

    def release(self, *, finished: bool) -> None:
        """Give back a slot, with or without having finished a job in it."""
        if finished:
            self.finished += 1
            if self.total and not self._unstarted:
                return
            self._unstarted -= bool(self.total)
        self._free += 1


class RunningHandler:
    """A handler that runs for a job."""

    def __init__(self, job: WorkerJob, connection: WorkerConnection[RunningHandler]) -> None:
        self.job = job
        self.connection = connection
        self.task: asyncio.Task[None]
        self.is_reported = False

    @property
    def is_assigned(self) -> bool:
        """Whether the server still expects a report over the connection that the job came by."""
        return self.connection.jobs.get(self.job.handle) is self


class Worker:
    """Runs jobs of the given functions, `slots` of them at once, from one server or several.

    A server that cannot be reached is tried again and again, after pauses that grow to half a minute; meanwhile the
    others are served.  After the connection is lost the functions are announced anew, and handlers of jobs that
    came over it are cancelled, because the server assigns those jobs to another worker: otherwise one job could run
    twice at once, even in this very process.
    """

    def __init__(
        self,
        urls: str | Iterable[str | Locator] = DEFAULT_URL,
        functions: Mapping[str, Handler] | None = None,
        slots: int = 1,
        *,
        jobs_total: int = 0,
        name: str = "",
        tags: Iterable[str] = (),
        resources: str | Mapping[str, str | float] = "",
        observer: WorkerObserver | None = None,
        backoff: ReconnectBackoff | None = None,
    ) -> None:
        """`jobs_total` is how many jobs to run before stopping, 0 for no end; `name` is what the server shows.

        A worker with `tags` and `resources`, such as `{"memory": "64G"}`, also gets jobs that require them. That needs
        a Switchgear server.

        In place of a URL there may be a `Locator`, for a server that moves; it is asked at once, and again before each
        attempt to connect.
        """
        given = [urls] if isinstance(urls, str) else urls
        servers = [server_at(server) if isinstance(server, str) else server for server in given]
        if not servers or not functions or slots < 1:
            raise ValueError("a worker needs a server, a function and a slot")
        self._handlers = dict(functions)
        self._slots = Slots(slots, jobs_total)
        self._observer = observer or WorkerObserver()
        introduction = WorkerIntroduction(
            name or f"{socket.gethostname()}/{os.getpid()}",
            dict.fromkeys(self._handlers, 0.0),
            lease_seconds=0.0,
            uses_extensions=False,
            tags=shown_tags(canonical_tags(tags)),
            resources=canonical_resources(resources).decode(),
        )
        self._connections = [
            WorkerConnection[RunningHandler](server, introduction, self, backoff or ReconnectBackoff())
            for server in dict.fromkeys(servers)
        ]
        for connection in self._connections:
            if isinstance(connection.server, ClusterNodes):
                connection.address = connection.server.nodes[0]  # none of them need be there yet
            elif not isinstance(connection.server, ServerAddress):
                connection.address = connection.server.address()
        self._turns = list(self._connections)  # the connection that asked for a job longest ago comes first
        self._grabbing: set[WorkerConnection[RunningHandler]] = set()  # each has a slot for the job that may come
        self._running: set[RunningHandler] = set()
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._drain_over = asyncio.Event()
        self._closing = False  # no more reports are sent

    async def run(self) -> None:
        """Work until `stop` is called and the running jobs are finished or given up.  To be called once."""
        tasks = [asyncio.create_task(connection.run()) for connection in self._connections]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            if not self._stopping.is_set():
                for task in tasks:
                    if task.done():
                        task.result()  # a connection ends by itself only through a defect, which is raised here
            await self._finish_jobs()
        finally:
            # First the handlers, which may need a moment to clean up, then the connections: once one is closed, the
            # server starts its jobs elsewhere.
            self._closing = True
            try:
                await self._cancel_handlers(list(self._running))
            finally:
                stopping.cancel()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(stopping, *tasks, return_exceptions=True)

    def stop(self, drain_seconds: float = DEFAULT_DRAIN_SECONDS) -> None:
        """Take no more jobs; `run` returns when those that run have ended, or after `drain_seconds`.

        What still runs then is cancelled, and the server has it run again.  Another call may shorten the time.  To be
        called where the worker's event loop runs.
        """
        self._stopping.set()
        for connection in self._connections:
            connection.stop()
        asyncio.get_running_loop().call_later(drain_seconds, self._drain_over.set)

    async def _finish_jobs(self) -> None:
        drain_over = asyncio.create_task(self._drain_over.wait())
        try:
            while not drain_over.done():
                if not self._running and not self._grabbing:
                    await asyncio.gather(*(connection.confirm_reports() for connection in self._connections))
                    return
                self._changed.clear()
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait({drain_over, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            drain_over.cancel()

    # --- WorkerConnectionOwner ---

    def on_connected(self, connection: WorkerConnection[RunningHandler], *, again: bool) -> None:
        assert connection.address is not None
        self._observer.connected(connection.address)

    def on_event(self, connection: WorkerConnection[RunningHandler], event: WorkerEvent) -> None:
        assert connection.address is not None
        if isinstance(event, JobAssigned):
            self._on_assigned(connection, event.assignment)
        elif isinstance(event, JobUnrunnable):
            job = WorkerJob(connection, event.assignment)
            self._observer.job_started(job)
            self._observer.job_ended(job, event.error, 0.0)
        elif isinstance(event, RefusedByServer):
            self._observer.refused(connection.address, event.error)

    def after_events(self) -> None:
        for connection in list(self._grabbing):
            if not connection.protocol.grabbing:  # there was no job
                self._grabbing.discard(connection)
                self._slots.release(finished=False)
        self._grab()
        self._changed.set()

    async def on_disconnected(
        self,
        connection: WorkerConnection[RunningHandler],
        jobs: list[RunningHandler],
        problem: str,
        retry_seconds: float,
    ) -> None:
        if connection in self._grabbing:
            self._grabbing.discard(connection)
            self._slots.release(finished=False)
        await self._cancel_handlers(jobs)
        self._changed.set()
        if not self._stopping.is_set():
            assert connection.address is not None
            self._observer.disconnected(connection.address, problem, retry_seconds)
        self._grab()

    # --- jobs ---

    def _grab(self) -> None:
        """Ask for a job wherever one may be, as long as slots are free; one job at a time per connection."""
        for connection in list(self._turns):
            if not connection.connected or not connection.protocol.can_grab:
                continue
            if self._closing or not self._slots.acquire():
                return
            self._grabbing.add(connection)
            self._turns.remove(connection)
            self._turns.append(connection)
            connection.protocol.set_room(1)
            connection.flush_soon()

    def _on_assigned(self, connection: WorkerConnection[RunningHandler], assignment: AssignedJob) -> None:
        if self._closing:
            return  # the server assigns it again when the connection is closed
        if connection not in self._grabbing:
            connection.abort("there is no room for its job", at_once=True)
            return
        self._grabbing.discard(connection)  # the job has the slot now
        running = RunningHandler(WorkerJob(connection, assignment), connection)
        connection.jobs[assignment.handle] = running
        self._running.add(running)
        running.task = asyncio.create_task(self._run_handler(running))
        # Not at the end of the task's own code, because a task that is cancelled early never runs any of it.
        running.task.add_done_callback(lambda _: self._on_handler_ended(running))

    async def _run_handler(self, running: RunningHandler) -> None:
        job = running.job
        self._observer.job_started(job)
        started = time.monotonic()
        failure: str | None = None
        outcome: Outcome
        try:
            outcome = Complete(b"".join((await self._handlers[job.function](job),)))  # raises if it is not bytes
        except JobFailed as failed:
            failure = str(failed)
            outcome = Fail(name_text(failed.error))
        except Exception as error:  # any defect of a handler is the end of its job, not of the worker
            failure = f"{type(error).__name__}: {error}"
            outcome = Fail(failure.encode(errors="replace").decode())
        if running.is_assigned and running.connection.connected and not self._closing:
            running.is_reported = True
            running.connection.protocol.report(job.handle, outcome)
            running.connection.flush_soon()
            self._observer.job_ended(job, failure, time.monotonic() - started)

    def _on_handler_ended(self, running: RunningHandler) -> None:
        self._running.discard(running)
        if running.is_assigned:
            del running.connection.jobs[running.job.handle]
        self._slots.release(finished=running.is_reported)
        if running.is_reported and self._slots.all_finished:
            self.stop()
        self._grab()
        self._changed.set()

    async def _cancel_handlers(self, handlers: list[RunningHandler]) -> None:
        """Cancel handlers whose jobs were taken from us, and wait until they have ended."""
        for running in handlers:
            running.task.cancel()
        await asyncio.gather(*(running.task for running in handlers), return_exceptions=True)
        for running in handlers:
            if not running.is_reported:
                self._observer.job_dropped(running.job)
