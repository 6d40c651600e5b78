"""A ZeroMQ listener with an echo behind it, and peers that connect to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import zmq

from switchgear.config import LimitsConfig, ListenUrl, ZeromqConfig
from switchgear.engine.engine import Engine, EngineSettings
from switchgear.net.clock import SystemClock
from switchgear.net.connections.curve_keys import CurveServerKeys
from switchgear.net.connections.zmtp_listener import HandshakeMaker, ZmtpListener
from switchgear.net.hub import Hub
from switchgear.protocols.context import Context
from switchgear.protocols.message_session import MessageSession
from switchgear.protocols.multipart import Message
from switchgear.protocols.transport import PeerTransport
from switchgear.protocols.zmtp.codec import command_frame
from switchgear.protocols.zmtp.curve import CurveServerHandshake
from switchgear.protocols.zmtp.metadata import ROUTER_METADATA
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry
from tests.protocols.zmtp.wire import GREETING, ready

DEADLINE_SECONDS = 20.0
SERVER_HANDSHAKE_BYTES = 64 + len(command_frame(b"\5READY" + ROUTER_METADATA))


class Echo(MessageSession):
    """Sends everything back, or what it is told to."""

    def __init__(self, context: Context, transport: PeerTransport) -> None:
        super().__init__(context, transport)
        self.protocol = "echo"
        self.seen: list[Message] = []
        self.lost: list[Message] = []
        self.gone: list[bytes] = []
        self.answer: Callable[[Message], Message | None] = lambda message: message

    def handle_message(self, message: Message) -> None:
        self.seen.append(message)
        if message[-1] == b"raise":
            raise RuntimeError("on purpose")
        answer = self.answer(message)
        if answer is not None:
            self.send(answer)

    def unreachable(self, message: Message) -> None:
        self.lost.append(message)

    def peer_gone(self, identity: bytes) -> None:
        self.gone.append(identity)


class EchoServer:
    """A listener with an echo behind it."""

    def __init__(self, config: ZeromqConfig, limits: LimitsConfig, settings: EngineSettings | None = None) -> None:
        self.telemetry = Telemetry(asyncio.get_running_loop().time)
        self.hub = Hub(Engine(settings, self.telemetry), MemoryStore(), SystemClock(), self.telemetry)
        self.keys = CurveServerKeys(config) if config.curve_key_file else None
        url = ListenUrl.parse("dwork://127.0.0.1:0")
        self.listener = ZmtpListener(url, self.hub, limits, Echo, config, self._handshakes())
        self.router = self.listener.router
        assert isinstance(self.router.messages, Echo)
        self.echo = self.router.messages
        self.clients = zmq.Context()
        self.sockets: list[zmq.Socket[bytes]] = []  # one that nobody refers to is closed
        self.writers: list[asyncio.StreamWriter] = []
        self.defects: list[dict[str, Any]] = []  # what the event loop had to catch
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: self.defects.append(context))

    def _handshakes(self) -> HandshakeMaker | None:
        keys = self.keys
        if keys is None:
            return None
        return lambda: CurveServerHandshake(keys.secret_key, keys.public_key, keys.is_admitted)

    def client(self, kind: int = zmq.DEALER, **options: Any) -> zmq.Socket[bytes]:
        """A socket of ZeroMQ's own library."""
        socket = self.clients.socket(kind)
        self.sockets.append(socket)
        socket.set(zmq.LINGER, 0)
        for name, value in options.items():
            socket.set(getattr(zmq, name), value)
        socket.connect(f"tcp://127.0.0.1:{self.listener.bound_port}")
        return socket

    async def hears(self, client: zmq.Socket[bytes], within_seconds: float = DEADLINE_SECONDS) -> list[bytes]:
        assert await until(lambda: bool(client.poll(0)), within_seconds), "nothing came"
        return client.recv_multipart()

    async def connect(self, limit_bytes: int = 65_536) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that has said nothing."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.bound_port, limit=limit_bytes)
        self.writers.append(writer)
        return reader, writer

    async def peer(
        self, identity: bytes = b"me", limit_bytes: int = 65_536
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that speaks ZMTP 3.0 and has introduced itself."""
        reader, writer = await self.connect(limit_bytes)
        writer.write(GREETING + ready(identity=identity))
        await reader.readexactly(SERVER_HANDSHAKE_BYTES)
        return reader, writer

    async def close(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.clients.destroy(0)
        await self.listener.close()


async def until(condition: Callable[[], object], within_seconds: float = DEADLINE_SECONDS) -> bool:
    """Let the event loop turn until the condition holds; false if it never does."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_seconds
    while not condition():
        if loop.time() > end:
            return False
        await asyncio.sleep(0.001)
    return True


@asynccontextmanager
async def echo_server(
    config: ZeromqConfig | None = None, limits: LimitsConfig | None = None, settings: EngineSettings | None = None
) -> AsyncIterator[EchoServer]:
    server = EchoServer(config or ZeromqConfig(), limits or LimitsConfig(), settings)
    await server.listener.open()
    try:
        yield server
    finally:
        await server.close()
    assert not server.defects


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())
