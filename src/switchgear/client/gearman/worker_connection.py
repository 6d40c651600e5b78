"""The asyncio connection of a worker to one server: connects whenever that is possible, and renews its lease.

A lost connection takes its jobs with it: the server returns them to their queues, and would refuse their reports.  So
the owner is given the jobs: it stops them, or asks for them again (`WorkerProtocol.resume`) if the server `can_resume`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast

from switchgear.backoff import ReconnectBackoff, RetryPauses
from switchgear.client.address import HttpServerAddress, Locator, ServerAddress
from switchgear.client.gearman.worker_events import ReportsConfirmed, WorkerEvent, WorkerSubscribed
from switchgear.client.gearman.worker_protocol import WorkerIntroduction, WorkerProtocol
from switchgear.client.in_thread import in_thread
from switchgear.client.sockets import CONNECT_SECONDS, describe_os_error, enable_keepalive
from switchgear.client.streams import open_stream
from switchgear.errors import ConfigError, PeerError, ServerUnreachable
from switchgear.protocols.gearman.codec import request
from switchgear.protocols.gearman.messages import Packet

if TYPE_CHECKING:
    from switchgear.client.http.stream import HttpStream

__all__ = ["WorkerConnection", "WorkerConnectionOwner"]

CONFIRM_SECONDS: Final = 5.0  # for the server to confirm reports before a worker disconnects
HEARTBEATS_PER_LEASE: Final = 3
# A server that was asked and sends nothing for this long is gone.
LEASES_OF_SILENCE: Final = 3
URGENT_PAUSE_SECONDS: Final = 1.0  # the longest one while jobs go on without a connection

J = TypeVar("J")  # a job in the hands of the owner


class WorkerConnectionOwner(Protocol[J]):
    """Receives the events of a connection, in the event loop."""

    def on_connected(self, connection: WorkerConnection[J], *, again: bool) -> None:
        """The server knows the worker's functions, and jobs may come."""

    def on_event(self, connection: WorkerConnection[J], event: WorkerEvent) -> None:
        """Anything else that the server has sent."""

    def after_events(self) -> None:
        """All events of one read have been passed on."""

    async def on_disconnected(
        self, connection: WorkerConnection[J], jobs: list[J], problem: str, retry_seconds: float
    ) -> None:
        """The connection is lost with these jobs, or could not be made; the pause until the next attempt follows."""


class WorkerConnection(asyncio.Protocol, Generic[J]):
    """Connects, subscribes, keeps the lease, and connects again."""

    def __init__(
        self,
        server: ServerAddress | Locator,
        introduction: WorkerIntroduction,
        owner: WorkerConnectionOwner[J],
        backoff: ReconnectBackoff,
        *,
        server_name: str = "",
    ) -> None:
        """A `Locator` is asked before each attempt to connect, in a thread.  `server_name` is for messages."""
        self.server = server
        self.server_name = server_name or str(server)
        self.address = server if isinstance(server, ServerAddress) else None  # the latest that is known
        self.protocol = WorkerProtocol(introduction)
        self.jobs: dict[str, J] = {}  # jobs whose reports go over this connection, by handle; maintained by the owner
        self.subscriptions = 0  # how often the worker has been subscribed
        self.can_resume = False  # the server of the lost connection gives jobs back to workers that still run them
        self.is_urgent = False  # jobs go on, and the sooner the server is asked for them, the fewer begin elsewhere
        self._introduction = introduction
        self._owner = owner
        self._pauses = RetryPauses(backoff)
        self._transport: asyncio.Transport | None = None
        self._lost: asyncio.Future[str] | None = None  # done when the connection is, with the problem
        self._confirmed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._problem = ""
        self._received_at = 0.0
        self._has_received = False  # something that makes sense, on this connection
        self._flushing = False
        self._token = ""  # that of the address
        self._stopping = False
        self._at_once = False  # connect again without a pause

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._transport is not None

    @property
    def subscribed(self) -> bool:
        """Whether the worker is registered, so that the server can send jobs."""
        return self._transport is not None and self.protocol.subscribed

    # --- the life of a connection ---

    async def run(self) -> None:
        """Stay connected until stopped."""
        while not self._stopping:
            self._has_received = self._at_once = False
            try:
                problem = await self._serve()
            finally:
                await self._close()
            # An accepted connection proves little: a server that is full accepts it and closes it.
            if self._has_received:
                self._pauses.reset()
            pause_seconds = self._pauses.due_seconds() if self._has_received else self._pauses.next_seconds()
            if self.is_urgent:
                pause_seconds = min(pause_seconds, URGENT_PAUSE_SECONDS)
            if self._at_once:
                pause_seconds = 0.0
            jobs, self.jobs = list(self.jobs.values()), {}
            await self._owner.on_disconnected(self, jobs, problem, pause_seconds)
            if not self._stopping:
                await asyncio.sleep(pause_seconds)

    async def _serve(self) -> str:
        """Connect, and return the problem when the connection is lost."""
        loop = asyncio.get_running_loop()
        try:
            if isinstance(self.server, ServerAddress):
                address = self.server
            else:
                address = await in_thread(self.server.address)
        except Exception as error:  # whatever it is, it may pass, and until then the jobs stay where they are
            return str(error) or type(error).__name__
        self.address = address
        self._lost = loop.create_future()
        self._problem = ""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                self._token = address.token
                await open_stream(lambda: self, address)
        except (ConfigError, ServerUnreachable) as error:
            return str(error)
        except (OSError, UnicodeError) as error:
            return f"cannot connect: {describe_os_error(error)}"
        heartbeats = asyncio.create_task(self._send_heartbeats())
        try:
            return await self._lost
        finally:
            heartbeats.cancel()

    async def _send_heartbeats(self) -> None:
        """Renew the lease well before its end, in an event loop that no job holds up."""
        lease_seconds = self._introduction.lease_seconds
        while lease_seconds:
            await asyncio.sleep(lease_seconds / HEARTBEATS_PER_LEASE)
            if time.monotonic() - self._received_at > LEASES_OF_SILENCE * lease_seconds:
                self.abort("the server does not answer any more")
                return
            self.protocol.heartbeat()
            self.flush_soon()

    def stop(self) -> None:
        """Take no more jobs, and do not connect again."""
        self._stopping = True
        self.protocol.stop_taking()
        self.flush_soon()

    def abort(self, problem: str, *, at_once: bool = False) -> None:
        """Close the connection, so that the server assigns our jobs to other workers; then connect again."""
        self._problem = self._problem or problem
        self._at_once = at_once
        if self._transport is not None:
            self._transport.abort()

    async def _close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
            if not isinstance(self.address, HttpServerAddress):
                transport = None
        # Over HTTP, jobs outlive connections: only the stream ends here, and the server has been told.
        self.can_resume = self.protocol.extended and not isinstance(self.address, HttpServerAddress)
        self.protocol = WorkerProtocol(self._introduction)  # reports from now on are not sent
        if transport is not None:
            await cast("HttpStream", transport).wait_closed()

    # --- sending ---

    def flush_soon(self) -> None:
        """Send the output of the protocol, together with what else is reported in this turn of the event loop."""
        if not self._flushing and self._transport is not None and self.protocol.has_output:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send the output of the protocol now."""
        self._flushing = False
        if self._transport is not None:
            data = self.protocol.take_output()
            if data:
                self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the server takes more output."""
        self.flush()
        await self._writable.wait()

    async def confirm_reports(self) -> None:
        """Wait, but not for long, until the server has handled everything that was sent."""
        if not self.subscribed:
            return
        self._confirmed.clear()
        self.protocol.request_confirmation()
        self.flush_soon()
        try:
            async with asyncio.timeout(CONFIRM_SECONDS):
                await self._confirmed.wait()
        except TimeoutError:
            pass

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        sock = transport.get_extra_info("socket")
        if sock is not None:
            enable_keepalive(sock)
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of another class
        self._received_at = time.monotonic()
        if self._token:
            self._transport.write(request(Packet.AUTHENTICATE, self._token.encode()))
        self.protocol = WorkerProtocol(self._introduction)
        if self._stopping:
            self.protocol.stop_taking()
        events = self.protocol.take_events()
        if events:
            self._handle_events(events)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._received_at = time.monotonic()
        try:
            events = self.protocol.receive(data)
        except PeerError as error:
            self.abort(f"the server does not speak Gearman: {error}")
            return
        self._has_received = True
        self._handle_events(events)

    def _handle_events(self, events: list[WorkerEvent]) -> None:
        for event in events:
            if isinstance(event, ReportsConfirmed):
                self._confirmed.set()
            elif isinstance(event, WorkerSubscribed):
                self.subscriptions += 1
                self._owner.on_connected(self, again=self.subscriptions > 1)
            else:
                self._owner.on_event(self, event)
        self._owner.after_events()
        self.flush_soon()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._problem and isinstance(error, OSError):
            self._problem = f"the connection was lost: {describe_os_error(error)}"
        self._transport = None
        self._confirmed.set()
        self._writable.set()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(self._problem or "the server closed the connection")
