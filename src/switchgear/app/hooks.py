"""`AppHooks`: calls the middleware of an app, and provides the resources of its tasks."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from switchgear.app.injection import AppResources
from switchgear.app.middleware import Middleware, TaskSubmission
from switchgear.client.gearman.assigned_job import Fail, Outcome, RetryLater

if TYPE_CHECKING:
    from switchgear.app.current_job import CurrentJob
    from switchgear.app.task import Task

__all__ = ["AppHooks"]

log: Final = logging.getLogger("switchgear")

FAILED_HOOK: Final = "a hook of the middleware has failed"


class AppHooks:
    """The middleware and the resources of an app, and their calls around its jobs in this process."""

    def __init__(self) -> None:
        self.middleware: list[Middleware] = []  # the outermost first
        self.resources = AppResources()
        self._lock = threading.Lock()
        self._users = 0  # workers of this process, which start and stop by themselves

    # --- submitting ---

    def prepared(
        self, task: Task[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Task[Any, Any], Callable[[str | Exception], None]]:
        """The task with the options that the middleware gives to this submission, and what is to be called with the
        handle of its job, or with the reason why there is none."""
        submission = TaskSubmission(task.name, args, kwargs)
        for each in self.middleware:
            each.before_submit(submission)
        changed = task.with_options(**submission.changes) if submission.changes else task
        return changed, partial(self._submitted, submission)

    def _submitted(self, submission: TaskSubmission, outcome: str | Exception) -> None:
        for each in reversed(self.middleware):
            if isinstance(outcome, str):
                self._logged(partial(each.after_submit, submission, outcome))
            else:
                self._logged(partial(each.on_submit_error, submission, outcome))

    # --- operators ---

    def broadcast(self, text: str) -> None:
        """Pass a text of an operator on, in a thread of its own."""
        for each in self.middleware:
            self._logged(partial(each.on_broadcast, text))

    # --- running ---

    def call(self, task: Task[Any, Any], job: CurrentJob, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a plain function, within the middleware and with its resources."""
        with ExitStack() as stack:
            for each in self.middleware:
                stack.enter_context(each.around_run(job))
            if task.injected:
                kwargs = kwargs | self.resources.values(task.name, task.injected_kinds, stack)
            return task.function(*args, **kwargs)
        return None  # a context has swallowed the exception

    async def call_async(
        self, task: Task[Any, Any], job: CurrentJob, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`call` for a task that is a coroutine function."""
        async with AsyncExitStack() as stack:
            for each in self.middleware:
                await stack.enter_async_context(each.around_run_async(job))
            if task.injected:
                kwargs = kwargs | await self.resources.values_async(task.name, task.injected_kinds, stack)
            return await task.function(*args, **kwargs)
        return None  # a context has swallowed the exception

    def tell(self, job: CurrentJob, error: BaseException, outcome: Outcome) -> None:
        """Tell the middleware how an attempt has ended that raised an exception."""
        for each in self.middleware:
            try:
                answer = _told(each, job, error, outcome)
                if answer is not None:
                    asyncio.run(_finished(answer))
            except Exception:
                log.exception(FAILED_HOOK)

    async def tell_async(self, job: CurrentJob, error: BaseException, outcome: Outcome) -> None:
        """`tell` for hooks that may be coroutine functions."""
        for each in self.middleware:
            try:
                answer = _told(each, job, error, outcome)
                if answer is not None:
                    await answer
            except Exception:
                log.exception(FAILED_HOOK)

    # --- processes and workers ---

    async def start_worker(self) -> None:
        """Call `on_worker_start` of all middleware."""
        for each in self.middleware:
            answer = each.on_worker_start()
            if answer is not None:
                await answer

    async def stop_worker(self) -> None:
        """Call `on_worker_stop` of all middleware, in reverse order."""
        for each in reversed(self.middleware):
            try:
                answer = each.on_worker_stop()
                if answer is not None:
                    await answer
            except Exception:
                log.exception(FAILED_HOOK)

    def start_process(self) -> None:
        """Jobs will run in this process; called for each worker in it, and told for the first."""
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
        for each in self.middleware:
            each.on_process_start()

    def stop_process(self) -> None:
        """No more jobs will run here for a worker; told after the last."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        self._logged(self.resources.close)
        for each in reversed(self.middleware):
            self._logged(each.on_process_stop)

    async def close_loop(self) -> None:
        """The running event loop will run no more jobs."""
        try:
            await self.resources.close_loop()
        except Exception:
            log.exception("a resource could not be closed")

    def _logged(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception:
            log.exception(FAILED_HOOK)


def _told(each: Middleware, job: CurrentJob, error: BaseException, outcome: Outcome) -> Awaitable[None] | None:
    if isinstance(outcome, RetryLater):
        return each.on_retry(job, error, outcome.delay_seconds)
    return each.on_failure(job, error) if isinstance(outcome, Fail) else None


async def _finished(awaited: Awaitable[None]) -> None:
    await awaited
