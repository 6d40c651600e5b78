"""`ManagerConnection`: DEALER sockets to WMP managers, for workers and for the upper side of devices.

Only results must not be lost; other messages are repeated. These are dropped while there is no connection, so that a
manager that returns does not get all outdated messages. A result waits here until there is a connection; one that was
already in ZeroMQ's queue when the connection was lost stays there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import Any, Final, cast

import zmq
from zmq.utils.monitor import recv_monitor_message

from switchgear.client import zeromq_sockets
from switchgear.client.reachability_log import ReachabilityLog
from switchgear.client.waker import Waker
from switchgear.client.wmp.address import ManagerAddress
from switchgear.client.zeromq_sockets import CurveKeys, SocketSettings, dealer
from switchgear.protocols.multipart import Message
from switchgear.units import MIB

__all__ = ["ManagerConnection", "SocketPoller", "connect", "receive_message", "send_message"]

log = logging.getLogger("switchgear.client.wmp")

LAST_WORDS_MS: Final = 1000  # for the last messages to a manager when the socket is closed
MOST_KEPT_BYTES: Final = 256 * MIB  # of results that wait for one manager; one may be larger

NOBLOCK: Final = int(zmq.NOBLOCK)
MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
POLLIN: Final = int(zmq.POLLIN)
POLLOUT: Final = int(zmq.POLLOUT)

# Monitor events of connections that fail, and their meaning.
PROBLEMS: Final[dict[int, str]] = {
    zmq.EVENT_CONNECT_RETRIED: "cannot be reached",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "closes the connection at once",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "does not speak as we do",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "refuses our key",
}
MONITORED: Final = reduce(or_, PROBLEMS, int(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED))


def receive_message(source: zmq.Socket[bytes]) -> Message | None:
    """The next message; None if there is none."""
    try:
        frame: Any = source.recv(NOBLOCK, False)
    except zmq.Again:
        return None
    message: Message = [frame.bytes]
    while frame.more:
        frame = source.recv(NOBLOCK, False)
        message.append(frame.bytes)
    return message


def send_message(target: zmq.Socket[bytes], message: Message) -> None:
    """Send a whole message; raises, and sends nothing, if ZeroMQ does not take the first frame."""
    last = len(message) - 1
    for index, frame in enumerate(message):
        target.send(frame, MORE if index < last else NOBLOCK)


class ManagerConnection:
    """One DEALER socket to a manager, which connects again by itself."""

    def __init__(self, address: ManagerAddress, dealer: zmq.Socket[bytes]) -> None:
        self.address = address
        self.socket = dealer
        self.monitor = dealer.get_monitor_socket(MONITORED)
        self.is_connected = False
        self._reach = ReachabilityLog(log, address)
        self._kept: deque[Message] = deque()
        self._kept_bytes = 0

    @property
    def has_kept(self) -> bool:
        """Whether results wait for a connection."""
        return bool(self._kept)

    @property
    def flags(self) -> int:
        """The events to poll for.  Without a connection ZeroMQ's queue always has room, so that POLLOUT is left out."""
        return POLLIN | POLLOUT if self._kept and self.is_connected else POLLIN

    def send(self, message: Message, *, keep: bool = False) -> bool:
        """Send a message; False if it was dropped.  With `keep` it is sent when that is possible, now or later."""
        if self.is_connected and not self._kept:
            try:
                send_message(self.socket, message)
            except zmq.Again:
                pass
            else:
                return True
        return keep and self._keep(message)

    def _keep(self, message: Message) -> bool:
        size = sum(map(len, message))
        if self._kept and self._kept_bytes + size > MOST_KEPT_BYTES:
            return False
        self._kept.append(message)
        self._kept_bytes += size
        return True

    def flush(self) -> None:
        """Send kept messages, as far as there is room."""
        with suppress(zmq.Again):
            while self._kept and self.is_connected:
                send_message(self.socket, self._kept[0])
                self._kept_bytes -= sum(map(len, self._kept.popleft()))

    def changes(self) -> Iterable[bool]:
        """Whether there is a connection, after each change since the last call."""
        while cast(int, self.monitor.get(zmq.EVENTS)) & POLLIN:
            event = recv_monitor_message(self.monitor)["event"]
            if event in PROBLEMS:
                self._reach.lost(PROBLEMS[event])
                continue
            was_connected = self.is_connected
            self.is_connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if self.is_connected:
                self._reach.found()
            else:
                self._reach.lost("the connection was lost" if was_connected else "closes the connection at once")
            self.socket.get(zmq.EVENTS)  # so that the socket has noticed, too
            self.flush()
            yield self.is_connected

    def close(self, linger_ms: int = LAST_WORDS_MS) -> None:
        if not self.socket.closed:
            self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(linger_ms)


def connect(
    context: zmq.Context[zmq.Socket[bytes]],
    addresses: Iterable[ManagerAddress],
    identity: bytes,
    settings: SocketSettings,
    keys: CurveKeys | None,
) -> list[ManagerConnection]:
    """Start connecting to all managers under one identity; raises ConfigError."""
    connections: list[ManagerConnection] = []
    try:
        for number, address in enumerate(addresses):
            socket = dealer(context, settings, keys, number=number, identity=identity)
            connections.append(ManagerConnection(address, socket))  # before connecting, so that no change is missed
            zeromq_sockets.connect(socket, address)
    except BaseException:
        for connection in connections:
            connection.close(0)
        raise
    return connections


class SocketPoller:
    """Waits for messages of managers, wakeups by other threads, and optionally one other socket."""

    def __init__(
        self, waker: Waker, connections: list[ManagerConnection], other: zmq.Socket[bytes] | None = None
    ) -> None:
        self._waker = waker
        self._connections = connections
        self._poller = zmq.Poller()
        self._flags = [POLLIN for _ in connections]
        for source in (
            waker,
            other,
            *(connection.monitor for connection in connections),
            *(connection.socket for connection in connections),
        ):
            if source is not None:
                self._poller.register(source, POLLIN)

    def wait(self, patience_ms: int | None) -> set[object]:
        """Wait, and return the sockets with events."""
        for index, connection in enumerate(self._connections):
            if self._flags[index] != connection.flags:
                self._flags[index] = connection.flags
                self._poller.register(connection.socket, connection.flags)
        arrivals: set[object] = {source for source, _ in self._poller.poll(patience_ms)}
        self._waker.clear()
        return arrivals
