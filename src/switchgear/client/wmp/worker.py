"""`WmpWorker`: one I/O thread for all managers, and a thread for each slot that runs jobs.

Only the I/O thread touches ZeroMQ.  The others put their reports into a queue and wake it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from typing import Any

import zmq

from switchgear.client.run_in_background import RunsBeside
from switchgear.client.signals import on_stop_signals
from switchgear.client.waker import Waker
from switchgear.client.wmp.address import DEFAULT_URL
from switchgear.client.wmp.manager_connections import SocketPoller, connect
from switchgear.client.wmp.worker_base import DEFAULT_DRAIN_SECONDS, GiveBack, WmpWorkerBase, WmpWorkerObserver
from switchgear.client.wmp.worker_protocol import WmpJob, WmpResult, WmpTiming
from switchgear.client.zeromq_sockets import CurveKeys, SocketSettings

__all__ = ["DEFAULT_DRAIN_SECONDS", "GiveBack", "JobFunction", "WmpWorker", "WmpWorkerObserver"]

JobFunction = Callable[[WmpJob], bytes | None]
"""Runs a job and returns the result; None is an empty one.

An exception is the reason of a failure. When `job.cancelled` is set the result is no longer needed: then it should
raise anything, or return None.
"""


class WmpWorker(RunsBeside, WmpWorkerBase[JobFunction]):
    """Runs jobs of some roles for any number of managers, over devices or not, `slots` at a time.

    `run` works in the calling thread; as a context manager, the worker works in its own thread.
    """

    def __init__(
        self,
        managers: str | Iterable[str] = DEFAULT_URL,
        roles: Mapping[str, JobFunction] | None = None,
        slots: int = 1,
        *,
        needs: Mapping[str, int] | None = None,
        headers: Mapping[str, Any] | None = None,
        identity: str | bytes = b"",
        timing: WmpTiming | None = None,
        socket_settings: SocketSettings | None = None,
        keys: CurveKeys | None = None,
        observer: WmpWorkerObserver | None = None,
    ) -> None:
        """`needs` is how many slots a job of a role takes, if not one; `headers` are sent along with READY, for the
        managers' policies; `identity` identifies the worker to managers; the default is random.

        Raises ConfigError or ValueError.
        """
        super().__init__(
            managers,
            roles,
            slots,
            needs=needs,
            headers=headers,
            identity=identity,
            timing=timing,
            socket_settings=socket_settings,
            keys=keys,
            observer=observer,
        )
        self._jobs: SimpleQueue[WmpJob | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._news: SimpleQueue[tuple[WmpJob, WmpResult | None]] = SimpleQueue()  # None: there is progress
        self._waker: Waker | None = None  # while it runs

    # --- life ---

    def run(self, *, handle_signals: bool = True, drain_seconds: float = DEFAULT_DRAIN_SECONDS) -> None:
        """Work until `stop` is called, and the jobs in hand are finished or given back.  To be called once.

        In the main thread SIGTERM and SIGINT stop the worker, unless `handle_signals` is false: jobs in hand may finish
        within `drain_seconds`.  At a second signal they are cancelled and given back at once.
        """

        def on_signal(number: int) -> None:
            self.stop(drain_seconds if self._stop_at is None else 0.0)

        context = zmq.Context()
        waker = self._waker = Waker()
        try:
            self._connections = connect(context, self.addresses, self.identity, self._settings, self._keys)
            self._protocol.start(time.monotonic())
            with on_stop_signals(on_signal, wanted=handle_signals), waker.by_signals():
                self._work(waker)
        finally:
            for connection in self._connections:
                connection.close()
            context.term()
            for _ in self._threads:
                self._jobs.put(None)
            waker.close()

    def stop(self, drain_seconds: float = DEFAULT_DRAIN_SECONDS) -> None:
        """Take no more jobs; `run` returns when those that run have ended, or after `drain_seconds`.

        What still runs then is cancelled, and given back to its manager.  Another call may shorten the time.  From any
        thread, or a signal handler.
        """
        self._end_no_later_than(drain_seconds)
        self._wake_up()

    def stop_at_once(self) -> None:
        """Cancel the jobs that run, and give them back."""
        self.stop(0.0)

    def _wake_up(self) -> None:
        if self._waker is not None:
            self._waker()

    # --- the thread that talks ---

    def _work(self, waker: Waker) -> None:
        waiting = SocketPoller(waker, self._connections)
        while True:
            self._carry_out()
            if self._is_over():
                return
            arrivals = waiting.wait(self._patience_ms())
            if self._stop_at is not None:
                self._protocol.stop()  # before anything else is handled
            self._read_reports()
            for number, connection in enumerate(self._connections):
                if connection.monitor in arrivals:
                    self._read_changes(number, connection)
                if connection.socket in arrivals:
                    self._read_manager(number, connection)
            self._protocol.advance(time.monotonic())

    def _patience_ms(self) -> int | None:
        moment = self._next_moment()
        # A little late, because waking up early would be useless.
        return None if moment is None else max(0, math.ceil((moment - time.monotonic()) * 1000))

    def _read_reports(self) -> None:
        while not self._news.empty():
            job, outcome = self._news.get()
            if outcome is None:
                self._protocol.progress(job, time.monotonic())
                continue
            self._running -= 1
            self._protocol.finished(job, outcome, time.monotonic())
            self._observer.job_ended(job, outcome)

    def _start(self, job: WmpJob) -> None:
        self._observer.job_started(job)
        self._running += 1
        if len(self._threads) < self._running:
            # A function that does not end when it should must not keep the process from ending.
            thread = threading.Thread(target=self._run_jobs, name=f"wmp-job-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)

    # --- the threads that run jobs ---

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._news.put((job, self._outcome(job)))
            self._wake_up()

    def _outcome(self, job: WmpJob) -> WmpResult:
        try:
            result = self._function_of(job)(job)
        except Exception as error:
            return self._outcome_of_error(job, error)
        return self._outcome_of_result(job, result)

    def _note_progress(self, job: WmpJob) -> None:
        self._news.put((job, None))
        self._wake_up()
