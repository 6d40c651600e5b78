"""One server for one post: connected whenever that is possible.

A lost connection takes its jobs with it: the server gives them to somebody else.  So they are told that they are not
wanted any more, and what they still report is dropped.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol, cast

from switchgear.app.job_execution import AssignedJob
from switchgear.app.server_locations import ServerLocation
from switchgear.app.worker.executor import Attempt
from switchgear.app.worker.in_thread import in_thread
from switchgear.app.worker.server_events import Event, ReportAccepted, Subscribed
from switchgear.app.worker.worker_protocol import AppWorkerProtocol, WorkerIntroduction
from switchgear.client.connection import keep_alive, words_of
from switchgear.client.worker_connection import CONNECT_SECONDS, SETTLE_SECONDS, ReconnectBackoff
from switchgear.errors import PeerError

__all__ = ["AppWorkerConnection", "ConnectionOwner"]

BEATS_PER_LEASE: Final = 3
# A server that says nothing for so long, although it was asked, is not there any more.
LEASES_OF_SILENCE: Final = 3


class ConnectionOwner(Protocol):
    """Whom a link works for."""

    def on_event(self, link: AppWorkerConnection, event: Event) -> None: ...

    def after_events(self) -> None: ...

    def on_connected(self, link: AppWorkerConnection, *, again: bool) -> None: ...

    def on_disconnected(
        self, link: AppWorkerConnection, attempts: list[Attempt], problem: str, retry_seconds: float
    ) -> None: ...


class AppWorkerConnection(asyncio.Protocol):
    """Connects, subscribes, keeps the lease, and connects again."""

    def __init__(
        self, place: ServerLocation, introduction: WorkerIntroduction, owner: ConnectionOwner, backoff: ReconnectBackoff
    ) -> None:
        self.place = place
        self.conversation = AppWorkerProtocol(introduction)
        self.attempts: dict[str, Attempt] = {}  # whose reports go over this connection, by handle
        self.subscriptions = 0  # how often we have been subscribed
        self._introduction = introduction
        self._owner = owner
        self._backoff = backoff
        self._transport: asyncio.Transport | None = None
        self._lost: asyncio.Future[str] | None = None  # done when the connection is, with the problem
        self._settled = asyncio.Event()
        self._problem = ""
        self._heard_at = 0.0
        self._heard_sense = False
        self._flushing = False
        self._stopping = False
        self._at_once = False  # connect again without a pause

    @property
    def server(self) -> str:
        return self.place.url

    @property
    def subscribed(self) -> bool:
        """Whether jobs may come over it."""
        return self._transport is not None and self.conversation.subscribed

    async def run(self) -> None:
        """Be there for the server until stopped."""
        failures = 0
        while not self._stopping:
            self._heard_sense = self._at_once = False
            try:
                problem = await self._converse()
            finally:
                self._hang_up()
            # Being let in says little: a server that is full lets us in and hangs up.
            failures = 0 if self._heard_sense else failures + 1
            pause_seconds = 0.0 if self._at_once else self._backoff.seconds(max(0, failures - 1))
            attempts, self.attempts = list(self.attempts.values()), {}
            self._owner.on_disconnected(self, attempts, problem, pause_seconds)
            if not self._stopping:
                await asyncio.sleep(pause_seconds)

    async def _converse(self) -> str:
        loop = asyncio.get_running_loop()
        try:
            address = await in_thread(self.place.address)
        except Exception as error:  # whatever it is, it may pass, and without us the jobs would stay where they are
            return str(error) or type(error).__name__
        self._lost = loop.create_future()
        self._problem = ""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.create_connection(lambda: self, address.host, address.port)
        except (OSError, UnicodeError) as error:
            return f"cannot connect: {words_of(error)}"
        beating = asyncio.create_task(self._beat())
        try:
            return await self._lost
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        """A sign of life, well within each lease.  From a thread that no job holds up."""
        lease_seconds = self._introduction.lease_seconds
        while True:
            await asyncio.sleep(lease_seconds / BEATS_PER_LEASE)
            if time.monotonic() - self._heard_at > LEASES_OF_SILENCE * lease_seconds:
                self.cut("the server does not answer any more")
                return
            self.conversation.beat()
            self.flush_soon()

    # --- for the post ---

    def flush_soon(self) -> None:
        """Send what there is to say, together with what else is said in this turn."""
        if not self._flushing and self.conversation.has_output:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send it now."""
        self._flushing = False
        if self._transport is not None:
            data = self.conversation.take_output()
            if data:
                self._transport.write(data)

    def send_progress(self, attempt: Attempt, done: int, total: int, message: str) -> None:
        """Tell how far one of its jobs is."""
        self.conversation.progress(attempt.handle, done, total, message)
        self.flush_soon()

    def cut(self, problem: str, *, at_once: bool = False) -> None:
        """Hang up without a goodbye, so that the server gives our jobs to others; then connect again."""
        self._problem = self._problem or problem
        self._at_once = at_once
        if self._transport is not None:
            self._transport.abort()

    async def settle(self) -> None:
        """Wait until the server has dealt with everything that we said."""
        if self._transport is None or not self.conversation.subscribed:
            return
        self._settled.clear()
        self.conversation.settle()
        self.flush_soon()
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._settled.wait()
        except TimeoutError:
            pass

    def stop(self) -> None:
        """Do not connect again."""
        self._stopping = True

    def unfinished(self) -> list[AssignedJob]:
        """Jobs that came over this connection and have not been reported."""
        return [attempt.assignment for attempt in self.attempts.values()]

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        keep_alive(transport.get_extra_info("socket"))
        self._transport = cast(asyncio.Transport, transport)
        self._heard_at = time.monotonic()
        self.conversation = AppWorkerProtocol(self._introduction)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        try:
            events = self.conversation.receive(data)
        except PeerError as error:
            self.cut(f"the server does not speak Gearman: {error}")
            return
        self._heard_sense = True
        for event in events:
            if isinstance(event, ReportAccepted):
                self._settled.set()
            elif isinstance(event, Subscribed):
                self.subscriptions += 1
                self._owner.on_connected(self, again=self.subscriptions > 1)
            else:
                self._owner.on_event(self, event)
        self._owner.after_events()
        self.flush_soon()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._problem and isinstance(error, OSError):
            self._problem = f"the connection was lost: {words_of(error)}"
        self._transport = None
        self._settled.set()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(self._problem or "the server closed the connection")

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        self.conversation = AppWorkerProtocol(self._introduction)  # what is still said goes nowhere
