"""Where the server listens, and who speaks there, by the scheme of each address."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from switchgear.config import SCHEMES, Config, LimitsConfig, ListenUrl
from switchgear.errors import ConfigError
from switchgear.model import SECOND_US, Worker
from switchgear.net.descriptors import check_descriptors, permitted_limits
from switchgear.net.dialects import Dialect, Dialects
from switchgear.net.foreign import DRAFT, GEARMAN, MEMCACHED, REDIS
from switchgear.net.hub import Hub
from switchgear.net.tcp import Connection, TcpDoor
from switchgear.protocols.base import Context, Session, Wire
from switchgear.protocols.gearman.admin import first_line_refusal, on_line
from switchgear.protocols.gearman.session import GearmanSession, GearmanSetup
from switchgear.protocols.gearman.verbs import handle_messages
from switchgear.protocols.gearman_draft.codec import MAGIC as DRAFT_MAGIC
from switchgear.protocols.gearman_draft.session import DraftSession, DraftSetup
from switchgear.protocols.gearmonkey.session import GearMonkeySession
from switchgear.protocols.gearmonkey.setup import GearMonkeySetup
from switchgear.protocols.gearmonkey.verbs import VERBS
from switchgear.version import VERSION

if TYPE_CHECKING:  # a server that speaks only Gearman starts without ZeroMQ and redis-py
    from switchgear.net.bridge.bridge import Bridge
    from switchgear.net.curve_keys import CurveServerKeys
    from switchgear.net.zmtp import HandshakeMaker, MessageSessionMaker, ZmtpListener
    from switchgear.protocols.wmp.manager import WmpSetup

__all__ = ["Listeners"]


class Listeners:
    """All doors of a server."""

    def __init__(self, config: Config, hub: Hub, handle_prefix: str) -> None:
        self.config = config
        self.hub = hub
        self.limits = config.limits
        self.tcp_doors: list[TcpDoor] = []  # those of ZeroMQ too: all that accept connections
        self.bridges: list[Bridge] = []
        self._bridge_workers: set[Worker] = set()
        self.addresses: list[str] = []
        self.is_guest = False  # in somebody else's program, who has chosen how many descriptors there are
        self.is_private = False  # on TCP, only processes of the server's own user, and of root, may connect
        self._curve_keys: CurveServerKeys | None = None
        self._wmp_setups: list[WmpSetup] = []
        self.gearman = GearmanSetup(
            handle_prefix=f"{handle_prefix}:".encode(),
            version=f"switchgear-{VERSION}",
            on_messages=handle_messages,
            on_line=on_line,
            exceptions=config.gearman.exceptions,
            packet_bytes=config.limits.packet_bytes,
            line_bytes=config.limits.text_line_bytes,
            name_bytes=config.limits.name_bytes,
            shutdown=config.gearman.shutdown,
            log_level=config.log.level.upper(),
        )
        self.draft = DraftSetup(
            handle_prefix=self.gearman.handle_prefix,
            packet_bytes=config.limits.packet_bytes,
            name_bytes=config.limits.name_bytes,
            sessions=self.gearman.sessions,  # on one list
        )
        self.gearmonkey = GearMonkeySetup(
            engine=hub.engine,
            verbs=VERBS,
            version=VERSION,
            packet_bytes=config.limits.packet_bytes,
            name_bytes=config.limits.name_bytes,
            output_bytes=config.limits.slow_reader_bytes + 2 * config.limits.packet_bytes,
        )
        for url in config.listen:
            if url.scheme == "dwork":  # before the jobs are loaded, so that they are queued in its order
                hub.engine.function_named(url.text("function").encode()).released_first = True

    async def open(self) -> None:
        """Start listening everywhere."""
        self.limits = self._permitted(self.config)
        for url in self.config.listen:
            if SCHEMES[url.scheme].has_curve:
                await self._open_zeromq(url)
            elif SCHEMES[url.scheme].dials:
                self._open_bridge(url)
            else:
                door = TcpDoor(url, self.hub, self.limits, self._tcp_sessions(url), self.tcp_doors)
                await self._bind(door)
                self.addresses += door.addresses
        # Nobody is answered before all can be: whoever finds one listener may count on the others.
        for door in reversed(self.tcp_doors):
            await door.start()

    def _permitted(self, config: Config) -> LimitsConfig:
        return permitted_limits(config.limits, None if self.is_guest else self.hub.telemetry)

    async def _bind(self, door: TcpDoor) -> None:
        door.is_private = self.is_private
        await door.bind()
        self.tcp_doors.append(door)

    def _doors(self) -> list[TcpDoor | Bridge]:
        return [*self.tcp_doors, *self.bridges]

    def stop_accepting(self) -> None:
        for door in self._doors():
            door.stop_accepting()

    def stop_listening_to_peers(self) -> None:
        """What peers say from now on is not heard: another server will hear it."""
        for door in self.tcp_doors:
            door.stop_listening_to_peers()

    async def hang_up(self, patience_seconds: float) -> None:
        """End the conversations once everything is said, and see to it that it arrives."""
        for door in self.tcp_doors:
            await door.hang_up(patience_seconds)

    async def close(self) -> None:
        for tcp_door in reversed(self.tcp_doors):
            await tcp_door.close()
        for bridge in self.bridges:
            await bridge.close()

    def look_after(self) -> None:
        """Once a second."""
        for door in self._doors():
            door.look_after()
        if self.tcp_doors:
            check_descriptors(self.hub.telemetry)

    def count_connections(self) -> int:
        return sum(len(door.connections) for door in self.tcp_doors)

    def open_connections(self) -> list[Connection]:
        """Every TCP connection."""
        return [connection for door in self.tcp_doors for connection in door.connections]

    def describe(self) -> list[dict[str, Any]]:
        """What each listener holds, for operators: its connections, and the one that holds most."""
        return [door.describe() for door in self.tcp_doors]

    def admit_clients(self) -> None:
        """Read the keys anew of those who may connect; raises ConfigError."""
        if self._curve_keys is not None:
            self._curve_keys.admit_clients()

    def use_config(self, config: Config) -> None:
        """Take over what can be changed while running."""
        self.limits = limits = self._permitted(config)
        self.config = config
        self.gearman.log_level = config.log.level.upper()
        self.gearman.line_bytes = limits.text_line_bytes
        for setup in self._tcp_setups():
            setup.packet_bytes = limits.packet_bytes
            setup.name_bytes = limits.name_bytes
        self.gearmonkey.output_bytes = limits.slow_reader_bytes + 2 * limits.packet_bytes
        for tcp_door in self.tcp_doors:
            tcp_door.limits = limits
        for manager in self._wmp_setups:
            manager.name_bytes = limits.name_bytes
            manager.paths = config.limits.connections

    # --- TCP ---

    def _tcp_setups(self) -> tuple[GearmanSetup | DraftSetup | GearMonkeySetup, ...]:
        return (self.gearman, self.draft, self.gearmonkey)

    def _tcp_sessions(self, url: ListenUrl) -> Callable[[Context, Wire], Session]:
        if url.scheme == "gearmonkey":
            return Dialects(
                usual=partial(GearMonkeySession, setup=self.gearmonkey),
                spoken="GearMonkey (RESP)",
                own=frozenset({REDIS, MEMCACHED}),  # which has commands of the same names
                binary=b"*",
            )
        return Dialects(
            usual=lambda context, wire: GearmanSession(context, wire, self.gearman),
            others=(Dialect(DRAFT_MAGIC, lambda context, wire: DraftSession(context, wire, self.draft)),),
            spoken="Gearman",
            own=frozenset({GEARMAN, DRAFT}),
            refuse_line=first_line_refusal,
        )

    # --- Redis ---

    def _open_bridge(self, url: ListenUrl) -> None:
        try:
            from switchgear.net.bridge.bridge import Bridge
        except ImportError as error:
            raise ConfigError(
                f"listen: {url} needs another package: pip install 'switchgear[redis]' ({error})"
            ) from None
        from switchgear.net.bridge.setup import BridgeSetup

        bridge = Bridge(
            url,
            self.hub,
            BridgeSetup.read(url),
            self.gearman.handle_prefix,
            self.config.limits.packet_bytes,
            self._bridge_workers,
        )
        bridge.open()
        self.bridges.append(bridge)
        self.addresses.append(bridge.address)

    # --- ZeroMQ ---

    async def _open_zeromq(self, url: ListenUrl) -> None:
        shown = dict(url.options)
        makers = self._zmq_sessions(url)
        main = await self._open_router(url, url.port, makers[0])
        if url.scheme == "pingpong":
            workers = await self._open_router(url, int(url.option("workers")), makers[1])
            shown["workers"] = str(workers.bound_port)
        self.addresses.append(str(ListenUrl(url.scheme, url.host, main.bound_port, shown)))

    async def _open_router(self, url: ListenUrl, port: int, make: MessageSessionMaker) -> ZmtpListener:
        from switchgear.net.zmtp import ZmtpListener

        own_url = ListenUrl(url.scheme, url.host, port)
        config = self.config.zeromq
        listener = ZmtpListener(own_url, self.hub, self.limits, make, config, self._handshakes(), self.tcp_doors)
        await self._bind(listener)
        return listener

    def _handshakes(self) -> HandshakeMaker | None:
        """How connections are encrypted; None if they are not.  Raises ConfigError."""
        if not self.config.zeromq.curve_key_file:
            return None
        from switchgear.net.curve_keys import CurveServerKeys
        from switchgear.protocols.zmtp.curve import CurveServerHandshake

        if self._curve_keys is None:
            self._curve_keys = CurveServerKeys(self.config.zeromq)
        keys = self._curve_keys
        return lambda: CurveServerHandshake(keys.secret_key, keys.public_key, keys.is_admitted)

    def _zmq_sessions(self, url: ListenUrl) -> list[MessageSessionMaker]:
        """Who speaks at each socket of a listener."""
        if url.scheme == "pingpong":
            from switchgear.protocols.pingpong.broker import ClientsSession, PingPongSetup, WorkersSession

            broker = PingPongSetup(
                function=url.text("function").encode(),
                expire_us=int(url.seconds("expire") * SECOND_US),
                resend_us=int(url.seconds("resend") * SECOND_US),
            )
            return [partial(ClientsSession, setup=broker), partial(WorkersSession, setup=broker)]
        if url.scheme == "wmp":
            from switchgear.protocols.wmp.manager import ManagerSession, WmpSetup

            identity = url.text("identity") or f"{socket.gethostname()}:{url.port or secrets.token_hex(4)}"
            manager = WmpSetup(
                identity=identity.encode(),
                timeout_us=int(url.seconds("timeout") * SECOND_US),
                name_bytes=self.config.limits.name_bytes,
                paths=self.config.limits.connections,
            )
            self._wmp_setups.append(manager)
            return [partial(ManagerSession, setup=manager)]
        from switchgear.protocols.dwork.session import DworkSession, DworkSetup

        hub = DworkSetup(
            function=url.text("function").encode(),
            lease_us=int(url.seconds("lease") * SECOND_US),
            host=socket.gethostname().encode(),
        )
        return [partial(DworkSession, setup=hub)]
