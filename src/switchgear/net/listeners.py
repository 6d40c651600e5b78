"""`Listeners`: opens the listeners of a server, for the protocol that each listening URL names.

The registry (switchgear/protocol_registry.py) lists the protocols and their session factories.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from switchgear.access.identities import OPEN_ACCESS, Identities, ListenerAccess
from switchgear.config import Config, LimitsConfig, ListenUrl
from switchgear.errors import AddressInUse, ConfigError
from switchgear.model import Peer
from switchgear.net.connections.file_descriptors import check_descriptors, permitted_limits
from switchgear.net.connections.protocol_detection import DetectingSession
from switchgear.net.connections.tcp_connection import Connection
from switchgear.net.connections.tcp_listener import TcpListener
from switchgear.net.connections.tls import ServerTls
from switchgear.net.hub import Hub
from switchgear.protocol_registry import ListenerKind, load_factory, protocol_named
from switchgear.protocols.context import Context
from switchgear.protocols.session_factory import (
    ProtocolByPrefix,
    ServerEnvironment,
    SessionFactory,
    SessionMaker,
    TcpSessionFactory,
    ZeromqSessionFactory,
    ZeromqSocket,
)
from switchgear.protocols.transport import PeerTransport
from switchgear.resources import resource_amounts
from switchgear.tags import tag_set
from switchgear.verbs.answers import ListenerFigures

if TYPE_CHECKING:  # a server that speaks only Gearman starts without ZeroMQ and redis-py
    from switchgear.net.bridge.bridge import Bridge
    from switchgear.net.bridge.bridge_factory import BridgeFactory
    from switchgear.net.connections.curve_keys import CurveServerKeys
    from switchgear.net.connections.zmtp_listener import HandshakeMaker, ZmtpListener

__all__ = ["Listeners"]

S = TypeVar("S", bound=Peer)

RETRY_PAUSE_SECONDS = 0.25


class Listeners:
    """The listeners and bridges of a server."""

    def __init__(self, config: Config, hub: Hub, handle_prefix: str) -> None:
        self.config = config
        self.hub = hub
        self.limits = config.limits
        self.tcp_listeners: list[TcpListener] = []  # all that accept connections, including those of ZeroMQ
        self.bridges: list[Bridge] = []
        self.bound_to_functions: dict[TcpListener, bytes] = {}  # those that only the owner of a function can serve
        self.addresses: list[str] = []
        self.is_guest = False  # the server runs in a user's program, which has set the limit of descriptors
        self.is_private = False  # on TCP, only processes of the server's own user and of root may connect
        self.identities = Identities(Path(config.access.file)) if config.access.file else None
        if self.identities is not None:
            self.identities.load()
        self._curve_keys: CurveServerKeys | None = None
        prefix = f"{handle_prefix}:".encode()
        self._server = ServerEnvironment(config, hub.engine, prefix, socket.gethostname(), hub.broadcast)
        self.factories: dict[str, SessionFactory] = {}  # by scheme
        for url in config.listen:
            self.factory(url.scheme).prepare(url)

    def factory(self, scheme: str) -> SessionFactory:
        """The session factory of a protocol in this server; raises ConfigError."""
        if scheme not in self.factories:
            self.factories[scheme] = load_factory(protocol_named(scheme))(self._server)
        return self.factories[scheme]

    async def bind(self) -> None:
        """Bind every address of the configuration; raises ConfigError.

        From now on peers can connect and send.  The system keeps what they send until `start` is called.
        """
        self.limits = self._permitted(self.config)
        for url in self.config.listen:
            kind = protocol_named(url.scheme).kind
            if kind is ListenerKind.ZEROMQ:
                await self._open_zeromq(url)
            elif kind is not ListenerKind.OUTGOING:
                sessions, access = self.tcp_sessions(url), self._access(url)
                tls = ServerTls(url, has_identities=not access.is_open) if url.uses_tls else None
                listener = TcpListener(url, self.hub, self.limits, sessions, self.tcp_listeners, access, tls)
                await self._bind(listener)
                self.addresses += listener.addresses
        # Listen only when all addresses are bound: a client that reaches one may rely on the others.
        for listener in reversed(self.tcp_listeners):
            await self._retry_busy(listener, listener.listen)

    async def add(self, url: ListenUrl) -> None:
        """Open one more listener of a TCP protocol while the server serves; raises ConfigError."""
        sessions = self.tcp_sessions(url)
        listener = TcpListener(url, self.hub, self.limits, sessions, self.tcp_listeners, self._access(url))
        listener.is_private = self.is_private
        await listener.open()
        self.tcp_listeners.append(listener)
        self.addresses += listener.addresses
        self.hub.telemetry.emit("listening", url=listener.addresses[0])

    def _access(self, url: ListenUrl) -> ListenerAccess:
        """The kinds of identities that a listener accepts."""
        return OPEN_ACCESS if self.identities is None else ListenerAccess(self.identities, url.access)

    def reload_tls(self) -> Iterator[ConfigError]:
        """Read the certificates, keys and authorities of all listeners again; yields the errors of listeners that go on
        with the old ones."""
        for listener in self.tcp_listeners:
            if listener.tls is not None:
                try:
                    listener.tls.reload()
                except ConfigError as error:
                    yield error

    def reload_access(self) -> int:
        """Read the access file again; returns how many connections were closed because their identities may do less.
        Raises ConfigError and changes nothing."""
        reduced = self.identities.load() if self.identities is not None else []
        return sum(listener.close_identities(reduced) for listener in self.tcp_listeners) if reduced else 0

    async def start(self) -> None:
        """Serve those who have connected and will connect, and connect to other servers; raises ConfigError."""
        for url in self.config.listen:
            if protocol_named(url.scheme).kind is ListenerKind.OUTGOING:
                self._open_bridge(url)
        for listener in reversed(self.tcp_listeners):
            await self._retry_busy(listener, listener.start)

    async def _retry_busy(self, listener: TcpListener, attempt: Callable[[], Awaitable[None]]) -> None:
        """Bind or start a listener, again and again while another process has its address; raises ConfigError."""
        now_seconds = asyncio.get_running_loop().time
        seconds = self.config.listen_retry_seconds
        give_up_at = now_seconds() + seconds
        is_told = False
        while True:
            try:
                await attempt()
                return
            except AddressInUse:
                if now_seconds() >= give_up_at:
                    raise
            if not is_told:
                self.hub.telemetry.emit("address_in_use", url=str(listener.url), seconds=round(seconds))
                is_told = True
            await asyncio.sleep(RETRY_PAUSE_SECONDS)

    def _permitted(self, config: Config) -> LimitsConfig:
        return permitted_limits(config.limits, None if self.is_guest else self.hub.telemetry)

    async def _bind(self, listener: TcpListener) -> None:
        listener.is_private = self.is_private
        await self._retry_busy(listener, listener.bind)
        self.tcp_listeners.append(listener)

    def unbind(self) -> None:
        """Give the addresses up before anybody was served."""
        for listener in self.tcp_listeners:
            listener.stop_accepting()

    def _listeners(self) -> list[TcpListener | Bridge]:
        return [*self.tcp_listeners, *self.bridges]

    def stop_accepting(self, *, is_draining: bool = False) -> None:
        """Accept no more connections.  While the server drains, those are still accepted on which peers report."""
        for listener in self._listeners():
            if not (is_draining and protocol_named(listener.url.scheme).reconnects):
                listener.stop_accepting()

    def stop_listening_to_peers(self) -> None:
        """Ignore further input of peers: another server takes over."""
        for listener in self.tcp_listeners:
            listener.stop_listening_to_peers()

    def answer_waiting(self) -> bool:
        """Let peers have answers to requests that wait, because the server stops; whether some are still missing."""
        are_missing = [listener.answer_waiting() for listener in self.tcp_listeners]
        return any(are_missing)

    async def hang_up(self, patience_seconds: float) -> None:
        """Close all connections after their output is sent, and wait for the peers to close theirs."""
        for listener in self.tcp_listeners:
            await listener.hang_up(patience_seconds)

    async def close(self) -> None:
        for tcp_listener in reversed(self.tcp_listeners):
            await tcp_listener.close()
        for bridge in self.bridges:
            await bridge.close()

    def look_after(self) -> None:
        """Called once a second: check the peers of every listener, and the number of free descriptors."""
        for listener in self._listeners():
            listener.look_after()
        if self.tcp_listeners:
            check_descriptors(self.hub.telemetry)

    def count_connections(self) -> int:
        return sum(len(listener.connections) for listener in self.tcp_listeners)

    def connections_by_protocol(self) -> dict[str, int]:
        """How many connections the listeners of each protocol have."""
        counts: dict[str, int] = {}
        for listener in self.tcp_listeners:
            counts[listener.url.scheme] = counts.get(listener.url.scheme, 0) + len(listener.connections)
        return counts

    def open_connections(self) -> list[Connection]:
        """The connections of all listeners."""
        return [connection for listener in self.tcp_listeners for connection in listener.connections]

    def describe(self) -> list[ListenerFigures]:
        """What each listener holds, for operators: its connections, and the connection that holds most."""
        return [listener.describe() for listener in self._listeners()]

    def admit_clients(self) -> None:
        """Read the keys of clients that may connect again; raises ConfigError."""
        if self._curve_keys is not None:
            self._curve_keys.admit_clients()

    def use_config(self, config: Config) -> None:
        """Apply the settings that can be changed while running."""
        self.limits = limits = self._permitted(config)
        self.config = config
        for tcp_listener in self.tcp_listeners:
            tcp_listener.limits = limits
        for factory in self.factories.values():
            factory.use_config(config)

    # --- TCP ---

    def tcp_sessions(self, url: ListenUrl) -> SessionMaker:
        """The function that makes the session of a new connection at a listener of a TCP protocol."""
        detector = cast(TcpSessionFactory, self.factory(url.scheme)).sessions_at(url)
        others = [ProtocolByPrefix(other.prefix, describing(url, other.make_session)) for other in detector.others]
        detector = replace(detector, default=describing(url, detector.default), others=tuple(others))
        return partial(DetectingSession, detector=detector)

    # --- connections to other servers ---

    def _open_bridge(self, url: ListenUrl) -> None:
        bridge = cast("BridgeFactory", self.factory(url.scheme)).connect(url, self.hub)
        bridge.open()
        self.bridges.append(bridge)
        self.addresses.append(bridge.address)

    # --- ZeroMQ ---

    def zeromq_sockets(self, url: ListenUrl) -> list[ZeromqSocket]:
        """The sockets of a listener of a ZeroMQ protocol."""
        return cast(ZeromqSessionFactory, self.factory(url.scheme)).sockets_at(url)

    async def _open_zeromq(self, url: ListenUrl) -> None:
        port = url.port
        options = dict(url.options)
        for zeromq_socket in self.zeromq_sockets(url):
            option = zeromq_socket.port_option
            listener = await self._open_router(url, int(url.option(option)) if option else url.port, zeromq_socket)
            if option:
                options[option] = str(listener.bound_port)
            else:
                port = listener.bound_port
        self.addresses.append(str(ListenUrl(url.scheme, url.host, port, options)))

    async def _open_router(self, url: ListenUrl, port: int, zeromq_socket: ZeromqSocket) -> ZmtpListener:
        from switchgear.net.connections.zmtp_listener import ZmtpListener

        own_url = ListenUrl(url.scheme, url.host, port)
        config = self.config.zeromq
        make = describing(url, zeromq_socket.make_session)
        listener = ZmtpListener(
            own_url, self.hub, self.limits, make, config, self._handshakes(), self.tcp_listeners, self._access(url)
        )
        await self._bind(listener)
        if zeromq_socket.function:
            self.bound_to_functions[listener] = zeromq_socket.function
        return listener

    def _handshakes(self) -> HandshakeMaker | None:
        """How connections are encrypted; None if they are not.  Raises ConfigError."""
        if not self.config.zeromq.curve_key_file:
            return None
        from switchgear.net.connections.curve_keys import CurveServerKeys
        from switchgear.protocols.zmtp.curve import CurveServerHandshake

        if self._curve_keys is None:
            self._curve_keys = CurveServerKeys(self.config.zeromq)
        keys = self._curve_keys
        return lambda: CurveServerHandshake(keys.secret_key, keys.public_key, keys.is_admitted)


def describing(url: ListenUrl, make: Callable[[Context, PeerTransport], S]) -> Callable[[Context, PeerTransport], S]:
    """Makes the same sessions, whose workers have the tags and resources that the URL of their listener says."""
    if "tags" not in protocol_named(url.scheme).options:
        return make
    tags, resources = tag_set(url.text("tags")), resource_amounts(url.text("resources"))

    def make_described(context: Context, transport: PeerTransport) -> S:
        session = make(context, transport)
        session.worker_tags = tags
        session.worker_resources = resources
        return session

    return make_described if tags or resources else make
