"""Flows over asyncio's transports, any number of them side by side."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from switchgear.client.address import ServerAddress
from switchgear.client.connection import keep_alive, words_of
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
from switchgear.protocols.gearman_draft.messages import Result

__all__ = ["AsyncDriver"]

T = TypeVar("T")


class DraftStream(asyncio.Protocol):
    """The connection of a line, until one of them lets go of the other."""

    def __init__(self, line: DraftConnection, notify: Callable[[], None]) -> None:
        self.line: DraftConnection | None = line
        self.transport: asyncio.Transport | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self._notify = notify

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.line is None:
            self.transport.abort()
            return
        keep_alive(cast(socket.socket, transport.get_extra_info("socket")))
        self.transport.write(self.line.opened())
        self._notify()

    def data_received(self, data: bytes) -> None:
        if self.line is not None:
            self.line.receive(data)
            if not self.line.is_open:
                self.hang_up()
            self._notify()

    def connection_lost(self, error: Exception | None) -> None:
        self.writable.set()
        if self.line is not None:
            how = words_of(error) if isinstance(error, OSError) else "it was closed by the server"
            self.line.lost(f"the connection to {self.line.address} was lost: {how}")
            self.line = None
            self._notify()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def hang_up(self) -> None:
        self.line = None
        self.writable.set()
        if self.transport is not None:
            self.transport.close()


class AsyncDriver:
    """Takes the steps of flows, any number of them side by side."""

    def __init__(self, run: Callable[[Runnable], Awaitable[Result]] | None = None) -> None:
        self._run = run
        self._wires: dict[DraftConnection, DraftStream] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._news: asyncio.Future[None] | None = None  # somebody waits for something to happen

    async def perform(self, flow: Flow[T]) -> T:
        """Go through with a flow; returns or raises what it does."""
        return await perform_async(flow, self._take)

    def notify(self) -> None:
        """Something has happened: conditions are looked at again."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def close(self) -> None:
        """Hang up everywhere."""
        for line in list(self._wires):
            self._shut(line, "the connection was closed from here")
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _take(self, step: Step) -> Any:
        match step:
            case WaitStep(condition, deadline):
                return await self._until(condition, deadline)
            case SendStep(line, data):
                self.send(line, data)
                wire = self._wires.get(line)
                if wire is not None:
                    await wire.writable.wait()
            case OpenStep(line):
                self._open(line)
            case CloseStep(line, problem):
                self._shut(line, problem)
            case RunStep(task):
                return await self._run_while_open(task)
        return None

    async def _until(self, condition: Callable[[], bool], deadline: float | None) -> bool:
        while not condition():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if left == 0.0:
                await asyncio.sleep(0)
                return condition()
            if self._news is None or self._news.done():
                self._news = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await asyncio.shield(self._news)  # others may wait for it too
        return True

    def send(self, line: DraftConnection, data: bytes) -> None:
        """Send it, if there is a connection."""
        wire = self._wires.get(line)
        if wire is not None and wire.transport is not None and line.is_open:
            wire.transport.write(data)

    def _open(self, line: DraftConnection) -> None:
        line.opening()
        wire = self._wires[line] = DraftStream(line, self.notify)
        call = asyncio.create_task(self._call(wire, line.address))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, wire: DraftStream, address: ServerAddress) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: wire, address.host, address.port)
        except (OSError, UnicodeError) as error:
            if wire.line is not None:
                wire.line.lost(f"cannot connect to {address}: {words_of(error)}")
                wire.line = None
                self.notify()

    def _shut(self, line: DraftConnection, problem: str) -> None:
        wire = self._wires.pop(line, None)
        if wire is not None:
            wire.hang_up()
        line.lost(problem)
        self.notify()

    async def _run_while_open(self, task: Runnable) -> Result | None:
        """The result of the task, or None if its server is gone: it will be given to somebody else, and should not
        run twice at once."""
        assert self._run is not None
        work = asyncio.ensure_future(self._run(task))
        gone = asyncio.ensure_future(self._until(lambda: not task.line.is_open, None))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.cancelled():  # by its own doing
                return Result(1, b"cancelled")
            return work.result() if work.done() else None
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
