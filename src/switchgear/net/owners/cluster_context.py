"""`ClusterContext`: the functions, jobs and workers that belong to this node itself, for its part of a verb.

The engine of a node also has functions of other nodes, of which it runs jobs (copies), and the other nodes as workers.
If those counted here too, the sums of all nodes would have them twice.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from switchgear.engine.function_placement import is_foreign
from switchgear.model import Function, Job, Worker
from switchgear.net.hub import Hub
from switchgear.net.operations.context import OperationsContext
from switchgear.net.owners.cluster_channels import NODE_PROTOCOL
from switchgear.protocols.pending_read import Reading, awaited

if TYPE_CHECKING:
    from switchgear.net.owners.member import OwnersMember

__all__ = ["ClusterContext"]


class ClusterContext(OperationsContext):
    """Shared state of the operator verbs of a node."""

    is_one_of_several = True

    def __init__(self, hub: Hub, handle_prefix: str, member: OwnersMember) -> None:
        super().__init__(hub, handle_prefix)
        self._member = member

    def functions(self) -> list[Function]:
        return [function for function in self.engine.functions.values() if not is_foreign(function)]

    def foreign_functions(self) -> list[Function]:
        """The functions of other nodes that have workers here."""
        return [function for function in self.engine.functions.values() if function.workers and is_foreign(function)]

    def job_count(self) -> int:
        return sum(function.total for function in self.functions())

    def workers(self) -> list[Worker]:
        return [worker for worker in self.engine.workers.values() if worker.protocol != NODE_PROTOCOL]

    def worker_count(self, function: Function) -> int:
        return sum(worker.protocol != NODE_PROTOCOL for worker in function.workers)

    def has_own(self, job: Job) -> bool:
        return self._member.relay.is_ours(job.function.name)

    @property
    def node_name(self) -> str:
        """The name of this node."""
        return self._member.name

    def owner_name(self, function: bytes) -> str | None:
        """The name of the node that owns a function; `None` if that is nobody at this moment."""
        if self._member.relay.is_ours(function):
            return self._member.name
        owner = self._member.owner_of(function)
        return None if owner is None else owner.name

    def place(self, function: bytes, partition: int | None) -> Coroutine[Any, Any, bool]:
        """Put a function of this node into a partition; see `OwnersMember.place`."""
        return self._member.place(function, partition)

    def divide(self, function: bytes, count: int) -> Coroutine[Any, Any, bool]:
        """Divide a function of this node into shards, or unite them; see `OwnersMember.divide`."""
        return self._member.divide(function, count)

    def take_schedules(self) -> Reading[None]:
        """Take schedules of this node's functions that another node has changed so that they are."""
        yield from awaited(self.hub.reads.start(self._member.take_schedules()))

    def find_schedule_function(self, name: bytes) -> Reading[bytes | None]:
        """The owner has the schedule; all nodes can read the store, which has those that were answered."""
        schedule = self.engine.schedules.get(name)
        if schedule is not None:
            return schedule.function_name
        found: bytes | None = yield from awaited(self.hub.reads.start(self._member.find_schedule_function(name)))
        return found
