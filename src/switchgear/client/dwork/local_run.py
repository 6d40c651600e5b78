"""Runs a task graph without a server, on the scheduling engine.

`LocalRun` decides which task may start, and is told when tasks end; it runs nothing itself. `run_tasks` runs these
tasks, a number of them at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from switchgear.client.dwork.graph_analysis import GraphTask, TaskGraph
from switchgear.client.dwork.records import bytes_of, text_of
from switchgear.client.dwork.taskfile import TaskFile, in_order
from switchgear.engine.engine import Engine, EngineSettings, SubmitOptions
from switchgear.model import NORMAL, RUNNING, Delivery, Job, Peer

__all__ = ["LocalRun", "RunObserver", "RunReport", "TaskResult", "run_tasks"]

FUNCTION: Final = b"dwork"


@dataclass(frozen=True, slots=True)
class RunReport:
    """The report of a run.  Tasks are in the order of the file."""

    done: list[str]
    failed: dict[str, str]  # and why
    interrupted: list[str]  # were running when everything was stopped
    blocked: list[str]  # did not run because they wait for a failed task
    not_started: list[str]  # did not run because everything was stopped
    wall_seconds: float
    task_seconds: float  # of all tasks together
    critical_path: list[str]
    critical_seconds: float

    @property
    def is_success(self) -> bool:
        return not (self.failed or self.interrupted or self.blocked or self.not_started)

    @property
    def left(self) -> list[str]:
        """All tasks that were not done."""
        return [*self.failed, *self.interrupted, *self.blocked, *self.not_started]


class LocalRun:
    """The tasks of a file, from the first to the last."""

    def __init__(self, file: TaskFile, now_us: int, *, keep_going: bool = False) -> None:
        """Raises CycleRefused.  Predecessors that the file does not have count as done."""
        self.tasks = file.tasks
        self.keep_going = keep_going
        self.failed: dict[str, str] = {}
        self._jobs: dict[str, Job] = {}
        self._began_us = now_us
        self._engine = Engine(EngineSettings(jobs_per_worker=0))
        self._engine.advance(now_us)
        function = self._engine.function_named(FUNCTION)
        function.released_first = True  # as a dwork server does it: in depth, not in breadth
        for name in in_order(file.tasks):
            self._submit(name, file.tasks[name])
        self._worker = self._engine.add_worker(Peer(), "local")
        self._engine.can_do(self._worker, function)

    def _submit(self, name: str, predecessors: list[str]) -> None:
        ids = tuple(self._jobs[other].id for other in predecessors if other in self._jobs)
        key = bytes_of(name)
        options = SubmitOptions(predecessors=ids, name=key)
        self._jobs[name] = self._engine.submit(FUNCTION, b"", key, NORMAL, Delivery.HANDLE, options=options)

    @property
    def running(self) -> int:
        return len(self._worker.running)

    def take(self, now_us: int) -> str | None:
        """The next task to start; None if there is none now.  If no task runs either, the run is over."""
        self._engine.advance(now_us)
        job = self._engine.take(self._worker)
        return None if job is None else text_of(job.name)

    def end(self, name: str, failure: str | None, now_us: int) -> None:
        """A task has ended: done, or failed for a reason.  After a failure no other is started, unless the run keeps
        going."""
        self._engine.advance(now_us)
        job_id = self._jobs[name].id
        if failure is None:
            self._engine.complete(self._worker, job_id, b"")
        else:
            self._engine.fail(self._worker, job_id, error=failure.encode(errors="surrogateescape"))
            self.failed[name] = failure
            if not self.keep_going:
                self.stop()
        self._engine.take_changes()  # there is no store

    def stop(self) -> None:
        """Start no more tasks; those that run may finish."""
        self._engine.stop_handing_out()

    def report(self, now_us: int) -> RunReport:
        """The report of the run up to this time."""
        graph = self._graph(now_us)
        states: dict[str, list[str]] = {}
        for task in graph.tasks.values():
            states.setdefault(graph.state_of(task), []).append(task.name)
        path = graph.critical_path()
        return RunReport(
            done=states.get("done", []),
            failed=self.failed,
            interrupted=states.get("running", []),
            blocked=states.get("stuck", []),
            not_started=[*states.get("ready", []), *states.get("waiting", [])],
            wall_seconds=(now_us - self._began_us) / 1e6,
            task_seconds=sum(task.seconds for task in graph.tasks.values()),
            critical_path=[task.name for task in path],
            critical_seconds=sum(task.seconds for task in path),
        )

    def _graph(self, now_us: int) -> TaskGraph:
        tasks = []
        for name in self.tasks:
            job = self._jobs[name]
            end_us = job.finished_us or (now_us if job.state is RUNNING else 0)
            seconds = max(0, end_us - job.log[-1 if job.state is RUNNING else -2][1]) / 1e6 if end_us else 0.0
            tasks.append(GraphTask(job.id, name, job.state.name.lower(), job.predecessors, seconds))
        return TaskGraph(tasks)


class TaskResult(Protocol):
    """The outcome of a task."""

    @property
    def failure(self) -> str | None: ...


T = TypeVar("T", bound=TaskResult)


class RunObserver(Generic[T]):
    """Callbacks for what is run, which do nothing unless overridden."""

    def started(self, name: str) -> None:
        """A task is about to be run."""

    def ended(self, name: str, outcome: T, seconds: float) -> None:
        """Called when a task has ended."""


async def run_tasks(
    run: LocalRun,
    perform: Callable[[str], Awaitable[T]],
    jobs: int,
    clock_us: Callable[[], int],
    observer: RunObserver[T],
) -> None:
    """Run all tasks, up to `jobs` at a time.  Cancelling it cancels the running tasks."""
    running: dict[asyncio.Future[T], tuple[str, int]] = {}  # with name and time of the start
    try:
        while True:
            while len(running) < jobs and (name := run.take(clock_us())) is not None:
                observer.started(name)
                running[asyncio.ensure_future(perform(name))] = name, clock_us()
            if not running:
                return
            ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                name, began_us = running.pop(task)
                outcome = task.result()
                now_us = clock_us()
                run.end(name, outcome.failure, now_us)
                observer.ended(name, outcome, (now_us - began_us) / 1e6)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
