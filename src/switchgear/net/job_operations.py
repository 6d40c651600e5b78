"""Which jobs there are, and what an operator does to many of them at once.

Jobs are selected by `function`, `states`, `unique`, `name`, `dead`, `error` (a part of the text) and `since` (created
at or after, in seconds since the epoch).  One call looks at a bounded number of jobs, so that a selection that matches
little does not keep the server from its work; its answer says where to go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from math import ceil
from typing import Any, Final, Protocol

from switchgear.engine.core import REFUSED_CONFLICT
from switchgear.errors import Refused
from switchgear.model import DONE, FAILED, FINAL_STATES, READY, SECOND_US, Job, JobState
from switchgear.net.hub import Hub
from switchgear.net.steps import Steps, in_steps
from switchgear.net.values import encoded, whole
from switchgear.storage.base import JobQuery

__all__ = ["JobOperations"]

MOST_LISTED: Final = 1000
# One answer is the result of a look at so many jobs that did not succeed, which have to be read.
MOST_SEARCHED: Final = 10_000
# So many states are told at a time.
MOST_STATES: Final = 10_000
# How much is done before others have their turn (`net.slices`): each takes about half a millisecond.
SCANNED_PER_STEP: Final = 500
STATES_PER_STEP: Final = 250
CANCELLED_PER_STEP: Final = 50
RETRIED_PER_STEP: Final = 10
STATE_NAMES: Final = {state.name.lower(): state for state in JobState}
STATE_WORDS: Final = {state: word for word, state in STATE_NAMES.items()}
UNSUCCESSFUL_STATES: Final = FINAL_STATES - {DONE}
UNFINISHED_STATES: Final = frozenset(JobState) - FINAL_STATES
LATEST_SECONDS: Final = 2**43 // 1000 * 1000  # what fits into 63 bits of microseconds, and is far enough


class Office(Protocol):
    """What is needed of the other operations."""

    hub: Hub

    def handle(self, job_id: int) -> str:
        """How a job is called outside."""

    def find(self, job_id: int) -> Job:
        """A job by its number; raises LookupError."""

    def summary(self, job: Job) -> dict[str, Any]:
        """What a list shows of a job."""


class JobOperations:
    """The verbs about jobs."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._hub = office.hub
        self._engine = office.hub.engine

    def verbs(self) -> dict[str, Callable[..., Any]]:
        """The verbs by name."""
        return {"jobs": self.jobs, "states": self.states, "cancel": self.cancel, "retry": self.retry}

    # --- listing ---

    def jobs(self, **selection: Any) -> Steps:
        """Those that match, the newest first."""
        query = query_of(**selection)
        # Unfinished ones first: one that ends while the others are looked for is seen in either place, not in neither.
        unfinished, complete_from = yield from self._unfinished(query)
        kept, searched_to = yield from self._search(query)
        # The store may lag behind: the engine has the last word on what it still has, and what it has not is over.
        found = {job.id: job for job in unfinished if job.state not in FINAL_STATES or matches(job, query)}
        found |= {job.id: job for job in kept if job.state in FINAL_STATES and not self._engine.has_job(job.id)}
        complete_from = max(complete_from, searched_to)
        listed = sorted((job for job in found.values() if job.id >= complete_from), key=lambda job: -job.id)
        if len(listed) > query.limit:
            listed = listed[: query.limit]
            complete_from = listed[-1].id
        summaries = yield from in_steps(self._office.summary, listed)
        return {"jobs": summaries, "next_before_id": complete_from or None}

    def _search(self, query: JobQuery) -> Steps:
        """Jobs of the store that match, and the id from which on these are all; 0: from the first on."""
        store = self._hub.store
        if query.dead or query.error_contains:
            # Only what did not succeed has an error, apart from unfinished jobs, which the engine knows better.
            states = (query.states or UNSUCCESSFUL_STATES) & UNSUCCESSFUL_STATES
            if not states:
                return [], 0
            query = replace(query, states=states, from_id=store.search_bound(query.before_id, MOST_SEARCHED))
        kept = yield from store.find_in_steps(query)
        return kept, kept[-1].id if len(kept) >= query.limit else query.from_id

    def _unfinished(self, query: JobQuery) -> Steps:
        """Unfinished jobs that match, as many as wanted, and the id from which on these are all."""
        found: list[Job] = []
        if query.states and query.states <= FINAL_STATES:
            return found, 0
        before_id = query.before_id
        while True:
            some = list(islice(self._engine.newest_first(before_id), SCANNED_PER_STEP))
            for job in some:
                if matches(job, query):
                    found.append(job)
                    if len(found) == query.limit:
                        return found, job.id
            if len(some) < SCANNED_PER_STEP:
                return found, 0
            before_id = some[-1].id
            yield False

    def states(self, job_ids: list[int]) -> Steps:
        """The state of each of these, in their order, and how many are in which."""
        if not isinstance(job_ids, list):
            raise ValueError("handles is a list")
        if len(job_ids) > MOST_STATES:
            raise ValueError(f"at most {MOST_STATES} handles at a time, not {len(job_ids)}")
        found: dict[int, JobState] = {}
        for start in range(0, len(job_ids), STATES_PER_STEP):
            found |= self._hub.find_states(job_ids[start : start + STATES_PER_STEP])
            yield False
        states = [STATE_WORDS[found[job_id]] if job_id in found else "unknown" for job_id in job_ids]
        return {"states": states, "counts": dict(Counter(states))}

    # --- cancelling ---

    def cancel(self, job_id: int | None = None, cascade: bool = False, **selection: Any) -> Steps:
        """One, or all unfinished ones that match."""
        if job_id is not None:
            refuse_both(selection)
            job = self._office.find(job_id)
            handles = yield from self._cancel([job], cascade=bool(cascade))
            if not handles:
                handle = self._office.handle(job_id)
                raise LookupError(f"{handle} is {job.state.name.lower()}: there is nothing to cancel")
            return {"cancelled": handles}
        require_some(selection, "cancel")
        query = query_of(**selection)
        require_among(query, UNFINISHED_STATES, "cancel")
        chosen = yield from self._chosen(query)
        handles = yield from self._cancel(chosen, cascade=bool(cascade))
        return {"cancelled": handles, "count": len(handles), "more": len(chosen) == query.limit}

    def _cancel(self, jobs: list[Job], *, cascade: bool) -> Steps:
        """The handles of those that were ended."""
        handles: list[str] = []
        units = 0
        for job in jobs:
            for ended in self._engine.cancel_in_steps(job, cascade=cascade):
                if ended is not None:
                    handles.append(self._office.handle(ended.id))
                units += 1
                if units % CANCELLED_PER_STEP == 0:
                    yield False
        return handles

    def _chosen(self, query: JobQuery) -> Steps:
        """Unfinished jobs that match, as many as wanted."""
        if query.function is not None and query.function not in self._engine.functions:
            return []
        all_ready = JobQuery(function=query.function, states=frozenset({READY}), limit=query.limit)
        if query.function is not None and query == all_ready:
            function = self._engine.functions[query.function]
            return list(islice(self._engine.ready_jobs(function), query.limit)) if function.ready else []
        found, _ = yield from self._unfinished(query)
        return [job for job in found if job.state not in FINAL_STATES]

    # --- retrying ---

    def retry(self, job_id: int | None = None, all_dead: bool = False, **selection: Any) -> Steps:
        """One that ended without success, or all that match."""
        if job_id is not None:
            refuse_both(selection)
            job = self._office.find(job_id)
            if job.state is DONE or job.state not in FINAL_STATES:
                raise Refused(REFUSED_CONFLICT, f"it is {job.state.name.lower()}: there is nothing to retry")
            self._revive(job)
            return {"retried": [self._office.handle(job.id)]}
        if all_dead:
            selection["dead"] = True
        require_some(selection, "retry")
        query = query_of(**{"limit": MOST_LISTED, **selection})
        require_among(query, UNSUCCESSFUL_STATES, "retry")
        if not query.states:
            query = replace(query, states=frozenset({FAILED}))
        if self._engine.refusal is not None:
            raise Refused(self._engine.refusal.reason, str(self._engine.refusal))
        found, searched_to = yield from self._search(query)
        revived = yield from in_steps(self._can_revive, [job.id for job in found], RETRIED_PER_STEP)
        retried = [self._office.handle(job.id) for job, is_revived in zip(found, revived) if is_revived]
        return {"retried": retried, "count": len(retried), "next_before_id": searched_to or None}

    def _can_revive(self, job_id: int) -> bool:
        """Retry this one of many."""
        if self._engine.has_job(job_id):
            return False  # the store lags behind
        try:
            self._revive(self._office.find(job_id))
        except LookupError:
            return False  # dropped from the history a moment ago
        except Refused:
            return False  # another job has its unique key; that one counts
        return True

    def _revive(self, job: Job) -> None:
        job.function = self._engine.function_named(job.function.name)
        self._engine.retry(job)


# --- selections ---


def query_of(
    function: str | None = None,
    states: list[str] | None = None,
    unique: str | None = None,
    name: str | None = None,
    dead: bool = False,
    error: str | None = None,
    since: float = 0,
    before_id: int = 0,
    limit: int = 100,
) -> JobQuery:
    """What is asked for, checked; raises ValueError or TypeError."""
    wanted = frozenset(state_named(word) for word in states or ())
    if type(dead) is not bool:
        raise ValueError(f"dead is true or false, got {dead!r}")
    if dead:
        if wanted and FAILED not in wanted:
            raise ValueError("dead jobs are failed ones; the states given leave them out")
        wanted = frozenset({FAILED})
    if type(since) not in (int, float) or not 0 <= since <= LATEST_SECONDS:
        raise ValueError(f"since is a time in seconds since the epoch, got {since!r}")
    return JobQuery(
        function=encoded(function),
        states=wanted,
        unique=encoded(unique),
        name=encoded(name),
        dead=dead,
        error_contains=encoded(error) or b"",
        since_us=ceil(since * SECOND_US),
        before_id=whole(before_id),
        limit=max(1, min(whole(limit), MOST_LISTED)),
    )


def require_some(selection: dict[str, Any], verb: str) -> None:
    """Nobody means all jobs there are by saying nothing."""
    chosen = [name for name, value in selection.items() if value and name not in ("before_id", "limit")]
    if not chosen:
        raise ValueError(f"{verb} takes a handle, or says which jobs: by function, states, error and others")


def refuse_both(selection: dict[str, Any]) -> None:
    if selection:
        raise ValueError(f"a handle names one job; {', '.join(selection)} would select others")


def require_among(query: JobQuery, states: frozenset[JobState], verb: str) -> None:
    if not query.states <= states:
        words = ", ".join(sorted(state.name.lower() for state in query.states - states))
        raise ValueError(f"{words}: there is nothing to {verb} in such a job")


def matches(job: Job, query: JobQuery) -> bool:
    """Whether an unfinished job is wanted; none of those is dead."""
    return (
        (not query.before_id or job.id < query.before_id)
        and (query.function is None or job.function.name == query.function)
        and (not query.states or job.state in query.states)
        and (query.unique is None or job.unique == query.unique)
        and (query.name is None or job.name == query.name)
        and (not query.since_us or job.created_us >= query.since_us)
        and (not query.error_contains or query.error_contains in (job.error or b""))
        and not query.dead
    )


def state_named(word: str) -> JobState:
    state = STATE_NAMES.get(str(word).lower())
    if state is None:
        raise ValueError(f"unknown state {word!r}; there are {', '.join(STATE_NAMES)}")
    return state
