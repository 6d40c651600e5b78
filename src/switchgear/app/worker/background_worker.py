"""`start_background`: a worker in threads of the user's process, for embedded mode, tests and small programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Self

from switchgear.app.server_locations import ServerLocation
from switchgear.app.worker.executor_choice import DEFAULT_SLOTS, choose_executors
from switchgear.app.worker.observer import AppWorkerObserver, LoggingObserver
from switchgear.app.worker.worker import AppWorker, WorkerSettings

if TYPE_CHECKING:
    from switchgear.app.app import App

__all__ = ["BackgroundWorker", "start_background"]

_FOR_EVER_SECONDS: Final = 1e9  # event loops cannot count to infinity


class BackgroundWorker:
    """A worker that runs in threads of this process until it is stopped, or until the process ends.

    A context manager: it is stopped at the end of the block, and running jobs may finish for half a minute.
    """

    def __init__(self, worker: AppWorker) -> None:
        self._worker = worker
        worker.start()

    @property
    def connected(self) -> bool:
        """Whether jobs may come from every server."""
        return self._worker.connected

    @property
    def finished_jobs(self) -> int:
        """How many jobs the worker has run, successful or not."""
        return self._worker.finished_jobs

    @property
    def has_ended(self) -> bool:
        """Whether the worker has ended with all its threads."""
        return self._worker.wait(0)

    @property
    def running_jobs(self) -> list[str]:
        """The jobs that run now, as people read them."""
        return self._worker.running_jobs

    def retire(self) -> None:
        """Take no more jobs, and end when those that run have ended; returns at once."""
        self._worker.stop(_FOR_EVER_SECONDS, "retired")

    def stop(self, drain_seconds: float = 30.0) -> None:
        """Take no more jobs, and return when those that run have ended.

        After `drain_seconds` the jobs that still run are cancelled (`current_job().cancelled`) and released to the
        server.
        """
        self.begin_stop(drain_seconds)
        self.wait()

    def begin_stop(self, drain_seconds: float) -> None:
        """The same without waiting; another call may shorten the time."""
        self._worker.stop(drain_seconds)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end; returns whether it came within this time."""
        return self._worker.wait(timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def start_background(
    app: App,
    slots: int = DEFAULT_SLOTS,
    *,
    async_slots: int | None = None,
    functions: Iterable[str] | None = None,
    locations: Sequence[ServerLocation] | None = None,
    settings: WorkerSettings | None = None,
    observer: AppWorkerObserver | None = None,
) -> BackgroundWorker:
    """Start a worker for the app in threads of this process; coroutine functions run in an event loop of their own.

    A task that is declared again while the worker runs is run as it was declared last, with the options that it had at
    first.  Tasks that say `run_in="process"` are left to workers that have processes.  Raises ConfigError if no task is
    left.
    """
    only = frozenset(functions) if functions is not None else None
    executor_choice = choose_executors(app.tasks, slots=slots, async_slots=async_slots, processes=0, only=only)
    worker = AppWorker(app, executor_choice, settings, observer or LoggingObserver(), locations=locations)
    return BackgroundWorker(worker)
