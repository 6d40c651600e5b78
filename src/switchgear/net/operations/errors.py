"""The verb `errors`: failed jobs of the history, grouped by function and error."""

from __future__ import annotations

from typing import Final

from switchgear.json_bytes import encoded, plain
from switchgear.model import FAILED, SECOND_US, Job
from switchgear.net.monitoring.error_groups import ErrorGroup, ErrorGroups
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import ITEMS_PER_STEP, Steps
from switchgear.storage.base import JobQuery
from switchgear.verbs.live_answers import ErrorGroupAnswer, ErrorsAnswer

__all__ = ["ErrorOperations"]

MOST_FAILED: Final = 20_000  # that are looked at
PAGE_JOBS: Final = 500
TREND_US: Final = 86_400 * SECOND_US  # of a search without a beginning


class ErrorOperations:
    """The verb `errors`."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self._hub = context.hub
        self._engine = context.engine

    def errors(self, function: str | None, since: float, limit: int) -> Steps:
        since_us = int(since * SECOND_US)
        from_id = yield from self._hub.search_bound(0, MOST_FAILED, frozenset({FAILED}))
        now_us = self._engine.now_us
        trend_from_us = since_us or now_us - TREND_US
        groups = ErrorGroups(trend_from_us, now_us)
        before_id = searched = 0
        while True:
            query = JobQuery(
                function=encoded(function), states=frozenset({FAILED}), before_id=before_id, from_id=from_id,
                limit=PAGE_JOBS,
            )  # fmt: skip
            page: list[Job] = yield from self._hub.search(query)
            for start in range(0, len(page), ITEMS_PER_STEP):
                yield False
                for job in page[start : start + ITEMS_PER_STEP]:
                    if job.finished_us >= since_us and not self._engine.has_job(job.id):  # it may run again
                        groups.add(job.function, job.error or b"", job.id, job.finished_us, is_dead=job.is_dead)
            searched += len(page)
            if len(page) < PAGE_JOBS:
                break
            before_id = page[-1].id
            if searched >= MOST_FAILED:
                from_id = before_id
                break
        answer: ErrorsAnswer = {
            "groups": [self._group(group) for group in groups.by_count()[:limit]],
            "groups_count": len(groups.groups),
            "trend_from": trend_from_us / SECOND_US,
            "searched": searched,
            "complete": not from_id,
            "searched_to": from_id,
        }
        return answer

    def _group(self, group: ErrorGroup) -> ErrorGroupAnswer:
        return {
            "function": plain(group.function),
            "error": group.text,
            "count": group.count,
            "dead": group.dead,
            "first_at": group.first_us / SECOND_US,
            "last_at": group.last_us / SECOND_US,
            "trend": group.trend,
            "examples": [self._context.handle(job_id) for job_id in group.job_ids],
            "example_error": group.example,
        }
