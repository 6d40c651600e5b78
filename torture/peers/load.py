"""Everybody who speaks to one server: which peers there are, what they share, and how they begin and end."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import zmq
import zmq.asyncio

from torture.history import History

# What any worker may be given.  The last two are also those of the dwork and PING/PONG listeners.
FUNCTIONS = ("mail", "index", "dwork", "pingpong")
# Its jobs have keys that are submitted again and again.  Workers that are not told the number of a job cannot say which
# of the submissions it is, so they are not given any of these.
KEYED_FUNCTION = "keyed"
HOST = "127.0.0.1"
HANDLE_PREFIX = "H:torture"
# So long a peer waits for an answer until it hangs up and comes again.
PATIENCE_SECONDS = 3.0
# More jobs in the queue only make the lists longer that are compared after each restart.
MOST_OWED = 400
LEASE_SECONDS = 60


class ServerGone(Exception):
    """The connection ended, or an answer did not come."""


class Surprise(Exception):
    """The server said something that a peer did not expect."""


@dataclass(frozen=True)
class Ports:
    """Where a server listens."""

    gearman: int
    wmp: int
    pingpong: int
    pingpong_workers: int
    dwork: int
    gearmonkey: int
    http: int


class Load:
    """Peers, and what they share: the history, the generator that they draw from, the addresses."""

    def __init__(
        self, ports: Ports, history: History, chance: random.Random, *, direct: bool = True, prefix: str = ""
    ) -> None:
        """`direct`: nothing stands between us and the server that may cut a connection without our knowing.  `prefix`
        tells the peers and jobs of several loads with one history apart."""
        self.ports = ports
        self.history = history
        self.chance = chance
        self.direct = direct
        self._prefix = prefix
        self.wall_offset = 0.0  # of the server's clock
        self.stopping = False
        self.most_owed = MOST_OWED
        self._numbers = itertools.count(1)
        self._context = zmq.asyncio.Context()
        self._context.linger = 0

    @property
    def held_seconds(self) -> float:
        """For how long a worker that is connected by TCP has its job for itself."""
        return 1e6 if self.direct else 0.0

    @property
    def lease_seconds(self) -> float:
        """The same for one that has promised a lease."""
        return LEASE_SECONDS - 5 if self.direct else 0.0

    @property
    def handle_prefix(self) -> bytes:
        """What the numbers of jobs are preceded by, as the server is told to."""
        return HANDLE_PREFIX.encode()

    def server_time(self) -> float:
        """The time by the clock of the server."""
        return time.time() + self.wall_offset

    def name(self, role: str) -> str:
        return f"{self._prefix}{role} {self.history.life}.{next(self._numbers)}"

    def token(self) -> str:
        return f"{self._prefix}t{self.history.life}-{next(self._numbers)}"

    def payload(self, token: str) -> bytes:
        """The token, and sometimes so much more that the store treats it differently."""
        return token.encode() + b" " + b"x" * self.chance.choice((0, 20, 20, 20, 900, 3000))

    def is_full(self) -> bool:
        """Whether enough jobs wait."""
        return len(self.history.owed) >= self.most_owed

    def dealer(self, port: int, identity: str = "") -> zmq.asyncio.Socket:
        socket = self._context.socket(zmq.DEALER)
        socket.set(zmq.RECONNECT_IVL, 20)
        socket.set(zmq.IMMEDIATE, 1)
        if identity:
            socket.set(zmq.IDENTITY, identity.encode())
        socket.connect(f"tcp://{HOST}:{port}")
        return socket

    async def run(self, peers: Iterable[Callable[[Load], Awaitable[None]]], until: Awaitable[object]) -> None:
        """Let them speak until that is over, and hear the last words of a server that is gone."""
        tasks = [asyncio.create_task(self._again_and_again(peer)) for peer in peers]
        try:
            await until
        finally:
            self.stopping = True
            # What has arrived is read: connections of a killed server end by themselves.
            await asyncio.wait(tasks, timeout=0.05)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _again_and_again(self, peer: Callable[[Load], Awaitable[None]]) -> None:
        while not self.stopping:
            try:
                await peer(self)
            except ServerGone:
                pass
            except Surprise as surprise:
                self.history.record("surprised", f"{peer.__module__}: {surprise}")
            if not self.stopping:
                await asyncio.sleep(0.01 + 0.05 * self.chance.random())

    def close(self) -> None:
        self._context.destroy(linger=0)


async def answer_of(reading: Awaitable[list[bytes]]) -> list[bytes]:
    """What a ZeroMQ socket receives, or ServerGone."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await reading
    except (TimeoutError, zmq.ZMQError):
        raise ServerGone from None


async def send(socket: zmq.asyncio.Socket, frames: list[bytes]) -> None:
    """Send, or ServerGone if there is no connection."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await socket.send_multipart(frames)
    except (TimeoutError, zmq.ZMQError):
        raise ServerGone from None


def token_of(payload: bytes) -> str:
    return payload.partition(b" ")[0].decode("ascii", "replace")


def number_of(handle: bytes) -> int:
    return int(handle.rpartition(b":")[2] or 0)
