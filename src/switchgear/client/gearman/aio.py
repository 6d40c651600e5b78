"""`AsyncClient`: the Gearman client for asyncio, with the same requests as the blocking `Client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any, Self, Unpack, cast

from switchgear.client.address import DEFAULT_URL, HttpServerAddress, ServerAddress
from switchgear.client.cluster_nodes import server_at
from switchgear.client.gearman.client_requests import (
    EXTENSION_PROBE,
    JobStatus,
    admin_request,
    check_extensions,
    status_of,
)
from switchgear.client.gearman.client_stream import ClientStream
from switchgear.client.gearman.error_codes import INVALID_COMMAND
from switchgear.client.gearman.packets import validated_name
from switchgear.client.gearman.pending_requests import (
    AnyPacketRequest,
    ControlRequest,
    PacketRequest,
    PendingRequest,
    PendingSubmission,
    TextRequest,
)
from switchgear.client.gearman.submit_request import ExtendedOptions, requested
from switchgear.client.gearman.submitted_job import SubmissionState, Update
from switchgear.client.in_thread import in_thread
from switchgear.client.sockets import DEFAULT_TIMEOUT_SECONDS, describe_os_error
from switchgear.client.streams import open_stream
from switchgear.errors import ServerUnreachable
from switchgear.protocols.gearman.codec import request
from switchgear.protocols.gearman.messages import Packet

__all__ = ["AsyncClient", "AsyncSubmission"]


class AsyncSubmission(SubmissionState):
    """A job that was submitted.  A background job has a handle, and nothing to wait for."""

    def __init__(self, handle: str = "", *, background: bool) -> None:
        super().__init__(handle, background=background)
        self._has_news = asyncio.Event()

    async def updates(self, timeout_seconds: float | None = None) -> AsyncIterator[Update]:
        """The updates as they come, each once, the last of them final.

        Raises TimeoutError when `timeout_seconds` have passed since the call; another call continues there.
        Raises ServerUnreachable if the connection is lost: the job may then have run or not.
        """
        self._check_foreground()
        loop = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else loop.time() + timeout_seconds
        while self._end is None:
            update = self._take_update()
            if update is not None:
                yield update
                continue
            self._has_news.clear()
            async with asyncio.timeout_at(deadline):
                await self._has_news.wait()

    async def wait(self, timeout_seconds: float | None = None) -> bytes:
        """The whole result; raises JobFailed, or what `updates` raises.

        Parts of the result that were taken through `updates` are not repeated here.
        """
        async for update in self.updates(timeout_seconds):
            self._keep_part(update)
        return self._result()

    def on_event(self, kind: int, data: bytes) -> None:
        super().on_event(kind, data)
        self._has_news.set()

    def on_connection_lost(self, error: ServerUnreachable) -> None:
        super().on_connection_lost(error)
        self._has_news.set()


class AsyncClient:
    """A connection to one server, made when it is first needed and again after it was lost.

    For one event loop; any number of its tasks may use the client at once.
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS, token: str | None = None
    ) -> None:
        """`timeout_seconds` is for connecting and for answers that need no job to run.

        `token` identifies the client; default: SWITCHGEAR_TOKEN or SWITCHGEAR_TOKEN_FILE in the environment.
        """
        self._server = server_at(url, token)
        self.address = self._server if isinstance(self._server, ServerAddress) else self._server.nodes[0]
        self.timeout_seconds = timeout_seconds
        self._stream: ClientStream | None = None
        self._connecting = asyncio.Lock()
        self._has_extensions = isinstance(self.address, HttpServerAddress)  # which only our servers have

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect.  The server drops jobs that only this client waits for, unless they run already."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await _close(stream, ServerUnreachable("the client was closed"))

    # --- submitting ---

    async def submit(
        self,
        function: str | bytes,
        payload: bytes = b"",
        *,
        unique: str | bytes = b"",
        priority: str = "normal",
        background: bool = False,
        at: float | datetime | None = None,
        expires: float | datetime | None = None,
        timeout: float = 0.0,  # noqa: ASYNC109  (an option of the job, not of this call)
        attempts_limit: int | None = None,
        after: Iterable[str] = (),
        name: str = "",
        **extended: Unpack[ExtendedOptions],
    ) -> AsyncSubmission:
        """Submit a job, and return when the server has taken it; see `Client.submit`."""
        job = requested(
            function,
            payload,
            unique=unique,
            priority=priority,
            background=background,
            at=at,
            expires=expires,
            timeout=timeout,
            attempts_limit=attempts_limit,
            after=after,
            name=name,
            extended=extended,
        )
        if not job.fits_plain_packets:
            await self._require_extensions()
        stream = await self._connected()
        submission = AsyncSubmission(background=background)
        pending = PendingSubmission([job], [None if background else submission], self._future())
        pending.send(stream.protocol)
        (outcome,) = await self._answer(stream, pending)
        if isinstance(outcome, Exception):
            raise outcome
        submission.handle = outcome
        return submission

    # --- asking ---

    async def status(self, handle: str) -> JobStatus:
        """Whether the server knows this job, whether it runs, and how far it is."""
        packet = request(Packet.GET_STATUS, validated_name(handle, "handle"))
        return status_of(await self._ask(packet, PacketRequest(Packet.STATUS_RES, self._future())), self.address)

    async def echo(self, data: bytes = b"") -> bytes:
        """The same data, after the server has handled everything sent before."""
        pending = PacketRequest(Packet.ECHO_RES, self._future())
        return cast(bytes, await self._ask(request(Packet.ECHO_REQ, data), pending))

    async def admin(self, line: str) -> list[str]:
        """The lines of the answer to a command of the text protocol; raises ServerRefused if it is an error."""
        packet, has_many_lines = admin_request(line)
        return cast(list[str], await self._ask(packet, TextRequest(has_many_lines, self._future())))

    async def control(self, verb: str, **arguments: Any) -> Any:
        """The answer to a CONTROL request, which needs a Switchgear server; arguments of None are left out.

        The verbs are listed in docs/verbs.md.
        """
        await self._require_extensions()
        pending = ControlRequest(verb, arguments, self._future())
        stream = await self._connected()
        pending.send(stream.protocol)
        return await self._answer(stream, pending)

    async def _require_extensions(self) -> None:
        """Find out, once, whether the server knows our extensions; raises ServerRefused if not.

        This is tried on a separate connection, because a server that does not know them may close it.
        """
        if self._has_extensions:
            return
        probe = await self._connect()
        try:
            # First a request that every server knows: this one is there, and takes connections.
            await self._ask(b"version\r\n", TextRequest(False, self._future()), probe)
            try:
                kind, body = await self._ask(EXTENSION_PROBE, AnyPacketRequest(self._future()), probe)
            except ServerUnreachable as error:
                if isinstance(error.__cause__, TimeoutError):
                    raise  # the server is slow, and may know them
                kind, body = Packet.ERROR, INVALID_COMMAND.encode()
        finally:
            await _close(probe, ServerUnreachable("the probe is over"))
        check_extensions(kind, body, self.address)
        self._has_extensions = True

    # --- the connection ---

    def _future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def _ask(self, packet: bytes, pending: PendingRequest, stream: ClientStream | None = None) -> Any:
        """Send a request, and return its answer or raise its error."""
        stream = stream or await self._connected()
        stream.protocol.send_request(packet, pending)
        return await self._answer(stream, pending)

    async def _answer(self, stream: ClientStream, pending: Any) -> Any:
        """The answer to a request.  A task that stops waiting leaves the request in its place, so that later requests
        get their own answers."""
        if stream.is_over:
            stream.protocol.connection_lost(
                stream.problem or ServerUnreachable(f"{self.address} closed the connection")
            )
        stream.flush()
        try:
            async with asyncio.timeout(self.timeout_seconds):
                return await pending.future
        except TimeoutError as timeout:
            error = ServerUnreachable(f"{self.address} did not answer within {self.timeout_seconds:g} s")
            await _close(stream, error)
            raise error from timeout

    async def _connected(self) -> ClientStream:
        async with self._connecting:
            if self._stream is None or self._stream.is_over:
                self._stream = await self._connect()
                # Have failures come with their reasons; a server that cannot refuses, and then they come without.
                pending = AnyPacketRequest(self._future())
                self._stream.protocol.send_request(request(Packet.OPTION_REQ, b"exceptions"), pending)
                self._stream.flush()
            return self._stream

    async def _connect(self) -> ClientStream:
        if not isinstance(self._server, ServerAddress):
            self.address = await in_thread(self._server.address)
        stream = ClientStream(str(self.address), token=self.address.token)
        try:
            async with asyncio.timeout(self.timeout_seconds):
                await open_stream(lambda: stream, self.address)
        except (OSError, UnicodeError) as error:
            raise ServerUnreachable(f"cannot connect to {self.address}: {describe_os_error(error)}") from error
        return stream


async def _close(stream: ClientStream, problem: ServerUnreachable) -> None:
    """Close a connection, and tell every request and submission on it."""
    if not stream.is_over:
        stream.abort(problem)
        await stream.closed
