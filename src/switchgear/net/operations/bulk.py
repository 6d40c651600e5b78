"""The verbs `bulk`, `bulk_actions` and `abort_bulk`: cancel or retry very many jobs with one request.

The jobs are chosen when the action is made, and no others join them later.  The action then goes on by itself, in
steps, whether or not its client stays; it is gone with the server.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from secrets import token_hex
from typing import Any, Final

from switchgear.errors import Refused
from switchgear.model import FAILED, SECOND_US
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.job_selection import query_of, require_some
from switchgear.net.operations.jobs import JobOperations
from switchgear.net.operations.verb_steps import Steps
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.pending_read import Step
from switchgear.refusals import REFUSED_COUNT, REFUSED_LIMIT, REFUSED_MANY
from switchgear.verbs.answers import BulkProgress
from switchgear.verbs.permitted_values import BULK_STATES, MOST_JOBS

__all__ = ["BulkOperations"]

MOST_KEPT = 100  # ended ones make room for new ones
MOST_BULK_JOBS = 1_000_000
MOST_PENDING_JOBS = 2_000_000  # of all actions that go on
JOBS_PER_STEP = 5  # each takes some ten microseconds, and a retried one is read from the store
MOST_EXAMPLES: Final = 10
IN_PROGRESS: Final = "running"


class BulkRun:
    """The state and progress of one bulk action."""

    def __init__(self, number: str, action: str, job_ids: array[int], *, cascade: bool, created_us: int) -> None:
        self.id = number
        self.action = action
        self.job_ids = job_ids
        self.matched = len(job_ids)
        self.cascade = cascade
        self.created_us = created_us
        self.state = IN_PROGRESS
        self.handled = 0
        self.changed = 0

    def steps(self, jobs: JobOperations) -> Iterator[Step]:
        """Carry it out; what cannot be changed any more is left as it is."""
        for start in range(0, self.matched, JOBS_PER_STEP):
            if self.state is not IN_PROGRESS:
                break
            some = self.job_ids[start : start + JOBS_PER_STEP].tolist()
            if self.action == "cancel":
                yield from self._cancel(jobs, some)
            else:
                self.changed += len((yield from jobs.retry_each(some)))
                self.handled += len(some)
            yield False
        if self.state is IN_PROGRESS:
            self.state = "done"
        del self.job_ids[MOST_EXAMPLES:]

    def _cancel(self, jobs: JobOperations, some: list[int]) -> Iterator[Step]:
        for job_id in some:
            for ended in jobs.cancel_each(job_id, cascade=self.cascade):
                if ended:
                    self.changed += 1
                else:
                    yield False
            self.handled += 1


class BulkOperations:
    """The verbs about bulk actions, and the actions that are in progress."""

    def __init__(self, context: OperationsContext, jobs: JobOperations) -> None:
        self._context = context
        self._jobs = jobs
        self.run = token_hex(4)  # tells ids from those of an earlier server
        self._last_number = 0
        self.by_id: dict[str, BulkRun] = {}

    # --- verbs ---

    def bulk(
        self,
        action: str,
        handles: list[str] | None,
        cascade: bool,
        limit: int | None,
        expect: int | None,
        dry_run: bool,
        **selection: Any,
    ) -> Steps:
        """Start a bulk action."""
        if cascade and action != "cancel":
            raise ValueError("cascade: only cancel has it")
        if handles is not None:
            if any(selection.values()) or limit is not None:
                raise ValueError("handles: they name jobs, and a selection would name others")
            job_ids = array("q", dict.fromkeys(self._job_id(handle) for handle in handles))
        else:
            require_some(selection, "bulk")
            job_ids = yield from self._choose(action, limit, selection)
        if expect is not None and expect != len(job_ids):
            raise Refused(REFUSED_COUNT, f"{len(job_ids)} jobs match, and {expect} were expected")
        now_us = self._context.engine.now_us
        if dry_run:
            tried = BulkRun("", action, job_ids, cascade=cascade, created_us=now_us)
            tried.state = "done"
            return self._progress(tried, dry_run=True)
        run = self._add(action, job_ids, cascade=cascade, created_us=now_us)
        answer = self._progress(run)
        self._context.hub.work_off(run.steps(self._jobs))
        return answer

    def bulk_actions(self, id: str | None) -> list[BulkProgress]:
        """All actions that are remembered, or the one with this id."""
        runs = list(self.by_id.values()) if id is None else [self._named(id)]
        return [self._progress(run) for run in runs]

    def abort_bulk(self, id: str) -> BulkProgress:
        """Abort a bulk action; the jobs that it has changed stay changed."""
        run = self._named(id)
        if run.state is IN_PROGRESS:
            run.state = "aborted"
        return self._progress(run)

    # --- inside ---

    def _choose(self, action: str, limit: int | None, selection: dict[str, Any]) -> Steps:
        """The ids of the jobs that match, the newest first."""
        query = query_of(**selection, before_id=0, limit=MOST_JOBS)
        wrong = [state.name.lower() for state in query.states if state.name.lower() not in BULK_STATES[action]]
        if wrong:
            possible = ", ".join(BULK_STATES[action])
            raise ValueError(f"states: {action} takes jobs that are {possible}, not {wrong[0]}")
        if action == "retry" and not query.states:
            query = replace(query, states=frozenset({FAILED}))
        most = MOST_BULK_JOBS + 1 if limit is None else min(limit, MOST_BULK_JOBS)
        find = self._jobs.unfinished_ids if action == "cancel" else self._jobs.unsuccessful_ids
        job_ids: array[int] = yield from find(query, most)
        if len(job_ids) > MOST_BULK_JOBS:
            raise Refused(REFUSED_MANY, f"more than {MOST_BULK_JOBS} jobs match; choose fewer")
        return job_ids

    def _add(self, action: str, job_ids: array[int], *, cascade: bool, created_us: int) -> BulkRun:
        """A new action; raises Refused if too many go on."""
        pending = sum(len(run.job_ids) for run in self.by_id.values() if run.state is IN_PROGRESS)
        if pending + len(job_ids) > MOST_PENDING_JOBS:
            raise Refused(REFUSED_LIMIT, f"bulk actions go on for {pending} jobs already")
        if len(self.by_id) >= MOST_KEPT:
            ended = next((number for number, run in self.by_id.items() if run.state is not IN_PROGRESS), None)
            if ended is None:
                raise Refused(REFUSED_LIMIT, f"{MOST_KEPT} bulk actions go on already")
            del self.by_id[ended]
        self._last_number += 1
        number = f"b-{self.run}-{self._last_number}"
        run = self.by_id[number] = BulkRun(number, action, job_ids, cascade=cascade, created_us=created_us)
        return run

    def _named(self, number: str) -> BulkRun:
        run = self.by_id.get(number)
        if run is None:
            raise LookupError("there is no such bulk action, or it ended long ago")
        return run

    def _job_id(self, handle: str) -> int:
        job_id = self._context.job_id(handle) or number_in_handle(handle.encode(), b"")
        if not 0 < job_id < self._context.engine.ids_end:
            raise ValueError(f"handles: there is no job {handle[:100]!r}")
        return job_id

    def _progress(self, run: BulkRun, *, dry_run: bool = False) -> BulkProgress:
        """The answer that describes the progress of a bulk action."""
        return {
            "id": run.id,
            "action": run.action,
            "dry_run": dry_run,
            "state": run.state,
            "matched": run.matched,
            "handled": run.handled,
            "changed": run.changed,
            "examples": [self._context.handle(job_id) for job_id in run.job_ids[:MOST_EXAMPLES]],
            "created_at": run.created_us / SECOND_US,
        }
