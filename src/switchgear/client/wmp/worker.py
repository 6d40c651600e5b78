"""`WmpWorker`: one I/O thread for all managers, and a thread for each slot that runs jobs.

Only the I/O thread touches ZeroMQ.  The others put their reports into a queue and wake it.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Self

import zmq

from switchgear.client.failure_reason import reason_of
from switchgear.client.signals import on_stop_signals
from switchgear.client.waker import Waker
from switchgear.client.wmp.address import DEFAULT_URL, ManagerAddress, manager_addresses
from switchgear.client.wmp.manager_connections import ManagerConnection, SocketPoller, connect, receive_message
from switchgear.client.wmp.worker_protocol import WmpJob, WmpResult, WmpSend, WmpTiming, WmpWorkerProtocol
from switchgear.client.zeromq_sockets import CurveKeys, SocketSettings, check_identity
from switchgear.errors import PeerError

__all__ = ["DEFAULT_DRAIN_SECONDS", "GiveBack", "JobFunction", "WmpWorker", "WmpWorkerObserver"]

DEFAULT_DRAIN_SECONDS: Final = 30.0
MESSAGES_PER_TURN: Final = 100  # of one manager, before others are listened to

JobFunction = Callable[[WmpJob], bytes | None]
"""Does a job and returns the result; None is an empty one.

What it raises is the reason of a failure.  When `job.cancelled` is set nobody wants the result any more: then it should
raise anything, or return None.
"""


class GiveBack(Exception):
    """Raised by a function to give its job back, so that another worker gets it."""


class WmpWorkerObserver:
    """Callbacks for what a worker does, from its I/O thread, which do nothing unless overridden.  Must not raise."""

    def connected(self, manager: ManagerAddress) -> None:
        """A connection was made, and READY is sent."""

    def disconnected(self, manager: ManagerAddress) -> None:
        """A connection was lost; it is made again when that is possible."""

    def refused(self, manager: ManagerAddress, error: PeerError) -> None:
        """A manager has sent a message that is not of the protocol."""

    def job_started(self, job: WmpJob) -> None:
        """A function is about to be called."""

    def job_ended(self, job: WmpJob, outcome: WmpResult) -> None:
        """A function has ended."""


class WmpWorker:
    """Runs jobs of some roles for any number of managers, over devices or not, `slots` at a time.

    `run` works in the thread that calls; as a context manager, the worker works in a thread of its own.
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
        managers' policies; `identity` is what managers know the worker by, by default one that nobody else has.

        Raises ConfigError or ValueError.
        """
        self.addresses = manager_addresses(managers)
        self.identity = check_identity(_bytes(identity) or new_identity())
        self._functions = {_bytes(role): function for role, function in (roles or {}).items()}
        units = dict.fromkeys(self._functions, 1)
        for role, needed in (needs or {}).items():
            if _bytes(role) not in units:
                raise ValueError(f"{role} needs {needed} slots, but it is not one of the roles")
            units[_bytes(role)] = needed
        self._settings = socket_settings or SocketSettings()
        self._keys = keys
        if keys is not None:
            keys.check(len(self.addresses), "managers")
        self._observer = observer or WmpWorkerObserver()
        self._protocol = WmpWorkerProtocol(
            units, slots, len(self.addresses), timing or WmpTiming(), headers, self._note_progress
        )
        self._slots = slots
        self._connections: list[ManagerConnection] = []
        self._jobs: SimpleQueue[WmpJob | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._news: SimpleQueue[tuple[WmpJob, WmpResult | None]] = SimpleQueue()  # None: there is progress
        self._waker: Waker | None = None  # while it runs
        self._stop_at: float | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    # --- life ---

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run_beside, name="wmp-worker")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(DEFAULT_DRAIN_SECONDS if error is None else 0.0)
        assert self._thread is not None
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run_beside(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error

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
        stop_at = time.monotonic() + drain_seconds
        self._stop_at = stop_at if self._stop_at is None else min(self._stop_at, stop_at)
        self._wake_up()

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

    def _is_over(self) -> bool:
        stop_at = self._stop_at
        if stop_at is None:
            return False
        self._protocol.stop()  # it may have been stopped before it began
        if self._protocol.is_settled and not any(connection.has_kept for connection in self._connections):
            return True
        if time.monotonic() < stop_at:
            return False
        self._protocol.give_up(time.monotonic())
        self._carry_out()
        return True

    def _patience_ms(self) -> int | None:
        moments = [moment for moment in (self._protocol.next_deadline(), self._stop_at) if moment is not None]
        # A little late, because waking up early would be useless.
        return max(0, math.ceil((min(moments) - time.monotonic()) * 1000)) if moments else None

    def _carry_out(self) -> None:
        """Carry out the steps of the protocol, and those that follow from them."""
        out, self._protocol.out = self._protocol.out, []
        for step in out:
            if isinstance(step, WmpSend):
                self._connections[step.connection].send(step.message, keep=step.keep)
            else:
                self._start(step.job)

    def _read_changes(self, number: int, connection: ManagerConnection) -> None:
        for is_connected in connection.changes():
            if is_connected:
                self._protocol.connected(number, time.monotonic())
                self._observer.connected(connection.address)
            else:
                self._observer.disconnected(connection.address)

    def _read_manager(self, number: int, connection: ManagerConnection) -> None:
        connection.flush()
        for _ in range(MESSAGES_PER_TURN):
            message = receive_message(connection.socket)
            if message is None:
                return
            try:
                self._protocol.receive(number, message, time.monotonic())
            except PeerError as error:
                self._observer.refused(connection.address, error)

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
            result = self._functions[_bytes(job.role)](job)
        except GiveBack:
            return WmpResult("returned")
        except Exception as error:
            if job.cancelled.is_set():
                return WmpResult("cancelled")
            return WmpResult("failed", error=reason_of(error))
        if result is None:
            return WmpResult("cancelled") if job.cancelled.is_set() else WmpResult()
        if not isinstance(result, bytes):
            return WmpResult("failed", error=f"the function returned a {type(result).__name__}, not bytes".encode())
        if len(result) > self._settings.message_bytes:
            # A manager would close the connection on it, and have the job run again with the same result.
            words = f"the result has {len(result)} bytes; at most {self._settings.message_bytes} can be sent"
            return WmpResult("failed", error=words.encode())
        return WmpResult(result=result)

    def _note_progress(self, job: WmpJob) -> None:
        self._news.put((job, None))
        self._wake_up()


def new_identity() -> bytes:
    """A unique identity that contains the host and process id of the worker."""
    return f"{socket.gethostname()[:64]}/{os.getpid()}/{secrets.token_hex(4)}".encode()


def _bytes(text: str | bytes) -> bytes:
    return text.encode(errors="surrogateescape") if isinstance(text, str) else text
