"""`RqWorker`: runs the jobs of queues, as `rq worker high default low` does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from typing import Any, NoReturn

from switchgear.app.worker.executor_choice import choose_executors
from switchgear.app.worker.observer import LoggingObserver
from switchgear.app.worker.worker import AppWorker, WorkerSettings
from switchgear.compat.not_supported import NotSupported, refuse_unknown
from switchgear.compat.rq.queue import RqQueue, app_of, queue_task, use_as_default

__all__ = ["RqWorker", "SimpleWorker", "Worker"]


class RqWorker:
    """A worker for some queues.  It runs jobs in threads, or in processes if `processes` is given."""

    def __init__(
        self, queues: Iterable[RqQueue | str] | RqQueue | str, connection: Any = None, *, name: str = "", **others: Any
    ) -> None:
        refuse_unknown("Worker", others, {})
        given = [queues] if isinstance(queues, RqQueue | str) else list(queues)
        owner = next((queue.connection for queue in given if isinstance(queue, RqQueue)), None)
        self._app = owner if owner is not None and connection is None else app_of(connection)
        self._tasks = {}
        for queue in given:
            task = queue_task(self._app, queue.name if isinstance(queue, RqQueue) else queue)
            self._tasks[task.name] = task
        self.name = name

    @classmethod
    def all(cls, *arguments: Any, **options: Any) -> NoReturn:
        """Not supported."""
        raise NotSupported("Worker.all is not supported: switchgear workers, or App.workers()")

    @classmethod
    def count(cls, *arguments: Any, **options: Any) -> NoReturn:
        """Not supported."""
        raise NotSupported("Worker.count is not supported: switchgear workers, or len(App.workers())")

    def work(self, burst: bool = False, slots: int = 1, **others: Any) -> bool:
        """Run jobs until SIGTERM or SIGINT; with `burst` until none is ready.  Returns whether any was run."""
        refuse_unknown("Worker.work", (name for name in others if name not in ("with_scheduler", "logging_level")), {})
        use_as_default(self._app)
        choice = choose_executors(self._tasks, slots=slots, only=None)
        worker = AppWorker(self._app, choice, WorkerSettings(name=self.name, burst=burst), LoggingObserver())
        with _stopping_on_signals(worker):
            worker.start()
            worker.wait()
        return worker.finished_jobs > 0


Worker = SimpleWorker = RqWorker  # RQ's names


class _stopping_on_signals:  # noqa: N801 - used like a function
    """Stops a worker on SIGTERM and SIGINT; a second signal does not wait for running jobs."""

    def __init__(self, worker: AppWorker) -> None:
        self._worker = worker
        self._count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}

    def _stop(self, number: int, frame: Any) -> None:
        self._count += 1
        self._worker.stop(0.0 if self._count > 1 else self._worker.settings.drain_seconds)

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
