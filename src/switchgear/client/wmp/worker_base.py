"""`WmpWorkerBase`: what the blocking and the asyncio worker of WMP share: settings, connections, the protocol's steps.

The protocol itself is in `worker_protocol`, without I/O.  The two workers differ in how they wait and run jobs.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from switchgear.client.failure_reason import reason_of
from switchgear.client.wmp.address import DEFAULT_URL, ManagerAddress, manager_addresses
from switchgear.client.wmp.manager_connections import ManagerConnection, receive_message
from switchgear.client.wmp.worker_protocol import WmpJob, WmpResult, WmpSend, WmpTiming, WmpWorkerProtocol
from switchgear.client.zeromq_sockets import CurveKeys, SocketSettings, check_identity
from switchgear.errors import PeerError

__all__ = ["DEFAULT_DRAIN_SECONDS", "GiveBack", "WmpWorkerBase", "WmpWorkerObserver"]

DEFAULT_DRAIN_SECONDS: Final = 30.0
MESSAGES_PER_TURN: Final = 100  # of one manager, before others are listened to

F = TypeVar("F")  # the type of the functions that do jobs


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
        """Called when the function of a job has returned or raised."""


class WmpWorkerBase(ABC, Generic[F]):
    """A worker without a way to wait and to run jobs."""

    def __init__(
        self,
        managers: str | Iterable[str] = DEFAULT_URL,
        roles: Mapping[str, F] | None = None,
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
        self._connections: list[ManagerConnection] = []
        self._stop_at: float | None = None

    def _function_of(self, job: WmpJob) -> F:
        return self._functions[_bytes(job.role)]

    @abstractmethod
    def _note_progress(self, job: WmpJob) -> None:
        """A job has told how far it is; perhaps in another thread."""

    @abstractmethod
    def _start(self, job: WmpJob) -> None:
        """Start a job."""

    # --- in the thread that talks ---

    def _end_no_later_than(self, drain_seconds: float) -> None:
        """Take no more jobs, and give back those that have not ended by then.  A second call may shorten the time."""
        stop_at = time.monotonic() + drain_seconds
        self._stop_at = stop_at if self._stop_at is None else min(self._stop_at, stop_at)

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

    def _next_moment(self) -> float | None:
        """When there is something to do, if nothing arrives before."""
        moments = [moment for moment in (self._protocol.next_deadline(), self._stop_at) if moment is not None]
        return min(moments, default=None)

    def _carry_out(self) -> bool:
        """Carry out the steps of the protocol; returns whether there were any."""
        out, self._protocol.out = self._protocol.out, []
        for step in out:
            if isinstance(step, WmpSend):
                self._connections[step.connection].send(step.message, keep=step.keep)
            else:
                self._start(step.job)
        return bool(out)

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

    # --- the ends of jobs ---

    def _outcome_of_error(self, job: WmpJob, error: Exception) -> WmpResult:
        """The outcome of a function that has raised this."""
        if isinstance(error, GiveBack):
            return WmpResult("returned")
        if job.cancelled.is_set():
            return WmpResult("cancelled")
        return WmpResult("failed", error=reason_of(error))

    def _outcome_of_result(self, job: WmpJob, result: object) -> WmpResult:
        """The outcome of a function that has returned this."""
        if result is None:
            return WmpResult("cancelled") if job.cancelled.is_set() else WmpResult()
        if not isinstance(result, bytes):
            return WmpResult("failed", error=f"the function returned a {type(result).__name__}, not bytes".encode())
        if len(result) > self._settings.message_bytes:
            # A manager would close the connection on it, and have the job run again with the same result.
            words = f"the result has {len(result)} bytes; at most {self._settings.message_bytes} can be sent"
            return WmpResult("failed", error=words.encode())
        return WmpResult(result=result)


def new_identity() -> bytes:
    """A unique identity that contains the host and process id of the worker."""
    return f"{socket.gethostname()[:64]}/{os.getpid()}/{secrets.token_hex(4)}".encode()


def _bytes(text: str | bytes) -> bytes:
    return text.encode(errors="surrogateescape") if isinstance(text, str) else text
