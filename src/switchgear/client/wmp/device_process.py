"""`WmpDevice`: a WMP device as a process, with sockets around `switchgear.protocols.wmp.device_routing`.

Workers connect to a ROUTER socket, as they would to a manager; managers are connected to as workers do it. The identity
towards managers is always the same, so that paths through a device stay valid when it is restarted. Nothing waits for a
peer: a message that a peer does not read is dropped, counted and, if it is a job, returned.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final, cast

import zmq

from switchgear.client.run_in_background import ThreadForAsync
from switchgear.client.waker import Waker
from switchgear.client.wmp.address import manager_addresses
from switchgear.client.wmp.manager_connections import (
    ManagerConnection,
    SocketPoller,
    connect,
    receive_message,
    send_message,
)
from switchgear.client.wmp.router_socket import RouterSockets
from switchgear.client.zeromq_sockets import CurveKeys, SocketSettings, check_identity
from switchgear.config import LimitsConfig, ListenUrl, ZeromqConfig
from switchgear.errors import ConfigError
from switchgear.protocols.multipart import Message
from switchgear.protocols.wmp.codec import DONE
from switchgear.protocols.wmp.device_routing import Device, Upwards
from switchgear.text import harmless

__all__ = ["WmpDevice"]

log = logging.getLogger("switchgear.device")

MESSAGES_PER_TURN: Final = 500  # of one socket, before others have their turn
COMMAND: Final = 2  # the frame with the command

COMPLAIN_SECONDS: Final = 10.0  # from one complaint to the next
COUNTED: Final = ("up", "down", "bad", "dropped", "undelivered", "returned")


class WmpDevice(ThreadForAsync):
    """Passes messages between workers below and managers above.

    `run` does so in the calling thread; as a context manager, `with` or `async with`, in a thread of its own.
    """

    def __init__(
        self,
        listen: str | ListenUrl,
        managers: str | Iterable[str],
        *,
        allow_remote: bool = False,
        identity: str = "",
        keys: CurveKeys | None = None,
        zeromq: ZeromqConfig | None = None,
        limits: LimitsConfig | None = None,
    ) -> None:
        """Starts listening, at a URL such as `wmp://127.0.0.1:0`.  Port 0 is a free one, and `address` tells which.

        `managers` are the addresses of managers, or of devices above this one.  `allow_remote` permits an address that
        other machines can reach, without encryption.  `identity` is what managers know the device by; by default, the
        host name and the port.  `keys` are for the managers, those for workers are in `zeromq`.  Raises ConfigError.
        """
        listen = _listen_url(listen) if isinstance(listen, str) else listen
        if not (listen.is_loopback or allow_remote or (zeromq is not None and zeromq.curve_key_file)):
            raise ConfigError(f"other machines can reach {listen}, which has no encryption; see allow_remote")
        self.addresses = manager_addresses(managers)
        if keys is not None:
            keys.check(len(self.addresses), "managers")
        self._keys = keys
        self._limits = limits or LimitsConfig()
        self._sockets = RouterSockets(zeromq or ZeromqConfig())
        self._router = self._sockets.router(self._limits)
        try:
            self.url = self._listen(listen)
            self._device = Device(self._identity(identity), len(self.addresses))
        except BaseException:
            self._router.close(0)
            self._sockets.close()
            raise
        self._connections: list[ManagerConnection] = []
        self._waker = Waker()
        self._stopping = False
        self._counts_wanted = False
        self._complain_at = 0.0

    def _listen(self, url: ListenUrl) -> ListenUrl:
        """Start listening; returns the address, with the actual port if port 0 was given."""
        router = self._router
        host = f"[{url.host}]" if ":" in url.host else url.host
        if ":" in url.host:
            router.set(zmq.IPV6, 1)
        try:
            router.bind(f"tcp://{host}:{url.port or '*'}")
        except zmq.ZMQError as error:
            raise ConfigError(f"cannot listen on {url}: {error.strerror}") from error
        endpoint = cast(bytes, router.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        return ListenUrl(url.scheme, url.host, int(endpoint.rpartition(":")[2]))

    def _identity(self, wanted: str) -> bytes:
        try:
            return check_identity((wanted or f"device:{socket.gethostname()}:{self.url.port}").encode())
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def address(self) -> str:
        """Where workers, and devices below this one, connect."""
        return str(self.url)

    @property
    def identity(self) -> bytes:
        return self._device.identity

    @property
    def counts(self) -> Counter[str]:
        """Messages passed `up` and `down`; `bad` ones; those for a manager that does not read (`dropped`) or for a
        peer below that is not connected (`undelivered`), and jobs among these (`returned`)."""
        return self._device.counts

    def stop(self) -> None:
        """Let `run` return; from any thread, or a signal handler."""
        self._stopping = True
        self._waker()

    def log_counts(self) -> None:
        """Log the counts; from any thread, or a signal handler."""
        self._counts_wanted = True
        self._waker()

    def run(self) -> None:
        """Pass on messages until `stop` is called.  To be called once."""
        zeromq = self._sockets.config
        settings = SocketSettings(
            message_bytes=self._limits.packet_bytes,
            messages_waiting=zeromq.messages_per_peer,
            heartbeat_seconds=zeromq.heartbeat_seconds,
        )
        try:
            self._connections = connect(self._sockets.context, self.addresses, self.identity, settings, self._keys)
            with self._waker.by_signals():
                self._pass_on()
        finally:
            for connection in self._connections:
                connection.close()
            self._router.close()
            self._sockets.close()
            self._waker.close()
            self._log_counts()

    def _pass_on(self) -> None:
        waiting = SocketPoller(self._waker, self._connections, self._router)
        while not self._stopping:
            arrivals = waiting.wait(None)
            if self._counts_wanted:
                self._counts_wanted = False
                self._log_counts()
            if self._router in arrivals:
                self._read_workers()
            for number, connection in enumerate(self._connections):
                if connection.monitor in arrivals:
                    self._read_changes(connection)
                if connection.socket in arrivals:
                    self._read_manager(number, connection)

    # --- upwards ---

    def _read_workers(self) -> None:
        for _ in range(MESSAGES_PER_TURN):
            message = receive_message(self._router)
            if message is None:
                return
            passed_on = self._device.from_below(message)
            if not passed_on:
                self._complain("from below")
            for upwards in passed_on:
                self._send_up(upwards)

    def _send_up(self, upwards: Upwards) -> None:
        number, message = upwards
        if not self._connections[number].send(message, keep=message[COMMAND] == DONE):
            self.counts["dropped"] += 1

    # --- downwards ---

    def _read_changes(self, connection: ManagerConnection) -> None:
        for is_connected in connection.changes():
            log.info("%s %s", "connected to" if is_connected else "lost the connection to", connection.address)

    def _read_manager(self, number: int, connection: ManagerConnection) -> None:
        connection.flush()
        for _ in range(MESSAGES_PER_TURN):
            message = receive_message(connection.socket)
            if message is None:
                return
            passed_on = self._device.from_above(number, message)
            if passed_on is None:
                self._complain(f"from {connection.address}")
            else:
                self._send_down(passed_on)

    def _send_down(self, message: Message) -> None:
        try:
            send_message(self._router, message)
        except zmq.ZMQError:  # no peer of that name is connected, or its queue is full
            answer = self._device.undeliverable(message)
            if answer is not None:
                self._send_up(answer)

    # --- telling people ---

    def _complain(self, whence: str) -> None:
        """Log a bad message; of many only some, because a peer can send a million."""
        now = time.monotonic()
        if now >= self._complain_at:
            self._complain_at = now + COMPLAIN_SECONDS
            log.warning("bad message %s: %s (%d so far)", whence, harmless(self._device.problem), self.counts["bad"])

    def _log_counts(self) -> None:
        log.info("messages: %s", ", ".join(f"{self.counts[name]} {name}" for name in COUNTED))


def _listen_url(text: str) -> ListenUrl:
    try:
        url = ListenUrl.parse(text)
    except ValueError as error:
        raise ConfigError(f"the address of a device: {error}") from None
    if url.scheme != "wmp":
        raise ConfigError(f"the address of a device is at wmp://, not {url}")
    return url
