"""The client for asyncio.  It says what `Client` says, to any Gearman server."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any, Self, Unpack, cast

from switchgear.client.address import DEFAULT_URL, ServerAddress
from switchgear.client.client_protocol import ClientProtocol, EventHandler, PendingRequest
from switchgear.client.connection import DEFAULT_TIMEOUT_SECONDS, keep_alive, words_of
from switchgear.client.request_builders import (
    ExtendedOptions,
    JobStatus,
    admin_request,
    control_answer,
    control_request,
    name_of,
    refusal_in_line,
    refuse_extensions,
    status_answer,
    submission_request,
    text_of,
)
from switchgear.client.submitted_job import WORK_PACKETS, Update, UpdateKind, failure_of, update_of
from switchgear.errors import ClientError, ServerRefused, ServerUnreachable
from switchgear.protocols.gearman.codec import TEXT, request
from switchgear.protocols.gearman.messages import Packet

__all__ = ["AsyncClient", "AsyncSubmission"]


class AsyncSubmission(EventHandler):
    """A job that was submitted.  For a background job there is the handle, and nothing to wait for."""

    def __init__(self, handle: str, *, background: bool) -> None:
        self.handle = handle
        self.background = background
        self._news: deque[Update] = deque()
        self._parts: list[bytes] = []
        self._end: Update | None = None
        self._lost: ServerUnreachable | None = None
        self._something_new = asyncio.Event()

    def __repr__(self) -> str:
        return f"AsyncSubmission({self.handle!r})"

    async def updates(self, timeout_seconds: float | None = None) -> AsyncIterator[Update]:
        """The news as it comes, each once, the last of them final.

        Raises TimeoutError when `timeout_seconds` have passed since the call; asking again goes on where it stopped.
        Raises ServerUnreachable if the connection is lost: the job may then have run or not.
        """
        if self.background:
            raise ClientError(f"{self.handle} is a background job: its result is not sent to its submitter")
        loop = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else loop.time() + timeout_seconds
        while self._end is None:
            if self._news:
                update = self._news.popleft()
                if update.is_final:
                    self._end = update
                yield update
            elif self._lost is not None:
                raise self._lost
            else:
                self._something_new.clear()
                async with asyncio.timeout_at(deadline):
                    await self._something_new.wait()

    async def wait(self, timeout_seconds: float | None = None) -> bytes:
        """The whole result; raises JobFailed, or what `updates` raises.

        Parts of the result that somebody took through `updates` are not repeated here.
        """
        async for update in self.updates(timeout_seconds):
            if update.kind in (UpdateKind.DATA, UpdateKind.COMPLETE):
                self._parts.append(update.data)
        assert self._end is not None
        if self._end.kind is not UpdateKind.COMPLETE:
            raise failure_of(self.handle, self._end)
        return b"".join(self._parts)

    # --- for the client that feeds it ---

    def hear(self, kind: int, data: bytes) -> None:
        if kind in WORK_PACKETS:
            self._news.append(update_of(kind, b"\0" + data)[1])
            self._something_new.set()

    def lose(self, error: ServerUnreachable) -> None:
        self._lost = error
        self._something_new.set()


class AsyncClient:
    """A connection to one server, made when it is first needed and again after it was lost.

    For one event loop; any number of its tasks may use the client at once.
    """

    def __init__(self, url: str = DEFAULT_URL, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        """`timeout_seconds` is for connecting and for answers that need no job to run."""
        self.address = ServerAddress.parse(url)
        self.timeout_seconds = timeout_seconds
        self._wire: AsyncClientStream | None = None
        self._connecting = asyncio.Lock()
        self._has_extensions = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up.  Jobs that only this client waits for are dropped by the server, unless they run already."""
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close(ServerUnreachable("the client was closed"))

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
        run_timeout_seconds: float = 0.0,
        attempts: int | None = None,
        after: Iterable[str] = (),
        name: str = "",
        **wishes: Unpack[ExtendedOptions],
    ) -> AsyncSubmission:
        """Submit a job, and return when the server has taken it; see `Client.submit`."""
        packet, is_extension = submission_request(
            function,
            payload,
            unique=unique,
            priority=priority,
            background=background,
            at=at,
            expires=expires,
            run_timeout_seconds=run_timeout_seconds,
            attempts=attempts,
            after=after,
            name=name,
            wishes=wishes,
        )
        if is_extension:
            await self._require_extensions()
        wire = await self._connected()
        question = ResultRequest(wire.dialogue, background)
        return cast(AsyncSubmission, await self._ask(wire, packet, question))

    # --- asking ---

    async def status(self, handle: str) -> JobStatus:
        """Whether the server knows this job, whether it runs, and how far it is."""
        body = await self._answer(request(Packet.GET_STATUS, name_of(handle, "handle")), Packet.STATUS_RES)
        return status_answer(body, self.address)

    async def echo(self, data: bytes = b"") -> bytes:
        """The same, after the server has dealt with everything sent before."""
        return await self._answer(request(Packet.ECHO_REQ, data), Packet.ECHO_RES)

    async def admin(self, line: str) -> list[str]:
        """The lines of the answer to a command of the text protocol; raises ServerRefused if it is an error."""
        packet, has_many_lines = admin_request(line)
        return cast(list[str], await self._ask(await self._connected(), packet, TextRequest(has_many_lines)))

    async def control(self, verb: str, **arguments: Any) -> Any:
        """What only our own server can be asked; arguments of None are left out.  See docs/protocols/gearman.md."""
        await self._require_extensions()
        return control_answer(await self._answer(control_request(verb, arguments), Packet.CONTROL_RES), self.address)

    async def _require_extensions(self) -> None:
        """Find out, once, whether the server knows our packets; raises ServerRefused if not.

        On a connection of its own, because a server that does not know them may hang up.
        """
        if self._has_extensions:
            return
        probe = await self._connect()
        try:
            await self._ask(probe, b"version\r\n", TextRequest(False))  # it is there, and takes connections
            question = PacketRequest()
            try:
                kind, body = await self._ask(probe, control_request("server", {}), question)
            except ServerUnreachable:
                if question.is_late:
                    raise  # slow, not ignorant
                kind, body = Packet.ERROR, b"INVALID_COMMAND"
        finally:
            await probe.close(ServerUnreachable("asked for nothing more"))
        refuse_extensions(kind, body, self.address)
        self._has_extensions = True

    # --- the conversation ---

    async def _answer(self, packet: bytes, expected: int) -> bytes:
        """The body of the answer to a question."""
        kind, body = await self._ask(await self._connected(), packet, PacketRequest())
        if kind == Packet.ERROR:
            code, _, text = text_of(body).partition("\0")
            raise ServerRefused(code, text)
        if kind != expected:
            raise ClientError(f"{self.address} answered with a packet of type {kind}")
        return cast(bytes, body)

    async def _ask(self, wire: AsyncClientStream, packet: bytes, question: LoopRequest) -> Any:
        """Have a question answered.  Whoever stops waiting leaves it in its place, so that the next get theirs."""
        wire.ask(packet, question)
        try:
            async with asyncio.timeout(self.timeout_seconds):
                return await question.future
        except TimeoutError:
            question.is_late = True
            error = ServerUnreachable(f"{self.address} did not answer within {self.timeout_seconds:g} s")
            await wire.close(error)
            raise error from None

    async def _connected(self) -> AsyncClientStream:
        async with self._connecting:
            if self._wire is None or self._wire.is_over:
                self._wire = await self._connect()
                # Have failures come with their reasons; a server that cannot refuses, and then they come without.
                self._wire.ask(request(Packet.OPTION_REQ, b"exceptions"), PacketRequest())
            return self._wire

    async def _connect(self) -> AsyncClientStream:
        wire = AsyncClientStream(self.address)
        try:
            async with asyncio.timeout(self.timeout_seconds):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: wire, self.address.host, self.address.port)
        except (OSError, UnicodeError) as error:
            raise ServerUnreachable(f"cannot connect to {self.address}: {words_of(error)}") from error
        return wire


class LoopRequest(PendingRequest):
    """A question that a task of the event loop waits for."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.is_late = False

    def succeed(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)

    def refuse(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # whoever asked may have left


class PacketRequest(LoopRequest):
    """One packet of any type, or an error."""

    takes_errors = True

    def answer(self, kind: int, body: bytes) -> bool:
        self.succeed((kind, body))
        return False


class TextRequest(LoopRequest):
    """A line of text, or several up to a dot."""

    def __init__(self, has_many_lines: bool) -> None:
        super().__init__()
        self._has_many_lines = has_many_lines
        self._lines: list[str] = []

    def answer(self, kind: int, body: bytes) -> bool:
        if kind != TEXT:
            self.refuse(ClientError(f"the server answered a line of text with a packet of type {kind}"))
            return False
        line = text_of(body)
        error = refusal_in_line(line) if not self._lines else None
        if error is not None:
            self.refuse(error)
            return False
        if self._has_many_lines and line != ".":
            self._lines.append(line)
            return True
        self.succeed(self._lines if self._has_many_lines else [line])
        return False


class ResultRequest(LoopRequest):
    """A submission; its answer is the handle."""

    def __init__(self, dialogue: ClientProtocol, background: bool) -> None:
        super().__init__()
        self._dialogue = dialogue
        self._background = background

    def answer(self, kind: int, body: bytes) -> bool:
        if kind != Packet.JOB_CREATED:
            self.refuse(ClientError(f"the server answered a submission with a packet of type {kind}"))
            return False
        submission = AsyncSubmission(text_of(body), background=self._background)
        if not self._background:
            self._dialogue.follow(body, submission)
        self.succeed(submission)
        return False


class AsyncClientStream(asyncio.Protocol):
    """One connection."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self.dialogue = ClientProtocol()
        self.is_over = False
        self._transport: asyncio.Transport | None = None
        self._problem: ServerUnreachable | None = None
        self._closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of another class
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(sock)

    def ask(self, packet: bytes, question: LoopRequest) -> None:
        """Send this, and have the question answered."""
        if self.is_over or self._transport is None:
            question.lose(self._problem or ServerUnreachable(f"{self.address} closed the connection"))
            return
        self.dialogue.ask(packet, question)
        self._transport.write(self.dialogue.take_outgoing())

    def data_received(self, data: bytes) -> None:
        try:
            self.dialogue.receive(data)
        except ServerUnreachable as error:
            self._problem = ServerUnreachable(f"{self.address}: {error}")
            self._abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_over = True
        problem = self._problem
        if problem is None and isinstance(error, OSError):
            problem = ServerUnreachable(f"the connection to {self.address} was lost: {words_of(error)}")
        self.dialogue.lose(problem or ServerUnreachable(f"{self.address} closed the connection"))
        if not self._closed.done():
            self._closed.set_result(None)

    async def close(self, problem: ServerUnreachable) -> None:
        """Hang up, and tell everybody why."""
        if not self.is_over and self._transport is not None:
            self._problem = self._problem or problem
            self._abort()
            await self._closed

    def _abort(self) -> None:
        assert self._transport is not None
        self.is_over = True
        self._transport.abort()
