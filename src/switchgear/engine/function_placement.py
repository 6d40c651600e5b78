"""`FunctionPlacement`: which functions belong to other engines; passes submissions to those functions on.

Without other engines there is no placement, and nothing of this costs anything. With it, a function that another engine
has is *foreign* here: workers register for it as for any other, and its only jobs are copies that this engine has
borrowed from the owner for its workers. Such a function has a limit of unfinished jobs that no number is below
(`FOREIGN_LIMIT`), so a submission to it takes the way of one that is refused, and there is passed on instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from switchgear.engine.submit_options import SubmitOptions
from switchgear.errors import Refused
from switchgear.model import Function, Job, Peer, Worker

__all__ = ["BORROWED", "FOREIGN_LIMIT", "FunctionPlacement", "is_copy", "is_foreign"]

FOREIGN_LIMIT: Final = -1
# The origin of borrowed copies of jobs, by which they are told from jobs of this engine.
BORROWED: Final = "another node"


def is_foreign(function: Function) -> bool:
    """Whether another engine has the jobs of this function."""
    return function.limits[0] == FOREIGN_LIMIT


def is_copy(job: Job) -> bool:
    """Whether this is a copy of a job of another engine, under the same id: its end is not the end of that job."""
    return job.has_details and job.origin == BORROWED


@mypyc_attr(allow_interpreted_subclasses=True)
class FunctionPlacement:
    """Knows the owners of functions, and passes on what concerns functions of other engines."""

    def is_ours(self, name: bytes) -> bool:
        """Whether this engine has the jobs of the function with this name, and may accept more."""
        raise NotImplementedError

    def submit(
        self,
        function: Function,
        unique: bytes,
        payload: bytes,
        priority: int,
        delivery: int,
        subscriber: Peer | None,
        options: SubmitOptions | None,
    ) -> Job:
        """Pass on a submission to a foreign function; raises Refused.

        Returns a job that stands for the owner's. It is in no table of this engine.
        """
        raise NotImplementedError

    def told_name(self, name: bytes) -> bytes:
        """The name by which workers and clients know the function: of a shard, that of the divided function."""
        return name

    def function_for_graph(self, function: Function) -> Function:
        """The function that has jobs of a graph that are submitted to this one: a shard, if it is divided."""
        return function

    def shards_here(self, function: Function) -> Sequence[Function]:
        """The shards of a divided function that this engine has."""
        return ()

    def worker_registered(
        self, worker: Worker, function: Function, timeout_us: int, priorities: tuple[int, ...]
    ) -> None:
        """A worker has registered for a foreign function."""

    def worker_deregistered(self, worker: Worker, function: Function) -> None:
        """A worker has deregistered from a foreign function."""

    def watch(self, job: Job) -> None:
        """A peer has subscribed to a job that stands for one of another engine."""

    def passed_on(self, job_id: int) -> Job | None:
        """The job that stands for one of another engine, if this one has passed it on or watches it."""
        raise NotImplementedError

    def id_at_owner(self, job: Job) -> int:
        """The id of the job that this one stands for: another one if the submission has joined a job. For an event of
        the job, and while the job is unfinished."""
        raise NotImplementedError

    def stand_in(self, job: Job) -> Job | None:
        """A job that stands for this one of another engine, as the store has it, and can be subscribed to.

        `None` for a job that has ended.
        """
        raise NotImplementedError

    def abandon(self, job: Job) -> bool:
        """The last subscriber of a job has gone; returns whether the job is another engine's."""
        raise NotImplementedError

    def ids_left(self) -> int:
        """How many ids this engine may use until it gets more."""
        raise NotImplementedError

    def ask_room(self, wanted: Sequence[tuple[bytes, int, int]], on_answer: Callable[[Refused | None], object]) -> None:
        """Ask the owners of functions whether these may have so many more jobs: function, priority and number. Tells
        how that was refused, if it was, now or later, but not in this call."""
        raise NotImplementedError

    def store_for_owners(self, jobs: list[Job]) -> None:
        """Store these new jobs, which are in no table, together with the other changes of this turn; then their owners
        take them."""
        raise NotImplementedError

    def await_job(self, job_id: int) -> None:
        """A job of this engine waits for a job that this engine does not know: find out how that one is, and tell the
        engine (`Engine.foreign_predecessors`), now or later, but not in this call."""

    def job_retried(self, job: Job) -> None:
        """An unsuccessful job of this engine runs again; jobs of other engines may wait for it."""

    def owner_of_predecessor(self, job_id: int) -> str:
        """The name of the node with a job that a job of this engine waits for; empty if that is not known."""
        raise NotImplementedError

    def resume_run(self, worker: Worker, job: Job, attempt: int, on_answer: Callable[[bool], object]) -> None:
        """A worker here had lost its connection, and still runs this attempt of another engine's job, which is as the
        store has it. Tells whether the attempt goes on, now or later, but not in this call."""
        raise NotImplementedError

    def note_retry(self, job: Job, delay_us: int, error: bytes | None, attempts_limit: int) -> None:
        """The worker of a borrowed job asks for another attempt after a pause, which is for the owner to decide."""
