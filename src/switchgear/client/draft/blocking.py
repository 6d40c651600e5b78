"""`DraftClient` and `DraftWorker`: client and worker of the 2005 draft that block."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from switchgear.client.address import DEFAULT_URL, ServerAddress
from switchgear.client.draft.application import POLL_SECONDS, Application
from switchgear.client.draft.blocking_driver import BlockingDriver
from switchgear.client.draft.flow_steps import Runnable
from switchgear.client.draft.records import DraftResult, DraftStatus, JobRecord
from switchgear.client.draft.worker_flow import (
    DraftTask,
    DraftTiming,
    DraftWorkerFlow,
    DraftWorkerObserver,
    TaskValue,
    failed,
    succeeded,
)
from switchgear.client.signals import interruption, on_stop_signals
from switchgear.client.sockets import DEFAULT_TIMEOUT_SECONDS
from switchgear.protocols.gearman_draft.messages import JobType, Result

__all__ = ["DraftClient", "DraftHandler", "DraftWorker"]

DraftHandler = Callable[[DraftTask], TaskValue]


class DraftClient:
    """An application: creates jobs on servers that speak the 2005 draft.  Not for use by several threads at once.

    A job goes to one server, chosen by chance among those that can be reached, and its record tells which.  Jobs of
    type SYNC_WAIT on one server end for the application in the order of their creation, however they ended there.
    """

    def __init__(
        self,
        urls: str | Iterable[str] = DEFAULT_URL,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        rng: random.Random | None = None,
    ) -> None:
        """`timeout_seconds` is for connecting and for answers that need no job to run; `rng` chooses servers."""
        self._application = Application(urls, timeout_seconds, time.monotonic, rng or random.Random())
        self._driver = BlockingDriver()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect.  Servers drop jobs that only this client waits for, unless they run already."""
        self._driver.close()

    @property
    def unfinished(self) -> list[JobRecord]:
        """Jobs that were created and whose end is not known yet, except those thrown away."""
        return self._application.unfinished

    def forget(self, record: JobRecord) -> None:
        """Do not count this job as unfinished any more; otherwise its record is kept until its end is known."""
        self._application.forget(record)

    def submit(
        self, name: str, args: bytes = b"", *, dupkey: str = "", job_type: JobType = JobType.ASYNC_HANDLE
    ) -> JobRecord:
        """Create a job, and return when a server has taken it; raises ServerRefused or ServerUnreachable.

        A server that is lost before it answers may have taken the job too; then it runs twice.
        """
        return self._driver.perform(self._application.submit(name, args, dupkey, job_type))

    def statuses(self, record: JobRecord, timeout_seconds: float | None = None) -> Iterator[DraftStatus]:
        """The statuses of a SYNC_WAIT job as they come, until it ends and `record.outcome` is set.

        Raises TimeoutError, or ServerUnreachable if the server is lost: then the job can be recreated.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while (status := self._driver.perform(self._application.next_status(record, deadline))) is not None:
            yield status

    def wait(
        self, record: JobRecord, timeout_seconds: float | None = None, *, poll_seconds: float = POLL_SECONDS
    ) -> DraftResult:
        """The result code and data of a job.  Those of an ASYNC_HANDLE job are asked for every `poll_seconds`.

        Raises TimeoutError, ServerRefused or ServerUnreachable.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        return self._driver.perform(self._application.wait(record, deadline, poll_seconds))

    def status(self, record: JobRecord) -> DraftStatus:
        """Ask how far an ASYNC_HANDLE job is; raises ServerRefused or ServerUnreachable."""
        return self._driver.perform(self._application.status(record))

    def complete(self, record: JobRecord) -> DraftResult | None:
        """Ask how an ASYNC_HANDLE job ended; None if it has not.  Raises ServerRefused or ServerUnreachable."""
        return self._driver.perform(self._application.complete(record))

    def recreate(self, record: JobRecord) -> JobRecord:
        """Create a job again, on any server; returns the new record."""
        return self._driver.perform(self._application.recreate(record))

    def recreate_unfinished(self) -> list[tuple[JobRecord, JobRecord]]:
        """Create the unfinished jobs again whose servers are gone or do not know them any more.

        Returns the old and the new record of each job.
        """
        return self._driver.perform(self._application.recreate_unfinished())


class DraftWorker:
    """Runs tasks with the given names, one at a time, from one server or several that speak the 2005 draft.

    A handler gets a `DraftTask` and returns the result, or a result code and data; an exception becomes code 1. While
    it runs the connections are not read: a lost server is noticed when it returns.
    """

    def __init__(
        self,
        urls: str | Iterable[str] = DEFAULT_URL,
        functions: Mapping[str, DraftHandler] | None = None,
        *,
        timing: DraftTiming | None = None,
        observer: DraftWorkerObserver | None = None,
    ) -> None:
        self._functions = dict(functions or {})
        self._working = DraftWorkerFlow(urls, self._functions, timing or DraftTiming(), observer, self._announce)
        self._driver = BlockingDriver(self._run_task)
        self._is_working = False  # in a handler

    @property
    def servers(self) -> list[ServerAddress]:
        return [connection.address for connection in self._working.connections]

    def run(self, *, handle_signals: bool = True) -> None:
        """Work until `stop` is called, and the task in hand is finished.  To be called once.

        In the main thread SIGTERM and SIGINT stop the worker, unless `handle_signals` is false.  A second one breaks
        off the task in hand, which its server then has run again.
        """
        try:
            with on_stop_signals(self._on_signal, wanted=handle_signals), self._driver.woken_by_signals():
                self._driver.perform(self._working.work())
        finally:
            self._driver.close()

    def stop(self) -> None:
        """Take no more tasks, and let `run` return; from a handler, a signal handler, or another thread."""
        self._working.stopping = True
        self._driver.wake()

    def _on_signal(self, number: int) -> None:
        """Stop. The second signal interrupts the handler, or the wait for the servers to close, but no packet."""
        if self._working.stopping and self._is_working:
            raise interruption(number)
        self._working.stopping_at_once = self._working.stopping
        self.stop()

    def _run_task(self, task: Runnable) -> Result:
        assert isinstance(task, DraftTask)
        self._is_working = True
        try:
            return succeeded(self._functions[task.name](task))
        except Exception as error:
            return failed(error)
        finally:
            self._is_working = False

    def _announce(self, task: DraftTask, data: bytes) -> None:
        self._driver.send(task.connection, data)
