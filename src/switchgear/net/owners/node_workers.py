"""`NodeWorkers`: the workers of another node as its owner has them: one worker with credit for each kind.

A kind is workers of one function with the same tags and priorities, or one worker with resources (`worker_kinds`).
"""

from __future__ import annotations

from collections.abc import Callable

from switchgear.engine.engine import Engine
from switchgear.errors import Refused
from switchgear.model import Peer, Worker
from switchgear.net.owners.cluster_channels import NODE_PROTOCOL
from switchgear.net.owners.messages import Offered, Room

__all__ = ["NodeWorkers"]

Place = tuple[bytes, bytes]  # a function and a kind of its workers


class NodeWorkers:
    """What another node has told about its workers, and the jobs that they have."""

    def __init__(self, engine: Engine, peer: Peer, node_name: bytes, is_ours: Callable[[bytes], bool]) -> None:
        """`peer` is the session of the node; `is_ours` tells whether this node owns a function."""
        self._engine = engine
        self._peer = peer
        self._node_name = node_name
        self._is_ours = is_ours
        self._workers: dict[Place, Worker] = {}
        self._places: dict[Worker, Place] = {}
        self._assigned: dict[Place, int] = {}  # how many jobs they were given in all
        self._lent: dict[int, Worker] = {}

    def told(self, message: Room) -> None:
        """The node says how many jobs the workers of a kind can take."""
        engine = self._engine
        place = (message.function, message.kind)
        worker = self._workers.get(place)
        if message.room < 0 or not self._is_ours(message.function):
            if worker is not None:
                self._withdraw(place, worker)
            return
        if worker is None or not worker.alive or not worker.order:
            worker = self._entered(place, message.offered)
            if worker is None:
                return
        elif message.offered is not None:
            self._describe(worker, message.offered)
        else:
            worker.stands_for = 1
        credit = max(0, message.room - (self._assigned[place] - message.seen))
        if credit > worker.credits:
            engine.grant(worker, credit - worker.credits)
        elif credit < worker.credits:
            engine.take_back_credit(worker, worker.credits - credit)

    def _entered(self, place: Place, offered: Offered | None) -> Worker | None:
        """A new worker; `None` if there are too many functions, or too many different descriptions of workers."""
        engine = self._engine
        worker = engine.add_worker(self._peer, NODE_PROTOCOL, self._node_name)
        try:
            priorities: tuple[int, ...] = ()
            if offered is not None:
                self._describe(worker, offered)
                priorities = tuple(offered.priorities)
            engine.can_do(worker, engine.function_named(place[0]), 0, priorities)
        except Refused:
            engine.remove_worker(worker)
            return None
        old = self._workers.get(place)
        if old is not None:
            self._places.pop(old, None)
        self._workers[place] = worker
        self._places[worker] = place
        self._assigned.setdefault(place, 0)
        return worker

    def _describe(self, worker: Worker, offered: Offered) -> None:
        worker.stands_for = offered.workers
        self._engine.describe_worker(worker, frozenset(offered.tags), dict(offered.resources))
        self._engine.use_elsewhere(worker, tuple(offered.elsewhere))

    def _withdraw(self, place: Place, worker: Worker) -> None:
        """The node has no such workers any more. Jobs that they run stay."""
        del self._workers[place]
        self._places.pop(worker, None)
        if place[1].isdigit():
            self._assigned.pop(place, None)  # the numbers of workers are not used again
        self._engine.withdraw_credit(worker)
        self._engine.forget_functions(worker)
        if not worker.running:
            self._engine.remove_worker(worker)

    def lend(self, worker: Worker, job_id: int, function: bytes) -> bytes:
        """A job is given to a worker; returns its kind."""
        place = self._places.get(worker, (function, b""))
        self._assigned[place] = self._assigned.get(place, 0) + 1
        self._lent[job_id] = worker
        return place[1]

    def claimant(self, place: Place) -> Worker | None:
        """The worker of a kind that has a run of another owner; `None` if there is no room for one more."""
        worker = self._workers.get(place)
        if worker is None or not worker.alive or not worker.order:
            worker = self._entered(place, None)
        return worker

    def claimed(self, worker: Worker, job_id: int) -> None:
        """Such a run goes on at this worker."""
        self._lent[job_id] = worker

    def borrower(self, job_id: int) -> Worker | None:
        """The worker that was given a job."""
        return self._lent.get(job_id)

    def reporter(self, job_id: int) -> Worker | None:
        """The worker of a borrowed job that the node reports the end of."""
        worker = self._lent.get(job_id)
        return worker if worker is not None and worker.alive else None

    def tidy(self, worker: Worker, job_id: int) -> None:
        """After a report: forget the job, unless it was one on an earlier start, and a worker that is not needed."""
        if job_id not in worker.running:
            self._lent.pop(job_id, None)
        if not worker.running and worker not in self._places:
            self._engine.remove_worker(worker)

    def remove(self) -> None:
        """The node is gone: its jobs go back to their queues."""
        workers = {*self._workers.values(), *self._lent.values()}
        self._workers.clear()
        self._places.clear()
        for worker in workers:
            self._engine.remove_worker(worker)
        self._lent.clear()
