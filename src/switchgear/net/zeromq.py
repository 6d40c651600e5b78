"""ZeroMQ sockets: messages between a ROUTER socket and a session.

The socket's file descriptor sits in the event loop.  It becomes readable when something has happened, not while
something is there to be read, and sending may use up that sign; so after everything that is done with the socket, it is
asked whether there is more.  Messages are read frame by frame without waiting, as many in one go as there are, and what
the session wants to say is sent once in a turn.

Nobody's memory without bound, as far as ZeroMQ allows: a frame has a largest size, and each peer a number of messages
that may wait for it or from it.  How many frames a message may have ZeroMQ does not let one say, and it holds all of
them until the last has come; so a stranger can fill memory with one message.  Against strangers there is CURVE.

A peer that takes nothing any more is treated as one that is gone: a message to it is handed back to the session, which
knows what was in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator
from zmq.backend import Socket as BackendSocket
from zmq.utils.monitor import recv_monitor_message

from switchgear.config import LimitsConfig, ListenUrl, ZeromqConfig
from switchgear.errors import ConfigError
from switchgear.net.hub import Hub
from switchgear.protocols.base import Context, Message, MessageSession, Wire

__all__ = ["MessageSessionMaker", "ZmqDoor", "ZmqHouse"]

log = logging.getLogger("switchgear")

MessageSessionMaker = Callable[[Context, Wire], MessageSession]

# So many messages of one socket are handled before others have their turn.
MESSAGES_PER_TURN: Final = 500

# No protocol has messages of so many frames.
MOST_FRAMES: Final = 100

# While the store fails, so many bytes of promises may wait for it; then the socket is not read from.
PROMISED_BYTES = 64 * 1024 * 1024

NOT_ADMITTED: Final = (zmq.EVENT_HANDSHAKE_FAILED_AUTH,)
HANDSHAKE_FAILED: Final = int(
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
ZAP_DOMAIN: Final = "switchgear"  # ZeroMQ's word for a set of keys
LAST_WORDS_MS: Final = 1000  # so long may peers take for what they are still to be told when the server stops
NOBLOCK: Final = int(zmq.NOBLOCK)
MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
POLLIN: Final = int(zmq.POLLIN)


def load_server_keys(config: ZeromqConfig) -> tuple[bytes, bytes]:
    """The server's public and secret key; raises ConfigError."""
    path = Path(config.curve_key_file)
    if not path.is_file():
        raise ConfigError(f"zeromq.curve_key_file: there is no file {path}")
    try:
        public_key, secret_key = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"zeromq.curve_key_file: cannot read a key from {path}: {error}") from error
    if secret_key is None:
        raise ConfigError(f"zeromq.curve_key_file: {path} has no secret key; the file that ends in .key_secret has")
    return public_key, secret_key


def check_client_keys(config: ZeromqConfig) -> Path:
    """The directory of the keys of those who may connect, if all of them can be read; raises ConfigError."""
    directory = Path(config.curve_clients_dir)
    if not directory.is_dir():
        raise ConfigError(f"zeromq.curve_clients_dir: {directory} is not a directory")
    try:
        zmq.auth.load_certificates(directory)
    except (OSError, ValueError) as error:
        raise ConfigError(f"zeromq.curve_clients_dir: {directory}: {error}") from error
    return directory


class ZmqHouse:
    """What all ZeroMQ listeners of a server share: the context with its I/O thread, and who may come in."""

    def __init__(self, config: ZeromqConfig) -> None:
        self.config = config
        self.context = zmq.Context(io_threads=config.io_threads)
        self.context.max_sockets = min(1023, self.context.get(zmq.SOCKET_LIMIT))
        self.secret_key = b""
        self.public_key = b""
        self._authenticator: ThreadAuthenticator | None = None
        if config.curve_key_file:
            try:
                self._use_curve()
            except ConfigError:
                self.close()
                raise

    def _use_curve(self) -> None:
        self.public_key, self.secret_key = load_server_keys(self.config)
        if self.config.curve_clients_dir:
            self._authenticator = ThreadAuthenticator(self.context, log=log)
            self._authenticator.start()
        self.admit_clients()

    def admit_clients(self) -> None:
        """Read the keys of those who may come in; called again when the configuration is reloaded."""
        if self._authenticator is None:
            return
        directory = check_client_keys(self.config)  # by the authenticator, a mistake would only be logged
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
        socket.set(zmq.ROUTER_MANDATORY, 1)  # say so when a peer is gone, rather than drop what is for it
        socket.set(zmq.ROUTER_HANDOVER, 1)  # one that comes back takes its name over from its own dead connection
        if self.config.heartbeat_seconds:
            heartbeat_ms = int(self.config.heartbeat_seconds * 1000)
            socket.set(zmq.HEARTBEAT_IVL, heartbeat_ms)
            socket.set(zmq.HEARTBEAT_TIMEOUT, heartbeat_ms * 3)
        if limits.keepalive_idle_seconds:
            socket.set(zmq.TCP_KEEPALIVE, 1)
            socket.set(zmq.TCP_KEEPALIVE_IDLE, limits.keepalive_idle_seconds)
            socket.set(zmq.TCP_KEEPALIVE_INTVL, limits.keepalive_interval_seconds)
            socket.set(zmq.TCP_KEEPALIVE_CNT, limits.keepalive_count)
        if self.secret_key:
            socket.set(zmq.CURVE_SECRETKEY, self.secret_key)
            socket.set(zmq.CURVE_SERVER, 1)
            if self._authenticator is not None:
                socket.set(zmq.ZAP_DOMAIN, ZAP_DOMAIN.encode())
        return socket

    def close(self) -> None:
        if self._authenticator is not None:
            self._authenticator.stop()
        self.context.term()


class ZmqDoor(Wire):
    """One listening address: a ROUTER socket and the session that all its peers talk to."""

    def __init__(
        self, url: ListenUrl, port: int, hub: Hub, house: ZmqHouse, limits: LimitsConfig, make: MessageSessionMaker
    ) -> None:
        self.url = url
        self.hub = hub
        self.house = house
        self.limits = limits
        self.bound_port = port
        self._socket: zmq.Socket[bytes] | None = None
        self._endpoint = ""
        self._descriptor = -1
        self._monitor: zmq.Socket[bytes] | None = None
        self._monitor_descriptor = -1
        self._loop = asyncio.get_running_loop()
        self._last_frame: zmq.Frame | None = None  # of the message that is being handled
        self._more_is_there = False  # it is known, and will be read
        self._waits_for_store = False  # and is not read from
        self._undelivered: list[Message] = []
        self.messages = make(hub, self)
        self.session = self.messages

    def open(self) -> None:
        """Start listening."""
        socket = self.house.router(self.limits)
        if ":" in self.url.host:
            socket.set(zmq.IPV6, 1)
        host = f"[{self.url.host}]" if ":" in self.url.host else self.url.host
        try:
            socket.bind(f"tcp://{host}:{self.bound_port or '*'}")
        except zmq.ZMQError as error:
            socket.close(0)
            reason = zmq.strerror(error.errno or 0)
            raise ConfigError(f"cannot listen on {self.url} (port {self.bound_port}): {reason}") from error
        self._socket = socket
        self._endpoint = cast(bytes, socket.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        self._descriptor = cast(int, socket.get(zmq.FD))
        self.bound_port = int(self._endpoint.rpartition(":")[2])
        self._monitor = socket.get_monitor_socket(HANDSHAKE_FAILED)
        self._monitor_descriptor = cast(int, self._monitor.get(zmq.FD))
        self._loop.add_reader(self._monitor_descriptor, self._read_failures)
        self._loop.call_soon(self._read_failures)
        self._loop.add_reader(self._descriptor, self._read)
        self._look_again()

    def stop_accepting(self) -> None:
        """New peers are let in to the end: ZeroMQ cannot stop listening without cutting off those that are connected,
        who may still have a result to bring.  The engine refuses what is new."""

    def close(self) -> None:
        socket = self._socket
        if socket is not None:
            self._loop.remove_reader(self._descriptor)
            self.hub.begin_turn()
            self.messages.closed()
            self.write(self.messages.out)  # its last words
            self._socket = None
            self._loop.remove_reader(self._monitor_descriptor)
            monitor, self._monitor = self._monitor, None
            socket.disable_monitor()
            if monitor is not None:
                monitor.close(0)
            socket.close()

    def _read_failures(self) -> None:
        """Somebody could not introduce itself: an operator who wonders why a worker does not come should hear of it."""
        monitor = self._monitor
        while monitor is not None and monitor.poll(0):
            event = recv_monitor_message(monitor, zmq.NOBLOCK)
            reason = "it was not admitted" if event["event"] in NOT_ADMITTED else "it speaks no ZeroMQ, or has no key"
            self.hub.telemetry.emit("handshake_failed", protocol=self.messages.protocol, reason=reason)

    # --- who is spoken to, for those who complain of it ---

    @property
    def host(self) -> str:  # type: ignore[override]
        """The address of the peer whose message is being handled."""
        try:
            return str(self._last_frame.get("Peer-Address")) if self._last_frame is not None else ""
        except zmq.ZMQError:
            return ""

    # --- reading ---

    def _read(self) -> None:
        """Handle what has arrived."""
        socket = self._socket
        self._more_is_there = False
        if socket is None or self._waits_for_store:
            return
        hub = self.hub
        messages = self.messages
        recv = socket.recv
        for _ in range(MESSAGES_PER_TURN):
            try:
                message: list[bytes] = [recv(NOBLOCK)]
            except zmq.Again:
                break
            more = True
            while more:
                frame: Any = recv(NOBLOCK, False)
                if len(message) <= MOST_FRAMES:
                    message.append(frame.bytes)
                more = frame.more
            self._last_frame = frame
            if not hub.turn_open:
                hub.begin_turn()
            if len(message) > MOST_FRAMES:
                hub.count_bad_input(messages, "TOO_LARGE", f"a message of {MOST_FRAMES} frames or more")
                continue
            try:
                messages.receive_message(message)
            except Exception as error:
                log.exception("defect while serving %s", self.host)
                hub.telemetry.emit(
                    "internal_error", text=repr(error), protocol=messages.protocol, host=self.host, port=0
                )
        else:
            self._read_soon()
        self._last_frame = None
        if hub.storage_error is not None and messages.promises.unsent_bytes > PROMISED_BYTES:
            self._waits_for_store = True
            self._loop.remove_reader(self._descriptor)

    def _read_soon(self) -> None:
        if not self._more_is_there:
            self._more_is_there = True
            self._loop.call_soon(self._read)

    def _look_again(self) -> None:
        """Something was done with the socket that may have used up the sign of an arrival."""
        if self._socket is not None and cast(int, self._socket.get(zmq.EVENTS)) & POLLIN:
            self._read_soon()

    def look_after(self) -> None:
        """Once a second: read again if the store works again."""
        self._read_failures()
        if self._waits_for_store and self.hub.storage_error is None:
            self._waits_for_store = False
            self._loop.add_reader(self._descriptor, self._read)
            self._read_soon()

    # --- the hub calls these ---

    def write(self, out: list[Message]) -> None:
        socket = self._socket
        if socket is None:
            return
        send = BackendSocket.send.__get__(socket)  # half of what `zmq.Socket.send` does is for what is not used here
        for message in out:
            last = len(message) - 1
            try:
                send(message[0], MORE)
            except zmq.ZMQError:
                self._not_delivered(message)
                continue
            try:
                for index in range(1, last):
                    send(message[index], MORE)
                send(message[last], NOBLOCK)
            except Exception:
                log.exception("defect while sending to %s", message[0].hex())
                send(b"", NOBLOCK)  # what was begun has to be ended, or the next message would be part of it
        self._look_again()

    def _not_delivered(self, message: Message) -> None:
        if not self._undelivered:
            self.hub.soon(self._report_undelivered)
        self._undelivered.append(message)

    def _report_undelivered(self) -> None:
        undelivered, self._undelivered = self._undelivered, []
        for message in undelivered:
            self.hub.telemetry.emit("peer_unreachable", protocol=self.messages.protocol, identity=message[0].hex())
            try:
                self.messages.unreachable(message)
            except Exception:
                log.exception("defect about a peer that is gone")  # and the others are reported all the same
