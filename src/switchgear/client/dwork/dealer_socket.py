"""`DealerSocket`: the DEALER socket of a dwork client, and the monitor of its connection.

ZeroMQ connects, and connects again, by itself.  The socket takes messages only while there is a connection, so those
that were taken and not answered are lost with it, and no others.

Both file descriptors are edge-triggered; so after an event everything that is possible is done.
"""

from __future__ import annotations

from typing import Final, cast

import zmq
from zmq.utils.monitor import recv_monitor_message

from switchgear.client.dwork.address import DworkAddress
from switchgear.client.dwork.pending_requests import PendingRequests
from switchgear.client.zeromq_sockets import KEYS_HINT, CurveKeys, SocketSettings, connect, dealer

__all__ = ["DealerSocket"]

# `PendingRequests` bounds what is in flight, and the length of an answer is not limited.
SETTINGS: Final = SocketSettings(message_bytes=0, messages_waiting=0, heartbeat_seconds=10.0)
LAST_WORDS_MS: Final = 1_000  # for what is sent right before the end

_LOST: Final = frozenset(
    {
        zmq.EVENT_DISCONNECTED,
        zmq.EVENT_CLOSED,
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    }
)
_PROBLEMS: Final[dict[int, str]] = {
    zmq.EVENT_DISCONNECTED: "the connection was lost",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: f"the connection was closed at once; {KEYS_HINT}",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: f"the other side does not speak as we do; {KEYS_HINT}",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: f"our key was refused; {KEYS_HINT}",
}
# For a connection that was lost before it could be used; it will be so the next time, too.
_LOST_AT_ONCE: Final = _PROBLEMS[zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL]


class DealerSocket:
    """Carries the messages of `PendingRequests`, over one connection at a time."""

    def __init__(self, address: DworkAddress, keys: CurveKeys | None, pending_requests: PendingRequests) -> None:
        self._pending_requests = pending_requests
        self._context = zmq.Context()
        try:
            self._socket = dealer(self._context, SETTINGS, keys)
            self._socket.set(zmq.IMMEDIATE, 1)
            self._monitor = self._socket.get_monitor_socket()
            connect(self._socket, address)
        except BaseException:
            self._context.destroy()
            raise

    @property
    def is_closed(self) -> bool:
        return bool(self._socket.closed)

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors to watch; `pump` has to be called after one became readable, and before watching starts."""
        return cast(int, self._socket.get(zmq.FD)), cast(int, self._monitor.get(zmq.FD))

    def poll(self, timeout_seconds: float | None) -> None:
        """Wait until something can be read or sent."""
        poller = zmq.Poller()
        wanted = zmq.POLLIN | (zmq.POLLOUT if self._pending_requests.outbox else 0)
        poller.register(self._socket, wanted)
        poller.register(self._monitor, zmq.POLLIN)
        poller.poll(None if timeout_seconds is None else max(0, int(timeout_seconds * 1000) + 1))

    def pump(self) -> bool:
        """Receive and send as much as possible without waiting; returns whether there was anything."""
        did_anything = False
        # Asking for POLLOUT resets ZeroMQ's signal for input as well, so input is checked last.
        while self._receive() or self._read_monitor() or self._send() or _events(self._socket) & zmq.POLLIN:
            did_anything = True
        return did_anything

    def _read_monitor(self) -> bool:
        """Read the events of the connection; before anything is sent, because requests on a lost connection get no
        answer."""
        received = False
        while _events(self._monitor) & zmq.POLLIN:
            event = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._pending_requests.connected()
            elif event in _LOST:
                self._pending_requests.disconnected(self._problem(event))
            received = True
        return received

    def _problem(self, event: int) -> str:
        """The problem that an event reports. A server that closes the connection during the handshake refuses our
        keys."""
        if event == zmq.EVENT_DISCONNECTED and not self._pending_requests.is_connected:
            return _LOST_AT_ONCE
        return _PROBLEMS.get(event, self._pending_requests.problem)

    def _receive(self) -> bool:
        received = False
        while _events(self._socket) & zmq.POLLIN:
            self._pending_requests.receive(self._socket.recv_multipart(zmq.NOBLOCK))
            received = True
        return received

    def _send(self) -> bool:
        pending_requests = self._pending_requests
        sent = False
        while _events(self._socket) & zmq.POLLOUT and (message := pending_requests.next_message()) is not None:
            try:
                self._socket.send_multipart(message, zmq.NOBLOCK)
            except zmq.Again:
                break
            pending_requests.sent()
            sent = True
        return sent

    def close(self) -> None:
        """Close the socket, with a moment for messages that are still to be sent."""
        if self.is_closed:
            return
        linger_ms = 0
        if self._pending_requests.outbox and self._pending_requests.is_connected:
            linger_ms = LAST_WORDS_MS
            self._send()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(linger_ms)
        self._context.term()


def _events(socket: zmq.Socket[bytes]) -> int:
    return cast(int, socket.get(zmq.EVENTS))
