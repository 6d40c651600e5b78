"""`SlotPool`: the slots of one executor, and a connection to each server that may fill them.

To each server a pool is one worker.  It grants as much credit to each of them as there are free slots; a job from one
takes back a credit from the others.  If two push a job at the same moment, one of the jobs is released unharmed.

Where jobs take very little time, a server of ours may push some ahead of the free slots (`prefetch`).

Attempts that run when their connection is lost go on, and the server is asked for their jobs when it is back
(`interrupted_attempts`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from switchgear.app.declarations import undeclared_text
from switchgear.app.server_locations import ServerLocation
from switchgear.app.worker.disconnected_attempts import PATIENCE_SECONDS as RESUMING_SECONDS
from switchgear.app.worker.disconnected_attempts import DisconnectedAttempts
from switchgear.app.worker.executor import Attempt, Executor, ExecutorOwner
from switchgear.app.worker.observer import AppWorkerObserver
from switchgear.app.worker.prefetch import Prefetch
from switchgear.backoff import ReconnectBackoff
from switchgear.client.gearman.assigned_job import SUSPENDED, Outcome, Stopped
from switchgear.client.gearman.error_codes import LEASE_EXPIRED
from switchgear.client.gearman.worker_connection import WorkerConnection
from switchgear.client.gearman.worker_events import (
    ControlRequested,
    FoundUndeclared,
    JobAssigned,
    JobResumed,
    JobRevoked,
    JobUnrunnable,
    ReadyJobsCounted,
    RefusedByServer,
    WorkerEvent,
)
from switchgear.client.gearman.worker_protocol import HELD_BACK, TIMED_OUT, WorkerIntroduction

if TYPE_CHECKING:
    from switchgear.app.task import Task

__all__ = ["SlotPool"]

_LOG: Final = logging.getLogger("switchgear.worker")

STOPPING: Final = "the worker stops"
CONNECTION_LOST: Final = "the connection to the server was lost"
NOT_OURS: Final = "the connection was lost, and when it was back another worker had the job, or it had ended"
INTERRUPTED: Final = "the program has ended; the interrupted start counts, and the job is left to a worker"
# Our own server watches over time limits.  This long after one we act ourselves, should it be silent.
PATIENCE_SECONDS: Final = 1.0


class SlotPool(ExecutorOwner):
    """Takes jobs from its connections, has its executor run them, and reports."""

    def __init__(
        self,
        label: str,
        executor: Executor,
        tasks: Mapping[str, Task[Any, Any]],
        locations: Sequence[ServerLocation],
        introduction: WorkerIntroduction,
        observer: AppWorkerObserver,
        on_change: Callable[[bool], None],
        backoff: ReconnectBackoff | None = None,
        *,
        prefetch: Prefetch | None = None,
        counts_interruptions: bool = False,
        on_control: Callable[[SlotPool, ControlRequested], dict[str, Any]] = lambda pool, request: {},
        interrupted: DisconnectedAttempts | None = None,
    ) -> None:
        """`on_change` is called after each end of an attempt: True if the job was finished here.

        `prefetch` decides how many jobs may wait here for a slot, if the executor lets them; None: none.  If it
        `counts_interruptions`, an attempt that is stopped because the worker stops is lost, as if it were killed.
        `interrupted` is shared with the other pools of the worker.
        """
        self.label = label
        self._on_control = on_control  # does what an operator wants, and returns what to add to the status
        self.executor = executor
        self.tasks = tasks
        self.attempts: set[Attempt] = set()
        self.assigned_jobs = 0
        self.ready_jobs: dict[WorkerConnection[Attempt], int] = {}  # at each server, when it was last asked
        self.connections = [
            WorkerConnection[Attempt](
                location, introduction, self, backoff or ReconnectBackoff(), server_name=location.url
            )
            for location in locations
        ]
        self._declared = [
            (verb, str(arguments.get("name") or arguments.get("function") or ""))
            for verb, arguments in introduction.declarations
        ]
        self._prefetch = prefetch if prefetch is not None and executor.takes_ahead else Prefetch(0, ())
        self._ahead = 0  # how many may be here beyond the slots
        self._observer = observer
        self._on_change = on_change
        self._stopping = False
        self._counts_interruptions = counts_interruptions
        self._interrupted: set[WorkerConnection[Attempt]] = set()  # over which attempts came that were stopped
        self._without_connection = interrupted if interrupted is not None else DisconnectedAttempts()
        self._without_connection.when_asked(self.rebalance)
        self._waits_until: dict[WorkerConnection[Attempt], float] = {}  # for other pools to ask for their jobs
        self._loop: asyncio.AbstractEventLoop

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Prepare the executor; the connections are run by the caller."""
        self._loop = loop
        self.executor.open(self, loop)

    # --- room ---

    @property
    def occupied(self) -> int:
        """How many slots are taken by jobs, or by grabs that a plain server may still answer with a job."""
        protocols = [connection.protocol for connection in self.connections]
        return len(self.attempts) + sum(protocol.waiting_jobs + protocol.grabbing for protocol in protocols)

    def rebalance(self) -> None:
        """Tell each server how many jobs there is room for."""
        self._share_room()
        for connection in self.connections:
            connection.flush_soon()

    def _share_room(self) -> None:
        takes = self.executor.ready and not self._stopping
        self._ahead = self._prefetch.ahead(self._loop.time()) if takes else 0
        connections = self.connections
        if len(connections) > 1:
            # Plain servers first: a grab at one of them takes a slot, and the credit at the others is less by it.
            connections = sorted(connections, key=lambda connection: connection.protocol.extended)
        for connection in connections:
            protocol = connection.protocol
            room = self.executor.slots + (self._ahead if protocol.extended else 0)
            protocol.set_room(room - self.occupied if takes and not self._leaves_jobs(connection) else 0)

    def _leaves_jobs(self, connection: WorkerConnection[Attempt]) -> bool:
        """Whether the server is to be asked first for the jobs that this worker still runs."""
        if not self._without_connection.has_any_of(connection.server_name):
            return False
        return not connection.subscribed or self._loop.time() < self._waits_until.get(connection, 0.0)

    def stop_taking(self) -> None:
        """Take no more jobs.  A job that a plain server was asked for may still come, and is run."""
        self._stopping = True
        self._share_room()  # first, else released jobs might be pushed to us again
        self._release_ahead()
        self._drop_interrupted()
        for connection in self.connections:
            connection.stop()
            connection.protocol.release_waiting()
        self.rebalance()

    @property
    def is_idle(self) -> bool:
        """Whether no job runs, and none was asked for."""
        return not self.occupied

    # --- WorkerConnectionOwner ---

    def on_connected(self, connection: WorkerConnection[Attempt], *, again: bool) -> None:
        extended = connection.protocol.extended
        self._observer.subscribed(connection.server_name, self.label, again=again, extended=extended)
        if self._without_connection.has_any_of(connection.server_name):
            self._ask_for_jobs(connection)
        missing = [] if again or extended else self._missing_features()
        if missing:
            text = f"{connection.server_name} is a plain Gearman server; what it cannot do: {', '.join(missing)}"
            self._observer.note(text, is_problem=True)

    def _missing_features(self) -> list[str]:
        """Features that our tasks use and plain servers do not have."""
        retried = [name for name, task in self.tasks.items() if task.settings.retries]
        missing = [f"retries (of {', '.join(retried)}: an error fails the job at once)"] if retried else []
        return missing + [" ".join(filter(None, words)) for words in self._declared]

    async def on_disconnected(
        self, connection: WorkerConnection[Attempt], attempts: list[Attempt], problem: str, retry_seconds: float
    ) -> None:
        self.ready_jobs.pop(connection, None)
        not_started = self.executor.waiting()
        going_on: list[Attempt] = []
        for attempt in attempts:
            attempt.send_progress = None
            if attempt.job.cancelled:
                continue
            if connection.can_resume and not self._stopping and attempt not in not_started:
                going_on.append(attempt)
                continue
            attempt.job.cancel(CONNECTION_LOST)
            self.executor.cancel(attempt, hard=False)
        self._without_connection.keep(connection, going_on)
        if not self._stopping:
            self._observer.disconnected(connection.server_name, self.label, problem, retry_seconds)
        self.rebalance()

    # --- jobs that go on without a connection ---

    def _ask_for_jobs(self, connection: WorkerConnection[Attempt]) -> None:
        """Ask for the jobs that came over an earlier connection, and take no others until all pools have asked."""
        self._waits_until[connection] = self._loop.time() + RESUMING_SECONDS
        self._loop.call_later(RESUMING_SECONDS, self.rebalance)
        interrupted = self._without_connection.of(connection)
        if not interrupted:
            return
        if connection.protocol.extended:
            connection.protocol.start_lease()
        for each in interrupted:
            assignment = each.attempt.assignment
            if connection.protocol.extended:
                connection.protocol.resume(assignment.handle, assignment.attempt)
            else:  # another server has taken its place
                self._on_resumed(connection, JobResumed(assignment.handle, is_ours=False))

    def _on_resumed(self, connection: WorkerConnection[Attempt], event: JobResumed) -> None:
        found = self._without_connection.take(connection, event.handle)
        if found is None:
            if event.is_ours:
                connection.protocol.release(event.handle)
            return
        attempt = found.attempt
        if not event.is_ours:
            self._drop(attempt, NOT_OURS)
        elif found.outcome is not None:
            self._report(connection, attempt, found.outcome)
        else:
            connection.jobs[attempt.handle] = attempt
            attempt.send_progress = partial(self._send_progress, connection)
            self._observer.note(f"{attempt.handle} ({attempt.assignment.function}) goes on")

    def _drop(self, attempt: Attempt, reason: str) -> None:
        """Stop an attempt without a connection, if it still runs, and report nothing about it."""
        if attempt not in self.attempts:
            self._observer.job_dropped(attempt.assignment, reason, attempt.seconds)
        elif not attempt.job.cancelled:
            attempt.job.cancel(reason)
            self.executor.cancel(attempt, hard=False)

    def _drop_interrupted(self) -> None:
        """Drop interrupted attempts: the worker stops, and makes no new connection on which to report them."""
        for connection in self.connections:
            for each in self._without_connection.of(connection):
                self._without_connection.take(connection, each.attempt.handle)
                self._drop(each.attempt, CONNECTION_LOST)

    # --- events of connections ---

    def on_event(self, connection: WorkerConnection[Attempt], event: WorkerEvent) -> None:
        if isinstance(event, JobAssigned):
            self._on_assigned(connection, event)
        elif isinstance(event, JobRevoked):
            self._on_revoked(connection, event)
        elif isinstance(event, JobResumed):
            self._on_resumed(connection, event)
        elif isinstance(event, JobUnrunnable):
            self._observer.note(f"{event.assignment.handle} failed: {event.error}", is_problem=True)
        elif isinstance(event, RefusedByServer) and event.error.code == LEASE_EXPIRED:
            connection.abort(f"the server took this worker for lost: {event.error.text}", at_once=True)
        elif isinstance(event, RefusedByServer):
            text = f"{event.about}: {event.error}" if event.about else str(event.error)
            self._observer.refused(connection.server_name, text)
        elif isinstance(event, FoundUndeclared):
            self._observer.note(undeclared_text(event.schedules, event.functions, event.removed), is_problem=True)
        elif isinstance(event, ControlRequested):
            connection.protocol.send_status(event.number, **self._on_control(self, event))
            connection.flush_soon()
        elif isinstance(event, ReadyJobsCounted):
            self.ready_jobs[connection] = event.ready

    def after_events(self) -> None:
        self.rebalance()

    def _on_assigned(self, connection: WorkerConnection[Attempt], event: JobAssigned) -> None:
        self.assigned_jobs += 1
        assignment = event.assignment
        extended = connection.protocol.extended
        slots = self.executor.slots + (self._ahead if extended else 0)
        has_room = self.executor.ready and len(self.attempts) < slots
        if not has_room or (self._stopping and extended):
            if not connection.protocol.release(assignment.handle):
                connection.abort("there is no room for its job", at_once=True)
            return
        attempt = Attempt(assignment, self.tasks[assignment.function], self._loop)
        attempt.is_quick = self._prefetch.arrived(assignment)
        attempt.send_progress = partial(self._send_progress, connection)
        if assignment.timeout_seconds:
            limit_seconds = assignment.timeout_seconds + (PATIENCE_SECONDS if extended else 0.0)
            attempt.watch = self._loop.call_later(limit_seconds, self._on_timeout, attempt)
        self.attempts.add(attempt)
        connection.jobs[attempt.handle] = attempt
        if not self.executor.takes_ahead:
            self._announce(attempt)
        self.executor.start(attempt)

    def _send_progress(
        self, connection: WorkerConnection[Attempt], attempt: Attempt, done: int, total: int, message: str
    ) -> None:
        # After a revocation the server may have pushed the job again, and would take this for the new attempt's.
        if not attempt.job.cancelled:
            connection.protocol.progress(attempt.handle, done, total, message)
            connection.flush_soon()

    def _on_revoked(self, connection: WorkerConnection[Attempt], event: JobRevoked) -> None:
        attempt = connection.jobs.get(event.handle)
        if attempt is None:
            connection.protocol.forget(event.handle)
            return
        attempt.job.cancel(SUSPENDED if event.reason == HELD_BACK else event.reason)
        self.executor.cancel(attempt, hard=event.reason == TIMED_OUT)

    def _on_timeout(self, attempt: Attempt) -> None:
        """Stop an attempt whose time limit is over, if the server has not revoked it."""
        if attempt in self.attempts and not attempt.job.cancelled:
            attempt.job.cancel(TIMED_OUT)
            self.executor.cancel(attempt, hard=True)

    # --- ExecutorOwner ---

    def attempts_ended(self, ends: Sequence[tuple[Attempt, Outcome]]) -> None:
        for attempt, outcome in ends:
            try:
                self._attempt_ended(attempt, outcome)
            except Exception:  # a defect here must not cost the others their reports and us their slots
                _LOG.exception("the end of %s could not be reported", attempt.handle)
        # One packet grants credit for all of them, in one write with their reports.
        self._share_room()
        for connection in self.connections:
            connection.flush()

    def _attempt_ended(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.took_seconds is not None:  # else it may not have been started
            self._announce(attempt)
        connection = self._free_slot(attempt)
        if connection is None and not attempt.job.cancelled and self._without_connection.ended(attempt, outcome):
            attempt.job.end()
            self._on_change(False)
        elif connection is None:
            self._without_connection.forget(attempt)
            self._observer.job_dropped(
                attempt.assignment, attempt.job.cancel_reason or "no client waits for it any more", attempt.seconds
            )
            self._on_change(False)
        elif isinstance(outcome, Stopped) and outcome.reason == SUSPENDED:
            connection.protocol.forget(attempt.handle)
            attempt.job.end()
            attempt.send_progress = None
            self._observer.job_dropped(attempt.assignment, SUSPENDED, attempt.seconds)
            self._on_change(False)
        elif self._counts_interruptions and isinstance(outcome, Stopped) and outcome.reason == STOPPING:
            self._interrupted.add(connection)
            self._observer.job_dropped(attempt.assignment, INTERRUPTED, attempt.seconds)
            self._on_change(False)
        else:
            attempt.flush_progress()
            attempt.job.end()
            attempt.send_progress = None  # a thread that the task has left behind may still report progress
            self._report(connection, attempt, outcome)

    def _report(self, connection: WorkerConnection[Attempt], attempt: Attempt, outcome: Outcome) -> None:
        """Report the outcome of an attempt whose job is ours."""
        outcome = connection.protocol.within_limits(outcome)
        connection.protocol.report(attempt.handle, outcome)
        reason = attempt.job.cancel_reason
        if reason and (reason != STOPPING or isinstance(outcome, Stopped)):
            self._observer.job_dropped(attempt.assignment, reason, attempt.seconds)
        else:
            self._observer.job_ended(attempt.assignment, outcome, attempt.seconds)
        self._on_change(True)

    def attempt_lost(self, attempt: Attempt, problem: str) -> None:
        """A job has killed its process.  For the server that is a lost worker, so the connection is closed."""
        connection = self._free_slot(attempt)
        if connection is not None:
            connection.abort(f"{attempt.handle} has ended its process", at_once=True)
        self._without_connection.forget(attempt)
        self._observer.job_dropped(attempt.assignment, problem, attempt.seconds)
        self._on_change(False)
        self.rebalance()

    def attempts_begun(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._announce(attempt)

    def _announce(self, attempt: Attempt) -> None:
        if not attempt.is_announced:
            attempt.is_announced = True
            self._observer.job_started(attempt.assignment)

    def waiting_long(self) -> None:
        excess = len(self.attempts) - self.executor.slots - self._prefetch.ahead(self._loop.time())
        if excess > 0:
            self._share_room()  # first, else released jobs might be pushed to us again
            self._release_ahead(excess)
            self.rebalance()

    def held_too_long(self) -> None:
        if self._prefetch.give_up(self._loop.time()):
            self._share_room()  # first, else released jobs might be pushed to us again
            self._release_ahead()
            self.rebalance()

    def readiness_changed(self) -> None:
        self.rebalance()

    def note(self, text: str) -> None:
        self._observer.note(text, is_problem=True)

    def _free_slot(self, attempt: Attempt) -> WorkerConnection[Attempt] | None:
        """Free the slot; returns the connection for its report, if there still is one."""
        if attempt in self.attempts:
            self.attempts.discard(attempt)
            self._prefetch.left(attempt.assignment.function, attempt.took_seconds)
        if attempt.watch is not None:
            attempt.watch.cancel()
        for connection in self.connections:
            if connection.jobs.get(attempt.handle) is attempt:
                del connection.jobs[attempt.handle]
                return connection
        return None

    def _release_ahead(self, most: int | None = None) -> None:
        """Release jobs that have not been started, or the last of them, at servers that support it."""
        waiting = self.executor.waiting()
        for attempt in waiting if most is None else waiting[-most:]:
            connection = next((each for each in self.connections if each.jobs.get(attempt.handle) is attempt), None)
            if connection is not None and connection.protocol.extended and self.executor.withdraw(attempt):
                self._free_slot(attempt)
                attempt.send_progress = None
                connection.protocol.release(attempt.handle)
                self._observer.job_returned(attempt.assignment)
                self._on_change(False)
                connection.flush_soon()

    # --- the end ---

    def give_up(self) -> None:
        """Cancel all attempts that still run; processes are killed."""
        for attempt in list(self.attempts):
            if not attempt.job.cancelled:
                attempt.job.cancel(STOPPING)
            self.executor.cancel(attempt, hard=True)

    def release_rest(self) -> None:
        """Release all jobs that have not ended, as if they had not been started."""
        for connection in self.connections:
            for attempt in list(connection.jobs.values()):
                del connection.jobs[attempt.handle]
                attempt.send_progress = None
                connection.protocol.release(attempt.handle)
                self._observer.job_dropped(attempt.assignment, "handed back", attempt.seconds)
            connection.flush_soon()

    def lose_rest(self) -> None:
        """Close the connections of attempts that were interrupted, or still run, so that their starts count."""
        for connection in self.connections:
            for attempt in list(connection.jobs.values()):
                del connection.jobs[attempt.handle]
                attempt.send_progress = None
                self._interrupted.add(connection)
                self._observer.job_dropped(attempt.assignment, INTERRUPTED, attempt.seconds)
        for connection in self._interrupted:
            connection.abort(INTERRUPTED)
