"""`Middleware`: code around submissions, jobs, processes and workers of an app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Unpack

from switchgear.app.task_options import SubmitKeywords

if TYPE_CHECKING:
    from switchgear.app.current_job import CurrentJob

__all__ = ["Middleware", "TaskSubmission"]


class TaskSubmission:
    """A job that is about to be submitted."""

    def __init__(self, task: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.task = task
        """The name of the task."""
        self.args = args
        self.kwargs = kwargs
        self.changes: SubmitKeywords = {}

    def set_options(self, **options: Unpack[SubmitKeywords]) -> None:
        """Change options of this submission, as `task.options` does."""
        self.changes.update(options)


class Middleware:
    """Override what you need; the other methods do nothing.

    `app.add_middleware(MyMiddleware())`: what is added first is outermost.  An exception of `before_submit` refuses the
    submission, one of `around_run` counts as one of the task, and those of `on_worker_start` and `on_process_start` end
    the worker.  Exceptions of the others are logged.
    """

    def before_submit(self, submission: TaskSubmission) -> None:
        """A job is about to be submitted, alone or with others."""

    def after_submit(self, submission: TaskSubmission, handle: str) -> None:
        """The server has taken the job."""

    def on_submit_error(self, submission: TaskSubmission, error: Exception) -> None:
        """The server has refused the job, or could not be reached; then the job may be there or not."""

    def around_run(self, job: CurrentJob) -> AbstractContextManager[object]:
        """A context in which an attempt runs.  It sees the exception of the task, if there is one."""
        return nullcontext()

    def around_run_async(self, job: CurrentJob) -> AbstractAsyncContextManager[object]:
        """The same for a coroutine function; by default it is that of `around_run`."""
        return _awaited(self.around_run(job))

    def on_broadcast(self, text: str) -> None:
        """An operator has sent a text to the workers (`switchgear control broadcast TEXT`); called in a thread."""

    def on_retry(self, job: CurrentJob, error: BaseException, delay_seconds: float) -> Awaitable[None] | None:
        """An attempt has failed, and another follows.  May be a coroutine function."""

    def on_failure(self, job: CurrentJob, error: BaseException) -> Awaitable[None] | None:
        """A job has failed for good.  May be a coroutine function."""

    def on_worker_start(self) -> Awaitable[None] | None:
        """A worker starts in this process, and is not connected yet.  May be a coroutine function, which runs in the
        worker's event loop."""

    def on_worker_stop(self) -> Awaitable[None] | None:
        """Called once after a worker has stopped, in its main process and event loop.  May be a coroutine function."""

    def on_process_start(self) -> None:
        """Jobs will run in this process: that of a worker, or a child of it."""

    def on_process_stop(self) -> None:
        """No more jobs will run in this process.  Not called if it is killed."""


@asynccontextmanager
async def _awaited(context: AbstractContextManager[object]) -> AsyncIterator[None]:
    with context:
        yield
