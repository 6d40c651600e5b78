"""Kinds of workers: what a node tells owners about the workers that it has for a function.

Workers of a function that have the same tags and take the same priorities are of one kind, which for the owner is one
worker with credit. A worker with resources is a kind of its own: what jobs use of it is counted by worker.

The owner knows which of its jobs it has given to such a worker, and the node knows what all jobs use of it. So the node
says how much others use: what is in use, less what the owner has counted already. It may be negative, if a job that was
given to this worker runs on another one that fits too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from switchgear.model import Function, Job, Worker
from switchgear.net.owners.messages import Offered
from switchgear.resources import split_requirements

__all__ = ["PLAIN", "WorkerKind", "kind_of", "kinds_of"]

PLAIN: Final = b""  # workers without tags and resources that take all priorities


class WorkerKind:
    """The workers of one kind that serve a function."""

    __slots__ = ("count", "idle", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker = worker  # one of them
        self.count = 0
        self.idle = 0

    def offered(self, function: Function, given: Iterable[Job]) -> Offered:
        """What the owner is told about them; `given` are the running jobs that it has given to this kind."""
        worker = self.worker
        priorities = () if worker.priorities is None else worker.priorities.get(function, ())
        elsewhere: dict[bytes, int] = {}
        if worker.resources:
            for amounts in (worker.uses or {}).values():
                for name, amount in amounts:
                    elsewhere[name] = elsewhere.get(name, 0) + amount
            for job in given:
                for name, amount in split_requirements(job.requires)[1]:
                    elsewhere[name] = elsewhere.get(name, 0) - amount
        return Offered(
            self.count,
            sorted(worker.tags),
            sorted(worker.resources.items()),
            sorted((name, amount) for name, amount in elsewhere.items() if amount),
            list(priorities),
        )


def kind_of(worker: Worker, function: Function) -> bytes:
    """The name of a worker's kind."""
    if worker.resources:
        return b"%d" % worker.id
    limited = worker.priorities.get(function, ()) if worker.priorities is not None else ()
    if not worker.tags and not limited:
        return PLAIN
    return b",".join(sorted(worker.tags)) + b"/" + bytes(limited)


def kinds_of(function: Function) -> dict[bytes, WorkerKind]:
    """The kinds of workers that serve a function, with how many jobs they would start at once."""
    kinds: dict[bytes, WorkerKind] = {}
    for worker in function.workers:
        name = PLAIN if worker.offer is None and worker.priorities is None else kind_of(worker, function)
        kind = kinds.get(name)
        if kind is None:
            kind = kinds[name] = WorkerKind(worker)
        kind.count += 1
        kind.idle += worker.credits or int(worker.asleep or not worker.running)
    return kinds
