"""ROUTER sockets of the ZeroMQ library, for the device; the server has its own (net/connections/zmtp_listener.py)."""

from __future__ import annotations

import logging
from typing import Final

import zmq
from zmq.auth.thread import ThreadAuthenticator

from switchgear.config import LimitsConfig, ZeromqConfig
from switchgear.errors import ConfigError
from switchgear.net.connections.curve_keys import check_client_keys, load_server_keys

__all__ = ["RouterSockets"]

log = logging.getLogger("switchgear.device")

ZAP_DOMAIN: Final = "switchgear"  # ZeroMQ's word for a set of keys
LAST_WORDS_MS: Final = 1000  # how long peers may take to read their last messages when the device stops


class RouterSockets:
    """A ZeroMQ context, and who may connect to its sockets.  Raises ConfigError if keys cannot be read."""

    def __init__(self, config: ZeromqConfig) -> None:
        self.config = config
        self.context = zmq.Context()
        self.context.max_sockets = min(1023, self.context.get(zmq.SOCKET_LIMIT))
        self._secret_key = b""
        self._authenticator: ThreadAuthenticator | None = None
        if config.curve_key_file:
            try:
                self._use_curve()
            except ConfigError:
                self.close()
                raise

    def _use_curve(self) -> None:
        _, self._secret_key = load_server_keys(self.config)
        if self.config.curve_clients_dir:
            directory, _ = check_client_keys(self.config)  # by the authenticator, a mistake would only be logged
            self._authenticator = ThreadAuthenticator(self.context, log=log)
            self._authenticator.start()
            self._authenticator.configure_curve(domain=ZAP_DOMAIN, location=directory)

    def router(self, limits: LimitsConfig) -> zmq.Socket[bytes]:
        """A socket that is not bound yet, with all limits set."""
        socket = self.context.socket(zmq.ROUTER)
        socket.set(zmq.LINGER, LAST_WORDS_MS)
        socket.set(zmq.MAXMSGSIZE, limits.packet_bytes)
        socket.set(zmq.RCVHWM, self.config.messages_per_peer)
        socket.set(zmq.SNDHWM, self.config.messages_per_peer)
        socket.set(zmq.BACKLOG, limits.backlog)
        socket.set(zmq.HANDSHAKE_IVL, int(self.config.handshake_seconds * 1000))
        socket.set(zmq.ROUTER_MANDATORY, 1)  # report that a peer is gone, rather than drop its messages
        socket.set(zmq.ROUTER_HANDOVER, 1)  # a peer that reconnects replaces its own dead connection
        if self.config.heartbeat_seconds:
            heartbeat_ms = int(self.config.heartbeat_seconds * 1000)
            socket.set(zmq.HEARTBEAT_IVL, heartbeat_ms)
            socket.set(zmq.HEARTBEAT_TIMEOUT, heartbeat_ms * 3)
        if limits.keepalive_idle_seconds:
            socket.set(zmq.TCP_KEEPALIVE, 1)
            socket.set(zmq.TCP_KEEPALIVE_IDLE, limits.keepalive_idle_seconds)
            socket.set(zmq.TCP_KEEPALIVE_INTVL, limits.keepalive_interval_seconds)
            socket.set(zmq.TCP_KEEPALIVE_CNT, limits.keepalive_count)
        if self._secret_key:
            socket.set(zmq.CURVE_SECRETKEY, self._secret_key)
            socket.set(zmq.CURVE_SERVER, 1)
            if self._authenticator is not None:
                socket.set(zmq.ZAP_DOMAIN, ZAP_DOMAIN.encode())
        return socket

    def close(self) -> None:
        if self._authenticator is not None:
            self._authenticator.stop()
        self.context.term()
