"""`PendingRequest`: requests that were sent and not answered yet, and the future of each answer.

Each request has a future that it completes: of `concurrent.futures` for threads, or of asyncio.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from switchgear.client.gearman.error_codes import error_in_line
from switchgear.client.gearman.packets import (
    PACKET_BYTES_OPTION,
    SWITCHGEAR_OPTION,
    control_packet,
    name_bytes,
    name_text,
)
from switchgear.client.gearman.submit_request import SubmitRequest
from switchgear.client.gearman.subscriptions import Subscriber
from switchgear.errors import ClientError, ServerUnreachable
from switchgear.numbers import whole_number
from switchgear.protocols.gearman.codec import TEXT
from switchgear.protocols.gearman.codec import request as packet_of
from switchgear.protocols.gearman.messages import Packet
from switchgear.verbs.completeness import told_incomplete

if TYPE_CHECKING:
    from switchgear.client.gearman.client_protocol import ClientProtocol

__all__ = [
    "UNKNOWN",
    "AnyPacketRequest",
    "ControlRequest",
    "GreetingRequest",
    "PacketRequest",
    "PendingRequest",
    "PendingSubmission",
    "RoutedRequest",
    "SubscribeRequest",
    "TextRequest",
]

log = logging.getLogger("switchgear")

CREATED: Final = int(Packet.JOB_CREATED)
UNKNOWN: Final = "unknown"  # the state of a job that the server does not have
# Requests that change nothing may be sent again if a connection is lost before the answer.
READ_ONLY_VERBS: Final = frozenset({"server", "functions", "workers", "jobs", "job", "states", "explain", "schedules"})

_LOST: Final = "the connection to {server} was lost before it answered; the job may have been taken or not"


class Completable(Protocol):
    """A future: of `concurrent.futures` or of asyncio."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


class PendingRequest(ABC):
    """A request that was sent and not answered yet."""

    takes_errors = False  # an ERROR packet is part of the answer, and not the end of it

    @abstractmethod
    def on_answer(self, kind: int, body: bytes) -> bool:
        """The next packet of the answer; returns whether more of it is to come."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """The request was not sent, or there will be no answer."""

    def on_error(self, error: Exception) -> None:
        """Called when the answer is an ERROR packet."""
        self.fail(error)

    def on_connection_lost(self, error: ServerUnreachable) -> None:
        """The connection was lost before the answer came."""
        self.fail(error)


class SingleRequest(PendingRequest):
    """A request with one value as its answer."""

    def __init__(self, future: Completable | None = None) -> None:
        self.future: Any = Future() if future is None else future

    def succeed(self, value: Any) -> None:
        """Complete the future with the answer."""
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # asyncio logs exceptions that were never retrieved, and there may be no waiter


class PacketRequest(SingleRequest):
    """The answer is the body of one packet of an expected type."""

    def __init__(self, expected: int, future: Completable | None = None) -> None:
        super().__init__(future)
        self._expected = expected

    def on_answer(self, kind: int, body: bytes) -> bool:
        if kind == self._expected:
            self.succeed(body)
        else:
            self.fail(ClientError(f"the server answered with a packet of type {kind}"))
        return False


class AnyPacketRequest(SingleRequest):
    """The answer is one packet of any type, ERROR included: its type and body."""

    takes_errors = True

    def on_answer(self, kind: int, body: bytes) -> bool:
        self.succeed((kind, body))
        return False


class TextRequest(SingleRequest):
    """A command of the text protocol.  The answer is a list of lines."""

    def __init__(self, has_many_lines: bool, future: Completable | None = None) -> None:
        super().__init__(future)
        self._has_many_lines = has_many_lines  # up to a dot
        self._lines: list[str] = []

    def on_answer(self, kind: int, body: bytes) -> bool:
        if kind != TEXT:
            self.fail(ClientError(f"the server answered a line of text with a packet of type {kind}"))
            return False
        line = name_text(body)
        error = error_in_line(line) if not self._lines else None
        if error is not None:
            self.fail(error)
            return False
        if self._has_many_lines and line != ".":
            self._lines.append(line)
            return True
        self.succeed(self._lines if self._has_many_lines else [line])
        return False


class AuthenticationRequest(PendingRequest):
    """The token of a client. If the server does not accept it, the connection is of no use."""

    def __init__(self, protocol: ClientProtocol) -> None:
        self._protocol = protocol

    def on_answer(self, kind: int, body: bytes) -> bool:
        return False

    def fail(self, error: Exception) -> None:
        self._protocol.authentication_error = error


class GreetingRequest(PendingRequest):
    """The options that are asked for on a new connection, up to the echo behind them.

    A server that does not know an option may answer with an error or not at all, so the echo marks the end.
    """

    takes_errors = True
    packets: Final = b"".join(
        (
            packet_of(Packet.OPTION_REQ, SWITCHGEAR_OPTION),
            packet_of(Packet.OPTION_REQ, b"exceptions"),
            packet_of(Packet.OPTION_REQ, PACKET_BYTES_OPTION),
            packet_of(Packet.ECHO_REQ, SWITCHGEAR_OPTION),
        )
    )

    def __init__(self, protocol: ClientProtocol) -> None:
        self._protocol = protocol
        self._is_switchgear = False

    def on_answer(self, kind: int, body: bytes) -> bool:
        if kind == Packet.OPTION_RES:
            option, _, value = body.partition(b"\0")
            self._is_switchgear = self._is_switchgear or option.lower() == SWITCHGEAR_OPTION
            if option == PACKET_BYTES_OPTION:
                self._protocol.packet_bytes = whole_number(value) or self._protocol.packet_bytes
        elif kind == Packet.ECHO_RES:
            self._protocol.greeted(self._is_switchgear)
            return False
        return True

    def fail(self, error: Exception) -> None:
        """Only a lost connection ends a greeting early, and `ClientStream.greeted` is set then."""


# --- requests that are sent when the kind of server is known ---


class RoutedRequest(PendingRequest):
    """A request that encodes itself for the kind of server that it is sent to."""

    may_repeat = False  # sending it twice does no harm
    on_lost: Callable[[], bool] | None = None  # sends it again after a lost connection; returns whether it will

    def job_handle(self) -> str:
        """The handle of a job that the server has to know for this; empty if there is none."""
        return ""

    @abstractmethod
    def send(self, protocol: ClientProtocol) -> None:
        """Encode and send the request; raises ExtensionRequired, or ServerRefused if it is too large."""


class PendingSubmission(RoutedRequest):
    """Submits some jobs: one, or a batch.  The answer is a list with a handle or an exception for each."""

    def __init__(
        self,
        requests: list[SubmitRequest],
        subscribers: Sequence[Subscriber | None],
        future: Completable | None = None,
    ) -> None:
        self.future: Any = Future() if future is None else future
        self._requests = requests
        self._subscribers = subscribers
        self._outcomes: list[str | Exception] = []
        self._protocol: ClientProtocol

    def job_handle(self) -> str:
        if self._requests and self._requests[0].beside:
            return self._requests[0].beside
        return next((str(handle) for request in self._requests for handle in request.options.get("after") or ()), "")

    def send(self, protocol: ClientProtocol) -> None:
        self._protocol = protocol
        packets: list[bytes] = []
        for request in self._requests:  # all or none: a request that the server cannot do is found before one is sent
            packets.append(protocol.encode_submission(request))
        for packet in packets:
            protocol.send_request(packet, self)

    def on_answer(self, kind: int, body: bytes) -> bool:
        if kind != CREATED:
            server = self._protocol.server or "the server"
            self._add_outcome(ClientError(f"{server} answered a submission with a packet {kind}"))
            return False
        number = len(self._outcomes)
        subscriber = self._subscribers[number]
        if subscriber is not None:
            self._protocol.subscribe_submitted(body, self._requests[number], subscriber)
        self._add_outcome(name_text(body))
        return False

    def on_error(self, error: Exception) -> None:
        self._add_outcome(error)

    def on_connection_lost(self, error: ServerUnreachable) -> None:
        self._add_outcome(ServerUnreachable(_LOST.format(server=self._protocol.server)))

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def _add_outcome(self, outcome: str | Exception) -> None:
        self._outcomes.append(outcome)
        if len(self._outcomes) == len(self._requests) and not self.future.done():
            self.future.set_result(self._outcomes)


class RoutedSingleRequest(SingleRequest, RoutedRequest):
    """A routed request with one value as its answer."""

    def on_connection_lost(self, error: ServerUnreachable) -> None:
        if not (self.may_repeat and self.on_lost is not None and self.on_lost()):
            self.fail(error)


class ControlRequest(RoutedSingleRequest):
    """A verb of CONTROL, which only servers of ours know.  The answer is a JSON value."""

    def __init__(self, verb: str, arguments: dict[str, Any], future: Completable | None = None) -> None:
        super().__init__(future)
        self.verb = verb
        self.incomplete: dict[str, Any] | None = None  # `verbs.answers.Incomplete`, if servers did not answer
        self.may_repeat = verb in READ_ONLY_VERBS
        self._handle = arguments.get("handle") or ""
        self._packet = control_packet(verb, arguments)

    def job_handle(self) -> str:
        return str(self._handle)

    def send(self, protocol: ClientProtocol) -> None:
        protocol.require_switchgear(_VERB_PURPOSE.get(self.verb, self.verb))
        protocol.send_request(self._packet, self)

    def on_answer(self, kind: int, body: bytes) -> bool:
        if kind != Packet.CONTROL_RES:
            self.fail(ClientError(f"the server answered {self.verb} with a packet of type {kind}"))
            return False
        text, _, note = body.partition(b"\0")
        try:
            answer = msgspec.json.decode(text)
            if note:
                self.incomplete = msgspec.json.decode(note, type=dict[str, Any])
                log.warning("%s", told_incomplete(self.verb, self.incomplete))
            self.succeed(answer)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            self.fail(ClientError(f"the server answered {self.verb} with something that is not JSON: {error}"))
        return False


class SubscribeRequest(RoutedSingleRequest):
    """Subscribes to a job that was submitted before.  The answer is the name of its state."""

    may_repeat = True

    def __init__(self, handle: str, subscriber: Subscriber, future: Completable | None = None) -> None:
        super().__init__(future)
        self.handle = handle
        self.subscriber = subscriber
        self._protocol: ClientProtocol

    def job_handle(self) -> str:
        return self.handle

    def send(self, protocol: ClientProtocol) -> None:
        protocol.require_switchgear("the result of a job by its handle")
        self._protocol = protocol
        protocol.send_request(packet_of(Packet.WATCH, name_bytes(self.handle)), self)

    def on_answer(self, kind: int, body: bytes) -> bool:
        handle, _, state = body.partition(b"\0")
        if state != UNKNOWN.encode():
            self.subscriber.restart()
            self._protocol.subscribe_existing(handle, self.subscriber)
        self.succeed(state.decode(errors="replace"))
        return False


# Descriptions of verbs, for errors about servers that do not know them.
_VERB_PURPOSE: Final = {
    "job": "the status of a job",
    "cancel": "cancelling a job",
    "retry": "retrying a job",
    "explain": "an explanation",
    "jobs": "a list of jobs",
    "states": "the states of jobs",
    "pause": "pausing a task",
    "resume": "resuming a task",
    "limit": "a limit",
    "schedule": "a schedule",
    "schedules": "a list of schedules",
    "unschedule": "a schedule",
    "pause_schedule": "a schedule",
    "resume_schedule": "a schedule",
    "run_schedule": "a schedule",
    "complete": "a signal",
    "wait_for": "a task that waits",
    "spawn": "a task that spawns jobs",
    "server": "a description of the server",
    "functions": "a list of functions",
    "workers": "a list of workers",
}
