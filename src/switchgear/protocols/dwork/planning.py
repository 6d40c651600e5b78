"""What a Create or a Transfer is going to do to the graph.

Such a request is carried out as a whole or not at all, and little of it can be undone: a task that was created may be
in a worker's hands a moment later.  So it is looked through first, and everything that may be wrong with it is found
before anything is done.

Tasks are known by the ids of their jobs.  Those to be created get the ids that follow, in the order of the message;
should they have to be created in another order, the ids of the plan are exchanged for those that they got.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import chain
from typing import Final, TypeAlias

from switchgear.engine.core import REFUSED_CONFLICT, REFUSED_FULL
from switchgear.engine.engine import Engine
from switchgear.errors import CycleRefused, Refused
from switchgear.model import FINAL_STATES, NORMAL, RUNNING, WAITING, Function, Job
from switchgear.model.job import DETAILS_BYTES, EDGE_BYTES, JOB_BYTES
from switchgear.model.names import NameTable
from switchgear.protocols.base import Context
from switchgear.protocols.dwork.messages import Task
from switchgear.text import harmless

__all__ = ["FailedTasks", "NewTask", "Plan", "shown"]

# Failures are looked up one by one when somebody creates tasks.  After a restart, or when very many tasks failed at
# once, only so many of them, the latest: nobody should have to wait for more.
MOST_LOOKED_UP: Final = 1000

# As many names of failed tasks are remembered, and then only those of the tasks that still are failed.
MOST_REMEMBERED: Final = 200_000
# A longer one cannot be tried again by creating it again, after it has failed.
LONGEST_REMEMBERED: Final = 1024


TASK_BYTES: Final = JOB_BYTES + DETAILS_BYTES

NewTask: TypeAlias = tuple[bytes, bytes, tuple[int, ...]]
"""A task to be created: its name, its origin, and the ids of the jobs that it waits for.  A plain tuple, because there
may be millions, and the garbage collector does not look at such tuples more than once."""


class FailedTasks:
    """Which tasks ended without success and were not tried again, by name.

    A task that is created later and waits for one of them has to know it, and who creates one of them again wants it
    to be tried again, for the sake of those that wait for it.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._engine = context.engine
        self._names: dict[int, bytes] = {}  # empty: not a task of ours
        self._ids: dict[bytes, int] = {}
        self._latest: dict[int, Job] = {}
        self._ends = -1  # how many jobs of the function had ended without success when we last looked

    def note(self, job: Job) -> None:
        """This one has just failed; it may take a while until the store has it."""
        self._remember(job.id, job.name)
        self._latest[job.id] = job
        if len(self._latest) > MOST_LOOKED_UP:
            del self._latest[next(iter(self._latest))]

    def by_name(self, function: Function) -> dict[bytes, int]:
        """The ids of those that failed, after a look at what is new.  Some may have been retried: see `is_failed`."""
        ends = function.failed + function.cancelled + function.expired
        if ends != self._ends:
            new = ends - self._ends if self._ends >= 0 else MOST_LOOKED_UP
            self._look_up(min(new, MOST_LOOKED_UP), function)
            self._ends = ends
        return self._ids

    def is_failed(self, job_id: int) -> bool:
        return job_id in self._engine.graph.unsuccessful

    def find(self, job_id: int, name: bytes) -> Job | None:
        """The failed job itself, to be retried; raises Refused if that has to wait."""
        job = self._context.find_job(job_id)
        if job is None or job.state not in FINAL_STATES:
            # The store lags behind.  What we have seen fail counts, unless it was retried by others since.
            latest = self._latest.get(job_id)
            if latest is not None and (job is None or latest.revision >= job.revision):
                return latest
            if job is not None:
                raise Refused(REFUSED_CONFLICT, f"that task {shown(name)} failed is being written down; try again")
        return job

    def _look_up(self, count: int, function: Function) -> None:
        unsuccessful = self._engine.graph.unsuccessful
        for looked_at, job_id in enumerate(reversed(unsuccessful)):
            if not count or looked_at >= MOST_LOOKED_UP:
                break
            name = self._names.get(job_id)
            if name is None:
                job = self._context.find_job(job_id)
                if job is None:
                    continue
                name = job.name if job.function.name == function.name else b""
                self._remember(job_id, name)
            if name:
                self._ids[name] = max(job_id, self._ids.get(name, 0))
                count -= 1
        if len(self._names) > MOST_REMEMBERED:
            self._names = {job_id: name for job_id, name in self._names.items() if job_id in unsuccessful}
            self._ids = {name: job_id for job_id, name in self._names.items() if name}

    def _remember(self, job_id: int, name: bytes) -> None:
        if len(name) > LONGEST_REMEMBERED:
            name = b""
        self._names[job_id] = name
        if name:
            self._ids[name] = max(job_id, self._ids.get(name, 0))


class Plan:
    """The changes of one request."""

    def __init__(self, engine: Engine, function: Function, failed: FailedTasks, first_id: int = 0) -> None:
        self.engine = engine
        self.function = function
        self.new: list[NewTask] = []
        self.revived: dict[int, Job] = {}  # failed ones that are to be tried again
        self.more: dict[int, list[int]] = {}  # what tasks that were there before will wait for besides
        self.existing: list[Job] = []  # tasks that were created again
        self.held_bytes = 0  # what the new tasks will take in memory, about
        self._first_id = first_id or engine.next_job_id
        self.new_ids = NameTable[int]()
        self._failed = failed
        self._failed_ids = failed.by_name(function)

    # --- filling it ---

    def create(self, tasks: Sequence[Task], done: Container[bytes] = ()) -> None:
        """Create these, or let those that exist wait for more; raises Refused.  Those in `done` are left alone."""
        self.add(tasks, done)
        self.check_room()
        for _ in self.sort_in_steps():
            pass

    def add(self, tasks: Sequence[Task], done: Container[bytes] = ()) -> None:
        """Some of the tasks to be created."""
        names = self.engine.names
        new_ids = self.new_ids
        for task in tasks:
            name = task.name
            job = names.get(name)
            if job is not None:
                self._create_again(job, task)
            elif name in new_ids:
                self._wait_for_more(new_ids[name], self._ids_of(task.predecessors))
            elif name not in done and not self._revive(task):
                job_id = new_ids[name] = self._first_id + len(self.new)
                after = tuple(self._ids_of(task.predecessors)) if task.predecessors else ()
                if job_id in after:
                    raise CycleRefused([text_of(name), text_of(name)])
                self.new.append((name, task.origin, after))
                self.held_bytes += TASK_BYTES + 2 * len(name) + len(task.origin) + EDGE_BYTES * len(after)
        if self.new and not self.engine.memory.has_room(self.held_bytes):
            text = f"no memory for {len(self.new)} tasks or more"
            raise Refused(REFUSED_FULL, f"{text}: limits.memory_bytes is {self.engine.memory.limit_bytes}")

    def transfer(self, jobs: Sequence[Job], tasks: Sequence[Task]) -> None:
        """Let running tasks wait for more; raises Refused."""
        self.add_transfers(jobs, tasks)
        for _ in self.sort_in_steps():
            pass

    def add_transfers(self, jobs: Sequence[Job], tasks: Sequence[Task]) -> None:
        """Some of the running tasks that are to wait for more."""
        for job, task in zip(jobs, tasks):
            self._wait_for_more(job.id, self._ids_of(task.predecessors))

    def _ids_of(self, names: Sequence[bytes]) -> list[int]:
        """The jobs of these names that are not done.  A name that nobody knows is taken for done."""
        ids = []
        for name in names:
            job = self.engine.names.get(name)
            if job is not None:
                ids.append(job.id)
                continue
            job_id = self.new_ids.get(name)
            if job_id is None and self._failed_ids:
                job_id = self._failed_ids.get(name)
                if job_id is not None and not self._failed.is_failed(job_id):
                    job_id = None
            if job_id is not None:
                ids.append(job_id)
        return ids

    def _create_again(self, job: Job, task: Task) -> None:
        if job.function is not self.function or not job.delivery:
            text = f"an unfinished job of another kind has the name {shown(task.name)}"
            raise Refused(REFUSED_CONFLICT, text)
        self.existing.append(job)
        if self._wait_for_more(job.id, self._ids_of(task.predecessors)) and job.state is RUNNING:
            text = f"task {shown(task.name)} is being worked on; its worker can let it wait for more, by Transfer"
            raise Refused(REFUSED_CONFLICT, text)

    def _revive(self, task: Task) -> bool:
        """Try a failed task again, so that those that wait for it can go on."""
        job_id = self._failed_ids.get(task.name, 0)
        if not self._failed.is_failed(job_id):
            return False
        job = self.revived.get(job_id) or self._failed.find(job_id, task.name)
        if job is None or (job.unique and self.engine.has_holder(self.function, job.unique)):
            return False
        self.engine.refuse_doomed(job)
        self.revived[job_id] = job
        self._wait_for_more(job_id, self._ids_of(task.predecessors))
        return True

    def _wait_for_more(self, job_id: int, ids: list[int]) -> bool:
        known = set(self._after(job_id))
        added = [other for other in dict.fromkeys(ids) if other not in known]
        if added:
            self.more.setdefault(job_id, []).extend(added)
        return bool(added)

    def _after(self, job_id: int) -> list[int]:
        """What a job waits for, or has waited for."""
        if job_id >= self._first_id:
            known = list(self.new[job_id - self._first_id][2])
        else:
            job = self.revived.get(job_id) or self.engine.job(job_id)
            known = list(job.predecessors) if job is not None else []
        more = self.more.get(job_id)
        return known + more if more else known

    def check_room(self) -> None:
        """Whether the engine will take all new tasks."""
        engine = self.engine
        limit = self.function.limits[NORMAL]
        too_many = limit and self.function.total + len(self.new) > limit
        most = engine.settings.jobs
        if self.new and (too_many or (most and engine.job_count() + len(self.new) > most)):
            raise Refused(REFUSED_FULL, "Job queue is full")

    # --- order ---

    def sort_in_steps(self) -> Iterator[None]:
        """See to it that nobody would wait for itself, and that new tasks are created after those they wait for.

        Only a task that was there before and now waits for more can close a circle, so this is seldom needed.
        """
        if not self.more and not self.revived:
            return
        first_id = self._first_id
        order: list[int] = []
        settled: set[int] = set()
        new_ids = range(first_id, first_id + len(self.new))
        for job_id in chain(tuple(self.more), tuple(self.revived), new_ids):
            yield from self._visit(job_id, settled, order)
        actual: dict[int, int] = {}
        for job_id in order:
            if job_id >= first_id:
                actual[job_id] = first_id + len(actual)
                yield
        sorted_tasks: list[NewTask] = []
        for job_id in actual:
            name, origin, known = self.new[job_id - first_id]
            after = [actual.get(other, other) for other in (*known, *self.more.pop(job_id, ()))]
            sorted_tasks.append((name, origin, tuple(after)))
            yield
        self.new = sorted_tasks
        for job_id, ids in self.more.items():
            self.more[job_id] = [actual.get(other, other) for other in ids]
            yield

    def _visit(self, start: int, settled: set[int], order: list[int]) -> Iterator[None]:
        """Go upwards from a task; each that was reached follows all that it waits for in `order`."""
        path = [start]
        on_path = {start}
        branches = [iter(self._blockers(start))] if start not in settled else []
        while branches:
            above = next(branches[-1], None)
            if above is None:
                branches.pop()
                done = path.pop()
                on_path.discard(done)
                settled.add(done)
                order.append(done)
                yield
            elif above in on_path:
                circle = path[path.index(above) :]
                raise CycleRefused([self._label(job_id) for job_id in (*circle, above)])
            elif above not in settled:
                path.append(above)
                on_path.add(above)
                branches.append(iter(self._blockers(above)))

    def _blockers(self, job_id: int) -> list[int]:
        """What a task will wait for that is not over, or is to be tried again."""
        job = self.engine.job(job_id)
        if job is not None and job.state is not WAITING:  # all that it waited for is done
            return self.more.get(job_id, [])
        return self._after(job_id)

    def _label(self, job_id: int) -> str:
        if job_id >= self._first_id:
            return text_of(self.new[job_id - self._first_id][0])
        job = self.revived.get(job_id) or self.engine.job(job_id)
        return text_of(job.name) if job is not None and job.name else f"job {job_id}"


def text_of(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def shown(name: bytes) -> str:
    """A name as an error may repeat it."""
    return harmless(text_of(name))
