"""`Graph`: a graph of jobs described in plain Python, and submitted as a whole at the end of a `with` block."""

from __future__ import annotations

from collections.abc import Coroutine
from contextvars import Token
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

from switchgear.app.graph_plan import GraphPlan, PlannedJob
from switchgear.app.job import Job
from switchgear.app.job_group import JobGroup
from switchgear.app.open_graph import OPEN_GRAPH
from switchgear.app.signatures import NO_CALLBACKS, Callbacks, GraphStep, Link, StepsBefore

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.task import Task

__all__ = ["Graph"]

R = TypeVar("R")


class Graph:
    """Jobs that are described by calling their tasks, within `with app.graph() as g:`.

    In the block, a call of a task returns a placeholder for its result. Passed to a later call, it makes that job wait
    for the first one and be given its result.  At the end of the block all jobs are submitted in one request; if the
    block raises, nothing is.  Then `g.job(placeholder)` is the job.
    """

    def __init__(self, app: App, callbacks: Callbacks = NO_CALLBACKS) -> None:
        self.app = app
        self._plan = GraphPlan(app)
        self._callbacks = callbacks
        self._planned: list[PlannedJob[Any]] = []
        self._token: Token[Graph | None] | None = None

    def __repr__(self) -> str:
        return f"<graph of {len(self)}{'' if self._plan.is_submitted else ', not submitted'}>"

    def __len__(self) -> int:
        return len(self._plan)

    # --- describing ---

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        self._close()
        if kind is None and len(self._plan):
            self._add_callbacks()
            self._plan.submit()

    async def __aenter__(self) -> Self:
        self._open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        self._close()
        if kind is None and len(self._plan):
            self._add_callbacks()
            await self._plan.submit_async()

    def _open(self) -> None:
        if self._plan.is_submitted or self._token is not None:
            raise ValueError("a graph is described once")
        self._token = OPEN_GRAPH.set(self)

    def _close(self) -> None:
        assert self._token is not None
        OPEN_GRAPH.reset(self._token)

    def call(self, task: Task[Any, R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Add a job; in the block, `task(*args, **kwargs)` does it."""
        task.arguments.bind(args, kwargs)  # raises where the mistake is
        if task.settings.has_callbacks:
            return self.add(task.signature(*args, **kwargs))
        job = self._plan.add(task, args, kwargs)
        self._planned.append(job)
        return cast(R, job)

    @overload
    def add(self, step: GraphStep[Job[R]]) -> R: ...
    @overload
    def add(self, step: GraphStep[JobGroup[R]]) -> list[R]: ...
    def add(self, step: GraphStep[Any]) -> Any:
        """Add a signature, group or chain; returns a placeholder for its result, or a list of them for a group."""
        first = len(self._plan)
        last = step.plan_jobs(self._plan, None)
        self._planned += self._plan.jobs_from(first)
        return last.value

    def _add_callbacks(self) -> None:
        self._callbacks.plan(self._plan, StepsBefore(self._planned, True, Link.ORDER), success=Link.ORDER)

    # --- after the submission ---

    @overload
    def job(self, placeholder: Coroutine[Any, Any, R]) -> Job[R]: ...
    @overload
    def job(self, placeholder: R) -> Job[R]: ...
    def job(self, placeholder: Any) -> Job[Any]:
        """The submitted job of a placeholder."""
        if not isinstance(placeholder, PlannedJob) or not placeholder.is_of(self._plan):
            raise TypeError(f"a placeholder is what a call of a task in the block has returned, not {placeholder!r}")
        return placeholder.job()

    @property
    def jobs(self) -> JobGroup[Any]:
        """All submitted jobs, in the order of the calls, without callbacks of the whole graph."""
        return self._plan.group(self._planned)
