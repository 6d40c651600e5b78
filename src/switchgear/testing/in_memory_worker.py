"""`InMemoryWorker`: runs one job at a time, in the thread of the test that calls it."""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from switchgear.app.job_execution import current_job_of, references_of, run, run_async
from switchgear.client.gearman.assigned_job import SUSPENDED, AssignedJob, Outcome, Stopped
from switchgear.client.gearman.worker_events import JobAssigned, JobRevoked, JobUnrunnable, RefusedByServer
from switchgear.client.gearman.worker_protocol import WorkerIntroduction, WorkerProtocol
from switchgear.testing.in_memory_hub import InMemoryHub

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.current_job import CurrentJob
    from switchgear.app.task import Task

__all__ = ["InMemoryWorker"]

T = TypeVar("T")


class InMemoryWorker:
    """A worker like any other for the server, except that it pulls each job."""

    def __init__(self, app: App, hub: InMemoryHub) -> None:
        self._app = app
        self._hub = hub
        self._connection = hub.connect()
        self._running: dict[str, CurrentJob] = {}  # by handle, the innermost last
        self._arrived: list[AssignedJob] = []
        self._unrunnable = 0  # assigned jobs that were refused
        self.errors: dict[str, BaseException] = {}  # by handle, the exception of the last attempt
        self._talk = self._introduce()

    def _introduce(self) -> WorkerProtocol:
        tasks = self._app.tasks
        introduction = WorkerIntroduction(
            "in-memory",
            {name: task.options.timeout or 0.0 for name, task in tasks.items()},
            self._app.declarations(),
            0.0,  # no lease: a worker that does nothing is not dead
            lambda function, payload: references_of(tasks[function], payload),
        )
        self._known = list(tasks)
        self._declared = self._app.declarations()
        self._talk = WorkerProtocol(introduction)
        self._pump()
        return self._talk

    def meet_new_tasks(self) -> None:
        """Register for tasks that were declared after the start."""
        if not self._running and (list(self._app.tasks) != self._known or self._app.declarations() != self._declared):
            self._connection.leave()
            self._connection = self._hub.connect()
            self._introduce()

    def take(self) -> AssignedJob | None:
        """Take the next ready job."""
        self.meet_new_tasks()
        while True:
            before = self._unrunnable
            self._talk.set_room(1)
            self._pump()
            self._talk.set_room(0)
            self._pump()
            if self._arrived:
                return self._arrived.pop(0)
            if self._unrunnable == before:
                return None

    def work(self, assignment: AssignedJob) -> None:
        """Run a job, and report its result to the server."""
        task = self._app.tasks[assignment.function]
        job = current_job_of(assignment, lambda *figures: self._progress(assignment.handle, *figures))
        self._running[assignment.handle] = job
        try:
            outcome = copy_context().run(self._run, self._noting(task, assignment.handle), assignment, job)
        finally:
            del self._running[assignment.handle]
        self._report(assignment, outcome)

    async def work_async(self, assignment: AssignedJob) -> None:
        """Like `work`, in the running event loop, for a task that is a coroutine function."""
        task = self._app.tasks[assignment.function]
        job = current_job_of(assignment, lambda *figures: self._progress(assignment.handle, *figures))
        self._running[assignment.handle] = job
        try:
            outcome = await run_async(self._noting(task, assignment.handle), assignment, job)
        finally:
            del self._running[assignment.handle]
        self._report(assignment, outcome)

    def leave(self) -> None:
        """Close the connection; the job that the worker holds is lost."""
        self._connection.leave()

    # --- internals ---

    def _run(self, task: Task[Any, Any], assignment: AssignedJob, job: CurrentJob) -> Outcome:
        if task.is_async:
            return run_in_a_loop(_and_close(task, run_async(task, assignment, job)))
        return run(task, assignment, job)

    def _noting(self, task: Task[Any, Any], handle: str) -> Task[Any, Any]:
        """The task, with exceptions of its function recorded."""
        noting = copy.copy(task)
        function: Callable[..., Any] = task.function

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                self.errors[handle] = error
                raise

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except BaseException as error:
                self.errors[handle] = error
                raise

        noting.function = call_async if inspect.iscoroutinefunction(function) else call
        return noting

    def _progress(self, handle: str, done: int, total: int, message: str) -> None:
        self._talk.progress(handle, done, total, message)
        self._pump()

    def _report(self, assignment: AssignedJob, outcome: Outcome) -> None:
        if not (isinstance(outcome, Stopped) and outcome.reason == SUSPENDED):  # else the server has taken it away
            self._talk.report(assignment.handle, outcome)
        self._pump()

    def _pump(self) -> None:
        """Exchange bytes with the server until both sides have nothing to send."""
        while True:
            self._connection.send(self._talk.take_output())
            data = self._connection.read()
            if not data:
                return
            for event in self._talk.receive(data):
                self._hear(event)

    def _hear(self, event: object) -> None:
        if isinstance(event, JobAssigned):
            self._arrived.append(event.assignment)
        elif isinstance(event, JobRevoked):
            job = self._running.get(event.handle)
            if job is not None:
                job.cancel(event.reason)
            else:
                self._talk.forget(event.handle)
        elif isinstance(event, RefusedByServer) and event.about:
            raise event.error
        elif isinstance(event, JobUnrunnable):
            self._unrunnable += 1


def run_in_a_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end: in this thread, or in its own thread if an event loop runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    found: list[T] = []
    trouble: list[BaseException] = []

    def live() -> None:
        try:
            found.append(asyncio.run(coroutine))
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=live, name="switchgear-in-memory")
    thread.start()
    thread.join()
    if trouble:
        raise trouble[0]
    return found[0]


async def _and_close(task: Task[Any, Any], outcome: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Close the resources of the event loop, which is made for this job alone."""
    try:
        return await outcome
    finally:
        await task.app.hooks.close_loop()
