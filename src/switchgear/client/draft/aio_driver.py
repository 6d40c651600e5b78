"""`AsyncDriver`: runs the flows of the 2005 draft on asyncio transports."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from switchgear.client.address import ServerAddress
from switchgear.client.draft.flow_steps import (
    CloseStep,
    DraftConnection,
    Flow,
    OpenStep,
    Runnable,
    RunStep,
    SendStep,
    Step,
    WaitStep,
)
from switchgear.client.flow_runner import perform_async
from switchgear.client.sockets import describe_os_error, enable_keepalive
from switchgear.client.streams import open_stream
from switchgear.errors import ConfigError
from switchgear.protocols.gearman_draft.messages import Result

__all__ = ["AsyncDriver"]

T = TypeVar("T")


class DraftStream(asyncio.Protocol):
    """The asyncio connection of a `DraftConnection`."""

    def __init__(self, connection: DraftConnection, notify: Callable[[], None]) -> None:
        self.connection: DraftConnection | None = connection
        self.transport: asyncio.Transport | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self._notify = notify

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.connection is None:
            self.transport.abort()
            return
        enable_keepalive(cast(socket.socket, transport.get_extra_info("socket")))
        self.transport.write(self.connection.opened())
        self._notify()

    def data_received(self, data: bytes) -> None:
        if self.connection is not None:
            self.connection.receive(data)
            if not self.connection.is_open:
                self.close()
            self._notify()

    def connection_lost(self, error: Exception | None) -> None:
        self.writable.set()
        if self.connection is not None:
            how = describe_os_error(error) if isinstance(error, OSError) else "it was closed by the server"
            self.connection.lost(f"the connection to {self.connection.address} was lost: {how}")
            self.connection = None
            self._notify()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def close(self) -> None:
        self.connection = None
        self.writable.set()
        if self.transport is not None:
            self.transport.close()


class AsyncDriver:
    """Takes the steps of flows, any number of them side by side."""

    def __init__(self, run: Callable[[Runnable], Awaitable[Result]] | None = None) -> None:
        self._run = run
        self._streams: dict[DraftConnection, DraftStream] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._updates: asyncio.Future[None] | None = None  # set while flows wait for a change

    async def perform(self, flow: Flow[T]) -> T:
        """Run a flow to its end; returns its result or raises its exception."""
        return await perform_async(flow, self._take)

    def notify(self) -> None:
        """Check the conditions of waiting flows again."""
        if self._updates is not None and not self._updates.done():
            self._updates.set_result(None)

    async def close(self) -> None:
        """Close all connections."""
        for connection in list(self._streams):
            self._shut(connection, "the connection was closed from here")
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _take(self, step: Step) -> Any:
        match step:
            case WaitStep(condition, deadline):
                return await self._until(condition, deadline)
            case SendStep(connection, data):
                self.send(connection, data)
                stream = self._streams.get(connection)
                if stream is not None:
                    await stream.writable.wait()
            case OpenStep(connection):
                self._open(connection)
            case CloseStep(connection, problem):
                self._shut(connection, problem)
            case RunStep(task):
                return await self._run_while_open(task)
        return None

    async def _until(self, condition: Callable[[], bool], deadline: float | None) -> bool:
        while not condition():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if left == 0.0:
                await asyncio.sleep(0)
                return condition()
            if self._updates is None or self._updates.done():
                self._updates = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await asyncio.shield(self._updates)  # others may wait for it too
        return True

    def send(self, connection: DraftConnection, data: bytes) -> None:
        """Send data, if there is a connection."""
        stream = self._streams.get(connection)
        if stream is not None and stream.transport is not None and connection.is_open:
            stream.transport.write(data)

    def _open(self, connection: DraftConnection) -> None:
        connection.opening()
        stream = self._streams[connection] = DraftStream(connection, self.notify)
        call = asyncio.create_task(self._start_connecting(stream, connection.address))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _start_connecting(self, stream: DraftStream, address: ServerAddress) -> None:
        try:
            await open_stream(lambda: stream, address)
        except ConfigError as error:
            self._fail_connecting(stream, str(error))
        except (OSError, UnicodeError) as error:
            self._fail_connecting(stream, describe_os_error(error))

    def _fail_connecting(self, stream: DraftStream, problem: str) -> None:
        if stream.connection is not None:
            stream.connection.lost(f"cannot connect to {stream.connection.address}: {problem}")
            stream.connection = None
            self.notify()

    def _shut(self, connection: DraftConnection, problem: str) -> None:
        stream = self._streams.pop(connection, None)
        if stream is not None:
            stream.close()
        connection.lost(problem)
        self.notify()

    async def _run_while_open(self, task: Runnable) -> Result | None:
        """The result of the task; None if its server is gone, because the task is then assigned to another worker and
        should not run twice at once."""
        assert self._run is not None
        work = asyncio.ensure_future(self._run(task))
        gone = asyncio.ensure_future(self._until(lambda: not task.connection.is_open, None))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.cancelled():  # by its own doing
                return Result(1, b"cancelled")
            return work.result() if work.done() else None
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
