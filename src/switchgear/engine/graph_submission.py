"""`GraphSubmission`: jobs that are submitted together with their edges, all of them or none.

Little of a submission can be undone: a worker may have a job a moment after it was submitted. So a graph is checked
first, and every error (names, cycles, limits, memory) is found before anything changes. Then the graph is applied, and
nothing can stop that.

A graph of a few hundred jobs is submitted at once, by `Engine.submit_graph`. A graph of a million jobs takes many
turns: `check` and `apply` are iterators that do a small part in each step, and other commands are handled between the
steps. From `begin` to `end` of such a long graph the names of its jobs are reserved, and no other graph changes the
predecessors of existing jobs.

Until they have ids, jobs to be submitted have numbers. The numbers of a short graph are the ids that the jobs will get,
unless they have to be sorted. A graph may also be given ids that were reserved for it before it was described; then
these are its numbers, and whoever describes it can name its jobs before they are submitted.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, TypeAlias

from switchgear.engine.function_placement import is_foreign
from switchgear.engine.graph_order import GraphOrder
from switchgear.engine.graph_parts import GraphParts
from switchgear.engine.job_template import JobTemplate
from switchgear.engine.submissions import QUEUE_IS_FULL
from switchgear.engine.submit_options import SubmitOptions
from switchgear.errors import CycleRefused, Refused
from switchgear.model import (
    FINAL_STATES,
    NORMAL,
    RUNNING,
    URGENT,
    WAITING,
    Delivery,
    EdgePolicy,
    Function,
    Job,
    Peer,
    Worker,
)
from switchgear.model.job import EDGE_BYTES
from switchgear.model.names import NameTable
from switchgear.refusals import REFUSED_CONFLICT, REFUSED_FULL, REFUSED_RUNNING
from switchgear.text import harmless

__all__ = ["NONE_RESERVED", "GraphSubmission", "refuse_if_full"]

# The first number of the jobs of a long graph, whose ids are not known yet.
FIRST_PLANNED: Final = 1 << 60

NONE_RESERVED: Final = range(0)

# A job with more predecessors is linked to them in portions, each of which takes about as long as the submission of a
# job.
MOST_LINKED_AT_ONCE: Final = 1_000
LINKED_PER_STEP: Final = 20
# A message may name one job very often. With more predecessors they are kept as a set, which takes so many bytes for
# each, instead of being compared again each time.
MOST_COMPARED_AGAIN: Final = 100
KNOWN_BYTES: Final = 60
# The memory limit is checked after this many jobs while a graph is described.
JOBS_BETWEEN_LOOKS: Final = 1_000


NewJob: TypeAlias = tuple[bytes, bytes, JobTemplate, Sequence[int]]
"""A job to be submitted: name, payload, template, and the numbers or ids of its predecessors. It is a plain tuple,
because there may be millions, and the garbage collector visits such tuples only once."""


def refuse_if_full(wanted: Iterable[tuple[Function, int, int]]) -> None:
    """Raise Refused if functions may not have so many more jobs of these priorities."""
    listed = [each for each in wanted if each[2]]
    counts: dict[Function, int] = {}
    for function, _, count in listed:
        counts[function] = counts.get(function, 0) + count
    for function, priority, _ in listed:
        limit = function.limits[priority % URGENT]
        if limit > 0 and function.total + counts[function] > limit:
            raise Refused(REFUSED_FULL, QUEUE_IS_FULL)


class GraphSubmission:
    """Jobs to be submitted, and the related changes of existing jobs.

    With `joins`, a job with the name of an unfinished job is that job, which gets more predecessors; a job with the
    name of an unsuccessful job of its function is that job, which is retried; and a predecessor with an unknown name
    counts as done. Otherwise each of these is a reason to refuse the graph.

    With `reserved`, which excludes `joins`, the jobs get these ids in the order in which they are added.
    """

    def __init__(self, parts: GraphParts, *, joins: bool, is_long: bool, reserved: range = NONE_RESERVED) -> None:
        self.existing: list[Job] = []  # joined unfinished jobs
        self.retried: dict[int, Job] = {}
        self.submitted: list[Job] = []  # the new jobs of a short graph
        self.held_bytes = 0  # approximate memory of the new jobs
        self.is_long = is_long
        self._parts = parts
        self._joins = joins
        self._new: list[NewJob] = []
        self._new_ids = NameTable[int]()  # numbers by name
        self._edges: dict[int, bytes | bytearray] = {}  # by number: the policies of the predecessors
        self._known_after: dict[int, set[int]] = {}  # the predecessors, past and present, of those with many
        self._more: dict[int, list[int]] = {}  # further predecessors of jobs that are not new, or were named twice
        self._released: list[tuple[Job, Worker]] = []
        self._templates: list[JobTemplate] = []
        self._ended_jobs: dict[int, Job | None] = {}  # unsuccessful jobs, as provided by the owner
        self._sorted: dict[int, int] = {}  # the numbers of jobs after sorting, by their first numbers
        self._ids = array("q")  # the ids of the jobs of a long graph
        self._is_reserved = reserved.start > 0
        self._below_id: int = reserved.stop
        self._first_id: int = reserved.start or (FIRST_PLANNED if is_long else parts.state.next_job_id)

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to be submitted or changed."""
        return bool(self._new or self._more or self.retried or self._released)

    # --- describing a graph ---

    def template(
        self,
        function: Function,
        options: SubmitOptions,
        priority: int = NORMAL,
        delivery: int = Delivery.HANDLE,
        subscriber: Peer | None = None,
    ) -> JobTemplate:
        """Options that some of the jobs share. The graph owns the options from now on.

        They have no name, predecessors or unique key, which belong to each job.
        """
        template = JobTemplate(function, options, priority, delivery, subscriber)
        self._templates.append(template)
        return template

    def add(
        self,
        template: JobTemplate,
        payload: bytes,
        name: bytes = b"",
        predecessors: Sequence[int] = (),
        predecessor_names: Sequence[bytes] = (),
        edges: bytes = b"",
    ) -> int:
        """Add a job, and return its number, by which later jobs can name it as a predecessor.

        Predecessors are ids of jobs, numbers of jobs of this graph, and names of either.  `edges` has an EdgePolicy for
        each, those given by name last.  Raises Refused.
        """
        if name:
            number = self._known(template, name, predecessors, predecessor_names)
            if number:
                return number
        number = self._first_id + len(self._new)
        if self._is_reserved:
            if number == self._below_id:
                raise Refused(REFUSED_CONFLICT, f"the graph has more than the {len(self._new)} jobs it has ids for")
            self._refuse_later(number, predecessors)
        if name:
            self._new_ids[name] = number
        after: Sequence[int] = predecessors
        if predecessor_names:
            after, edges = self._with_names(predecessors, predecessor_names, edges)
            if number in after:
                raise CycleRefused([text_of(name), text_of(name)])
        if edges and any(edges):
            self._edges[number] = edges
        self._new.append((name, payload, template, after))
        template.count += 1
        self.held_bytes += template.entry_bytes + len(name) + len(payload) + EDGE_BYTES * len(after)
        if not len(self._new) % JOBS_BETWEEN_LOOKS:
            self._refuse_without_memory()
        return number

    def extend(
        self,
        number: int,
        predecessors: Sequence[int] = (),
        predecessor_names: Sequence[bytes] = (),
        policy: int = EdgePolicy.WAIT,
    ) -> None:
        """Add predecessors to a new job that has so many of them that naming them takes several turns.

        All of these have the same policy.
        """
        name, payload, template, after = self._new[number - self._first_id]
        more, _ = self._with_names(predecessors, predecessor_names, b"")
        if self._is_reserved:
            self._refuse_later(number, more)
        if number in more:
            raise CycleRefused([text_of(name), text_of(name)])
        if policy or number in self._edges:
            edges = self._edges.get(number)
            if not isinstance(edges, bytearray):
                edges = self._edges[number] = bytearray(edges or bytes(len(after)))
            edges += bytes([policy]) * len(more)
        if not isinstance(after, list):
            after = list(after)
            self._new[number - self._first_id] = (name, payload, template, after)
        after.extend(more)
        self.held_bytes += EDGE_BYTES * len(more)

    def _refuse_later(self, number: int, predecessors: Sequence[int]) -> None:
        """Raise Refused if a predecessor comes later in the graph, or was never a job."""
        next_id = self._parts.state.ids_end
        below_id = self._below_id
        for predecessor in predecessors:
            if number <= predecessor < below_id or not 0 < predecessor < next_id:
                text = f"job {number - self._first_id + 1} of the graph waits for a job that is not before it"
                raise Refused(REFUSED_CONFLICT, text)

    def release(self, worker: Worker, job: Job, predecessor_names: Sequence[bytes]) -> None:
        """Release a job of a worker; the job goes back to its queue, or waits for these predecessors first."""
        self._released.append((job, worker))
        self._wait_for_more(job.id, self._ids_of(predecessor_names))

    # --- unsuccessful jobs ---

    def unsuccessful_among(self, names: Sequence[bytes]) -> list[int]:
        """Jobs that a graph with these names may retry; the owner has to `provide` them before it adds the names."""
        ended = self._parts.unsuccessful
        if not ended.has_names:
            return []
        unfinished = self._parts.state.names
        found = [ended.named(name) for name in names if name not in unfinished]
        return [job_id for job_id in found if job_id and job_id not in self._ended_jobs]

    def provide(self, job_id: int, job: Job | None) -> None:
        """Provide an unsuccessful job as it ended, or `None` if it is no longer known; raises Refused."""
        if job is not None and job.state not in FINAL_STATES:
            raise Refused(REFUSED_CONFLICT, "that {} failed is being written down; try again", job_id)
        self._ended_jobs[job_id] = job

    def unknown_among(self, names: Sequence[bytes]) -> list[bytes]:
        """Names that may belong to unsuccessful jobs which only the store has; the owner can `recall` those jobs.

        Empty unless there are more unsuccessful jobs than the engine keeps in memory.
        """
        ended = self._parts.unsuccessful
        if ended.is_complete:
            return []
        unfinished = self._parts.state.names
        return [name for name in names if not (name in unfinished or name in self._new_ids or ended.named(name))]

    def recall(self, job: Job) -> None:
        """Remember an unsuccessful job that the engine has forgotten and the store has."""
        self._parts.unsuccessful.recall(job.id, job.state, job.name)
        self._ended_jobs[job.id] = job

    # --- names ---

    def _known(
        self, template: JobTemplate, name: bytes, predecessors: Sequence[int], predecessor_names: Sequence[bytes]
    ) -> int:
        """The id or number of an existing or retried job with this name; 0 for a new one."""
        state = self._parts.state
        job = state.names.get(name)
        if job is not None:
            if not self._joins:
                raise Refused(REFUSED_CONFLICT, f"there is an unfinished job named {shown(name)}")
            return self._join(template, job, [*predecessors, *self._ids_of(predecessor_names)])
        number = self._new_ids.get(name)
        if number is not None:
            if not self._joins:
                raise Refused(REFUSED_CONFLICT, f"two jobs of one graph are named {shown(name)}")
            self._wait_for_more(number, [*predecessors, *self._ids_of(predecessor_names)])
            return number
        if state.reserved_names and state.is_name_reserved(name):
            raise Refused(REFUSED_CONFLICT, f"there is an unfinished job named {shown(name)}")
        ended = self._parts.unsuccessful
        if self._joins and ended.has_names:
            job_id = ended.named(name)
            if job_id and self._retry(template, job_id):
                self._wait_for_more(job_id, [*predecessors, *self._ids_of(predecessor_names)])
                return job_id
        return 0

    def _join(self, template: JobTemplate, job: Job, ids: list[int]) -> int:
        if job.function is not template.function or not job.delivery:
            text = f"an unfinished job of another kind has the name {shown(job.name)}"
            raise Refused(REFUSED_CONFLICT, text)
        self.existing.append(job)
        if self._wait_for_more(job.id, ids) and job.state is RUNNING:
            text = "{} is being worked on; its worker can let it wait for more"
            raise Refused(REFUSED_RUNNING, text, job.id)
        return job.id

    def _retry(self, template: JobTemplate, job_id: int) -> bool:
        """Retry an unsuccessful job, because others wait for it."""
        if job_id not in self._ended_jobs:
            raise Refused(REFUSED_CONFLICT, "{} has just failed; try again", job_id)
        job = self._ended_jobs[job_id]
        function = template.function
        if job is None or job.function.name != function.name:
            return False
        if job.unique and self._parts.packed.has_holder(function, job.unique):
            return False
        self._parts.commands.refuse_failed_dependency(job)
        if job_id not in self.retried:
            self.retried[job_id] = job
            self.held_bytes += job.measured_entry() + len(job.payload or b"")
        return True

    def _with_names(
        self, predecessors: Sequence[int], names: Sequence[bytes], edges: bytes
    ) -> tuple[Sequence[int], bytes]:
        """All predecessors by id or number, and the policies of the known ones."""
        if not edges:
            ids = self._ids_of(names)
            return (tuple(ids) if not predecessors else (*predecessors, *ids)), b""
        found = list(predecessors)
        policies = list(edges[: len(found)])
        for name, policy in zip(names, edges[len(found) :]):
            ids = self._ids_of((name,))
            found += ids
            policies += [policy] * len(ids)
        return found, bytes(policies)

    def _ids_of(self, names: Sequence[bytes]) -> list[int]:
        """The unfinished jobs with these names."""
        ids: list[int] = []
        unfinished = self._parts.state.names
        ended = self._parts.unsuccessful
        has_unsuccessful = ended.has_names
        for name in names:
            job = unfinished.get(name)
            if job is not None:
                ids.append(job.id)
                continue
            number = self._new_ids.get(name)
            if number is None and has_unsuccessful:
                number = ended.named(name) or None
            if number is not None:
                ids.append(number)
            elif not self._joins:
                raise Refused(REFUSED_CONFLICT, f"there is no unfinished job named {shown(name)}")
        return ids

    def _wait_for_more(self, job_id: int, ids: list[int]) -> bool:
        known = self._known_after.get(job_id)
        if known is None:
            known = set(self._after(job_id))
            if len(known) + len(ids) > MOST_COMPARED_AGAIN:
                self._known_after[job_id] = known
                self.held_bytes += KNOWN_BYTES * len(known)
        added = [other for other in dict.fromkeys(ids) if other not in known]
        if added:
            self._more.setdefault(job_id, []).extend(added)
            self.held_bytes += EDGE_BYTES * len(added)
            if job_id in self._known_after:
                known.update(added)
                self.held_bytes += KNOWN_BYTES * len(added)
        return bool(added)

    def _after(self, job_id: int) -> list[int]:
        """The predecessors of a job, past and present."""
        if job_id >= self._first_id:
            known = list(self._new[job_id - self._first_id][3])
        else:
            job = self.retried.get(job_id) or self._parts.packed.job(job_id)
            known = list(job.predecessors) if job is not None else []
        more = self._more.get(job_id)
        return known + more if more else known

    # --- begin and end of a long graph ---

    def begin(self) -> bool:
        """Begin a long graph; False if another one is in progress."""
        parts = self._parts
        if parts.under_way:
            return False
        parts.under_way = True
        parts.state.reserved_names.append(self._new_ids)
        return True

    def end(self) -> None:
        """End a long graph, after it was submitted or refused."""
        parts = self._parts
        parts.under_way = False
        parts.state.reserved_names[:] = [names for names in parts.state.reserved_names if names is not self._new_ids]

    # --- checking ---

    def check(self) -> Iterator[None]:
        """Find everything that is wrong with the graph; raises Refused. Changes nothing."""
        self._refuse_if_full()
        if self._more or self.retried:
            yield from self._sort()
            self._refuse_if_full()

    def _refuse_if_full(self) -> None:
        state = self._parts.state
        if state.refusal is not None and not self._released:  # a worker may always release its jobs
            raise Refused(state.refusal.reason, str(state.refusal))
        if not self._new and not self.retried:
            return
        self._refuse_without_memory()
        most = state.settings.jobs
        if most and self._parts.packed.unfinished_count() + len(self._new) > most:
            raise Refused(REFUSED_FULL, QUEUE_IS_FULL)
        refuse_if_full((template.function, template.priority, template.count) for template in self._templates)

    def counts_elsewhere(self) -> list[tuple[bytes, int, int]]:
        """Function, priority and number of the new jobs that other engines are going to have.

        Only their owners know how many more jobs they may have, so they have to be asked before the graph is checked.
        """
        if not self._has_foreign_jobs():
            return []
        counts: dict[tuple[bytes, int], int] = {}
        for template in self._templates:
            if template.count and is_foreign(template.function):
                key = (template.function.name, template.priority)
                counts[key] = counts.get(key, 0) + template.count
        return [(name, priority, count) for (name, priority), count in counts.items()]

    def _refuse_without_memory(self) -> None:
        memory = self._parts.state.memory
        if not memory.has_room(self.held_bytes):
            text = f"no memory for {len(self._new)} jobs or more: limits.memory_bytes is {memory.limit_bytes}"
            raise Refused(REFUSED_FULL, text)

    def _sort(self) -> Iterator[None]:
        """Ensure that no job would wait for itself, and that new jobs are submitted after their predecessors.

        Only a job that existed before, or was named twice, can close a cycle; so this is seldom needed.
        """
        first_id = self._first_id
        graph_order = GraphOrder(self._blockers, self._label)
        new_ids = range(first_id, first_id + len(self._new))
        for job_id in chain(tuple(self._more), tuple(self.retried), new_ids):
            yield from graph_order.visit(job_id)
        order = graph_order.jobs
        actual = self._sorted
        for job_id in order:
            if job_id >= first_id:
                actual[job_id] = first_id + len(actual)
                yield
        sorted_jobs: list[NewJob] = []
        for job_id in actual:
            name, payload, template, known = self._new[job_id - first_id]
            after = [actual.get(other, other) for other in (*known, *self._more.pop(job_id, ()))]
            sorted_jobs.append((name, payload, template, tuple(after)))
            yield
        self._new = sorted_jobs
        self._edges = {actual[job_id]: edges for job_id, edges in self._edges.items()}
        for job_id, ids in self._more.items():
            self._more[job_id] = [actual.get(other, other) for other in ids]
            yield

    def _blockers(self, job_id: int) -> list[int]:
        """The future predecessors of a job that are unfinished or to be retried."""
        if job_id < self._first_id:
            job = self._parts.packed.job(job_id)
            if job is not None and job.state is not WAITING:  # all its predecessors are done
                return self._more.get(job_id, [])
        return self._after(job_id)

    def _label(self, job_id: int) -> str:
        if job_id >= self._first_id:
            return text_of(self._new[job_id - self._first_id][0]) or f"job {job_id - self._first_id + 1} of the graph"
        job = self.retried.get(job_id) or self._parts.packed.job(job_id)
        return text_of(job.name) if job is not None and job.name else f"job {job_id}"

    # --- applying a graph ---

    def apply(self) -> Iterator[None]:
        """Submit the jobs and change the others, as was checked. Nothing of this can be refused."""
        if self._is_reserved:
            self._parts.state.unused_ids -= len(self._new)
        if self._has_foreign_jobs():
            yield from self._store_for_owners()
        else:
            yield from self._submit_new()
        commands = self._parts.commands
        packed = self._parts.packed
        for job_id, job in self.retried.items():
            more = self._actual(self._more.pop(job_id, ()))
            unfinished = packed.job(job_id)
            if unfinished is not None:  # an operator has retried the job meanwhile
                yield from self._add_predecessors(unfinished, more)
            else:
                yield from commands.retry_in_steps(job, more, is_checked=True)
            yield
        for released, worker in reversed(self._released):
            more = self._actual(self._more.pop(released.id, ()))
            if released.worker is worker:  # otherwise the job was taken from the worker meanwhile
                if more:
                    yield from self._add_predecessors(released, more)
                else:
                    self._parts.reports.release(worker, released.id)
            yield
        for job_id, planned in self._more.items():
            unfinished = packed.job(job_id)
            if unfinished is not None:  # if a worker has taken the job meanwhile, it is taken back
                yield from self._add_predecessors(unfinished, self._actual(planned))
            yield

    def _add_predecessors(self, job: Job, job_ids: tuple[int, ...]) -> Iterator[None]:
        """Let an unfinished job wait for more; that takes several turns if they are very many, and it may end then."""
        with suppress(Refused):
            yield from self._parts.predecessor_commands.add_in_steps(job, job_ids, b"", is_checked=True)

    def _has_foreign_jobs(self) -> bool:
        """Whether some of the new jobs are of functions of other engines."""
        if self._parts.state.placement is None:
            return False
        return any(template.count and is_foreign(template.function) for template in self._templates)

    def _store_for_owners(self) -> Iterator[None]:
        """Store all new jobs in one transaction, from which each engine takes those of its functions."""
        state = self._parts.state
        placement = state.placement
        assert placement is not None
        jobs: list[Job] = []
        number = self._first_id
        for name, payload, template, after in self._new:
            options = template.options
            options.name = name
            options.edges = bytes(self._edges.pop(number, b"")) if self._edges else b""
            options.predecessors = self._actual(after)
            job = self._parts.submissions.job_for_owner(
                template.function, payload, options, template.priority, number if self._is_reserved else 0
            )
            if template.subscriber is not None:
                job.subscribers = [template.subscriber]
            jobs.append(job)
            self._note_submitted(job)
            number += 1
            yield
        self._new = []
        for job in jobs:
            state.count_contents(job)
            state.changed[job] = None
            if job.subscribers is not None:
                job.subscribers[0].subscriptions[job.id] = job
        state.concern_speaker()
        placement.store_for_owners(jobs)

    def _submit_new(self) -> Iterator[None]:
        new = self._new
        is_long = self.is_long
        number = self._first_id
        new.reverse()
        while new:  # freed one by one, because freeing millions at once takes long
            name, payload, template, after = new.pop()
            options = template.options
            options.name = name
            options.edges = bytes(self._edges.pop(number, b"")) if self._edges else b""
            reserved_id = number if self._is_reserved else 0
            number += 1
            if name and is_long:
                del self._new_ids[name]
            if len(after) > MOST_LINKED_AT_ONCE:
                yield from self._submit_wide(payload, template, after, reserved_id)
                continue
            options.predecessors = self._actual(after)
            if after and template.delivery and self._parts.dependencies.relies_on_many(options.predecessors):
                yield from self._parts.dependencies.rely_in_steps(options.predecessors)
            job = self._parts.submissions.submit_checked(
                template.function,
                payload,
                options,
                template.priority,
                template.delivery,
                template.subscriber,
                is_long,
                reserved_id,
                self._below_id,
            )
            self._note_submitted(job)
            yield

    def _note_submitted(self, job: Job) -> None:
        if not self.is_long:
            self.submitted.append(job)
        elif not self._is_reserved:
            self._ids.append(job.id)

    def _submit_wide(
        self, payload: bytes, template: JobTemplate, after: Sequence[int], reserved_id: int
    ) -> Iterator[None]:
        """Submit a job of very many predecessors: it is linked to them in portions, and enters the tables
        afterwards."""
        predecessors: list[int] = []
        for start in range(0, len(after), LINKED_PER_STEP):
            predecessors += self._actual(after[start : start + LINKED_PER_STEP])
            yield
        options = template.options
        options.predecessors = tuple(predecessors)
        submissions = self._parts.submissions
        job = self._parts.wide_submissions.new_job(
            template.function,
            payload,
            template.priority,
            template.delivery,
            options,
            reserved_id=reserved_id,
            below_id=self._below_id,
        )
        for start in range(0, len(predecessors), LINKED_PER_STEP):
            self._parts.dependencies.link_some(job, start, start + LINKED_PER_STEP)
            yield
        submissions.submit_linked(job, options, template.subscriber, self.is_long)
        self._note_submitted(job)
        yield

    def _actual(self, planned: Sequence[int]) -> tuple[int, ...]:
        """Replace the provisional numbers of jobs of this graph by their ids."""
        if not self.is_long or self._is_reserved:
            return planned if isinstance(planned, tuple) else tuple(planned)
        ids = self._ids
        return tuple([ids[number - FIRST_PLANNED] if number >= FIRST_PLANNED else number for number in planned])

    def id_of(self, number: int) -> int:
        """The id of the submitted job for which `add` returned this number."""
        if number < self._first_id:
            return number
        number = self._sorted.get(number, number)
        if self._is_reserved:
            return number
        return self._ids[number - FIRST_PLANNED] if self.is_long else number


def text_of(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def shown(name: bytes) -> str:
    """A name in the form that an error may quote."""
    return harmless(text_of(name))
