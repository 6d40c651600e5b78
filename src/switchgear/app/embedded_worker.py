"""`EmbeddedWorker`: the worker of an embedded app, so that a program which submits jobs also runs them.

It works in threads of this process, for the tasks of which the program has submitted jobs or waits for one, and for
those that it declares schedules of; other jobs in the directory are for workers, or for `run_here="all"`.  When the
program ends, jobs that run may finish for some seconds, and what runs then counts as lost; what is queued stays in the
directory.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from switchgear.errors import ConfigError

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.task import Task
    from switchgear.app.worker.background_worker import BackgroundWorker

__all__ = ["EmbeddedWorker"]

log = logging.getLogger("switchgear")

# How long running jobs keep a program from its end.
DRAIN_SECONDS: Final = 5.0
# After this time it is said for what the program waits.
_SILENT_SECONDS: Final = 1.0
_MOST_SHOWN: Final = 5  # jobs, by name


class EmbeddedWorker:
    """The worker of one app in this process; when more tasks are to be served, another worker for all takes over.

    A task that is declared again, as by a cell of a notebook, is run as it was declared last.  A worker sees that by
    itself, unless the task has other options now, or has become a coroutine function: then another worker takes over.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._workers: dict[BackgroundWorker, list[str]] = {}  # with the names of their tasks
        self._retired: list[BackgroundWorker] = []  # they take no more jobs, and end by themselves
        self._wanted: set[str] = set()  # the names of tasks to serve
        self._served: dict[str, Task[Any, Any]] = {}  # as they were when a worker began
        self._is_stopping = False
        _embedded_workers.add(self)

    def serve(self, names: Iterable[str]) -> None:
        """Run jobs of these tasks from now on, in this process."""
        if not self._wanted.issuperset(names):
            self._wanted.update(names)
            self.refresh()

    def serve_all(self) -> None:
        """Run jobs of all tasks that the app has now."""
        self._wanted.update(self._app.tasks)
        self.refresh()

    def refresh(self) -> None:
        """Start a worker if a task has none in this process, or one for an earlier declaration."""
        from switchgear.app.worker.background_worker import start_background
        from switchgear.app.worker.worker import WorkerSettings

        if os.getpid() != self._process_id:
            return  # first of all: another thread of the parent may have held the lock when this process was forked
        with self._lock:
            if self._is_stopping:
                return
            wanted = {name: task for name, task in self._app.tasks.items() if name in self._wanted}
            self._retire_outdated(wanted)
            unserved = {name: task for name, task in wanted.items() if name not in self._served}
            new = [name for name, task in unserved.items() if task.settings.run_in != "process"]
            left_out = [name for name in unserved if name not in new]
            self._served.update(unserved)
            if left_out:
                log.warning('%s: run_in="process" needs a worker: switchgear worker MODULE:APP', ", ".join(left_out))
            if new:
                with suppress(ConfigError):  # nothing among them that could run in threads
                    settings = WorkerSettings(counts_interruptions=True)
                    self._workers[start_background(self._app, functions=new, settings=settings)] = new

    def _retire_outdated(self, wanted: dict[str, Task[Any, Any]]) -> None:
        """Retire workers with a task that was declared anew, and all if tasks are new; another worker takes over."""
        self._retired = [worker for worker in self._retired if not worker.has_ended]
        outdated = {
            name
            for name, task in self._served.items()
            if (now := self._app.tasks[name]) is not task
            and (now.is_async, now.settings) != (task.is_async, task.settings)
        }
        if any(task.settings.run_in != "process" for name, task in wanted.items() if name not in self._served):
            outdated.update(name for names in self._workers.values() for name in names)
        for worker, names in list(self._workers.items()):
            if not outdated.isdisjoint(names):
                worker.retire()
                self._retired.append(worker)
                del self._workers[worker]
                outdated.update(names)
        for name in outdated:
            self._served.pop(name, None)

    def stop(self, drain_seconds: float = DRAIN_SECONDS) -> None:
        """Take no more jobs; running jobs may finish.  If that takes long, the log says what is waited for."""
        if os.getpid() != self._process_id:
            return  # the threads are the parent's
        with self._lock:
            self._is_stopping = True
            workers = [*self._workers, *self._retired]
            self._workers, self._retired = {}, []
        for worker in workers:
            worker.begin_stop(drain_seconds)
        try:
            silent_until = time.monotonic() + _SILENT_SECONDS
            if not all(_has_ended(worker, silent_until - time.monotonic()) for worker in workers):
                _say_what_runs(workers, drain_seconds)
            for worker in workers:
                _has_ended(worker, None)
        except KeyboardInterrupt:  # those who wait want to wait no longer
            for worker in workers:
                worker.begin_stop(0)
            for worker in workers:
                _has_ended(worker, None)
            raise


def _has_ended(worker: BackgroundWorker, timeout_seconds: float | None) -> bool:
    # An interpreter that is ending starts no threads, not even those with which asyncio would tidy up.
    try:
        return worker.wait(timeout_seconds if timeout_seconds is None else max(0.0, timeout_seconds))
    except RuntimeError:
        return True


def _say_what_runs(workers: Iterable[BackgroundWorker], drain_seconds: float) -> None:
    running = [job for worker in workers for job in worker.running_jobs]
    if running:
        shown = ", ".join(running[:_MOST_SHOWN]) + (
            f" and {len(running) - _MOST_SHOWN} more" if len(running) > _MOST_SHOWN else ""
        )
        log.warning("waiting up to %g s for running jobs: %s; Ctrl-C leaves at once", drain_seconds, shown)


_embedded_workers: WeakSet[EmbeddedWorker] = WeakSet()


def _stop_all() -> None:
    for resident in list(_embedded_workers):
        with suppress(KeyboardInterrupt):  # the program ends already, only sooner now
            resident.stop()


# After the server's own handler was registered, and so called before it: exit handlers run in reverse order.
atexit.register(_stop_all)
