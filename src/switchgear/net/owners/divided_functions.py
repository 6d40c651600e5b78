"""`DividedFunctions`: functions that an operator has divided into shards, so that several nodes own their jobs.

A shard is a function of its own, with the name of the divided function, `#` and its number: it has a queue, an owner
and counts, and operators see it as any other function. Clients and workers know only the divided function. It has no
jobs, and is foreign at every node: a submission to it becomes one to a shard, and a worker that registers for it serves
the shards of its own node, and borrows jobs of the others. What workers and clients are told has the name of the
divided function (`Function.told_name`). See docs/decisions/039-shards.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from switchgear.engine.engine import Engine
from switchgear.engine.function_placement import FOREIGN_LIMIT, is_foreign
from switchgear.errors import Refused
from switchgear.model import Function, Schedule, Worker
from switchgear.partitions import Shards, shard_number
from switchgear.refusals import REFUSED_CONFLICT
from switchgear.text import counted

__all__ = ["DividedFunctions", "refuse_in_use"]


class DividedFunctions:
    """Which shard has a job, and which workers of this node serve the shards that this node owns."""

    def __init__(self, engine: Engine, is_ours: Callable[[bytes], bool]) -> None:
        self.shards = Shards({})
        self._engine = engine
        self._is_ours = is_ours
        self._turn = 0  # of jobs without a key

    def queue_for(self, name: bytes, key: bytes) -> bytes:
        """The function that has a job of this one. The key decides; without one, the shards of this node come first,
        because nothing has to be passed on then."""
        names = self.shards.names(name)
        if not names:
            return self.shards.queue_for(name, 1)
        if key:
            return names[shard_number(key, len(names)) - 1]
        self._turn += 1
        own = [each for each in names if self._is_ours(each)] or names
        return own[self._turn % len(own)]

    def queue_of_stored(self, job_function: bytes, job_id: int) -> bytes:
        """The function that has a stored job of this one, which was divided or united since; the same at each node."""
        return self.shards.queue_for(job_function, job_id)

    def function(self, name: bytes) -> Function:
        """The function of this name, or if there are too many, one of another node that stands for it."""
        try:
            return self._engine.function_named(name)
        except Refused:
            function = Function(name)
            function.told_name = self.shards.base_of(name)
            function.limits = [FOREIGN_LIMIT] * 3
            return function

    def own_shards(self, name: bytes) -> Sequence[Function]:
        """The shards of a function that this node owns."""
        return [self._engine.function_named(each) for each in self.shards.names(name) if self._is_ours(each)]

    # --- workers ---

    def register(self, worker: Worker, function: Function, timeout_us: int, priorities: tuple[int, ...]) -> None:
        """A worker has registered for a foreign function: if that is divided, it serves the shards of this node."""
        for name in self.shards.names(function.name):
            if self._is_ours(name):
                self._register_at(worker, name, timeout_us, priorities)

    def deregister(self, worker: Worker, function: Function) -> None:
        """A worker has deregistered from a foreign function."""
        for name in self.shards.names(function.name):
            shard = self._engine.functions.get(name)
            if shard is not None:
                self._engine.cannot_do(worker, shard)

    def serve(self, is_concerned: Callable[[bytes], bool]) -> None:
        """Register the workers of this node at these shards, which are this node's from now on."""
        for base, shard in self._with_workers(is_concerned):
            for worker in list(base.workers):
                priorities = () if worker.priorities is None else worker.priorities.get(base, ())
                self._register_at(worker, shard, worker.timeouts_us.get(base, 0), priorities)

    def _with_workers(self, is_concerned: Callable[[bytes], bool]) -> Iterable[tuple[Function, bytes]]:
        """The divided functions that have workers here, each with those of its shards that are concerned."""
        for divided in self.shards.counts:
            base = self._engine.functions.get(divided)
            if base is not None and base.workers:
                for name in self.shards.names(divided):
                    if is_concerned(name):
                        yield base, name

    def _register_at(self, worker: Worker, shard: bytes, timeout_us: int, priorities: tuple[int, ...]) -> None:
        with suppress(Refused):  # there is no room for one more function: workers of other nodes have its jobs
            self._engine.can_do(worker, self._engine.function_named(shard), timeout_us, priorities)

    def serves_base(self, worker: Worker, name: bytes) -> bool:
        """Whether a worker has registered for the function of which this is a shard."""
        base = self._engine.functions.get(self.shards.base_of(name))
        return base is not None and base.name != name and worker in base.workers

    # --- changes ---

    def follow(self, shards: Shards) -> None:
        """Other functions are divided now."""
        before, self.shards = self.shards, shards
        if before.counts == shards.counts:
            return
        changed = before.counts.keys() ^ shards.counts.keys()
        changed |= {name for name, count in shards.counts.items() if before.counts.get(name) != count}
        names = {each for name in changed for each in (name, *before.names(name), *shards.names(name))}
        for name in names:
            function = self._engine.functions.get(name)
            if function is not None:
                function.told_name = shards.base_of(name)
                if not shards.has_queue(name) and not is_foreign(function):
                    function.limits = [FOREIGN_LIMIT] * 3


def refuse_in_use(function: Function, usual_limit: int, schedules: Iterable[Schedule], bound: Iterable[bytes]) -> None:
    """Raise Refused if a function has jobs or settings, which would not be those of its shards, or of the function
    that they are united to."""
    name = function.name.decode("utf-8", "backslashreplace")
    if function.total:
        text = f"{name} has {counted(function.total, 'unfinished job')}: wait until it has none"
        raise Refused(REFUSED_CONFLICT, text)
    if function.uniques:
        text = f"unique keys of {name} are held by jobs that have ended: wait until they are free"
        raise Refused(REFUSED_CONFLICT, text)
    if function.paused:
        raise Refused(REFUSED_CONFLICT, f"{name} is paused: resume it first")
    has_limiter = function.limiter is not None and bool(function.limiter.policy)
    if has_limiter or function.limits != [usual_limit] * 3:
        raise Refused(REFUSED_CONFLICT, f"{name} has limits, which cannot be exact at several nodes: remove them first")
    if any(schedule.function_name == function.name for schedule in schedules):
        raise Refused(REFUSED_CONFLICT, f"{name} has schedules: remove them, or let them name another function")
    if function.released_first or function.name in set(bound):
        raise Refused(REFUSED_CONFLICT, f"{name} is the function of a dwork listener, which needs one owner")
