"""Signatures, chains, groups and chords: composed tasks with arguments, submitted as jobs that wait for each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from switchgear.app.failure import FailureReference
from switchgear.app.graph_plan import GraphPlan, PlannedJob
from switchgear.compat.celery.eager import apply_here
from switchgear.compat.celery.result import AsyncResult, EagerResult, GroupResult
from switchgear.compat.celery.task import ERROR_OF
from switchgear.compat.json_types import to_json_types
from switchgear.compat.not_supported import NotSupported

if TYPE_CHECKING:
    from switchgear.compat.celery.app import CeleryApp
    from switchgear.compat.celery.task import CeleryTask

__all__ = ["CanvasNode", "CeleryChain", "CeleryChord", "CeleryGroup", "CelerySignature", "signature"]

# The last jobs of a node: one, or those of each member of a group.
LastJobs = PlannedJob[Any] | list[Any]


class CanvasNode(ABC):
    """Something that can be submitted, alone or as part of another."""

    def __or__(self, other: Any) -> CanvasNode:
        """`a | b`: b is given the result of a."""
        return CeleryChain(self, other) if isinstance(other, CanvasNode) else NotImplemented

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Submit it, with these arguments before its own."""
        return self.apply_async(args, kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Submit it, with these arguments before its own."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Submit it; `options` are for each of its tasks."""
        node = self.clone(args, kwargs, **options)
        if node.app.conf["task_always_eager"]:
            return node.apply(throw=bool(node.app.conf["task_eager_propagates"]))
        plan = GraphPlan(node.app.switchgear_app)
        last = node.add_to(plan, None)
        if len(plan):
            plan.submit()  # all jobs, or none if one is refused
        return node.result_of(last, None)

    def __invert__(self) -> Any:
        """`~a`: submit it and wait for its result."""
        return self.apply_async().get()

    def result_of(self, last: LastJobs, parent: Any) -> AsyncResult | GroupResult:
        """The result object of its last jobs, once they are submitted; `parent` is that of the step before it."""
        return result_of(self.app, last, parent)

    @property
    @abstractmethod
    def app(self) -> CeleryApp:
        """The app of its first task."""

    @abstractmethod
    def clone(self, args: Any = None, kwargs: Any = None, **options: Any) -> CanvasNode:
        """A copy with more arguments for its first tasks, and more options for all."""

    @abstractmethod
    def add_to(self, plan: GraphPlan, before: LastJobs | None) -> LastJobs:
        """Add its jobs to a plan; its first tasks wait for the jobs before, and are given their results."""

    @abstractmethod
    def apply(self, args: Any = None, kwargs: Any = None, *, throw: bool = False) -> Any:
        """Run it here and now."""

    @abstractmethod
    def set(self, **options: Any) -> CanvasNode:
        """Change the options with which the node is submitted."""

    @abstractmethod
    def link(self, callback: CanvasNode) -> CanvasNode:
        """Run this when it has succeeded, with its result; returns the callback."""

    @abstractmethod
    def link_error(self, errback: CelerySignature) -> CelerySignature:
        """Run this when it has failed; returns the errback."""

    def on_error(self, errback: CelerySignature) -> Self:
        """`link_error` for a line of calls: returns the node itself."""
        self.link_error(errback)
        return self

    def _link_given(self, options: dict[str, Any]) -> None:
        """Link the callbacks among these options of `apply_async`, and remove them there."""
        for callback in _listed(options.pop("link", None)):
            self.link(callback)
        for errback in _listed(options.pop("link_error", None)):
            self.link_error(errback)


class CelerySignature(CanvasNode):
    """A task with arguments and options."""

    def __init__(
        self, task: CeleryTask, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> None:
        self.task = task
        self.args = args
        self.kwargs = kwargs
        self.options = options
        self._links: list[CanvasNode] = []
        self._error_links: list[CelerySignature] = []
        for given in ("link", "link_error"):
            for callback in _listed(options.pop(given, None)):
                (self.link if given == "link" else self.link_error)(callback)

    def __repr__(self) -> str:
        words = [repr(value) for value in self.args] + [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.task.name}({', '.join(words)})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the task here and now."""
        return self.task(*args, *self.args, **(self.kwargs | kwargs))

    @property
    def app(self) -> CeleryApp:
        return self.task.app

    @property
    def immutable(self) -> bool:
        """Whether it is not given the result of the task before it."""
        return bool(self.options.get("immutable"))

    @property
    def submit_options(self) -> dict[str, Any]:
        """The options of `apply_async`."""
        return {name: value for name, value in self.options.items() if name != "immutable"}

    def clone(self, args: Any = None, kwargs: Any = None, **options: Any) -> CelerySignature:
        given, named = (), {}
        if not self.immutable:
            given, named = tuple(args or ()), dict(kwargs or {})
        copied = CelerySignature(self.task, (*given, *self.args), self.kwargs | named, self.options | options)
        copied._links += self._links
        copied._error_links += self._error_links
        return copied

    def set(self, immutable: bool | None = None, **options: Any) -> CelerySignature:
        """Change its options."""
        self.options.update(options if immutable is None else options | {"immutable": immutable})
        return self

    def link(self, callback: CanvasNode) -> CanvasNode:
        """Run this when the task has succeeded, with its result."""
        self._links.append(_node(callback))
        return callback

    def link_error(self, errback: CelerySignature) -> CelerySignature:
        """Run this when the task has failed: with the request, the exception and the traceback."""
        found = _node(errback)
        if not isinstance(found, CelerySignature):
            raise NotSupported("link_error takes a signature of one task")
        self._error_links.append(found)
        return errback

    def add_to(self, plan: GraphPlan, before: LastJobs | None) -> LastJobs:
        options = self.submit_options
        task = self.task.submitted_task(options)
        args = tuple(to_json_types(list(self.args)))
        if before is not None and self.immutable:
            task = task.with_options(after=_flat(before))
        elif before is not None:
            args = (before, *args)
        job = plan.add(task, args, to_json_types(self.kwargs))
        for callback in self._links:
            callback.add_to(plan, job)
        for errback in self._error_links:
            errback.add_for_error(plan, job)
        return job

    def add_for_error(self, plan: GraphPlan, job: PlannedJob[Any]) -> None:
        """Add it to a plan, to run if this job fails."""
        task = self.task.submitted_task(self.submit_options).with_options(after=[(job, "error")])
        failed = FailureReference([job])
        plan.add(task, tuple(to_json_types(list(self.args))), to_json_types(self.kwargs) | {ERROR_OF: failed})

    def apply(self, args: Any = None, kwargs: Any = None, *, throw: bool = False) -> EagerResult:
        node = self.clone(args, kwargs)
        result = apply_here(node.task, node.args, node.kwargs, throw=throw)
        if result.successful():
            for callback in self._links:
                callback.apply((result.get(),))
        return result


class CeleryChain(CanvasNode):
    """Nodes one after the other, each with the result of the one before it."""

    def __init__(self, *steps: Any) -> None:
        if len(steps) == 1 and not isinstance(steps[0], CanvasNode):
            steps = tuple(steps[0])
        if not steps:
            raise ValueError("a chain needs a task")
        self.tasks: list[CanvasNode] = []
        for step in map(_node, steps):
            self.tasks += step.tasks if isinstance(step, CeleryChain) else [step]
        self._last_of_steps: list[LastJobs] = []

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks))

    @property
    def app(self) -> CeleryApp:
        return self.tasks[0].app

    def clone(self, args: Any = None, kwargs: Any = None, **options: Any) -> CeleryChain:
        linked: dict[str, Any] = {name: options.pop(name) for name in ("link", "link_error") if name in options}
        first, *others = self.tasks
        copied = CeleryChain(first.clone(args, kwargs, **options), *(step.clone() for step in others))
        copied._link_given(linked)
        return copied

    def set(self, **options: Any) -> CeleryChain:
        """Change the options of its first step, which the others wait for."""
        self.tasks[0].set(**options)
        return self

    def add_to(self, plan: GraphPlan, before: LastJobs | None) -> LastJobs:
        self._last_of_steps = []
        for step in self.tasks:
            before = step.add_to(plan, before)
            self._last_of_steps.append(before)
        assert before is not None
        return before

    def result_of(self, last: LastJobs, parent: Any) -> AsyncResult | GroupResult:
        for step, jobs in zip(self.tasks, self._last_of_steps, strict=True):
            parent = step.result_of(jobs, parent)
        found: AsyncResult | GroupResult = parent
        return found

    def apply(self, args: Any = None, kwargs: Any = None, *, throw: bool = False) -> Any:
        result: Any = None
        for step in self.tasks:
            before, result = result, step.apply(args, kwargs, throw=throw)
            result.parent = before
            if not result.successful():
                return result
            args, kwargs = (result.get(),), None
        return result

    def link(self, callback: CanvasNode) -> CanvasNode:
        """Run this after the last step."""
        self.tasks[-1].link(callback)
        return callback

    def link_error(self, errback: CelerySignature) -> CelerySignature:
        """Run this if a step fails."""
        for step in self.tasks:
            for member in _signatures(step):
                member.link_error(errback)
        return errback


class CeleryGroup(CanvasNode):
    """Nodes side by side."""

    def __init__(self, *members: Any) -> None:
        if len(members) == 1 and not isinstance(members[0], CanvasNode):
            members = tuple(members[0])
        self.tasks: list[CanvasNode] = [_node(member) for member in members]

    def __repr__(self) -> str:
        return f"group({self.tasks!r})"

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[CanvasNode]:
        return iter(self.tasks)

    def __or__(self, other: Any) -> CanvasNode:
        """A group and what comes after it make a chord."""
        return CeleryChord(self, other) if isinstance(other, CanvasNode) else NotImplemented

    @property
    def app(self) -> CeleryApp:
        if not self.tasks:
            from switchgear.compat.celery.app import current_celery_app

            return current_celery_app()
        return self.tasks[0].app

    def clone(self, args: Any = None, kwargs: Any = None, **options: Any) -> CeleryGroup:
        return CeleryGroup([member.clone(args, kwargs, **options) for member in self.tasks])

    def add_to(self, plan: GraphPlan, before: LastJobs | None) -> LastJobs:
        return [member.add_to(plan, before) for member in self.tasks]

    def result_of(self, last: LastJobs, parent: Any) -> GroupResult:
        assert isinstance(last, list)
        members = zip(self.tasks, last, strict=True)
        return GroupResult([member.result_of(jobs, parent) for member, jobs in members], parent=parent)

    def apply(self, args: Any = None, kwargs: Any = None, *, throw: bool = False) -> GroupResult:
        return GroupResult([member.apply(args, kwargs, throw=throw) for member in self.tasks])

    def set(self, **options: Any) -> CeleryGroup:
        """Change the options of all members."""
        for member in self.tasks:
            member.set(**options)
        return self

    def group(self) -> CeleryGroup:
        """Itself: the group that `task.chunks` makes."""
        return self

    def link(self, callback: CanvasNode) -> CanvasNode:
        """Run this after each member."""
        for member in self.tasks:
            for found in _signatures(member):
                found.link(callback)
        return callback

    def link_error(self, errback: CelerySignature) -> CelerySignature:
        """Run this for each member that fails."""
        for member in self.tasks:
            for found in _signatures(member):
                found.link_error(errback)
        return errback


class CeleryChord(CanvasNode):
    """A group, and a task that is given the list of its results."""

    def __init__(self, header: Any, body: Any = None, **options: Any) -> None:
        self.header = header if isinstance(header, CeleryGroup) else CeleryGroup(header)
        self.body = None if body is None else _node(body)
        self._last_of_header: LastJobs = []

    def __repr__(self) -> str:
        return f"chord({self.header!r}, {self.body!r})"

    def __call__(self, body: Any = None, **kwargs: Any) -> Any:
        """Submit it: `chord(header)(callback)`."""
        node = self if body is None else CeleryChord(self.header, body)
        return node.apply_async(**kwargs)

    @property
    def app(self) -> CeleryApp:
        return self.header.app

    def _needed_body(self) -> CanvasNode:
        if self.body is None:
            raise ValueError("a chord needs a body: chord(header)(callback), or chord(header, callback)")
        return self.body

    def clone(self, args: Any = None, kwargs: Any = None, **options: Any) -> CeleryChord:
        linked: dict[str, Any] = {name: options.pop(name) for name in ("link", "link_error") if name in options}
        copied = CeleryChord(self.header.clone(args, kwargs, **options), self._needed_body().clone(**options))
        copied._link_given(linked)
        return copied

    def set(self, **options: Any) -> CeleryChord:
        """Change the options of all of its tasks."""
        self.header.set(**options)
        self._needed_body().set(**options)
        return self

    def link(self, callback: CanvasNode) -> CanvasNode:
        """Run this after the body."""
        return self._needed_body().link(callback)

    def link_error(self, errback: CelerySignature) -> CelerySignature:
        """Run this if the body fails, which it does if a task of the header fails."""
        return self._needed_body().link_error(errback)

    def add_to(self, plan: GraphPlan, before: LastJobs | None) -> LastJobs:
        self._last_of_header = self.header.add_to(plan, before)
        return self._needed_body().add_to(plan, self._last_of_header)

    def result_of(self, last: LastJobs, parent: Any) -> AsyncResult | GroupResult:
        return self._needed_body().result_of(last, self.header.result_of(self._last_of_header, parent))

    def apply(self, args: Any = None, kwargs: Any = None, *, throw: bool = False) -> Any:
        header = self.header.apply(args, kwargs, throw=throw)
        result = self._needed_body().apply((header.get(),), throw=throw)
        result.parent = header
        return result


def signature(given: Any, *args: Any, **kwargs: Any) -> CanvasNode:
    """A signature of a task, its name, or what is a signature already."""
    from switchgear.compat.celery.app import current_celery_app

    if isinstance(given, CanvasNode):
        return given
    if isinstance(given, str):
        return current_celery_app().task_named(given).signature(*args, **kwargs)
    if isinstance(given, Mapping):
        raise NotSupported("signatures are objects here and cannot be made of a mapping")
    found: CelerySignature = given.signature(*args, **kwargs)
    return found


def result_of(app: CeleryApp, submitted: LastJobs, parent: Any) -> AsyncResult | GroupResult:
    """The result object for what was submitted."""
    if isinstance(submitted, list):
        return GroupResult([result_of(app, member, parent) for member in submitted], parent=parent)
    return AsyncResult(submitted.handle, app=app, parent=parent)


def _node(given: Any) -> CanvasNode:
    if isinstance(given, CanvasNode):
        return given
    raise TypeError(f"a canvas is made of signatures such as task.s(...), not of {given!r}")


def _signatures(node: CanvasNode) -> list[CelerySignature]:
    """All signatures of single tasks within a node."""
    match node:
        case CelerySignature():
            return [node]
        case CeleryChain() | CeleryGroup():
            return [found for member in node.tasks for found in _signatures(member)]
        case CeleryChord():
            return [*_signatures(node.header), *(_signatures(node.body) if node.body is not None else ())]
        case _:
            return []


def _flat(submitted: LastJobs) -> list[PlannedJob[Any]]:
    if isinstance(submitted, list):
        return [job for member in submitted for job in _flat(member)]
    return [submitted]


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]
