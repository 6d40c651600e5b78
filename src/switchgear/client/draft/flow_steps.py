"""`DraftConnection` and the steps of flows: the client and worker of the 2005 draft without I/O.

A `DraftConnection` is one connection without I/O: bytes go in, and what they mean is noted.  A *flow* is a generator
that works with connections: it yields steps (connect, send, wait until something is so), and a driver takes them.
There are two drivers, `blocking.py` and `aio.py`, and one of everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol, TypeVar

from switchgear.client.address import ServerAddress
from switchgear.client.gearman.packets import LARGEST_PACKET_BYTES
from switchgear.errors import PeerError, ServerRefused, ServerUnreachable
from switchgear.protocols.gearman_draft.codec import DraftDecoder
from switchgear.protocols.gearman_draft.messages import ErrorCode, ErrorReport

__all__ = [
    "CloseStep",
    "ConnectionState",
    "DraftConnection",
    "Flow",
    "OpenStep",
    "RunStep",
    "Runnable",
    "SendStep",
    "Step",
    "WaitStep",
    "draft_servers",
    "refusal",
]

T = TypeVar("T")


class ConnectionState(Enum):
    """The state of a connection, which may be opened again after it was shut."""

    SHUT = auto()
    OPENING = auto()
    OPEN = auto()


class DraftConnection:
    """One connection to a server, without I/O."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self.state = ConnectionState.SHUT
        self.problem = ServerUnreachable(f"there is no connection to {address} yet")  # why it is shut
        self._decoder = DraftDecoder(LARGEST_PACKET_BYTES)

    @property
    def is_open(self) -> bool:
        return self.state is ConnectionState.OPEN

    # --- for the driver ---

    def opening(self) -> None:
        """Note that an attempt to connect begins."""
        self.state = ConnectionState.OPENING

    def opened(self) -> bytes:
        """Note that the connection is established; returns the first bytes to send."""
        self.state = ConnectionState.OPEN
        self._decoder = DraftDecoder(LARGEST_PACKET_BYTES)
        return self.on_opened()

    def receive(self, data: bytes) -> None:
        """Handle bytes of the server.  If they are not of the draft, the connection is shut."""
        try:
            for kind, body in self._decoder.feed(data):
                self.on_packet(kind, body)
            if self._decoder.failure is not None:
                raise self._decoder.failure
        except PeerError as error:
            self.lost(f"{self.address} does not speak the draft: {error}")

    def lost(self, problem: str) -> None:
        """The connection was lost, or could not be made."""
        if self.state is not ConnectionState.SHUT:
            self.state = ConnectionState.SHUT
            self.problem = ServerUnreachable(problem)
            self.on_lost()

    # --- for those who make something of it ---

    def on_opened(self) -> bytes:
        """A connection was made; returns the first bytes to send."""
        return b""

    def on_packet(self, kind: int, body: bytes) -> None:
        """Handle a packet of the server; raises PeerError."""

    def on_lost(self) -> None:
        """Handle the loss of the connection; no more answers will come."""


def draft_servers(urls: str | Iterable[str]) -> list[ServerAddress]:
    """The servers of a client or worker, each once; raises ConfigError, also if the files for TLS cannot be used."""
    servers = [ServerAddress.parse(url) for url in ([urls] if isinstance(urls, str) else urls)]
    for server in servers:
        server.tls_context()
    return list(dict.fromkeys(servers))


def refusal(body: bytes) -> ServerRefused:
    """The exception for the body of an error packet."""
    report = ErrorReport.unpack(body)
    known = report.code in ErrorCode.__members__.values()
    return ServerRefused(ErrorCode(report.code).name if known else f"ERROR {report.code}", report.text)


# --- steps ---


@dataclass(frozen=True, slots=True)
class OpenStep:
    """Begin to connect.  The state of the connection tells the result, after some `WaitStep`."""

    connection: DraftConnection


@dataclass(frozen=True, slots=True)
class SendStep:
    """Send data, if there is a connection."""

    connection: DraftConnection
    data: bytes


@dataclass(frozen=True, slots=True)
class CloseStep:
    """Close the connection, for this reason."""

    connection: DraftConnection
    problem: str


@dataclass(frozen=True, slots=True)
class WaitStep:
    """Receive until the condition is true or the deadline has passed; the answer is whether the condition is true.

    What has arrived already is handled in any case.
    """

    condition: Callable[[], bool]
    deadline: float | None = None  # on the monotonic clock


class Runnable(Protocol):
    """An action that only the driver can perform."""

    @property
    def connection(self) -> DraftConnection:
        """The connection without which the action is stopped."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """Perform an action; the answer is its result."""

    task: Runnable


Step = OpenStep | SendStep | CloseStep | WaitStep | RunStep
Flow = Generator[Step, Any, T]
