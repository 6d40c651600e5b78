"""`GraphPlan`: jobs that are described first and then submitted together with their edges, all of them or none.

A plan is a list of tasks with their arguments. Among the arguments may be `PlannedJob`s of the same plan, which stand
for the results of earlier jobs; so each job follows its predecessors. The server is asked for handles first, and then
the plan is encoded and sent in one request (`AppTransport.submit_graph`).

Some plans cannot be sent so: a server that speaks another protocol takes no graphs, and neither does it take graphs
with unique keys, since a job of another submitter may stand in for one of them.  These are submitted in order, each
job after its predecessors; if one is refused, those before it are cancelled.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from switchgear.app.job import Job
from switchgear.app.job_group import Handles, JobGroup
from switchgear.app.references import REFERENCE, Reference
from switchgear.app.transport import batches, refuse_to_block, telling
from switchgear.client.gearman.error_codes import GRAPH_NOT_FOUND
from switchgear.client.gearman.graph_request import GraphIds
from switchgear.client.gearman.submit_request import SubmitRequest
from switchgear.errors import ClientError, ExtensionRequired, ServerRefused
from switchgear.text import counted
from switchgear.verbs.permitted_values import MOST_HANDLES

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.task import Task

__all__ = ["GraphPlan", "PlannedJob"]

R = TypeVar("R")

# The connection may be lost between the two requests of a graph; nothing was submitted then.
_MOST_TRIES: Final = 3


class _NotSubmittedYetError(Exception):
    """The handle of a job is not known yet."""


class PlannedJob(Reference, Generic[R]):
    """A job of a plan: as an argument of a later one it stands for its result."""

    __slots__ = ("_plan", "index", "task")

    def __init__(self, plan: GraphPlan, task: Task[Any, R], index: int) -> None:
        self._plan = plan
        self.task = task
        self.index = index

    def __repr__(self) -> str:
        return f"<planned job {self.index + 1}, {self.task.name}>"

    @property
    def app(self) -> App:
        """The app of the plan."""
        return self._plan.app

    @property
    def handle(self) -> str:
        """The handle of the job, which it has from its submission on."""
        return self._plan.handle(self.index)

    # What is done with a value is not done with a placeholder by mistake.

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} stands for a result that is not known before the job has run")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{self!r} stands for a result that is not known before the job has run")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{self!r} stands for a result that is not known before the job has run, and has no attribute {name}"
        )

    def is_of(self, plan: GraphPlan) -> bool:
        """Whether the job belongs to this plan."""
        return self._plan is plan

    def job(self) -> Job[R]:
        """The submitted job."""
        return Job(self.app, self.task, self.handle)

    def as_reference(self) -> dict[str, Any]:
        if self.task.arguments.gives_bytes:
            return {REFERENCE: self.handle, "bytes": True}
        return {REFERENCE: self.handle}


class GraphPlan:
    """Jobs to be submitted together, in an order in which each follows its predecessors."""

    def __init__(self, app: App, *, beside: str = "") -> None:
        """`beside` is the handle of a job at whose server these are submitted, if there are several."""
        self.app = app
        self.beside = beside
        self.is_submitted = False
        self._nodes: list[tuple[Task[Any, Any], tuple[Any, ...], dict[str, Any]]] = []
        self._ids: GraphIds | None = None  # of a plan that is submitted as a whole
        self._handles: list[str] = []  # of a plan that is submitted in order
        self._alike: dict[int, SubmitRequest | None] = {}  # by the id of a task: a request that its jobs share

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, task: Task[Any, R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> PlannedJob[R]:
        """Add a job; raises ValueError if its task is of another app."""
        if task.app is not self.app:
            raise ValueError(f"{task.name} belongs to another app than the first job of the graph")
        self._nodes.append((task, args, kwargs))
        return PlannedJob(self, task, len(self._nodes) - 1)

    def jobs_from(self, first: int) -> list[PlannedJob[Any]]:
        """The jobs from this index on."""
        return [PlannedJob(self, self._nodes[index][0], index) for index in range(first, len(self))]

    def handle(self, index: int) -> str:
        """The handle of a job by its index."""
        if self._ids is not None:
            return self._ids.handle(index)
        if index < len(self._handles):
            return self._handles[index]
        if self.is_submitted:
            raise ClientError("the graph was not submitted")
        raise _NotSubmittedYetError

    def group(self, jobs: list[PlannedJob[R]]) -> JobGroup[R]:
        """A group with the jobs that these planned jobs have become."""
        first = jobs[0].task if jobs else None
        task = first if all(job.task is first or job.task.name == first.name for job in jobs) else None  # type: ignore[union-attr]
        group = JobGroup(self.app, task if task is not None else [job.task for job in jobs])
        if self._ids is not None:
            ids = self._ids
            group.handles = Handles.of_numbers(ids.prefix[:-1], (ids.first + job.index for job in jobs))
        else:
            group.handles.extend(job.handle for job in jobs)
        return group

    # --- submitting ---

    def submit(self) -> None:
        """Submit all jobs, and return when the server has taken them; raises what `Task.submit` raises."""
        refuse_to_block()
        transport = self.app.transport
        steps = self.steps()
        answer: Any = None
        with suppress(StopIteration):
            while True:
                future = steps.send(answer)
                try:
                    answer = transport.wait(future)
                except Exception as error:
                    answer = error

    async def submit_async(self) -> None:
        """`submit` with asyncio."""
        transport = self.app.transport
        steps = self.steps()
        answer: Any = None
        with suppress(StopIteration):
            while True:
                future = steps.send(answer)
                try:
                    answer = await transport.wait_async(future)
                except Exception as error:
                    answer = error

    def steps(self) -> Generator[Future[Any], Any, None]:
        """The requests of the submission; each gets its answer, or the exception of it."""
        if not self._nodes:
            raise ValueError("a graph needs a job")
        if self.is_submitted:
            raise ValueError("the graph was submitted already")
        self.is_submitted = True
        with ExitStack() as stack:
            span = stack.enter_context(self._nodes[0][0].sending())
            if not self.app.transport.takes_graphs or any(task.settings.unique for task, _, _ in self._nodes):
                yield from self._submit_in_order(span.trace)
            else:
                yield from self._submit_as_whole(span.trace)
            span.accepted_many(len(self))

    def _submit_as_whole(self, trace: str) -> Generator[Future[Any], Any, None]:
        transport = self.app.transport
        for tries in range(1, _MOST_TRIES + 1):
            begun = yield transport.begin_graph(len(self), self._existing_predecessor())
            if isinstance(begun, ExtensionRequired):
                yield from self._submit_to_plain_server(trace, begun)
                return
            self._ids = _raised(begun)
            try:
                requests: Iterable[SubmitRequest] = self._requests(0, trace)
                to_tell: list[SubmitRequest] = []
                if self.app.hooks.middleware:  # else nobody is to be told, and none of a million is held
                    requests = to_tell = list(requests)
                with telling(to_tell) as outcomes:
                    answer = yield transport.submit_graph(self._ids, requests)
                    is_gone = isinstance(answer, ServerRefused) and answer.code == GRAPH_NOT_FOUND
                    if not (is_gone and tries < _MOST_TRIES):
                        _raised(answer)
                        outcomes += [self._ids.handle(index) for index in range(len(to_tell))]
                        return
            except BaseException:
                self._ids = None
                raise

    def _submit_to_plain_server(self, trace: str, problem: ExtensionRequired) -> Generator[Future[Any], Any, None]:
        """Submit jobs without edges to a plain Gearman server; raises ExtensionRequired for others."""
        self.is_submitted = False
        try:
            for index in range(len(self)):
                if self._request(index, trace).options.get("after"):
                    raise problem
        except _NotSubmittedYetError:
            raise problem from None
        yield from self._submit_in_order(trace)

    def _submit_in_order(self, trace: str) -> Generator[Future[Any], Any, None]:
        self.is_submitted = False
        try:
            index = 0
            while index < len(self):
                requests: list[SubmitRequest] = []
                with suppress(_NotSubmittedYetError):
                    for request in self._requests(index, trace):
                        request.beside = self.beside
                        requests.append(request)
                index += len(requests)
                for batch in batches(requests):
                    with telling(batch) as told:
                        outcomes = _raised((yield self.app.transport.submit_batch(batch, [None] * len(batch))))
                        told += outcomes
                    self._handles += [outcome for outcome in outcomes if isinstance(outcome, str)]
                    _raised(next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None))
        except BaseException:
            yield from self._cancel_all()
            raise
        finally:
            self.is_submitted = True

    def _cancel_all(self) -> Generator[Future[Any], Any, None]:
        """Cancel what was submitted of a plan that was refused in the middle."""
        for start in range(0, len(self._handles), MOST_HANDLES):
            arguments = {"action": "cancel", "handles": self._handles[start : start + MOST_HANDLES]}
            with suppress(ClientError):
                yield self.app.transport.control("bulk", arguments)

    # --- a plan that was submitted before ---

    def saved(self) -> dict[str, Any]:
        """The handles of a submitted plan as JSON, for `restore`."""
        if self._ids is not None:
            return {"prefix": self._ids.prefix, "first": self._ids.first, "count": len(self)}
        return {"handles": self._handles}

    def restore(self, saved: dict[str, Any]) -> None:
        """Make this the plan that was submitted before; raises ValueError if it had other jobs."""
        handles = saved.get("handles") or [f"{saved['prefix']}{saved['first'] + n}" for n in range(saved["count"])]
        if len(handles) != len(self):
            raise ValueError(
                f"{counted(len(self), 'job')} now, and {len(handles)} when the same task was run before:"
                " a task that is called again has to do the same as before"
            )
        self._handles, self.is_submitted = list(handles), True

    # --- requests ---

    def _requests(self, first: int, trace: str) -> Iterator[SubmitRequest]:
        return (self._request(index, trace) for index in range(first, len(self)))

    def _request(self, index: int, trace: str) -> SubmitRequest:
        task, args, kwargs = self._nodes[index]
        key = id(task)
        if key not in self._alike:
            self._alike[key] = task.requests.alike_request(trace)
        alike = self._alike[key]
        if alike is None:
            return task.request(args, kwargs, watch=False, trace=trace)
        return task.requests.request_like(alike, args, kwargs)

    def _existing_predecessor(self) -> str:
        """The handle of a job that exists and that the plan waits for, if there are several servers."""
        if self.beside:
            return self.beside
        if len(self.app.locations) > 1:
            for task, args, kwargs in self._nodes:
                for value in (*args, *kwargs.values(), *task.settings.after):
                    for before in value if isinstance(value, tuple | list) else (value,):
                        if isinstance(before, Job):
                            return before.handle
                        if isinstance(before, JobGroup) and len(before):
                            return before.handles[0]
        return ""


def _raised(answer: Any) -> Any:
    """The answer to a request; raises it if it is an exception."""
    if isinstance(answer, Exception):
        raise answer
    return answer
