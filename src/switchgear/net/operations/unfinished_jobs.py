"""`UnfinishedJobs`: finds unfinished jobs that match a query, by the shortest way there is.

Keys, names and running jobs have tables.  For other queries the jobs are looked through in steps, the newest first;
the engine's counters say when no more can match, and packed jobs are left out where none of them can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from switchgear.engine.engine import Engine
from switchgear.model import FINAL_STATES, READY, RUNNING, SCHEDULED, WAITING, Function, Job, JobState
from switchgear.net.operations.verb_steps import Steps
from switchgear.storage.base import JobQuery, contains_text

__all__ = ["MOST_SEARCHED", "SCANNED_PER_STEP", "UnfinishedJobs", "matches"]

# One answer covers at most this many jobs whose errors or payloads are searched, in the store or in the engine.
MOST_SEARCHED: Final = 10_000
# The size of one step (`net.long_operations`): each takes about half a millisecond.
SCANNED_PER_STEP: Final = 500
MOST_SEEN: Final = 1_000  # jobs in the states of a query that are counted, to know when there are no more
BYTES_PER_STEP: Final = 1024 * 1024  # of payloads that are searched for a text


class UnfinishedJobs:
    """The unfinished jobs of an engine, to be searched."""

    def __init__(self, engine: Engine, has_own: Callable[[Job], bool] | None = None) -> None:
        """`has_own` tells which jobs are this server's, if some in the engine are not."""
        self._engine = engine
        self.matches: Callable[[Job, JobQuery], bool] = matches
        if has_own is not None:
            self.matches = lambda job, query: has_own(job) and matches(job, query)

    def search(self, query: JobQuery) -> Steps:
        """Unfinished jobs that match, the newest first, up to the limit, and the lowest id that was examined; 0 if all
        were."""
        found: list[Job] = []
        states = (query.states or frozenset(JobState)) - FINAL_STATES
        function = None if query.function is None else self._engine.functions.get(query.function)
        if not states or query.dead or (query.function is not None and function is None):
            return found, 0
        candidates = self._by_table(query, states, function)
        if candidates is None:
            return (yield from self._scan(query, states, function))
        while some := list(islice(candidates, SCANNED_PER_STEP)):
            found += [job for job in some if job.state not in FINAL_STATES and self.matches(job, query)]
            yield False
        found.sort(key=lambda job: -job.id)
        if len(found) < query.limit:
            return found, 0
        return found[: query.limit], found[query.limit - 1].id

    def _by_table(
        self, query: JobQuery, states: frozenset[JobState], function: Function | None
    ) -> Iterator[Job] | None:
        """All jobs among which those that match must be; None if no table has them."""
        if query.name:
            named = self._engine.named(query.name)
            return iter(() if named is None else (named,))
        if query.unique:
            return self._with_key(query.unique, function)
        if states <= {RUNNING}:
            return self._running()
        return None

    def _with_key(self, unique: bytes, function: Function | None) -> Iterator[Job]:
        """The jobs with a unique key: those that hold it, and those that gave it up when they started."""
        for each in list(self._engine.functions.values()) if function is None else (function,):
            job = self._engine.look_at_holder(each, unique)
            if job is not None:
                yield job
        for job in self._running():
            if job.unique == unique and self._engine.look_at_holder(job.function, unique) is not job:
                yield job

    def _running(self) -> Iterator[Job]:
        for worker in list(self._engine.workers.values()):
            yield from list(worker.running.values())

    def _scan(self, query: JobQuery, states: frozenset[JobState], function: Function | None) -> Steps:
        """Look through the jobs until no more can match."""
        found: list[Job] = []
        seen: list[int] = []  # those in these states
        before_id = query.before_id
        examined = 0
        with_packed = READY in states
        while before_id != query.before_id or self._count(states, function):
            some = list(islice(self._engine.newest_first(before_id, function, with_packed), SCANNED_PER_STEP))
            searched_bytes = 0
            for job in some:
                before_id = job.id
                examined += 1
                if job.state in states and len(seen) <= MOST_SEEN and (function is None or job.function is function):
                    seen.append(job.id)
                if self.matches(job, query):
                    found.append(job)
                    if len(found) == query.limit:
                        return found, job.id
                searched_bytes += len(job.payload or b"")
                if query.contains and searched_bytes > BYTES_PER_STEP:
                    break
            else:
                if len(some) < SCANNED_PER_STEP:
                    return found, 0
            if query.contains and examined >= MOST_SEARCHED:
                return found, before_id
            if not query.before_id and self._are_all(seen, states, function):
                break
            yield False
        return found, 0

    def _are_all(self, seen: list[int], states: frozenset[JobState], function: Function | None) -> bool:
        """Whether these are all jobs that are in these states now."""
        if len(seen) > MOST_SEEN:
            return False
        count = self._count(states, function)
        return len(seen) >= count and sum(self._engine.state_of(job_id) in states for job_id in seen) == count

    def _count(self, states: frozenset[JobState], function: Function | None) -> int:
        """How many jobs are in these states now."""
        counts = dict.fromkeys(JobState, 0)
        for each in self._engine.functions.values() if function is None else (function,):
            counts[READY] += each.ready
            counts[RUNNING] += each.running
            counts[WAITING] += each.waiting
            counts[SCHEDULED] += each.total - each.ready - each.running - each.waiting
        return sum(counts[state] for state in states)


def matches(job: Job, query: JobQuery) -> bool:
    """Whether an unfinished job matches; no unfinished job is dead."""
    return (
        (not query.before_id or job.id < query.before_id)
        and (query.function is None or job.function.name == query.function)
        and (not query.states or job.state in query.states)
        and (query.unique is None or job.unique == query.unique)
        and (query.name is None or job.name == query.name)
        and (not query.since_us or job.created_us >= query.since_us)
        and (not query.until_us or job.created_us < query.until_us)
        and (query.key is None or job.key == query.key)
        and (not query.error_contains or query.error_contains in (job.error or b""))
        and not query.dead
        and (not query.contains or contains_text(job, query.contains))
    )
