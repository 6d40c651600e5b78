"""`AsyncExecutor`: runs jobs as tasks of one event loop, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from switchgear.app.job_execution import error_text, run_async
from switchgear.app.transport import JOB_LOOPS
from switchgear.app.worker.executor import Attempt, Executor, ExecutorOwner
from switchgear.app.worker.mailbox import Mailbox
from switchgear.client.gearman.assigned_job import Fail, Stopped

__all__ = ["AsyncExecutor"]


class AsyncExecutor(Executor):
    """One event loop in its own thread, with a task for each job.

    This is not the event loop of the connections: a job that blocks its loop must not cost the worker its lease.
    """

    def __init__(self, slots: int, at_end: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """`at_end` is run in the event loop after the last job."""
        super().__init__(slots)
        self._at_end = at_end
        self._tasks: dict[Attempt, asyncio.Task[None]] = {}  # belongs to the jobs' thread
        self._jobs_loop: asyncio.AbstractEventLoop | None = None
        self._pool = ThreadPoolExecutor(thread_name_prefix="switchgear-jobs")  # for what jobs ask `asyncio.to_thread`
        self._starts: Mailbox[Attempt]
        self._closing = False
        self._stopped = asyncio.Event()

    def open(self, owner: ExecutorOwner, loop: asyncio.AbstractEventLoop) -> None:
        super().open(owner, loop)
        self._jobs_loop = asyncio.new_event_loop()
        JOB_LOOPS.add(self._jobs_loop)
        self._jobs_loop.set_default_executor(self._pool)
        self._starts = Mailbox(self._jobs_loop, self._begin)
        thread = threading.Thread(target=self._serve, args=(self._jobs_loop,), name="switchgear-jobs", daemon=True)
        thread.start()

    def start(self, attempt: Attempt) -> None:
        self._starts.put(attempt)

    def cancel(self, attempt: Attempt, *, hard: bool) -> None:
        assert self._jobs_loop is not None
        self._jobs_loop.call_soon_threadsafe(self._cancel, attempt)

    async def close(self) -> bool:
        assert self._jobs_loop is not None
        self._closing = True
        self._jobs_loop.call_soon_threadsafe(self._jobs_loop.stop)
        try:
            async with asyncio.timeout(1.0):
                await self._stopped.wait()
        except TimeoutError:
            return False  # a job blocks the loop, or a thread of the pool, for which the program would wait at its end
        return True

    # --- in the jobs' thread ---

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while not self._closing:
                try:
                    loop.run_forever()
                except BaseException as error:  # something that a job has left in the loop wants to end the program
                    text = f"a job has tried to end the worker, or its event loop: {error!r}"
                    self.loop.call_soon_threadsafe(self.owner.note, text)
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(_wait_for(asyncio.all_tasks(loop)))
            if self._at_end is not None:
                loop.run_until_complete(self._at_end())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
            self._pool.shutdown()
            try:
                self.loop.call_soon_threadsafe(self._stopped.set)
            except RuntimeError:
                pass  # the worker has ended

    def _begin(self, attempts: list[Attempt]) -> None:
        loop = asyncio.get_running_loop()
        for attempt in attempts:
            task = self._tasks[attempt] = loop.create_task(self._run(attempt), name=attempt.handle)
            task.add_done_callback(partial(self._finished, attempt))

    async def _run(self, attempt: Attempt) -> None:
        outcome = await run_async(attempt.task, attempt.assignment, attempt.job)
        # At once: a call in this loop would have to wait for each of the jobs that want to do something now.
        self._end_from_thread(attempt, outcome)

    def _cancel(self, attempt: Attempt) -> None:
        task = self._tasks.get(attempt)
        if task is not None:
            task.cancel()

    def _finished(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        del self._tasks[attempt]
        if task.cancelled():  # before it had begun
            self._end_from_thread(attempt, Stopped(attempt.job.cancel_reason))
        elif (error := task.exception()) is not None:
            self._end_from_thread(attempt, Fail(error_text(error)))


async def _wait_for(tasks: set[asyncio.Task[object]]) -> None:
    tasks.discard(asyncio.current_task())
    if tasks:
        await asyncio.wait(tasks, timeout=1.0)
