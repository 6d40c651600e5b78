"""A bad network: what goes through it comes late, in single bytes, in part, or not at all, but never changed."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import astuple

from torture.peers.load import HOST, Ports
from torture.server import free_ports

# How a connection is treated; most of them pass.
FATES = ("whole", "whole", "split", "late", "late", "cut", "half-closed")
LATEST_SECONDS = 0.05
MOST_BYTES_BEFORE_CUT = 20_000


class BadNetwork:
    """Stands in front of every port of a server."""

    def __init__(self, ports: Ports, chance: random.Random) -> None:
        self._targets = ports
        self._chance = chance
        self.ports = free_ports(random.Random())
        self.counts: Counter[str] = Counter()
        self._listeners: list[socket.socket] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        # Not with asyncio.start_server: it leaks a connection that it accepts just before it is closed.
        for target, port in zip(astuple(self._targets), astuple(self.ports)):
            listener = socket.create_server((HOST, port))
            listener.setblocking(False)
            asyncio.get_running_loop().add_reader(listener, self._accept, target, listener)
            self._listeners.append(listener)

    async def close(self) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        await asyncio.sleep(0)  # a task that is cancelled before it begins would not close its connection
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.sleep(0)  # a transport that is aborted closes its socket in the next turn

    def _accept(self, target: int, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # the client has left meanwhile
        client.setblocking(False)
        task = asyncio.create_task(self._pass_on(target, client))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _pass_on(self, target: int, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            await self._connect(target, reader, writer)
            writer.close()
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()

    async def _connect(self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(HOST, target)
        try:
            # An error if the client has left meanwhile.
            for end in (writer, server_writer):
                end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._pass_both_ways(reader, writer, server_reader, server_writer)
        except asyncio.CancelledError:
            server_writer.transport.abort()
            raise
        finally:
            server_writer.close()

    async def _pass_both_ways(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        fate = self._chance.choice(FATES)
        left = [int(MOST_BYTES_BEFORE_CUT * self._chance.random()) for _ in range(2)]
        ways = [
            asyncio.create_task(self._one_way(fate, left[0], reader, server_writer)),
            asyncio.create_task(self._one_way(fate, left[1], server_reader, writer)),
        ]
        try:
            if fate == "half-closed":
                await asyncio.wait(ways)
            else:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _one_way(self, fate: str, left: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes from one side to the other, until that ends or this connection's time has come."""
        while data := await reader.read(65_536):
            if fate in ("cut", "half-closed"):
                data, left = data[:left], left - len(data)
            if fate == "late":
                await asyncio.sleep(LATEST_SECONDS * self._chance.random())
            await self._write(fate, writer, data)
            if left <= 0 and fate in ("cut", "half-closed"):
                self.counts["cuts"] += 1
                break
        if writer.can_write_eof():
            with suppress(OSError):
                writer.write_eof()

    async def _write(self, fate: str, writer: asyncio.StreamWriter, data: bytes) -> None:
        if fate != "split":
            writer.write(data)
            await writer.drain()
            return
        position = 0
        while position < len(data):
            size = self._chance.randint(1, 7) if position < 2_000 else len(data)
            writer.write(data[position : position + size])
            await writer.drain()
            await asyncio.sleep(0)
            position += size
