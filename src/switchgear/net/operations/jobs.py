"""The verbs about jobs: `jobs`, `job`, `states`, `cancel` and `retry`.

Jobs are selected by `function`, `states`, `unique`, `name`, `dead`, `error` (a part of the text) and `since` (submitted
at or after). One call examines a bounded number of jobs, so that a selection that matches few jobs does not block the
server; its answer says where to continue.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, Final, cast

from switchgear.engine.predecessor_error import error_told
from switchgear.errors import CycleRefused, Refused
from switchgear.joblog.runs import LoggedStart
from switchgear.json_bytes import plain, told
from switchgear.model import (
    DONE,
    FAILED,
    FINAL_STATES,
    PRIORITY_NAMES,
    READY,
    SECOND_US,
    URGENT,
    WAITING,
    Delivery,
    EdgePolicy,
    Job,
    JobState,
    UniqueScope,
)
from switchgear.net.operations.attempts import attempt_history, logged_starts, present_start
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.job_selection import query_of, refuse_both, require_some
from switchgear.net.operations.unfinished_jobs import MOST_SEARCHED, SCANNED_PER_STEP, UnfinishedJobs
from switchgear.net.operations.verb_steps import Steps, in_steps
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.pending_read import Reading
from switchgear.refusals import REFUSED_CONFLICT
from switchgear.resources import shown_requirements
from switchgear.states import UNSUCCESSFUL_STATES
from switchgear.storage.base import JobQuery
from switchgear.verbs.answers import (
    CancelAnswer,
    JobAnswer,
    JobsPage,
    JobSummary,
    RetryAnswer,
    SpawnAnswer,
    StatesAnswer,
    WaitForAnswer,
)
from switchgear.verbs.permitted_values import EDGE_POLICY_NAMES

__all__ = ["JobOperations"]

# The size of one step (`net.long_operations`): each takes about half a millisecond.
STATES_PER_STEP: Final = 250
CANCELLED_PER_STEP: Final = 50
UNPACKED_PER_STEP: Final = 500
EDGES_PER_STEP: Final = 250
# An answer has at most this many handles of cancelled jobs. A million would take 150 ms to encode, and block the server
# meanwhile.
MOST_HANDLES = 50_000
RETRIED_PER_STEP: Final = 5
# So many predecessors of a job are named where it is shown, and where it is one of very many. A job may have a million.
MOST_PREDECESSORS: Final = 1_000
MOST_PREDECESSORS_LISTED: Final = 100
STATE_NAMES: Final = {state: state.name.lower() for state in JobState}
UNFINISHED_STATES: Final = frozenset(JobState) - FINAL_STATES


class JobOperations:
    """Lists, shows, cancels, retries and changes jobs."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self._hub = context.hub
        self._engine = context.engine
        self._unfinished = UnfinishedJobs(context.engine, context.has_own if context.is_one_of_several else None)
        self._matches = self._unfinished.matches

    # --- listing ---

    def jobs(self, **selection: Any) -> Steps:
        """Jobs that match, the newest first."""
        query = query_of(**selection)
        # Unfinished jobs first: a job that ends during the search is then found twice, and not missed.
        unfinished, complete_from = yield from self._unfinished.search(query)
        kept, searched_to = yield from self._search(query)
        # The store may lag behind: a job that the engine has is in the engine's state, and other unfinished ones have
        # ended.
        found = {job.id: job for job in unfinished if job.state not in FINAL_STATES or self._matches(job, query)}
        found |= {job.id: job for job in kept if job.state in FINAL_STATES and not self._engine.has_job(job.id)}
        if query.contains:
            found |= self._found_by_payload(kept, query)
        complete_from = max(complete_from, searched_to)
        listed = sorted((job for job in found.values() if job.id >= complete_from), key=lambda job: -job.id)
        if len(listed) > query.limit:
            listed = listed[: query.limit]
            complete_from = listed[-1].id
        summaries = yield from in_steps(self._listed, listed)
        page: JobsPage = {"jobs": summaries, "next_before_id": complete_from or None}
        return page

    def _found_by_payload(self, kept: list[Job], query: JobQuery) -> dict[int, Job]:
        """Those of the jobs that the engine has, by id: only the store may have their payloads."""
        otherwise = replace(query, contains=b"")
        jobs = [self._engine.look_at(job.id) for job in kept]
        return {job.id: job for job in jobs if job is not None and self._matches(job, otherwise)}

    def _search(self, query: JobQuery) -> Steps:
        """Jobs of the store that match, and the lowest id that was examined; 0 if all were."""
        if query.dead or query.error_contains:
            # Only unsuccessful jobs have an error, apart from unfinished jobs, which the engine has in their latest
            # state.
            states = (query.states or UNSUCCESSFUL_STATES) & UNSUCCESSFUL_STATES
            if not states:
                return [], 0
            from_id = yield from self._hub.search_bound(query.before_id, MOST_SEARCHED, states)
            query = replace(query, states=states, from_id=from_id)
        elif query.contains:
            states = query.states
            if states & UNFINISHED_STATES:
                states |= UNFINISHED_STATES  # the store may lag behind
            from_id = yield from self._hub.search_bound(query.before_id, MOST_SEARCHED, states)
            query = replace(query, states=states, from_id=from_id)
        kept = yield from self._hub.search(query)
        return kept, kept[-1].id if len(kept) >= query.limit else query.from_id

    def states(self, handles: list[str]) -> Steps:
        """The states of jobs in the order of their handles, and how many jobs are in each state."""
        states: list[str] = []
        for start in range(0, len(handles), STATES_PER_STEP):
            job_ids = [self._context.job_id(handle) for handle in handles[start : start + STATES_PER_STEP]]
            found = yield from self._hub.find_states(job_ids)
            states += [STATE_NAMES[found[job_id]] if job_id in found else "unknown" for job_id in job_ids]
            yield False
        answer: StatesAnswer = {"states": states, "counts": dict(Counter(states))}
        return answer

    def job(self, handle: str, contents: bool, workers: bool) -> Steps:
        """One job in all detail."""
        job = None if contents else (yield from self._finished_job(handle))
        if job is None:
            job = yield from self._context.named_job(handle)
        starts: dict[int, LoggedStart] = {}
        recorder = self._context.recorder
        if workers and recorder is not None and job.moves:
            starts = yield from logged_starts(recorder, self._context.handle(job.id), job.id)
        if job.worker is not None:
            starts[job.taken_us] = present_start(job, job.worker)
        payload = job.payload
        if payload is None and contents and self._engine.has_job(job.id):
            with suppress(Refused):  # the store cannot be read; the rest of the answer is still useful
                payload = (yield from self._hub.read_payloads([job.id])).get(job.id, b"")
        answer = cast(
            JobAnswer,
            {
                **self._summary(job),
                "payload_bytes": None if payload is None and not contents else len(payload or b""),
                "warnings": plain(job.warnings),
                "log": [{"cause": cause.name.lower(), "at": at_us / SECOND_US} for cause, at_us in job.log],
                "attempt_history": attempt_history(job, starts),
            },
        )
        if contents:
            answer["payload"] = told(payload or b"")
            answer["result"] = told(job.whole_result)
        return answer

    def _finished_job(self, handle: str) -> Reading[Job | None]:
        """A finished job of the store without its contents, which may be long; None if there is none."""
        job_id = self._context.job_id(handle) or number_in_handle(handle.encode(), b"")
        if not job_id or self._engine.has_job(job_id):
            return None
        found = yield from self._hub.search(JobQuery(from_id=job_id, before_id=job_id + 1, limit=1))
        return found[0] if found and found[0].state in FINAL_STATES else None

    def _listed(self, job: Job) -> JobSummary:
        return self._summary(job, MOST_PREDECESSORS_LISTED)

    def _summary(self, job: Job, most_predecessors: int = MOST_PREDECESSORS) -> JobSummary:
        error = error_told(job, self._context.handle)
        predecessors = job.predecessors[:most_predecessors]
        policies = job.edges[:most_predecessors] or bytes(len(predecessors))
        return {
            "handle": self._context.handle(job.id),
            "id": job.id,
            "function": plain(job.function.name),
            "state": job.state.name.lower(),
            "dead": job.is_dead,
            "priority": "urgent" if job.priority == URGENT else PRIORITY_NAMES[job.priority],
            "delivery": Delivery(job.delivery).name.lower(),
            "unique": plain(job.client_unique),
            "name": plain(job.name),
            "attempts": job.attempts,
            "attempts_limit": job.attempts_limit if job.attempts_limit >= 0 else self._engine.settings.attempts,
            "created_at": job.created_us / SECOND_US,
            "run_at": job.run_at_us / SECOND_US or None,
            "expires_at": job.expires_us / SECOND_US or None,
            "finished_at": job.finished_us / SECOND_US or None,
            "timeout": job.timeout_us / SECOND_US or None,
            "numerator": job.numerator,
            "denominator": job.denominator,
            "time_left": job.time_left_s if job.time_left_s >= 0 else None,
            "result_code": job.result_code,
            "error": None if error is None else plain(error),
            "predecessors": [self._context.handle(predecessor) for predecessor in predecessors],
            "predecessor_count": len(job.predecessors),
            "on_failure": [EDGE_POLICY_NAMES[policy] for policy in policies],
            "origin": job.origin,
            "key": plain(job.key),
            "label": plain(job.label),
            "requires": shown_requirements(job.requires),
            "trace": job.trace.decode(),
            "losses": job.losses,
            "crash_limit": job.crash_limit if job.crash_limit >= 0 else None,
            "unique_scope": UniqueScope(job.unique_scope).name.lower(),
            "unique_until": job.unique_until_us / SECOND_US or None,
            "retention": job.retention_us / SECOND_US if job.retention_us >= 0 else None,
            "message": plain(job.message),
            "schedule": plain(job.schedule),
        }

    # --- cancelling ---

    def cancel(self, handle: str | None, cascade: bool, **selection: Any) -> Steps:
        """Cancel one job, or all unfinished jobs that match."""
        if handle is not None:
            refuse_both(selection)
            job = yield from self._context.named_job(handle)
            handles, count = yield from self._cancel([job], cascade=cascade)
            if not handles:
                state = job.state.name.lower()
                raise LookupError(f"{self._context.handle(job.id)} is {state}: there is nothing to cancel")
            one: CancelAnswer = {"cancelled": handles}
            if count > len(handles):
                one["count"] = count
            return one
        require_some(selection, "cancel")
        query = query_of(**selection)
        chosen = yield from self._chosen(query)
        handles, count = yield from self._cancel(chosen, cascade=cascade)
        many: CancelAnswer = {"cancelled": handles, "count": count, "more": len(chosen) == query.limit}
        return many

    def _cancel(self, jobs: list[Job], *, cascade: bool) -> Steps:
        """Cancel jobs; returns their handles, up to a limit, and their number."""
        handles: list[str] = []
        count = units = 0
        for job in jobs:
            for ended in self._engine.cancel_in_steps(job, cascade=cascade):
                if ended is not None:
                    count += 1
                    if count <= MOST_HANDLES:
                        handles.append(self._context.handle(ended.id))
                units += 1
                if units % CANCELLED_PER_STEP == 0:
                    yield False
        return handles, count

    def _chosen(self, query: JobQuery) -> Steps:
        """Unfinished jobs that match, up to the limit."""
        if query.function is not None and query.function not in self._engine.functions:
            return []
        all_ready = JobQuery(function=query.function, states=frozenset({READY}), limit=query.limit)
        if query.function is not None and query == all_ready:
            function = self._engine.functions[query.function]
            return list(islice(self._engine.ready_jobs(function), query.limit)) if function.ready else []
        found, _ = yield from self._unfinished.search(query)
        return [job for job in found if job.state not in FINAL_STATES]

    # --- for bulk actions ---

    def unfinished_ids(self, query: JobQuery, most: int) -> Steps:
        """The ids of unfinished jobs that match, the newest first."""
        job_ids = array("q")
        before_id = 0
        while len(job_ids) < most:
            some = list(islice(self._engine.newest_first(before_id), SCANNED_PER_STEP))
            job_ids.extend([job.id for job in some if job.state not in FINAL_STATES and self._matches(job, query)])
            if len(some) < SCANNED_PER_STEP:
                break
            before_id = some[-1].id
            yield False
        return job_ids[:most]

    def unsuccessful_ids(self, query: JobQuery, most: int) -> Steps:
        """The ids of jobs that ended without success and match, the newest first."""
        job_ids = array("q")
        before_id = 0
        while len(job_ids) < most:
            found, before_id = yield from self._search(replace(query, before_id=before_id))
            job_ids.extend([job.id for job in found if self._context.has_own(job)])
            if not before_id:
                break
            yield False
        return job_ids[:most]

    def cancel_each(self, job_id: int, *, cascade: bool) -> Iterator[bool]:
        """Cancel one of many jobs, if it is unfinished; yields True for each job that was cancelled, and False after
        other parts of the work."""
        job = self._engine.job(job_id)
        if job is not None:
            for ended in self._engine.cancel_in_steps(job, cascade=cascade):
                yield ended is not None

    def retry_each(self, job_ids: list[int]) -> Steps:
        """Retry jobs; returns the handles of those that could be retried."""
        return self._revive_all(job_ids)

    # --- retrying ---

    def retry(self, handle: str | None, all_dead: bool, dead: bool, **selection: Any) -> Steps:
        """Retry one job that ended without success, or all that match."""
        selection["dead"] = dead or all_dead
        if handle is not None:
            refuse_both(selection)
            job = yield from self._context.named_job(handle)
            if job.state is DONE or job.state not in FINAL_STATES:
                raise Refused(REFUSED_CONFLICT, f"it is {job.state.name.lower()}: there is nothing to retry")
            yield from self._revive(job)
            one: RetryAnswer = {"retried": [self._context.handle(job.id)]}
            return one
        require_some(selection, "retry")
        query = query_of(**selection)
        if not query.states:
            query = replace(query, states=frozenset({FAILED}))
        if self._engine.refusal is not None:
            raise Refused(self._engine.refusal.reason, str(self._engine.refusal))
        found, searched_to = yield from self._search(query)
        retried = yield from self._revive_all([job.id for job in found if self._context.has_own(job)])
        many: RetryAnswer = {"retried": retried, "count": len(retried), "next_before_id": searched_to or None}
        return many

    def _revive_all(self, job_ids: list[int]) -> Steps:
        """Retry jobs; returns the handles of those that could be retried."""
        handles: list[str] = []
        for start in range(0, len(job_ids), RETRIED_PER_STEP):
            if start:
                yield False
            some = job_ids[start : start + RETRIED_PER_STEP]
            found = yield from self._hub.find_jobs(some)  # a missing job was just dropped from the history
            for job_id in some:
                job = found.get(job_id)
                if (yield from self._can_revive(job)):
                    handles.append(self._context.handle(job_id))
                if job is not None and job.predecessors:
                    yield False  # what it waits for may have become durable
        return handles

    def _can_revive(self, job: Job | None) -> Steps:
        """Retry one of many jobs; False if it cannot be retried."""
        if job is None or job.state not in UNSUCCESSFUL_STATES or self._engine.has_job(job.id):
            return False  # the store lags behind, or the job was retried meanwhile
        try:
            yield from self._revive(job)
        except Refused:
            return False  # another job has its unique key, or the server refuses jobs now
        return True

    def _revive(self, job: Job) -> Steps:
        job.function = self._engine.function_named(job.function.name)
        for _ in self._engine.retry_in_steps(job):
            yield False

    # --- changing ---

    def change(self, handle: str, priority: str | None, run_at: float | None) -> Steps:
        """Change the priority or the run-at time of a job."""
        if priority is None and run_at is None:
            raise ValueError("there is nothing to change: give priority, run_at, or both")
        job = yield from self._context.named_job(handle)
        job = self._engine.change(
            job,
            priority=-1 if priority is None else PRIORITY_NAMES.index(priority),
            run_at_us=-1 if run_at is None else round(run_at * SECOND_US),
        )
        return self._summary(job)

    # --- jobs that wait for others ---

    def complete(self, handle: str, result: bytes) -> Steps:
        """Complete a job that does not run, without running it."""
        job = yield from self._context.named_job(handle)
        self._engine.complete_without_run(job, result)
        # Its end is not stored yet, and the store would say what it was before.
        return self._summary(self._hub.find_unkept_end(job.id) or (yield from self._context.named_job(handle)))

    def wait_for(self, handle: str, after: list[str], on_failure: str) -> Steps:
        """Let an unfinished job wait for others, and take it from its worker if it runs."""
        others = yield from self._ids_of(after)
        yield from self._unpack(others)
        job = self._unfinished_job((yield from self._context.named_job(handle)))
        policy = EdgePolicy[on_failure.upper()]
        try:
            for _ in self._engine.add_predecessors_in_steps(job, others, bytes([policy]) * len(others)):
                yield False
        except CycleRefused as cycle:
            raise self._with_handles(cycle) from None
        answer: WaitForAnswer = {"waits": job.state is WAITING}
        return answer

    def spawn(self, handle: str, jobs: list[str]) -> Steps:
        """Let the jobs that wait for a job wait for others too."""
        others = yield from self._ids_of(jobs)
        yield from self._unpack(others)
        job = self._unfinished_job((yield from self._context.named_job(handle)))
        count = 0
        try:
            edges = 0
            for is_last in self._engine.let_successors_wait(job, others):
                count += is_last
                edges += 1 + len(others)
                if edges >= EDGES_PER_STEP:
                    edges = 0
                    yield False
        except CycleRefused as cycle:
            raise self._with_handles(cycle) from None
        answer: SpawnAnswer = {"successors": count}
        return answer

    def _with_handles(self, cycle: CycleRefused) -> CycleRefused:
        """The same refusal with handles in place of ids."""
        words = [(each, each.removeprefix("job ")) for each in cycle.path]
        return CycleRefused([self._context.handle(int(number)) if number.isdigit() else each for each, number in words])

    def _ids_of(self, handles: list[str]) -> Steps:
        """The ids of jobs; raises LookupError if there is one that the server does not know."""
        job_ids: list[int] = []
        for start in range(0, len(handles), STATES_PER_STEP):
            if start:
                yield False
            given = handles[start : start + STATES_PER_STEP]
            some = [self._context.job_id(handle) for handle in given]
            found = yield from self._hub.find_states(some)
            unknown = next((handle for handle, job_id in zip(given, some) if job_id not in found), None)
            if unknown is not None:
                raise LookupError(f"there is no job {unknown[:100]}")
            job_ids += some
        return tuple(job_ids)

    def _unpack(self, job_ids: tuple[int, ...]) -> Steps:
        """Unpack jobs that others are about to wait for, which otherwise takes most of the step in which they begin."""
        for start in range(0, len(job_ids), UNPACKED_PER_STEP):
            for job_id in job_ids[start : start + UNPACKED_PER_STEP]:
                self._engine.job(job_id)
            yield False

    def _unfinished_job(self, job: Job) -> Job:
        """The engine's own object for a job; raises Refused if it has ended."""
        if job.state in FINAL_STATES:
            raise Refused(REFUSED_CONFLICT, f"it is {job.state.name.lower()}: it waits for nothing any more")
        return self._engine.job(job.id) or job
