"""A child process of a worker: imports the app, and runs one job after the other.

The main thread runs the jobs.  Another one reads the messages of the worker, so that a running job can be cancelled,
and so that the process ends as soon as the worker does: the server then assigns its jobs to other workers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from switchgear.app.current_job import CurrentJob
from switchgear.app.job_execution import current_job_of, error_text, run, run_async
from switchgear.app.server_locations import location_of
from switchgear.app.worker.app_loader import load_app
from switchgear.app.worker.child_messages import (
    CancelJob,
    ChildProgress,
    ChildReady,
    Frame,
    FrameReader,
    StartJob,
    encode,
    ended,
)
from switchgear.app.worker.logging_setup import set_up_logging
from switchgear.app.worker.progress_throttle import ProgressThrottle
from switchgear.app.worker.resident_memory import resident_bytes
from switchgear.client.gearman.assigned_job import AssignedJob, Fail, Outcome, Stopped

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.task import Task

__all__ = ["main"]

_READ_BYTES: Final = 256 * 1024
_WORKER_GONE: Final = 1
_UNFINISHED: Final = 2


class Terminated(BaseException):
    """Raised in a job that did not stop although it was cancelled."""


class Child:
    """The child process: runs jobs in its main thread, and reads messages of the worker in another one."""

    def __init__(self, app: App, connection: socket.socket) -> None:
        self._app = app
        self._connection = connection
        self._starts: SimpleQueue[StartJob | None] = SimpleQueue()  # None: there will be no more
        self._sending = threading.Lock()
        self._pacer = ProgressThrottle(lambda figures: self._send(figures))
        self._job: CurrentJob | None = None
        self._number = 0  # of the attempt
        self._cancelled: CancelJob | None = None  # the latest; it may come before its job has begun
        self._stop_task: Callable[[], object] | None = None  # how to cancel the coroutine that runs
        self._runner: asyncio.Runner | None = None

    def serve(self) -> None:
        """Run jobs until the worker closes the connection."""
        # A service manager may send TERM to all processes of a worker; what that means for jobs, the worker decides.
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=self._listen, name="switchgear-line", daemon=True).start()
        self._app.hooks.start_process()
        self._send(ChildReady())
        while (start := self._starts.get()) is not None:
            outcome = self._work(start.attempt, start.assignment)
            flush_output()  # what the job has printed; the end of this process may be sudden
            self._send(ended(start.attempt, outcome, resident_bytes() if start.measures_memory else 0))
        if self._runner is not None:
            self._runner.run(self._app.hooks.close_loop())
        self._app.hooks.stop_process()
        flush_output()
        os._exit(0)  # threads that jobs have left behind do not keep it

    def _work(self, number: int, assignment: AssignedJob) -> Outcome:
        def on_progress(done: int, total: int, message: str) -> None:
            self._pacer.put(ChildProgress(number, done, total, message))

        task = self._app.tasks.get(assignment.function)
        if task is None:
            return Fail(f"LookupError: the app has no task {assignment.function} any more")
        job = current_job_of(assignment, on_progress)
        self._number, self._job = number, job
        if self._cancelled is not None and self._cancelled.attempt == number:
            job.cancel(self._cancelled.reason)
        try:
            if task.is_async:
                return self._run_async(task, assignment, job)
            return copy_context().run(run, task, assignment, job)
        except BaseException as error:  # TERM came a moment too late, or this is a defect of ours
            return Stopped(job.cancel_reason) if job.cancelled else Fail(error_text(error))
        finally:
            self._pacer.flush()
            self._job = None

    def _run_async(self, task: Task[Any, Any], assignment: AssignedJob, job: CurrentJob) -> Outcome:
        if self._runner is None:
            self._runner = asyncio.Runner()

        async def work() -> Outcome:
            current, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert current is not None
            self._stop_task = lambda: loop.call_soon_threadsafe(current.cancel)
            if job.cancelled:  # before there was something to stop
                current.cancel()
            return await run_async(task, assignment, job)

        try:
            return self._runner.run(work())
        except BaseException as error:  # the coroutine has not ended, and would go on beside the next one
            if not isinstance(error, Terminated):
                traceback.print_exc()  # raised by something else in the loop, such as a task that calls sys.exit()
            flush_output()
            os._exit(_UNFINISHED)
        finally:
            self._stop_task = None

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        if self._job is not None and self._job.cancelled:
            raise Terminated

    def _send(self, frame: Frame) -> None:
        try:
            with self._sending:
                self._connection.sendall(encode(frame))
        except OSError:
            os._exit(_WORKER_GONE)

    def _listen(self) -> None:
        reader = FrameReader()
        while data := self._receive():
            for frame in reader.feed(data):
                if isinstance(frame, StartJob):
                    self._starts.put(frame)
                elif isinstance(frame, CancelJob):
                    self._cancel(frame)
        if self._job is not None:
            os._exit(_WORKER_GONE)
        self._starts.put(None)

    def _receive(self) -> bytes:
        try:
            return self._connection.recv(_READ_BYTES)
        except OSError:
            return b""

    def _cancel(self, frame: CancelJob) -> None:
        self._cancelled = frame  # first, so that a job that begins now sees it
        job, stop_task = self._job, self._stop_task
        if job is not None and self._number == frame.attempt:
            job.cancel(frame.reason)
            if stop_task is not None:
                stop_task()


def flush_output() -> None:
    """Flush standard output and error, which Python buffers, and which would be lost if the process is killed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def main(arguments: list[str]) -> None:
    """`python -m switchgear.app.worker.child DESCRIPTOR LEVEL:FORMAT MODULE:APP [URL...]`.

    Level and format of the log are empty if logging is left to the app, and the URLs are there if not those of the app.
    """
    descriptor, log_settings, target, *urls = arguments
    connection = socket.socket(fileno=int(descriptor))
    app = load_app(target)
    if log_settings:
        set_up_logging(*log_settings.split(":"))
    if urls:
        app.use_locations([location_of(url, app.token) for url in urls])
    Child(app, connection).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
