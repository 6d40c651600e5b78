"""`WorkerRegistry`: registration of workers and their functions, leases, and waits that time out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from switchgear.engine.attempts import Attempts
from switchgear.engine.deadlines import DeadlineKind, Deadlines
from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.function_placement import is_foreign
from switchgear.engine.functions import FunctionRegistry
from switchgear.engine.lost_starts import LostStarts
from switchgear.engine.requirements import Amounts, Requirements
from switchgear.engine.sliced_work import SlicedKind, SlicedWork
from switchgear.engine.state import EngineState
from switchgear.engine.transitions import Transitions
from switchgear.engine.waiting_workers import leave_lists, limited_priorities, set_priorities
from switchgear.engine.wakeups import Wakeups
from switchgear.memory import FOR_WORKERS
from switchgear.model import Cause, Function, Job, Peer, Worker

__all__ = ["ABILITY_BYTES", "WORKER_BYTES", "WorkerRegistry"]

# The approximate memory of a worker, and of each function that it serves.
WORKER_BYTES: Final = 1_000
ABILITY_BYTES: Final = 300


class WorkerRegistry:
    """Registers and deregisters workers, and checks their leases."""

    def __init__(
        self,
        state: EngineState,
        deadlines: Deadlines,
        sliced_work: SlicedWork,
        functions: FunctionRegistry,
        wakeups: Wakeups,
        attempts: Attempts,
        dispatcher: Dispatcher,
        transitions: Transitions,
        lost_starts: LostStarts,
        requirements: Requirements,
    ) -> None:
        self._lost_starts = lost_starts
        self._state = state
        self._deadlines = deadlines
        self._sliced_work = sliced_work
        self._functions = functions
        self._wakeups = wakeups
        self._attempts = attempts
        self._dispatcher = dispatcher
        self._transitions = transitions
        self._requirements = requirements
        self._last_worker_id = 0
        self._last_ticket = 0

    # --- registering ---

    def add(self, peer: Peer, protocol: str, name: bytes) -> Worker:
        """Register a worker without functions."""
        self._last_worker_id += 1
        worker = Worker(self._last_worker_id, peer, protocol, self._state.now_us)
        worker.flows = self._state.flows.of_workers(protocol)
        if name:
            worker.name = name
        if peer.worker_tags or peer.worker_resources:
            self._requirements.describe(worker, peer.worker_tags, peer.worker_resources)
        self._state.workers[worker.id] = worker
        self._state.memory.registration_bytes += WORKER_BYTES
        return worker

    def refuse_registrations(self, count: int, quarters: int = FOR_WORKERS) -> None:
        """Raise Refused if there is no memory for a worker that registers for this many functions.

        Workers of protocols in which one connection can have any number of workers may fill fewer quarters of the
        memory.
        """
        self.has_room(count, quarters)
        self._state.refuse_registration(WORKER_BYTES + ABILITY_BYTES * count, quarters)

    def has_room(self, count: int, quarters: int) -> bool:
        """Whether there is memory for a worker that registers for this many functions; unused functions make room."""
        more_bytes = WORKER_BYTES + ABILITY_BYTES * count
        self._functions.make_room(more_bytes, quarters)
        return self._state.memory.has_registration_room(more_bytes, quarters)

    def can_do(self, worker: Worker, function: Function, timeout_us: int, priorities: tuple[int, ...] = ()) -> None:
        """Register a worker for a function; each job may run for `timeout_us` (0: no limit).

        With `priorities`, the worker takes only jobs of these priorities.
        """
        if not worker.alive:
            return
        if function.dropped:  # dropped after the caller looked it up
            function = self._functions.named(function.name)
        if function not in worker.timeouts_us:
            worker.order.append(function)
            function.workers[worker] = None
            self._state.memory.registration_bytes += ABILITY_BYTES
        if priorities != limited_priorities(worker, function):
            leave_lists(worker, function)
            set_priorities(worker, function, priorities)
        worker.timeouts_us[function] = timeout_us
        if timeout_us:
            worker.has_timeouts = True
        if self._state.placement is not None and is_foreign(function):
            self._state.placement.worker_registered(worker, function, timeout_us, priorities)
        if worker.credits:
            self._dispatcher.fill(worker)
        if worker.asleep and not self._wakeups.sleep(worker):
            worker.peer.wake(worker)

    def cannot_do(self, worker: Worker, function: Function) -> None:
        """Deregister a worker from a function. A job that it is running stays with it."""
        if worker.timeouts_us.pop(function, None) is None:
            return
        worker.order.remove(function)
        del function.workers[worker]
        self._state.memory.registration_bytes -= ABILITY_BYTES
        leave_lists(worker, function)
        function.woken.pop(worker, None)
        if worker.priorities is not None:
            set_priorities(worker, function, ())
        if worker.woken_for is function:
            self._wakeups.pass_on(worker)
        if self._state.placement is not None and is_foreign(function):
            self._state.placement.worker_deregistered(worker, function)

    def describe(self, worker: Worker, tags: frozenset[bytes] | None, resources: Mapping[bytes, int] | None) -> None:
        """The worker has these tags and resources, and those of its listener; None: the same as before.

        Raises Refused.  Jobs that it is running stay.
        """
        tags = worker.tags if tags is None else tags | worker.peer.worker_tags
        resources = worker.resources if resources is None else {**worker.peer.worker_resources, **resources}
        if not worker.alive or (tags == worker.tags and resources == worker.resources):
            return
        self._requirements.refuse_description(tags, resources)
        was_asleep = worker.asleep
        if was_asleep:
            self._wakeups.rouse(worker)
        self._dispatcher.leave_pushers(worker)
        self._requirements.describe(worker, tags, resources)
        if worker.credits:
            self._dispatcher.fill(worker)
        if was_asleep and not self._wakeups.sleep(worker):
            worker.peer.wake(worker)
        if worker.woken_for is not None:
            self._wakeups.pass_on(worker)  # it may have been woken for a job that it no longer fits

    def use_elsewhere(self, worker: Worker, amounts: Amounts) -> None:
        """Jobs that this engine does not know use this much of the worker's resources."""
        if worker.alive and self._requirements.use_elsewhere(worker, amounts) and worker.credits:
            self._dispatcher.fill(worker)

    def forget_functions(self, worker: Worker) -> None:
        """Deregister a worker from all functions."""
        for function in list(worker.order):
            self.cannot_do(worker, function)

    def remove(self, worker: Worker, cause: Cause) -> None:
        """Deregister a worker; the jobs that it has go back to their queues."""
        if not worker.alive:
            return
        worker.alive = False
        worker.asleep = False
        self._dispatcher.withdraw_credit(worker)
        self.suspend_lease(worker)
        self.forget_functions(worker)
        self._requirements.forget(worker)
        if worker.woken_job is not None:
            self._wakeups.pass_on(worker)
        del self._state.workers[worker.id]
        self._state.memory.registration_bytes -= WORKER_BYTES
        if worker.running:
            running, worker.running = worker.running, {}
            self._state.departed[worker] = running
            self._sliced_work.start(self._requeue_all(worker, running, cause), SlicedKind.REQUEUE, worker)

    def _requeue_all(self, worker: Worker, running: dict[int, Job], cause: Cause) -> Iterator[None]:
        """Requeue the jobs of a worker that is gone, one at a time."""
        for job in running.values():
            self._lost_starts.remember(worker, job)
            if job.worker is worker:
                self._attempts.detach(job)
                self._transitions.requeue(job, cause)
            yield
        self._state.departed.pop(worker, None)

    # --- leases ---

    def renew_lease(self, worker: Worker, lease_us: int) -> None:
        """Renew a worker's lease: it must be renewed again within `lease_us`."""
        if not worker.alive:
            return
        until_us = worker.lease_until_us = self._state.now_us + lease_us
        if worker.lease_check_us and worker.lease_check_us <= until_us:
            return  # a later end is checked when the earlier deadline comes up
        if worker.lease_check_us:
            self._deadlines.note_stale()
        worker.lease_check_us = until_us
        self._deadlines.add(until_us, DeadlineKind.LEASE, worker)

    def suspend_lease(self, worker: Worker) -> None:
        """Suspend a worker's lease until it is renewed."""
        worker.lease_until_us = 0
        if worker.lease_check_us:
            worker.lease_check_us = 0
            self._deadlines.note_stale()

    def lease_ended(self, worker: Worker) -> None:
        """Handle the deadline of a lease."""
        checked_us, worker.lease_check_us = worker.lease_check_us, 0  # this entry of the index is used up, not stale
        # Renewed meanwhile; if the new end has passed too, its deadline comes next.
        if worker.lease_until_us > checked_us:
            worker.lease_check_us = worker.lease_until_us
            self._deadlines.add(worker.lease_until_us, DeadlineKind.LEASE, worker)
            return
        self.remove(worker, Cause.WORKER_LOST)
        worker.peer.expired(worker)
        self._state.observer.worker_expired(worker)

    # --- waits that time out ---

    def grant_until(self, worker: Worker, until_us: int) -> int:
        """Grant credit for one job until a given time.

        Returns the number of the ticket that `Peer.wait_timed_out` will name, or 0 if a job was assigned at once.
        Several tickets of a worker are served in the order in which they were given.
        """
        self._last_ticket = ticket = self._last_ticket + 1
        if worker.tickets is None:
            worker.tickets = OrderedDict()
        worker.tickets[ticket] = until_us
        self._deadlines.add(until_us, DeadlineKind.WAIT_TIMEOUT, worker, ticket)
        self._dispatcher.grant(worker, 1)
        return ticket if ticket in worker.tickets else 0

    def cancel_ticket(self, worker: Worker, ticket: int) -> None:
        """End the wait of this ticket."""
        if worker.tickets and ticket in worker.tickets:
            self._deadlines.note_stale()
            self._dispatcher.end_ticket(worker, ticket)

    def wait_timed_out(self, worker: Worker, ticket: int) -> None:
        """Handle the deadline of a ticket."""
        self._dispatcher.end_ticket(worker, ticket)
        worker.peer.wait_timed_out(worker, ticket)

    def shift(self, delta_us: int) -> None:
        """Adapt to a wall clock that was set by this much: leases and waits keep their length."""
        for worker in self._state.workers.values():
            if worker.lease_until_us:
                worker.lease_until_us += delta_us
            if worker.lease_check_us:
                worker.lease_check_us += delta_us
            tickets = worker.tickets
            if tickets is not None:
                for ticket in tickets:
                    tickets[ticket] += delta_us
