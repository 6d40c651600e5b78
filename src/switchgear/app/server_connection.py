"""`ServerConnection`: the connection of an app to one server; reconnects while the app waits for jobs of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from switchgear.app.server_locations import FixedLocation, ServerLocation
from switchgear.backoff import ReconnectBackoff, RetryPauses
from switchgear.client.address import ServerAddress
from switchgear.client.gearman.client_stream import ClientStream
from switchgear.client.gearman.job_subscriber import JobEnd, JobSubscriber
from switchgear.client.gearman.packets import name_bytes, name_text
from switchgear.client.gearman.pending_requests import UNKNOWN, ControlRequest, RoutedRequest, SubscribeRequest
from switchgear.client.sockets import DEFAULT_TIMEOUT_SECONDS, describe_os_error, is_certificate_error
from switchgear.client.streams import open_stream
from switchgear.errors import ConfigError, ExtensionRequired, ServerRefused, ServerUnreachable
from switchgear.text import counted

__all__ = ["ServerConnection"]

_BACKOFF: Final = ReconnectBackoff(first_seconds=0.05, most_seconds=5.0)
# A node of a cluster that does not answer for so long is passed over. The last one that is tried has more time.
PASS_OVER_SECONDS: Final = 2.0
# A server that was asked something, and neither answers nor reads for this long, counts as gone.
SILENCE_SECONDS: Final = 30.0

_log = logging.getLogger("switchgear.app")


class ServerConnection:
    """Connects on request, and again by itself while there are subscribers to durable jobs of its server."""

    def __init__(
        self,
        number: int,
        location: ServerLocation,
        on_ready: Callable[[], None],
        check_prefix: Callable[[ServerConnection, str], None] | None = None,
    ) -> None:
        """`check_prefix` may refuse the prefix of the server's handles; without it, the prefix is not asked for."""
        self.number = number
        self.location = location
        self.prefix: str | None = None  # of the handles of its jobs, once known; empty: a plain server
        self._check_prefix = check_prefix
        self._on_ready = on_ready
        self._stream: ClientStream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._lost_subscribers: list[tuple[bytes, JobSubscriber]] = []
        self._is_closed = False

    @property
    def is_ready(self) -> bool:
        """Whether requests can be sent now."""
        return self._stream is not None and self._stream.protocol.is_ready

    def send(self, request: RoutedRequest) -> None:
        """Encode this request; `flush` sends it.  Raises ExtensionRequired."""
        assert self._stream is not None
        self._stream.protocol.server_number = self.number
        request.send(self._stream.protocol)

    def flush(self) -> None:
        """Write all encoded packets to the socket."""
        if self._stream is not None:
            self._stream.flush()

    def close(self, error: ServerUnreachable) -> None:
        """Disconnect, without reconnecting."""
        self._is_closed = True
        for task in (self._connecting, self._reconnecting):
            if task is not None:
                task.cancel()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.abort()
            stream.protocol.connection_lost(error)
        for _, subscriber in self._lost_subscribers:
            subscriber.give_up(error)
        self._lost_subscribers.clear()

    # --- connecting ---

    async def connect(self) -> None:
        """Return when requests can be sent; raises ServerUnreachable, or ConfigError if the prefix is refused.

        Callers at the same time share one attempt.
        """
        if self.is_ready:
            return
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(_retrieve_exception)  # there may be no waiter any more
        await asyncio.shield(self._connecting)

    async def _connect(self) -> None:
        for _ in range(self.location.addresses_count - 1):
            try:
                await self._connect_once(PASS_OVER_SECONDS)
                return
            except ServerUnreachable as error:
                _log.debug("%s", error)
        await self._connect_once(DEFAULT_TIMEOUT_SECONDS)

    async def _connect_once(self, timeout_seconds: float) -> None:
        address = await self._address()
        stream = ClientStream(
            str(address),
            greets=True,
            silence_seconds=SILENCE_SECONDS,
            token=address.token,
            on_lost=self._on_lost,
        )
        try:
            async with asyncio.timeout(timeout_seconds):
                await open_stream(lambda: stream, address)
                await stream.greeted
                if self._check_prefix is not None:
                    await self._ask_for_prefix(stream, self._check_prefix)
        except (OSError, UnicodeError) as error:  # a TimeoutError is an OSError
            stream.abort()
            text = f"cannot connect to {address}: {describe_os_error(error)}"
            raise ServerUnreachable(text, is_lasting=is_certificate_error(error)) from error
        except BaseException:
            stream.abort()
            raise
        if stream.problem is not None:  # it was there for a moment
            raise stream.problem
        self._stream = stream
        self._subscribe_again()
        self._on_ready()
        stream.flush()

    async def _ask_for_prefix(self, stream: ClientStream, check: Callable[[ServerConnection, str], None]) -> None:
        prefix = ""
        if stream.protocol.is_switchgear:
            request = ControlRequest("server", {})
            request.send(stream.protocol)
            stream.flush()
            try:
                prefix = str((await asyncio.wrap_future(request.future))["handle_prefix"])
            except (ServerRefused, KeyError) as error:
                raise ServerUnreachable(
                    f"{self.location.url} does not tell its gearman.handle_prefix: {error}"
                ) from error
        check(self, prefix)
        self.prefix = prefix

    async def _address(self) -> ServerAddress:
        if isinstance(self.location, FixedLocation):
            return self.location.address()
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self.location.address)
        except ServerUnreachable:
            raise
        except Exception as error:  # whatever it is, requests wait for an answer
            raise ServerUnreachable(f"{self.location.url}: {error or type(error).__name__}") from error

    # --- after the connection was lost ---

    def _on_lost(self, stream: ClientStream, error: ServerUnreachable) -> None:
        """Keep the subscribers of durable jobs, and connect again for them."""
        if self._stream is not stream:
            stream.protocol.connection_lost(error)
            return
        self._stream = None
        subscribers = stream.protocol.take_subscribers()
        stream.protocol.connection_lost(error)
        for handle, subscriber in subscribers:
            if isinstance(subscriber, JobSubscriber) and subscriber.survives_reconnect and not self._is_closed:
                self._lost_subscribers.append((handle, subscriber))
            else:
                subscriber.on_connection_lost(error)
        if self._lost_subscribers and not self._is_closed:
            _log.warning(
                "%s; the app subscribes to %s again when it reconnects",
                error,
                counted(len(self._lost_subscribers), "job"),
            )
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        """Reconnect, however long it takes: the server has stored the jobs that are waited for."""
        pauses = RetryPauses(_BACKOFF)
        while not self.is_ready and not self._is_closed:
            try:
                await self.connect()
            except ServerUnreachable as error:
                _log.debug("%s", error)
                await asyncio.sleep(pauses.next_seconds())
            except ConfigError as error:  # another server is there now, and its jobs would be taken for these
                subscribers, self._lost_subscribers = self._lost_subscribers, []
                for _, subscriber in subscribers:
                    subscriber.give_up(error)
                return

    def _subscribe_again(self) -> None:
        subscribers, self._lost_subscribers = self._lost_subscribers, []
        if subscribers:
            _log.info(
                "%s is reachable again; the app subscribes to %s again",
                self.location.url,
                counted(len(subscribers), "job"),
            )
        for handle, subscriber in subscribers:
            request = SubscribeAgainRequest(name_text(handle), subscriber, self._lost_subscribers)
            try:
                self.send(request)
            except ExtensionRequired as error:
                request.fail(error)


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()


class SubscribeAgainRequest(SubscribeRequest):
    """Subscribes to a job again, over a new connection."""

    def __init__(self, handle: str, subscriber: JobSubscriber, lost_again: list[tuple[bytes, JobSubscriber]]) -> None:
        super().__init__(handle, subscriber)
        self._job_subscriber = subscriber
        self._lost_again = lost_again

    def succeed(self, value: str) -> None:
        if value == UNKNOWN:
            self._job_subscriber.end(JobEnd(UNKNOWN))

    def fail(self, error: Exception) -> None:
        self.subscriber.give_up(error)

    def on_connection_lost(self, error: ServerUnreachable) -> None:
        self._lost_again.append((name_bytes(self.handle), self._job_subscriber))
