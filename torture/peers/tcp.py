"""One TCP connection of a peer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from torture.peers.load import HOST, PATIENCE_SECONDS, Load, ServerGone


class Connection:
    """Bytes to and from a server, as long as there is one."""

    def __init__(self, load: Load, port: int, role: str) -> None:
        self._load = load
        self._port = port
        self.name = load.name(role)

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                self._reader, self._writer = await asyncio.open_connection(HOST, self._port)
        except (OSError, TimeoutError):
            raise ServerGone from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._load.history.record("closed", self.name)  # first: the server may give its jobs to others at once
        self._writer.close()
        try:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._writer.wait_closed()
        finally:
            self._writer.transport.abort()  # the other side may not read what is left to send

    def send(self, *packets: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(b"".join(packets))

    async def receive(self, size: int, patience: float = PATIENCE_SECONDS) -> bytes:
        try:
            async with asyncio.timeout(patience):
                return await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            raise ServerGone from None

    async def receive_line(self, patience: float = PATIENCE_SECONDS) -> bytes:
        try:
            async with asyncio.timeout(patience):
                return await self._reader.readuntil(b"\n")
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            raise ServerGone from None
