"""`GearMonkeySessionFactory`: makes the sessions of GearMonkey listeners."""

from __future__ import annotations

from functools import partial

from switchgear.config import Config, ListenUrl
from switchgear.protocols.gearmonkey.command_access import check_command
from switchgear.protocols.gearmonkey.command_table import VERBS
from switchgear.protocols.gearmonkey.listener_state import GearMonkeySetup
from switchgear.protocols.gearmonkey.session import GearMonkeySession
from switchgear.protocols.protocol_names import MEMCACHED, REDIS
from switchgear.protocols.session_factory import ProtocolDetector, ServerEnvironment, TcpSessionFactory
from switchgear.version import VERSION

__all__ = ["GearMonkeySessionFactory"]


class GearMonkeySessionFactory(TcpSessionFactory):
    """GearMonkey over RESP; all GearMonkey listeners of a server share one set of keys."""

    def __init__(self, server: ServerEnvironment) -> None:
        super().__init__(server)
        limits = server.config.limits
        self.setup = GearMonkeySetup(
            engine=server.engine,
            verbs=VERBS,
            version=VERSION,
            check_command=check_command,
            packet_bytes=limits.packet_bytes,
            name_bytes=limits.name_bytes,
            output_bytes=limits.slow_reader_bytes + 2 * limits.packet_bytes,
            broadcast=server.broadcast,
        )

    def sessions_at(self, url: ListenUrl) -> ProtocolDetector:
        return ProtocolDetector(
            default=partial(GearMonkeySession, setup=self.setup),
            name="GearMonkey (RESP)",
            own=frozenset({REDIS, MEMCACHED}),  # memcached has commands of the same names
            binary=b"*",
        )

    def use_config(self, config: Config) -> None:
        limits = config.limits
        self.setup.packet_bytes = limits.packet_bytes
        self.setup.name_bytes = limits.name_bytes
        self.setup.output_bytes = limits.slow_reader_bytes + 2 * limits.packet_bytes
