"""The core of every Gearman client, without I/O: requests and their answers, subscriptions and their events.

Answers come in the order of the requests, so the next answer belongs to the oldest request.  Events of jobs come in
between, and carry the handle of their job.

A connection may begin with a greeting: our option is asked for, and an echo after it.  A server of ours agrees to the
option; any other refuses it or says nothing, and then the echo comes back.  So the kind of the server is known before
the first job is submitted, at the price of one round trip per connection.  A server of ours is then sent
SUBMIT_JOB_OPTIONS, WATCH and CONTROL; any other only what every Gearman server knows, and a request that needs more
raises ExtensionRequired.  Without a greeting the caller makes sure that the server knows what it is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from switchgear.client.gearman.error_codes import ARGUMENT_TOO_LARGE, FOREIGN_PROTOCOL, error_in_packet, error_of
from switchgear.client.gearman.packets import LARGEST_PACKET_BYTES, response_decoder
from switchgear.client.gearman.pending_requests import AuthenticationRequest, GreetingRequest, PendingRequest
from switchgear.client.gearman.submit_request import OptionsEncoder, SubmitRequest, encode_plain
from switchgear.client.gearman.subscriptions import (
    JOB_EVENTS,
    BroadcastSubscriptions,
    CopySubscriptions,
    Subscriber,
    Subscriptions,
)
from switchgear.errors import ExtensionRequired, ServerRefused, ServerUnreachable
from switchgear.protocols.gearman.codec import request as packet_of
from switchgear.protocols.gearman.messages import Packet

__all__ = ["ClientProtocol"]

ERROR: Final = int(Packet.ERROR)
_FOREIGN: Final = FOREIGN_PROTOCOL.encode() + b"\0"
NOOP: Final = int(Packet.NOOP)  # never the answer to a request of a client


class ServerKind(Enum):
    """Whether a server supports the extensions, as far as known."""

    NOT_ASKED = auto()
    PLAIN = auto()  # a Gearman server without our extensions
    SWITCHGEAR = auto()


class ClientProtocol:
    """One connection to one server.  A new connection needs a new one."""

    def __init__(self, server: str = "", on_ready: Callable[[], None] = lambda: None) -> None:
        """`server` is its name in messages; `on_ready` is called after the greeting."""
        self.server = server
        self.server_number = 0  # which of several servers this is
        self.packet_bytes = LARGEST_PACKET_BYTES  # the largest packet that the server takes, as far as is known
        self.packets_received = 0
        self.outgoing: list[bytes] = []  # to be sent by the owner of the connection
        self.unexpected_error: ServerRefused | None = None  # the last ERROR that answered no request
        self.authentication_error: Exception | None = None  # why the server does not accept the token
        self._kind = ServerKind.NOT_ASKED
        self._on_ready = on_ready
        self._subscriptions: Subscriptions = CopySubscriptions()
        self._requests: deque[PendingRequest] = deque()
        self._encoder = OptionsEncoder()
        self._decoder = response_decoder()

    # --- the greeting ---

    def authenticate(self, token: str) -> None:
        """Identify this client; before anything else is sent."""
        self.send_request(packet_of(Packet.AUTHENTICATE, token.encode()), AuthenticationRequest(self))

    def greet(self) -> None:
        """Find out the kind of the server."""
        self.send_request(GreetingRequest.packets, GreetingRequest(self))

    def greeted(self, is_switchgear: bool) -> None:
        """Note which kind of server answered the greeting; requests can be sent from now on."""
        self._kind = ServerKind.SWITCHGEAR if is_switchgear else ServerKind.PLAIN
        if is_switchgear:
            self._subscriptions = BroadcastSubscriptions()
        self._on_ready()

    @property
    def is_ready(self) -> bool:
        """Whether the server has answered the greeting."""
        return self._kind is not ServerKind.NOT_ASKED

    @property
    def is_switchgear(self) -> bool:
        """Whether the greeting has shown that the server is one of ours."""
        return self._kind is ServerKind.SWITCHGEAR

    def require_switchgear(self, *features: str) -> None:
        """Raise ExtensionRequired if the server is known to be a plain one."""
        if self._kind is ServerKind.PLAIN:
            *first, last = features
            subject = f"{', '.join(first)} and {last}" if first else last
            verb = "need" if first or last == "retries" else "needs"
            raise ExtensionRequired(f"{subject} {verb} a Switchgear server; {self.server} is a plain Gearman server")

    # --- requests and answers ---

    @property
    def unanswered(self) -> int:
        """How many requests have no answer yet."""
        return len(self._requests)

    def send_request(self, packet: bytes, request: PendingRequest) -> None:
        """Send a packet, and pass its answer to the request."""
        self.outgoing.append(packet)
        self._requests.append(request)

    def take_outgoing(self) -> bytes:
        """Everything that is to be sent now, in one piece."""
        data = self.outgoing[0] if len(self.outgoing) == 1 else b"".join(self.outgoing)
        self.outgoing.clear()
        return data

    def receive(self, data: bytes) -> None:
        """Handle bytes of the server; raises ServerUnreachable if they are not Gearman, after handling what is."""
        packets = self._decoder.feed(data)
        self.packets_received += len(packets)
        for kind, body in packets:
            if kind in JOB_EVENTS:
                handle, _, rest = body.partition(b"\0")
                self._subscriptions.dispatch(kind, handle, rest)
            elif kind != NOOP:
                if kind == ERROR and body.startswith(_FOREIGN):
                    raise ServerUnreachable(error_in_packet(body).text, is_lasting=True)
                self._on_answer(kind, body)
                if self.authentication_error is not None:
                    text = f"the server does not accept the token: {self.authentication_error}"
                    raise ServerUnreachable(text, is_lasting=True)
        if self._decoder.failure is not None:
            raise ServerUnreachable(f"the server does not speak Gearman: {self._decoder.failure}")

    def _on_answer(self, kind: int, body: bytes) -> None:
        if not self._requests:
            if kind == ERROR:
                self.unexpected_error = error_in_packet(body)
            return
        request = self._requests[0]
        if kind == ERROR and not request.takes_errors:
            self._requests.popleft()
            request.on_error(error_in_packet(body))
        elif not request.on_answer(kind, body):
            self._requests.popleft()

    def connection_lost(self, error: ServerUnreachable) -> None:
        """Tell all requests and subscribers that the connection is over."""
        requests, self._requests = self._requests, deque()
        for request in requests:
            request.on_connection_lost(error)
        for _, subscriber in self.take_subscribers():
            subscriber.on_connection_lost(error)

    # --- submissions and subscriptions ---

    def encode_submission(self, request: SubmitRequest) -> bytes:
        """The packet that submits this; raises ExtensionRequired, or ServerRefused if it is too large."""
        if self._kind is ServerKind.PLAIN:
            self._check_plain(request)
            return encode_plain(request)
        if self._kind is ServerKind.NOT_ASKED and request.fits_plain_packets:
            return encode_plain(request)
        packet = self._encoder.encode(request)
        if len(packet) > self.packet_bytes:  # the server would close the connection, which others use too
            size = f"the arguments take {len(request.payload)} bytes"
            limit = f"{self.server} takes at most {self.packet_bytes} (limits.packet_bytes)"
            raise error_of(ARGUMENT_TOO_LARGE, f"{size}, and {limit}; a PayloadCodec can keep them in a blob store")
        return packet

    def _check_plain(self, request: SubmitRequest) -> None:
        if request.needs:
            self.require_switchgear(*request.needs)
        if request.run_at and request.durable is False:
            self.require_switchgear("a job for later that is not durable")
        if request.run_at and request.priority != "normal":
            self.require_switchgear(f"a job for later of {request.priority} priority")

    def subscribe_submitted(self, handle: bytes, request: SubmitRequest, subscriber: Subscriber) -> None:
        """Subscribe to a job that the server has just taken."""
        subscriber.server_number = self.server_number
        if self._kind is ServerKind.PLAIN and request.is_background:
            text = f"the result of a background job needs a Switchgear server; {self.server} is a plain Gearman server"
            subscriber.give_up(ExtensionRequired(text))
            return
        subscriber.survives_reconnect = self.is_switchgear and request.durable is not False
        self._subscriptions.add(handle, subscriber, adds_copy=request.durable is False)

    def subscribe_existing(self, handle: bytes, subscriber: Subscriber) -> None:
        """Subscribe to a job whose events the server has been asked for."""
        subscriber.server_number = self.server_number
        subscriber.survives_reconnect = True
        self._subscriptions.add(handle, subscriber, adds_copy=False)

    def take_subscribers(self) -> list[tuple[bytes, Subscriber]]:
        """Remove and return all subscribers, each with the handle of its job."""
        return self._subscriptions.take_all()
