"""A post: some slots, and a link to each server that may fill them.

To each server a post is one worker.  It has as much credit at each of them as there are free slots; a job from one
takes back a credit from the others.  Should two send their job at the same moment, one gets it back unharmed.

Where jobs are over in no time, a server of ours may send some ahead of the free slots (`prefetch`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from switchgear.app.job_execution import Outcome, Stopped
from switchgear.app.server_locations import ServerLocation
from switchgear.app.worker.executor import Attempt, Executor, ExecutorOwner
from switchgear.app.worker.observer import AppWorkerObserver
from switchgear.app.worker.prefetch import Prefetch
from switchgear.app.worker.server_events import Arrived, Event, QueuesSeen, RefusedByServer, Revoked, Unrunnable
from switchgear.app.worker.worker_connection import AppWorkerConnection
from switchgear.app.worker.worker_protocol import WorkerIntroduction
from switchgear.client.worker_connection import ReconnectBackoff

if TYPE_CHECKING:
    from switchgear.app.task import Task

__all__ = ["SlotPool"]

_LOG: Final = logging.getLogger("switchgear.worker")

TIMED_OUT: Final = "timed_out"
LEASE_EXPIRED: Final = "LEASE_EXPIRED"
STOPPING: Final = "the worker stops"
# Our own server watches over time limits.  This long after one we act ourselves, should it be silent.
PATIENCE_SECONDS: Final = 1.0


class SlotPool(ExecutorOwner):
    """Takes jobs from its links, has its executor run them, and reports."""

    def __init__(
        self,
        label: str,
        executor: Executor,
        tasks: Mapping[str, Task[Any, Any]],
        places: Sequence[ServerLocation],
        introduction: WorkerIntroduction,
        observer: AppWorkerObserver,
        on_change: Callable[[bool], None],
        backoff: ReconnectBackoff | None = None,
        *,
        prefetch: Prefetch | None = None,
    ) -> None:
        """`on_change` is called after each end of an attempt: True if the job was finished here.

        `prefetch` knows how many jobs may wait here for a slot, if the executor lets them; None: none.
        """
        self.label = label
        self.executor = executor
        self.tasks = tasks
        self.attempts: set[Attempt] = set()
        self.arrivals = 0
        self.queues_seen: dict[AppWorkerConnection, int] = {}  # what was last heard of each server's queues
        self.links = [AppWorkerConnection(place, introduction, self, backoff or ReconnectBackoff()) for place in places]
        self._declared = [
            (verb, str(arguments.get("name") or arguments.get("function") or ""))
            for verb, arguments in introduction.declarations
        ]
        self._prefetch = prefetch if prefetch is not None and executor.takes_ahead else Prefetch(0, ())
        self._ahead = 0  # how many may be here beyond the slots
        self._observer = observer
        self._on_change = on_change
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Get ready; the links are run by the caller."""
        self._loop = loop
        self.executor.open(self, loop)

    # --- room ---

    @property
    def occupied(self) -> int:
        """Slots that are taken, by jobs or because a job may come for which a plain server was asked."""
        return len(self.attempts) + sum(link.conversation.occupied + link.conversation.asking for link in self.links)

    def rebalance(self) -> None:
        """Tell each server how many jobs there is room for."""
        self._share_room()
        for link in self.links:
            link.flush_soon()

    def _share_room(self) -> None:
        takes = self.executor.ready and not self._stopping
        self._ahead = self._prefetch.ahead(self._loop.time()) if takes else 0
        # Plain servers first: a question to one of them takes a slot, and the credit at the others is less by it.
        links = self.links
        for link in sorted(links, key=lambda link: link.conversation.extended) if len(links) > 1 else links:
            room = self.executor.slots + (self._ahead if link.conversation.extended else 0)
            link.conversation.set_room(room - self.occupied if takes else 0)

    def stop_taking(self) -> None:
        """Take no more jobs.  A plain server that was asked for one may still send it, and it is run."""
        self._stopping = True
        self._share_room()  # first, else what is handed back might be sent to us again
        self._hand_back_ahead()
        for link in self.links:
            link.stop()
            link.conversation.hand_back_waiting()
        self.rebalance()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and nothing was asked for."""
        return not self.occupied

    # --- from the links ---

    def on_connected(self, link: AppWorkerConnection, *, again: bool) -> None:
        self._observer.subscribed(link.server, self.label, again=again, extended=link.conversation.extended)
        gaps = [] if again or link.conversation.extended else self._gaps_of_plain_servers()
        if gaps:
            text = f"{link.server} is a plain Gearman server; what it cannot do: {', '.join(gaps)}"
            self._observer.note(text, is_problem=True)

    def _gaps_of_plain_servers(self) -> list[str]:
        """What our tasks want and only our own server has."""
        retried = [name for name, task in self.tasks.items() if task.settings.retries]
        gaps = [f"retries (of {', '.join(retried)}: an error fails the job at once)"] if retried else []
        return gaps + [" ".join(filter(None, words)) for words in self._declared]

    def on_disconnected(
        self, link: AppWorkerConnection, attempts: list[Attempt], problem: str, retry_seconds: float
    ) -> None:
        self.queues_seen.pop(link, None)
        for attempt in attempts:
            attempt.send_progress = None
            if attempt.job.cancelled:
                continue
            attempt.job.cancel("the connection to the server was lost")
            self.executor.cancel(attempt, hard=False)
        if not self._stopping:
            self._observer.disconnected(link.server, self.label, problem, retry_seconds)
        self.rebalance()

    def on_event(self, link: AppWorkerConnection, event: Event) -> None:
        if isinstance(event, Arrived):
            self._on_arrived(link, event)
        elif isinstance(event, Revoked):
            self._on_revoked(link, event)
        elif isinstance(event, Unrunnable):
            self._observer.note(f"{event.assignment.handle} failed: {event.error}", is_problem=True)
        elif isinstance(event, RefusedByServer) and event.error.code == LEASE_EXPIRED:
            link.cut(f"the server took this worker for lost: {event.error.text}", at_once=True)
        elif isinstance(event, RefusedByServer):
            self._observer.refused(link.server, f"{event.about}: {event.error}" if event.about else str(event.error))
        elif isinstance(event, QueuesSeen):
            self.queues_seen[link] = event.ready

    def after_events(self) -> None:
        self.rebalance()

    def _on_arrived(self, link: AppWorkerConnection, event: Arrived) -> None:
        self.arrivals += 1
        assignment = event.assignment
        extended = link.conversation.extended
        slots = self.executor.slots + (self._ahead if extended else 0)
        has_room = self.executor.ready and len(self.attempts) < slots
        if not has_room or (self._stopping and extended):
            if not link.conversation.hand_back(assignment.handle):
                link.cut("there is no room for its job", at_once=True)
            return
        attempt = Attempt(assignment, self.tasks[assignment.function], self._loop)
        attempt.is_quick = self._prefetch.arrived(assignment)
        attempt.send_progress = link.send_progress
        if assignment.timeout_seconds:
            patience_seconds = PATIENCE_SECONDS if extended else 0.0
            attempt.watch = self._loop.call_later(assignment.timeout_seconds + patience_seconds, self._overdue, attempt)
        self.attempts.add(attempt)
        link.attempts[attempt.handle] = attempt
        if not self.executor.takes_ahead:
            self._announce(attempt)
        self.executor.start(attempt)

    def _on_revoked(self, link: AppWorkerConnection, event: Revoked) -> None:
        attempt = link.attempts.get(event.handle)
        if attempt is None:
            link.conversation.forget(event.handle)
            return
        attempt.job.cancel(event.reason)
        self.executor.cancel(attempt, hard=event.reason == TIMED_OUT)

    def _overdue(self, attempt: Attempt) -> None:
        """The time limit is over, and the server has not said so."""
        if attempt in self.attempts and not attempt.job.cancelled:
            attempt.job.cancel(TIMED_OUT)
            self.executor.cancel(attempt, hard=True)

    # --- from the executor ---

    def attempts_ended(self, ends: Sequence[tuple[Attempt, Outcome]]) -> None:
        for attempt, outcome in ends:
            try:
                self._attempt_ended(attempt, outcome)
            except Exception:  # a defect, which must not cost the others their reports and us their slots
                _LOG.exception("the end of %s could not be told", attempt.handle)
        # One packet tells of the room that all of them leave, in one write with their reports.
        self._share_room()
        for link in self.links:
            link.flush()

    def _attempt_ended(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.took_seconds is not None:  # else it may not have been begun
            self._announce(attempt)
        link = self._leave(attempt)
        if link is None:
            self._observer.job_dropped(
                attempt.assignment, attempt.job.cancel_reason or "nobody waits for it", attempt.seconds
            )
            self._on_change(False)
        else:
            attempt.flush_progress()
            attempt.job.end()
            attempt.send_progress = None  # a thread that the task has left behind may still tell of some
            outcome = link.conversation.within_limits(outcome)
            link.conversation.report(attempt.handle, outcome)
            reason = attempt.job.cancel_reason
            if reason and (reason != STOPPING or isinstance(outcome, Stopped)):
                self._observer.job_dropped(attempt.assignment, reason, attempt.seconds)
            else:
                self._observer.job_ended(attempt.assignment, outcome, attempt.seconds)
            self._on_change(True)

    def attempt_lost(self, attempt: Attempt, problem: str) -> None:
        """A job has killed its process.  The server has to see that as it sees the death of a worker."""
        link = self._leave(attempt)
        if link is not None:
            link.cut(f"{attempt.handle} has ended its process", at_once=True)
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
            self._share_room()  # first, else what is handed back might be sent to us again
            self._hand_back_ahead(excess)
            self.rebalance()

    def waiting_in_vain(self) -> None:
        if self._prefetch.give_up(self._loop.time()):
            self._share_room()  # first, else what is handed back might be sent to us again
            self._hand_back_ahead()
            self.rebalance()

    def readiness_changed(self) -> None:
        self.rebalance()

    def note(self, text: str) -> None:
        self._observer.note(text, is_problem=True)

    def _leave(self, attempt: Attempt) -> AppWorkerConnection | None:
        """Free the slot; returns whom to tell, if there still is somebody."""
        if attempt in self.attempts:
            self.attempts.discard(attempt)
            self._prefetch.left(attempt.assignment.function, attempt.took_seconds)
        if attempt.watch is not None:
            attempt.watch.cancel()
        for link in self.links:
            if link.attempts.get(attempt.handle) is attempt:
                del link.attempts[attempt.handle]
                return link
        return None

    def _hand_back_ahead(self, most: int | None = None) -> None:
        """Return what waits to be begun, or the last so many of it, to those who can be told."""
        waiting = self.executor.waiting()
        for attempt in waiting if most is None else waiting[-most:]:
            link = next((link for link in self.links if link.attempts.get(attempt.handle) is attempt), None)
            if link is not None and link.conversation.extended and self.executor.withdraw(attempt):
                self._leave(attempt)
                attempt.send_progress = None
                link.conversation.hand_back(attempt.handle)
                self._observer.job_returned(attempt.assignment)
                self._on_change(False)
                link.flush_soon()

    # --- the end ---

    def give_up(self) -> None:
        """Tell all that still run that the worker stops; processes are killed."""
        for attempt in list(self.attempts):
            if not attempt.job.cancelled:
                attempt.job.cancel(STOPPING)
            self.executor.cancel(attempt, hard=True)

    def hand_back_rest(self) -> None:
        """Return what has not ended, as if it had not been started."""
        for link in self.links:
            for attempt in list(link.attempts.values()):
                del link.attempts[attempt.handle]
                attempt.send_progress = None
                link.conversation.hand_back(attempt.handle)
                self._observer.job_dropped(attempt.assignment, "handed back", attempt.seconds)
            link.flush_soon()
