"""`EmbeddedWorker`: the worker of an embedded app, so that a program which submits jobs also runs them.

It is started when the app is first used, in threads of this process.  When the program ends, jobs that run may finish
for some seconds; what is queued stays in the directory for the next process.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
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


class EmbeddedWorker:
    """The workers of one app in this process.  Tasks that are declared later get a worker of their own.

    A task that is declared again, as by a cell of a notebook, is run as it was declared last.  A worker sees that by
    itself, unless the task has other options now, or has become a coroutine function: then another worker takes over.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._workers: dict[BackgroundWorker, list[str]] = {}  # with the names of their tasks
        self._retired: list[BackgroundWorker] = []  # they take no more jobs, and end by themselves
        self._served: dict[str, Task[Any, Any]] = {}  # as they were when a worker began
        self._is_stopping = False
        _embedded_workers.add(self)

    def serve_all(self) -> None:
        """Start a worker for all tasks of the app that have none in this process, or one for an earlier declaration."""
        from switchgear.app.worker.background_worker import start_background

        if os.getpid() != self._process_id:
            return  # first of all: another thread of the parent may have held the lock when this process was forked
        with self._lock:
            if self._is_stopping:
                return
            self._retire_outdated()
            unserved = {name: task for name, task in self._app.tasks.items() if name not in self._served}
            new = [name for name, task in unserved.items() if task.settings.run_in != "process"]
            left_out = [name for name in unserved if name not in new]
            self._served.update(unserved)
            if left_out:
                log.warning('%s: run_in="process" needs a worker: switchgear worker MODULE:APP', ", ".join(left_out))
            if new:
                with suppress(ConfigError):  # nothing among them that could run in threads
                    self._workers[start_background(self._app, functions=new)] = new

    def _retire_outdated(self) -> None:
        """Retire workers with a task that was declared anew; all their tasks get a new worker."""
        self._retired = [worker for worker in self._retired if not worker.has_ended]
        outdated = {
            name
            for name, task in self._served.items()
            if (now := self._app.tasks[name]) is not task
            and (now.is_async, now.settings) != (task.is_async, task.settings)
        }
        for worker, names in list(self._workers.items()):
            if not outdated.isdisjoint(names):
                worker.retire()
                self._retired.append(worker)
                del self._workers[worker]
                outdated.update(names)
        for name in outdated:
            del self._served[name]

    def stop(self, drain_seconds: float = DRAIN_SECONDS) -> None:
        """Take no more jobs; running jobs may finish."""
        if os.getpid() != self._process_id:
            return  # the threads are the parent's
        with self._lock:
            self._is_stopping = True
            workers = [*self._workers, *self._retired]
            self._workers, self._retired = {}, []
        for worker in workers:
            # An interpreter that is ending starts no threads, not even those with which asyncio would tidy up.
            with suppress(RuntimeError):
                worker.stop(drain_seconds)


_embedded_workers: WeakSet[EmbeddedWorker] = WeakSet()


def _stop_all() -> None:
    for resident in list(_embedded_workers):
        resident.stop()


# After the server's own handler was registered, and so called before it: exit handlers run in reverse order.
atexit.register(_stop_all)
