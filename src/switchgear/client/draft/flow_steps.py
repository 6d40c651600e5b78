"""The parts of a conversation that are the same whether one waits for the network by blocking or with asyncio.

A `DraftConnection` is one connection without I/O: bytes go in, and what they mean is noted.  A *flow* is a generator
that works with connections: it yields steps (connect, send, wait until something is so), and a driver takes them.
There are two drivers, `blocking.py` and `aio.py`, and one of everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol, TypeVar

from switchgear.client.address import ServerAddress
from switchgear.client.connection import LARGEST_PACKET_BYTES
from switchgear.errors import PeerError, ServerRefused, ServerUnreachable
from switchgear.protocols.gearman_draft.codec import Decoder
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
    "refusal",
]

T = TypeVar("T")


class ConnectionState(Enum):
    """Where a connection is in its life, which may begin again."""

    SHUT = auto()
    OPENING = auto()
    OPEN = auto()


class DraftConnection:
    """One connection to a server."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self.state = ConnectionState.SHUT
        self.problem = ServerUnreachable(f"there is no connection to {address} yet")  # why it is shut
        self._decoder = Decoder(LARGEST_PACKET_BYTES)

    @property
    def is_open(self) -> bool:
        return self.state is ConnectionState.OPEN

    # --- for the driver ---

    def opening(self) -> None:
        """An attempt to connect begins."""
        self.state = ConnectionState.OPENING

    def opened(self) -> bytes:
        """The connection stands; returns what is to be said first."""
        self.state = ConnectionState.OPEN
        self._decoder = Decoder(LARGEST_PACKET_BYTES)
        return self.on_opened()

    def receive(self, data: bytes) -> None:
        """The server sent this.  If it makes no sense, the line is shut."""
        try:
            for kind, body in self._decoder.feed(data):
                self.on_packet(kind, body)
            if self._decoder.failure is not None:
                raise self._decoder.failure
        except PeerError as error:
            self.lost(f"{self.address} does not speak the draft: {error}")

    def lost(self, problem: str) -> None:
        """The connection is over, or was never made."""
        if self.state is not ConnectionState.SHUT:
            self.state = ConnectionState.SHUT
            self.problem = ServerUnreachable(problem)
            self.on_lost()

    # --- for those who make something of it ---

    def on_opened(self) -> bytes:
        """A new conversation begins."""
        return b""

    def on_packet(self, kind: int, body: bytes) -> None:
        """The server said this; raises PeerError if it cannot be."""

    def on_lost(self) -> None:
        """No answer will come any more."""


def refusal(body: bytes) -> ServerRefused:
    """The error that an error packet tells of."""
    report = ErrorReport.unpack(body)
    known = report.code in ErrorCode.__members__.values()
    return ServerRefused(ErrorCode(report.code).name if known else f"ERROR {report.code}", report.text)


# --- steps ---


@dataclass(frozen=True, slots=True)
class OpenStep:
    """Begin to connect.  How it went is seen in the line's state, after some `WaitStep`."""

    line: DraftConnection


@dataclass(frozen=True, slots=True)
class SendStep:
    """Send this, if there is a connection."""

    line: DraftConnection
    data: bytes


@dataclass(frozen=True, slots=True)
class CloseStep:
    """Hang up, for this reason."""

    line: DraftConnection
    problem: str


@dataclass(frozen=True, slots=True)
class WaitStep:
    """Let things arrive until this is so, or it is that late; the answer is whether it is so.

    What has arrived already is looked at in any case.
    """

    condition: Callable[[], bool]
    deadline: float | None = None  # on the monotonic clock


class Runnable(Protocol):
    """Something that only the outside knows how to do."""

    @property
    def line(self) -> DraftConnection:
        """Without it, there is no sense in going on."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """Do this; the answer is its result."""

    task: Runnable


Step = OpenStep | SendStep | CloseStep | WaitStep | RunStep
Flow = Generator[Step, Any, T]
