"""The verb `graph`: the unfinished jobs of a graph in groups, with ready, running and stuck jobs."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from switchgear.json_bytes import plain
from switchgear.model import Job
from switchgear.net.monitoring.graph_groups import MOST_EDGES, CollapsedGroup, Collapsing, GraphGroups, GraphJob
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import Steps
from switchgear.verbs.live_answers import GraphAnswer, GraphGroupAnswer, StuckJob

__all__ = ["GraphOperations"]

MOST_GRAPH_JOBS: Final = 100_000
MOST_CONNECTED_JOBS: Final = 10_000  # around one job; they have to be sorted
MOST_SCANNED: Final = 2_000_000  # jobs that are looked at for those of the graph
MOST_EXPLAINED: Final = 10
# Edges of one job that are followed; the others are not shown.
MOST_PREDECESSORS: Final = 1_000
MOST_SUCCESSORS: Final = 1_000
JOBS_PER_STEP: Final = 200


class GraphOperations:
    """The verb `graph`."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self._engine = context.engine

    def graph(self, function: str | None, name: str | None, handle: str | None) -> Steps:
        if sum(given is not None for given in (function, name, handle)) != 1:
            raise ValueError("expected one of function, name and handle")
        if handle is not None:
            job = yield from self._context.named_job(handle)
            found, is_complete = yield from self._around(job)
        else:
            found, is_complete = yield from self._matching(function, name)
        groups = GraphGroups()
        for start in range(0, len(found), JOBS_PER_STEP):
            yield False
            for each in found[start : start + JOBS_PER_STEP]:
                groups.add(each)
        yield False
        make = groups.key_maker()
        result = Collapsing()
        for start in range(0, len(groups.jobs), JOBS_PER_STEP):
            yield False
            groups.group_in(make, groups.jobs[start : start + JOBS_PER_STEP], result)
        count = len(found)
        for jobs in (found, groups.jobs):  # freeing very many at once takes as long as grouping them
            while jobs:
                yield False
                del jobs[-JOBS_PER_STEP:]
        return (yield from self._answer(result, count, is_complete))

    def _matching(self, function: str | None, name: str | None) -> Steps:
        """The unfinished jobs of a function, or whose names begin with a text, by id, and whether these are all."""
        wanted = None if function is None else self._engine.functions.get(function.encode())
        wanted_name = b"" if name is None else name.encode()
        found: list[GraphJob] = []
        if function is not None and wanted is None:
            return found, True
        before_id = scanned = 0
        while True:
            some = list(islice(self._engine.newest_first(before_id, wanted, wanted is not None), JOBS_PER_STEP))
            for job in some:
                if job.function is wanted if wanted is not None else (job.name and job.name.startswith(wanted_name)):
                    found.append(described(job))
            scanned += len(some)
            is_complete = len(some) < JOBS_PER_STEP
            if is_complete or len(found) >= MOST_GRAPH_JOBS or scanned >= MOST_SCANNED:
                found.reverse()
                return found, is_complete
            before_id = some[-1].id
            yield False

    def _around(self, job: Job) -> Steps:
        """The unfinished jobs that a job waits for, directly or not, and those that wait for it, and so on."""
        engine = self._engine
        seen = {job.id}
        pending = deque([job.id])
        found: list[GraphJob] = []
        is_complete = True
        while pending:
            for _ in range(min(len(pending), JOBS_PER_STEP // 10)):
                each_id = pending.popleft()
                each = engine.look_at(each_id)
                if each is not None:
                    found.append(described(each))
                    predecessors = each.predecessors
                else:
                    predecessors = job.predecessors if each_id == job.id else ()
                after = [other.id for other in engine.successors(each_id, MOST_SUCCESSORS + 1)]
                if max(len(after), len(predecessors)) > MOST_SUCCESSORS:
                    is_complete = False
                for other_id in (*predecessors[:MOST_PREDECESSORS], *after[:MOST_SUCCESSORS]):
                    if other_id not in seen and (engine.has_job(other_id)):
                        seen.add(other_id)
                        pending.append(other_id)
            if len(seen) > MOST_CONNECTED_JOBS:
                is_complete = False
                break
            yield False
        found.sort()
        return found, is_complete

    def _answer(self, result: Collapsing, jobs: int, is_complete: bool) -> Steps:
        groups = list(result.groups.values())
        edges = result.edges.most_common(MOST_EDGES)
        yield False
        stuck = yield from self._stuck(groups)
        answer: GraphAnswer = {
            "groups": [self._group(group) for group in groups],
            "edges": [{"before": before, "after": after, "jobs": count} for (before, after), count in edges],
            "jobs": jobs,
            "complete": is_complete and len(edges) == len(result.edges) and not result.has_more_edges,
            "stuck": stuck,
        }
        return answer

    def _group(self, group: CollapsedGroup) -> GraphGroupAnswer:
        return {
            "id": group.number,
            "label": plain(group.label),
            "function": plain(group.function),
            "layer": group.layer,
            "states": dict(group.states),
            "jobs": group.states.total(),
            "examples": [self._context.handle(job_id) for job_id in group.job_ids],
            "is_frontier": bool(group.states["ready"] or group.states["running"]),
        }

    def _stuck(self, groups: list[CollapsedGroup]) -> Steps:
        """Jobs that could be next and are not, one of each group, and why."""
        found: list[StuckJob] = []
        for group in sorted(groups, key=lambda group: group.layer):
            candidates = [group.blocked_id] if group.blocked_id else group.job_ids if group.states["ready"] else []
            for job_id in candidates:
                yield False  # a function may have very many workers, which an explanation counts
                job = self._engine.look_at(job_id)
                reasons = self._engine.explain(job, self._context.handle) if job is not None else []
                if job is None or job.state.name == "RUNNING" or not reasons:
                    continue
                reason = reasons[0]
                found.append({"handle": self._context.handle(job_id), "word": reason.word, "text": reason.text})
                break
            if len(found) >= MOST_EXPLAINED:
                break
        return found


def described(job: Job) -> GraphJob:
    """The fields of a job that the grouping uses."""
    predecessors = job.predecessors[:MOST_PREDECESSORS]
    return GraphJob(job.id, job.function.name, job.name, job.state.name.lower(), predecessors)
