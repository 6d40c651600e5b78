"""Session factories: how a protocol makes the sessions of its listeners.

A server has one factory for each protocol that it listens for, made by `Listeners` (net/listeners.py) from the class
that the protocol's declaration names (switchgear/protocol_registry.py).  A protocol over TCP extends
`TcpSessionFactory`, one over ZeroMQ `ZeromqSessionFactory`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from mypy_extensions import mypyc_attr

from switchgear.config import Config, ListenUrl
from switchgear.engine.engine import Engine
from switchgear.protocols.broadcast import Broadcast
from switchgear.protocols.context import Context
from switchgear.protocols.message_session import MessageSession
from switchgear.protocols.session import ByteSession
from switchgear.protocols.transport import PeerTransport

__all__ = [
    "MessageSessionMaker",
    "ProtocolByPrefix",
    "ProtocolDetector",
    "ServerEnvironment",
    "SessionFactory",
    "SessionMaker",
    "TcpSessionFactory",
    "ZeromqSessionFactory",
    "ZeromqSocket",
    "no_refusal",
]

SessionMaker = Callable[[Context, PeerTransport], ByteSession]
MessageSessionMaker = Callable[[Context, PeerTransport], MessageSession]


@dataclass(frozen=True, slots=True)
class ServerEnvironment:
    """What a factory may use of its server."""

    config: Config
    engine: Engine
    handle_prefix: bytes  # of Gearman's job handles, up to and including the colon before the number
    host_name: str
    broadcast: Broadcast | None = None  # of several servers that own functions together


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionFactory:
    """Makes the sessions of one protocol in one server."""

    def __init__(self, server: ServerEnvironment) -> None:
        self.server = server

    def prepare(self, url: ListenUrl) -> None:
        """Called for each listening URL before stored jobs are loaded, such as to configure a function's queue."""

    def use_config(self, config: Config) -> None:
        """Use a new configuration: the server has reloaded its settings."""


# --- TCP: one session for each connection ---


@dataclass(frozen=True, slots=True)
class ProtocolByPrefix:
    """A protocol whose connections all begin with the same bytes."""

    prefix: bytes
    make_session: SessionMaker


def no_refusal(line: bytes) -> bytes:
    """The default of `ProtocolDetector.refuse_line`: every first line is accepted."""
    return b""


@dataclass(frozen=True, slots=True)
class ProtocolDetector:
    """The protocols of one listener.  A connection without the prefix of one of the `others` has the `default` one.

    If `name` is given, a peer that begins with a foreign protocol (net/connections/foreign_protocols.py) gets an error
    and is disconnected.
    """

    default: SessionMaker
    others: tuple[ProtocolByPrefix, ...] = ()
    name: str = ""  # of the listener's protocols, for error messages
    own: frozenset[str] = frozenset()  # the names in protocol_names.py of the listener's protocols
    binary: bytes = b"\0"  # a connection whose first byte is one of these does not begin with a line of text
    refuse_line: Callable[[bytes], bytes] = no_refusal  # the answer to a first line that is not a command, or b""

    def find(self, start: bytes) -> SessionMaker | None:
        """The session maker for a connection that begins with these bytes; None if more bytes are needed."""
        for other in self.others:
            if start.startswith(other.prefix):
                return other.make_session
        for other in self.others:
            if other.prefix.startswith(start):
                return None
        return self.default


@mypyc_attr(allow_interpreted_subclasses=True)
class TcpSessionFactory(SessionFactory, ABC):
    """The factory of a protocol over TCP."""

    @abstractmethod
    def sessions_at(self, url: ListenUrl) -> ProtocolDetector:
        """The protocols of a listener, and how their sessions are made."""


# --- ZeroMQ: one session for all peers of a socket ---


@dataclass(frozen=True, slots=True)
class ZeromqSocket:
    """A ROUTER socket of a listener."""

    make_session: MessageSessionMaker
    port_option: str = ""  # the option of the URL that has its port; empty for the port of the URL itself
    function: bytes = b""  # of several nodes, only the owner of this function can serve the peers of the socket


@mypyc_attr(allow_interpreted_subclasses=True)
class ZeromqSessionFactory(SessionFactory, ABC):
    """The factory of a protocol over ZeroMQ."""

    @abstractmethod
    def sockets_at(self, url: ListenUrl) -> list[ZeromqSocket]:
        """The sockets of a listener; the first has the port of the URL."""
