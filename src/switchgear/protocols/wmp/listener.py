"""`WmpSessionFactory`: makes the sessions of WMP listeners; each is a manager."""

from __future__ import annotations

import secrets
from functools import partial

from switchgear.config import Config, ListenUrl
from switchgear.model import SECOND_US
from switchgear.protocols.session_factory import ServerEnvironment, ZeromqSessionFactory, ZeromqSocket
from switchgear.protocols.wmp.manager import ManagerSession, WmpSetup

__all__ = ["WmpSessionFactory"]


class WmpSessionFactory(ZeromqSessionFactory):
    """WMP; each listener is a manager with its own identity."""

    def __init__(self, server: ServerEnvironment) -> None:
        super().__init__(server)
        self._limits = server.config.limits
        self._setups: list[WmpSetup] = []

    def sockets_at(self, url: ListenUrl) -> list[ZeromqSocket]:
        identity = url.text("identity") or f"{self.server.host_name}:{url.port or secrets.token_hex(4)}"
        setup = WmpSetup(
            identity=identity.encode(),
            timeout_us=int(url.seconds("timeout") * SECOND_US),
            name_bytes=self._limits.name_bytes,
            paths=self._limits.connections,
        )
        self._setups.append(setup)
        return [ZeromqSocket(partial(ManagerSession, setup=setup))]

    def use_config(self, config: Config) -> None:
        self._limits = config.limits
        for setup in self._setups:
            setup.name_bytes = config.limits.name_bytes
            setup.paths = config.limits.connections
