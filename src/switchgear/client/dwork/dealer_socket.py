"""The socket of a client: a DEALER, and a monitor that tells when its connection comes and goes.

ZeroMQ connects, and connects again, by itself.  The socket takes messages only while there is a connection, so those
that were taken and not answered are lost with it, and no others.

Both file descriptors tell of news only once; so after they have, everything is done that can be done.
"""

from __future__ import annotations

from typing import Final, cast

import zmq
from zmq.utils.monitor import recv_monitor_message

from switchgear.client.dwork.address import DworkAddress
from switchgear.client.dwork.pending_requests import PendingRequests
from switchgear.client.zeromq_sockets import KEYS_HINT, CurveKeys, SocketSettings, connect, dealer

__all__ = ["DealerSocket"]

# The conversation bounds what is in flight, and an answer is as long as it is.
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
    """One connection at a time, made anew when it is lost."""

    def __init__(self, address: DworkAddress, keys: CurveKeys | None, conversation: PendingRequests) -> None:
        self._conversation = conversation
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
        """What to watch; after either became readable, and before it is watched, `pump`."""
        return cast(int, self._socket.get(zmq.FD)), cast(int, self._monitor.get(zmq.FD))

    def poll(self, timeout_seconds: float | None) -> None:
        """Wait for news."""
        poller = zmq.Poller()
        wanted = zmq.POLLIN | (zmq.POLLOUT if self._conversation.outbox else 0)
        poller.register(self._socket, wanted)
        poller.register(self._monitor, zmq.POLLIN)
        poller.poll(None if timeout_seconds is None else max(0, int(timeout_seconds * 1000) + 1))

    def pump(self) -> bool:
        """Do all that can be done without waiting; False if that was nothing."""
        did_anything = False
        # Looking whether there is room to send tells ZeroMQ that we know of what has come, so we look for that last.
        while self._receive() or self._hear_monitor() or self._send() or _events(self._socket) & zmq.POLLIN:
            did_anything = True
        return did_anything

    def _hear_monitor(self) -> bool:
        """What became of the connection.  Before anything is sent: what was sent on a lost one is not answered."""
        heard = False
        while _events(self._monitor) & zmq.POLLIN:
            event = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._conversation.connected()
            elif event in _LOST:
                self._conversation.disconnected(self._problem(event))
            heard = True
        return heard

    def _problem(self, event: int) -> str:
        """In words.  Only a connection that stood can be lost; who hangs up before may not like our keys."""
        if event == zmq.EVENT_DISCONNECTED and not self._conversation.is_connected:
            return _LOST_AT_ONCE
        return _PROBLEMS.get(event, self._conversation.problem)

    def _receive(self) -> bool:
        heard = False
        while _events(self._socket) & zmq.POLLIN:
            self._conversation.receive(self._socket.recv_multipart(zmq.NOBLOCK))
            heard = True
        return heard

    def _send(self) -> bool:
        conversation = self._conversation
        sent = False
        while _events(self._socket) & zmq.POLLOUT and (message := conversation.next_message()) is not None:
            try:
                self._socket.send_multipart(message, zmq.NOBLOCK)
            except zmq.Again:
                break
            conversation.sent()
            sent = True
        return sent

    def close(self) -> None:
        """Hang up.  What is still to be sent then has a moment to leave."""
        if self.is_closed:
            return
        linger_ms = 0
        if self._conversation.outbox and self._conversation.is_connected:
            linger_ms = LAST_WORDS_MS
            self._send()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(linger_ms)
        self._context.term()


def _events(socket: zmq.Socket[bytes]) -> int:
    return cast(int, socket.get(zmq.EVENTS))
