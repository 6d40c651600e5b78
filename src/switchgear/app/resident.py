"""The worker that an embedded app brings along, so that a program which submits jobs also runs them.

It is started when the app is first used, in threads of this process.  When the program ends, jobs that run may finish
for some seconds; what is queued stays in the directory for the next process.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from switchgear.errors import ConfigError

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.worker.background import BackgroundWorker

__all__ = ["Resident"]

log = logging.getLogger("switchgear")

# How long running jobs keep a program from its end.
DRAIN_SECONDS: Final = 5.0


class Resident:
    """Works for one app in this process.  Tasks that are declared later get a worker of their own when they are."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._workers: list[BackgroundWorker] = []
        self._served: set[str] = set()
        self._is_stopping = False
        _residents.add(self)

    def serve_all(self) -> None:
        """Work for all tasks of the app that nobody here works for yet."""
        from switchgear.app.worker.background import start_background

        with self._lock:
            if self._is_stopping or os.getpid() != self._process_id:
                return
            tasks = self._app.tasks.items()
            new = [name for name, task in tasks if name not in self._served and task.options.run_in != "process"]
            left_out = [name for name, task in tasks if name not in self._served and task.options.run_in == "process"]
            self._served.update(new, left_out)
            if left_out:
                log.warning('%s: run_in="process" needs a worker: switchgear worker MODULE:APP', ", ".join(left_out))
            if new:
                with suppress(ConfigError):  # nothing among them that could run in threads
                    self._workers.append(start_background(self._app, functions=new))

    def stop(self, drain_seconds: float = DRAIN_SECONDS) -> None:
        """Take no more jobs; those that run may finish."""
        with self._lock:
            self._is_stopping = True
            workers, self._workers = self._workers, []
        if os.getpid() != self._process_id:
            return  # the threads are the parent's
        for worker in workers:
            # An interpreter that is ending starts no threads, not even those with which asyncio would tidy up.
            with suppress(RuntimeError):
                worker.stop(drain_seconds)


_residents: WeakSet[Resident] = WeakSet()


def _stop_all() -> None:
    for resident in list(_residents):
        resident.stop()


# After the server's own handler was registered, and so called before it: exit handlers run in reverse order.
atexit.register(_stop_all)
