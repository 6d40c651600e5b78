"""`Signature`, `Group` and `Chain`: describe jobs before they are submitted: one, several side by side, or in sequence.

They nest freely: each is a `GraphStep`, which adds its jobs to a plan (`GraphPlan`) after those of the step before it.
The whole plan is submitted in one request, all of it or nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar, Unpack, cast, overload

from switchgear.app.failure import FailureReference
from switchgear.app.graph_plan import GraphPlan, PlannedJob
from switchgear.app.job import Job
from switchgear.app.job_group import JobGroup
from switchgear.app.task_options import SubmitKeywords
from switchgear.client.gearman.submit_request import SubmitRequest

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.task import Task

__all__ = ["Chain", "GraphStep", "Group", "Signature", "chain", "chord", "group"]

R = TypeVar("R")
S = TypeVar("S")
J = TypeVar("J")  # a Job or a JobGroup
K = TypeVar("K")


class Link(Enum):
    """What a step is given of the jobs before it, and when it runs."""

    RESULT = auto()  # their results
    ORDER = auto()  # nothing; it only runs after them
    SUCCESS = auto()  # their results; callbacks are skipped if one of them does not succeed
    ERROR = auto()  # the failure, and it is skipped if all of them succeed
    END = auto()  # nothing; it runs however they end


class StepsBefore:
    """The jobs that a step follows."""

    __slots__ = ("all_jobs", "is_list", "jobs", "link")

    def __init__(
        self,
        jobs: list[PlannedJob[Any]],
        is_list: bool,
        link: Link,
        all_jobs: list[PlannedJob[Any]] | None = None,
    ) -> None:
        self.jobs = jobs
        self.is_list = is_list  # the results are passed as a list
        self.link = link
        self.all_jobs = jobs if all_jobs is None else all_jobs  # with those of earlier steps, but without callbacks

    def linked(self, link: Link) -> StepsBefore:
        """The same jobs, which pass on something else."""
        return StepsBefore(self.jobs, self.is_list, link, self.all_jobs)

    @property
    def watched_jobs(self) -> list[PlannedJob[Any]]:
        """The jobs that callbacks for errors wait for: all, so that the first error is known; of very many the last."""
        return self.all_jobs if len(self.all_jobs) <= _MOST_WATCHED else self.jobs

    @property
    def value(self) -> Any:
        """What is passed as the first argument: a placeholder for the result, or a list of these."""
        return self.jobs if self.is_list else self.jobs[0]


class Callbacks:
    """Steps that follow another one: if it succeeds, if it fails, and however it ends."""

    __slots__ = ("finally_", "on_error", "on_success")

    def __init__(
        self,
        on_success: GraphStep[Any] | None = None,
        on_error: GraphStep[Any] | None = None,
        finally_: GraphStep[Any] | None = None,
    ) -> None:
        self.on_success = on_success
        self.on_error = on_error
        self.finally_ = finally_
        for name, step in (("on_success", on_success), ("on_error", on_error), ("finally_", finally_)):
            if step is not None and not isinstance(step, GraphStep):
                raise TypeError(f"{name} is a signature such as task.s(...), a group or a chain, not {step!r}")

    def plan(self, plan: GraphPlan, before: StepsBefore, success: Link = Link.SUCCESS) -> None:
        """Add the callbacks of jobs to their plan; `success` is how the one for success is linked.

        The last one follows the other two as well.
        """
        jobs = before.watched_jobs
        for step, link in ((self.on_success, success), (self.on_error, Link.ERROR)):
            if step is not None:
                jobs = jobs + step.plan_jobs(plan, before.linked(link), is_callback=True).watched_jobs
        if self.finally_ is not None:
            self.finally_.plan_jobs(plan, StepsBefore(jobs, True, Link.END), is_callback=True)


NO_CALLBACKS: Final = Callbacks()
# Callbacks for errors of more jobs than this wait for the last steps only; an error reaches these anyway.
_MOST_WATCHED: Final = 10_000


class GraphStep(ABC, Generic[J]):
    """A part of a graph of jobs: a signature, a group or a chain.

    `a | b` is a chain of two steps, and `a & b` a group.
    """

    @property
    @abstractmethod
    def app(self) -> App:
        """The app that the tasks of this step are registered with."""

    @abstractmethod
    def plan_jobs(self, plan: GraphPlan, before: StepsBefore | None, *, is_callback: bool = False) -> StepsBefore:
        """Add the jobs of this step to a plan, after those before it; returns the jobs that a next step follows."""

    @abstractmethod
    def jobs_of(self, plan: GraphPlan, last: StepsBefore) -> J:
        """What `submit` returns, made of the last jobs of a submitted plan."""

    def submit(self) -> J:
        """Submit all jobs, in one request: the server takes all of them or none.

        Returns the last job, or the last jobs as a group.  Raises what `Task.submit` raises.
        """
        plan = GraphPlan(self.app)
        last = self.plan_jobs(plan, None)
        plan.submit()
        return self.jobs_of(plan, last)

    async def submit_async(self) -> J:
        """`submit` with asyncio."""
        plan = GraphPlan(self.app)
        last = self.plan_jobs(plan, None)
        await plan.submit_async()
        return self.jobs_of(plan, last)

    def __or__(self, other: GraphStep[K]) -> Chain[K]:
        if not isinstance(other, GraphStep):
            return NotImplemented
        return Chain([*_steps_of(self), *_steps_of(other)], True)

    @overload
    def __and__(self: GraphStep[Job[R]], other: GraphStep[Job[S]]) -> Group[R | S]: ...
    @overload
    def __and__(self, other: GraphStep[Any]) -> Group[Any]: ...
    def __and__(self, other: GraphStep[Any]) -> Group[Any]:
        if not isinstance(other, GraphStep):
            return NotImplemented
        return Group([*_members_of(self), *_members_of(other)])


def _steps_of(step: GraphStep[Any]) -> Sequence[GraphStep[Any]]:
    """The steps of a chain that passes results and has no callbacks of its own; any other step is one."""
    return step.steps if isinstance(step, Chain) and step.is_plain else (step,)


def _members_of(step: GraphStep[Any]) -> Sequence[GraphStep[Any]]:
    return step.members if isinstance(step, Group) and step.callbacks is NO_CALLBACKS else (step,)


class Signature(GraphStep[Job[R]]):
    """A task with arguments and options, to be submitted later.

    >>> from switchgear import App
    >>> app = App("gearman://127.0.0.1")
    >>> @app.task(name="add")
    ... def add(a: int, b: int) -> int:
    ...     return a + b
    >>> add.s(1, b=2)
    add.s(1, b=2)
    """

    def __init__(
        self, task: Task[Any, R], args: tuple[Any, ...], kwargs: dict[str, Any], *, is_immutable: bool = False
    ) -> None:
        """An immutable one is not given the result of the step before it."""
        self.task = task
        self.args = args
        self.kwargs = kwargs
        self.is_immutable = is_immutable

    def __repr__(self) -> str:
        words = [repr(value) for value in self.args] + [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.task.name}.{'si' if self.is_immutable else 's'}({', '.join(words)})"

    @property
    def app(self) -> App:
        return self.task.app

    def options(self, **options: Unpack[SubmitKeywords]) -> Signature[R]:
        """A copy with other options."""
        task = self.task.with_options(**options)
        return Signature(task, self.args, self.kwargs, is_immutable=self.is_immutable)

    def request(self, trace: str = "") -> SubmitRequest:
        """The request that submits it alone, as part of this trace."""
        return self.task.request(self.args, self.kwargs, watch=False, trace=trace)

    def submit(self) -> Job[R]:
        """Submit it; see Task.submit."""
        return self.task.submit(*self.args, **self.kwargs)

    async def submit_async(self) -> Job[R]:
        """`submit` with asyncio."""
        return await self.task.submit_async(*self.args, **self.kwargs)

    def submit_with_callbacks(self) -> Job[R]:
        """Submit it together with its callbacks; for Task.submit."""
        return super().submit()

    async def submit_with_callbacks_async(self) -> Job[R]:
        """`submit_with_callbacks` with asyncio."""
        return await super().submit_async()

    def plan_jobs(self, plan: GraphPlan, before: StepsBefore | None, *, is_callback: bool = False) -> StepsBefore:
        task, args = self.task, self.args
        if before is not None:
            args, changes = self._linked(before, is_callback)
            if changes:
                task = task.with_options(**changes)
        job = plan.add(task, args, self.kwargs)
        last = StepsBefore([job], False, Link.RESULT)
        settings = task.settings
        if settings.has_callbacks:
            Callbacks(settings.on_success, settings.on_error, settings.finally_).plan(plan, last)
        return last

    def _linked(self, before: StepsBefore, is_callback: bool) -> tuple[tuple[Any, ...], SubmitKeywords]:
        """The arguments with what the jobs before pass on, and the options that make this one wait for them."""
        args, link = self.args, before.link
        is_given = not self.is_immutable
        after: list[Any] = list(self.task.settings.after)
        changes: SubmitKeywords = {}
        if is_callback and self.task.settings.on_failure == "fail":
            changes["on_failure"] = "skip"  # a step of a callback that does not run is not a failure
        if link is Link.ERROR:
            if is_given:
                args = (FailureReference(before.watched_jobs), *args)
            changes["after"] = after + [(job, "error") for job in before.watched_jobs]
        elif link is Link.END:
            changes["after"] = after + [(job, "run") for job in before.jobs]
        elif link is Link.ORDER or not is_given:
            changes["after"] = after + before.jobs
        else:
            args = (before.value, *args)
        return args, changes

    def jobs_of(self, plan: GraphPlan, last: StepsBefore) -> Job[R]:
        return last.jobs[0].job()


class Group(GraphStep[JobGroup[R]]):
    """Steps that do not wait for each other.  What follows is given the list of all their results."""

    def __init__(self, members: Iterable[GraphStep[Any]], callbacks: Callbacks = NO_CALLBACKS) -> None:
        self.members: Sequence[GraphStep[Any]] = tuple(members)
        self.callbacks = callbacks
        for member in self.members:
            if not isinstance(member, GraphStep):
                raise TypeError(f"a group is made of signatures such as task.s(...), not of {member!r}")
        if not self.members:
            raise ValueError("a group needs a member")
        if any(member.app is not self.app for member in self.members):
            raise ValueError("the members of a group belong to one app")

    def __repr__(self) -> str:
        return f"<group of {len(self.members)}>"

    @property
    def app(self) -> App:
        return self.members[0].app

    def plan_jobs(self, plan: GraphPlan, before: StepsBefore | None, *, is_callback: bool = False) -> StepsBefore:
        jobs: list[PlannedJob[Any]] = []
        all_jobs: list[PlannedJob[Any]] = []
        for member in self.members:
            planned = member.plan_jobs(plan, before, is_callback=is_callback)
            jobs += planned.jobs
            all_jobs += planned.all_jobs
        last = StepsBefore(jobs, True, Link.RESULT, all_jobs)
        self.callbacks.plan(plan, last)
        return last

    def jobs_of(self, plan: GraphPlan, last: StepsBefore) -> JobGroup[R]:
        return plan.group(last.jobs)


class Chain(GraphStep[J]):
    """Steps of which each waits for the one before it, and is given its result as first argument."""

    def __init__(
        self, steps: Sequence[GraphStep[Any]], pass_results: bool, callbacks: Callbacks = NO_CALLBACKS
    ) -> None:
        self.steps = steps
        self.callbacks = callbacks
        self._pass_results = pass_results
        for step in steps:
            if not isinstance(step, GraphStep):
                raise TypeError(f"a chain is made of signatures such as task.s(...) and of groups, not of {step!r}")
        if not steps:
            raise ValueError("a chain needs a step")
        if any(step.app is not self.app for step in steps):
            raise ValueError("the steps of a chain belong to one app")

    def __repr__(self) -> str:
        return f"chain({', '.join(map(repr, self.steps))})"

    @property
    def app(self) -> App:
        return self.steps[0].app

    @property
    def is_plain(self) -> bool:
        """Whether it passes results on, and has no callbacks."""
        return self._pass_results and self.callbacks is NO_CALLBACKS

    def plan_jobs(self, plan: GraphPlan, before: StepsBefore | None, *, is_callback: bool = False) -> StepsBefore:
        return self._plan_all(plan, before, is_callback)[-1]

    def _plan_all(self, plan: GraphPlan, before: StepsBefore | None, is_callback: bool) -> list[StepsBefore]:
        planned: list[StepsBefore] = []
        link = Link.RESULT if self._pass_results else Link.ORDER
        for step in self.steps:
            before = step.plan_jobs(plan, planned[-1].linked(link) if planned else before, is_callback=is_callback)
            planned.append(before)
        last = planned[-1]
        if len(planned) > 1:
            all_jobs = [job for step in planned for job in step.all_jobs]
            planned[-1] = last = StepsBefore(last.jobs, last.is_list, last.link, all_jobs)
        self.callbacks.plan(plan, last)
        return planned

    def jobs_of(self, plan: GraphPlan, last: StepsBefore) -> J:
        return cast(J, self.steps[-1].jobs_of(plan, last))

    def submit_all(self) -> list[Job[Any] | JobGroup[Any]]:
        """Submit all steps; returns the job or the jobs of each."""
        plan = GraphPlan(self.app)
        planned = self._plan_all(plan, None, False)
        plan.submit()
        return [step.jobs_of(plan, last) for step, last in zip(self.steps, planned, strict=True)]

    async def submit_all_async(self) -> list[Job[Any] | JobGroup[Any]]:
        """`submit_all` with asyncio."""
        plan = GraphPlan(self.app)
        planned = self._plan_all(plan, None, False)
        await plan.submit_async()
        return [step.jobs_of(plan, last) for step, last in zip(self.steps, planned, strict=True)]


Step = GraphStep[Any]


class CallbackKeywords(TypedDict, total=False):
    """The steps that may follow a group or a chain; see `chain` and `group`."""

    on_success: Step | None
    on_error: Step | None
    finally_: Step | None


class ChainKeywords(CallbackKeywords, total=False):
    """What `chain` takes beside its steps."""

    pass_results: bool


# The result of a chain is that of its last step; these overloads tell type checkers so for chains of up to four steps.
@overload
def chain(last: GraphStep[J], /, **more: Unpack[ChainKeywords]) -> Chain[J]: ...
@overload
def chain(a: Step, last: GraphStep[J], /, **more: Unpack[ChainKeywords]) -> Chain[J]: ...
@overload
def chain(a: Step, b: Step, last: GraphStep[J], /, **more: Unpack[ChainKeywords]) -> Chain[J]: ...
@overload
def chain(a: Step, b: Step, c: Step, last: GraphStep[J], /, **more: Unpack[ChainKeywords]) -> Chain[J]: ...
@overload
def chain(*steps: Step, **more: Unpack[ChainKeywords]) -> Chain[Any]: ...
def chain(
    *steps: Step,
    pass_results: bool = True,
    on_success: Step | None = None,
    on_error: Step | None = None,
    finally_: Step | None = None,
) -> Chain[Any]:
    """Steps one after the other: `chain(load.s(url), resize.s(64)).submit()` runs `resize(load(url), 64)`.

    Each step is given the result of the one before as its first argument, unless `pass_results` is False or the step
    is immutable (`task.si(...)`).  A step may be a group, and then the next is given the list of its results; or a
    chain.

    `on_success` is given the result of the last step; `on_error` is given the `Failure` and runs only if a step did not
    succeed; `finally_` runs in any case, and is given nothing.
    """
    return Chain(steps, pass_results, _callbacks(on_success, on_error, finally_))


@overload
def group(*members: GraphStep[Job[R]], **callbacks: Unpack[CallbackKeywords]) -> Group[R]: ...
@overload
def group(members: Iterable[GraphStep[Job[R]]], /, **callbacks: Unpack[CallbackKeywords]) -> Group[R]: ...
@overload
def group(*members: Step | Iterable[Step], **callbacks: Unpack[CallbackKeywords]) -> Group[Any]: ...
def group(
    *members: Any,
    on_success: Step | None = None,
    on_error: Step | None = None,
    finally_: Step | None = None,
) -> Group[Any]:
    """Steps side by side: `group(resize.s(path) for path in paths).submit()`, or `group(a.s(), b.s())`.

    A member may be a chain or a group; the results of a group within a group are among those of the outer one.
    `on_success` is given the list of the results, `on_error` the first `Failure` when all have ended, and `finally_`
    nothing.
    """
    if len(members) == 1 and not isinstance(members[0], GraphStep) and isinstance(members[0], Iterable):
        members = tuple(members[0])
    return Group(members, _callbacks(on_success, on_error, finally_))


def chord(header: Group[Any] | Iterable[Step], body: GraphStep[J]) -> Chain[J]:
    """A step that is given the list of the results of a group: `chain(group(...), body)`."""
    return Chain([header if isinstance(header, GraphStep) else group(header), body], True)


def _callbacks(on_success: Step | None, on_error: Step | None, finally_: Step | None) -> Callbacks:
    if on_success is None and on_error is None and finally_ is None:
        return NO_CALLBACKS
    return Callbacks(on_success, on_error, finally_)
