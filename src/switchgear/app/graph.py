"""`Signature`, `Group` and `Chain`: describe jobs to submit: one, several in parallel, or in sequence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack, cast, overload

from switchgear.app.job import Job
from switchgear.app.job_group import JobGroup
from switchgear.app.task_options import SubmitKeywords
from switchgear.client.gearman.submit_request import SubmitRequest
from switchgear.job_options import JOB_OPTION_NAMED

if TYPE_CHECKING:
    from switchgear.app.task import Task

__all__ = ["Chain", "Group", "Signature", "chain", "group"]

R = TypeVar("R")
J = TypeVar("J")  # a Job or a JobGroup

_MOST_PREDECESSORS: Final = JOB_OPTION_NAMED["after"].most


class Signature(Generic[R]):
    """A task with arguments and options, to be submitted later.

    >>> from switchgear import App
    >>> app = App("gearman://127.0.0.1")
    >>> @app.task(name="add")
    ... def add(a: int, b: int) -> int:
    ...     return a + b
    >>> add.s(1, b=2)
    add.s(1, b=2)
    """

    def __init__(self, task: Task[Any, R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.task = task
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        words = [repr(value) for value in self.args] + [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.task.name}.s({', '.join(words)})"

    def options(self, **options: Unpack[SubmitKeywords]) -> Signature[R]:
        """A copy with other options."""
        return Signature(self.task.with_options(**options), self.args, self.kwargs)

    def after(self, before: Job[Any] | JobGroup[Any], pass_result: bool) -> Signature[R]:
        """A copy that runs after another job, with its result as the first argument."""
        if pass_result:
            return Signature(self.task, (before, *self.args), self.kwargs)
        waiting = self.task.with_options(after=[*self.task.settings.after, before])
        return Signature(waiting, self.args, self.kwargs)

    def submit(self) -> Job[R]:
        """Submit it; see Task.submit."""
        return self.task.submit(*self.args, **self.kwargs)

    async def submit_async(self) -> Job[R]:
        """`submit` with asyncio."""
        return await self.task.submit_async(*self.args, **self.kwargs)

    def request(self, trace: str = "") -> SubmitRequest:
        """The request that submits it, as part of this trace."""
        return self.task.request(self.args, self.kwargs, watch=False, trace=trace)


class Group(Generic[R]):
    """Submissions that do not wait for each other."""

    def __init__(self, members: Iterable[Signature[R]]) -> None:
        self.members: Sequence[Signature[R]] = tuple(members)
        for member in self.members:
            if not isinstance(member, Signature):
                raise TypeError(f"a group is made of signatures such as task.s(...), not of {member!r}")
        if not self.members:
            raise ValueError("a group needs a member")
        if any(member.task.app is not self.members[0].task.app for member in self.members):
            raise ValueError("the members of a group belong to one app")

    def __repr__(self) -> str:
        return f"<group of {len(self.members)}>"

    def after(self, before: Job[Any] | JobGroup[Any], pass_result: bool) -> Group[R]:
        """A copy in which each submission runs after another job."""
        return Group(member.after(before, pass_result) for member in self.members)

    def submit(self) -> JobGroup[R]:
        """Submit all, pipelined; see Task.submit_many."""
        with self.members[0].task.sending() as span:
            group = JobGroup.submit(self.members[0].task.app, self._tasks(), self._requests(span.trace))
            span.accepted_many(len(group))
            return group

    async def submit_async(self) -> JobGroup[R]:
        """`submit` with asyncio."""
        with self.members[0].task.sending() as span:
            requests = self._requests(span.trace)
            group = await JobGroup.submit_async(self.members[0].task.app, self._tasks(), requests)
            span.accepted_many(len(group))
            return group

    def _tasks(self) -> Task[Any, R] | list[Task[Any, R]]:
        tasks = [member.task for member in self.members]
        return tasks[0] if all(task.name == tasks[0].name for task in tasks) else tasks

    def _requests(self, trace: str) -> Iterator[SubmitRequest]:
        return (member.request(trace) for member in self.members)


class Chain(Generic[J]):
    """Submissions of which each waits for the one before it, and is given its result as first argument."""

    def __init__(self, steps: Sequence[Signature[Any] | Group[Any]], pass_results: bool) -> None:
        self.steps = steps
        self._pass_results = pass_results
        for step in steps:
            if not isinstance(step, Signature | Group):
                raise TypeError(f"a chain is made of signatures such as task.s(...) and of groups, not of {step!r}")
        if not steps:
            raise ValueError("a chain needs a step")
        for step in steps[:-1]:  # a server would refuse the next step when those before it are queued already
            if isinstance(step, Group) and len(step.members) > _MOST_PREDECESSORS:
                count = len(step.members)
                raise ValueError(f"a step of a chain waits for at most {_MOST_PREDECESSORS} jobs, not for {count}")

    def __repr__(self) -> str:
        return f"chain({', '.join(map(repr, self.steps))})"

    def submit(self) -> J:
        """Submit all steps; returns the job of the last one, or its jobs if it is a group."""
        return cast(J, self.submit_all()[-1])

    async def submit_async(self) -> J:
        """`submit` with asyncio."""
        return cast(J, (await self.submit_all_async())[-1])

    def submit_all(self) -> list[Job[Any] | JobGroup[Any]]:
        """Submit all steps; returns the job or the jobs of each."""
        jobs: list[Job[Any] | JobGroup[Any]] = []
        for step in self.steps:
            jobs.append((step.after(jobs[-1], self._pass_results) if jobs else step).submit())
        return jobs

    async def submit_all_async(self) -> list[Job[Any] | JobGroup[Any]]:
        """`submit_all` with asyncio."""
        jobs: list[Job[Any] | JobGroup[Any]] = []
        for step in self.steps:
            jobs.append(await (step.after(jobs[-1], self._pass_results) if jobs else step).submit_async())
        return jobs


Step = Signature[Any] | Group[Any]


# The result of a chain is that of its last step; these overloads tell type checkers so for chains of up to four.
@overload
def chain(last: Signature[R], /, *, pass_results: bool = True) -> Chain[Job[R]]: ...
@overload
def chain(last: Group[R], /, *, pass_results: bool = True) -> Chain[JobGroup[R]]: ...
@overload
def chain(a: Step, last: Signature[R], /, *, pass_results: bool = True) -> Chain[Job[R]]: ...
@overload
def chain(a: Step, last: Group[R], /, *, pass_results: bool = True) -> Chain[JobGroup[R]]: ...
@overload
def chain(a: Step, b: Step, last: Signature[R], /, *, pass_results: bool = True) -> Chain[Job[R]]: ...
@overload
def chain(a: Step, b: Step, last: Group[R], /, *, pass_results: bool = True) -> Chain[JobGroup[R]]: ...
@overload
def chain(a: Step, b: Step, c: Step, last: Signature[R], /, *, pass_results: bool = True) -> Chain[Job[R]]: ...
@overload
def chain(a: Step, b: Step, c: Step, last: Group[R], /, *, pass_results: bool = True) -> Chain[JobGroup[R]]: ...
@overload
def chain(*steps: Step, pass_results: bool = True) -> Chain[Any]: ...
def chain(*steps: Step, pass_results: bool = True) -> Chain[Any]:
    """Submissions one after the other: `chain(load.s(url), resize.s(64)).submit()` runs `resize(load(url), 64)`.

    Each step is given the result of the one before as its first argument, unless `pass_results` is False.  A step may
    be a group: then the next is given the list of its results.
    """
    return Chain(steps, pass_results)


def group(*members: Signature[R] | Iterable[Signature[R]]) -> Group[R]:
    """Submissions side by side: `group(resize.s(path) for path in paths).submit()`, or `group(a.s(), b.s())`."""
    if len(members) == 1 and not isinstance(members[0], Signature):
        return Group(members[0])
    return Group(member for member in members if _is_signature(member))  # type: ignore[misc]


def _is_signature(member: Any) -> bool:
    if not isinstance(member, Signature):
        raise TypeError(f"a group is made of signatures such as task.s(...), not of {member!r}")
    return True
