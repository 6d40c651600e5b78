"""Security mechanisms of ZMTP 3: what peers exchange after their greetings, and how frames are protected then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from switchgear.errors import PeerError
from switchgear.protocols.zmtp.codec import command_frame
from switchgear.protocols.zmtp.metadata import ROUTER_METADATA, parse_metadata

__all__ = ["FrameCipher", "MechanismRefusal", "NullHandshake", "ServerHandshake"]


class MechanismRefusal(PeerError):
    """The handshake failed. `answer` is the ERROR command for the peer, or empty."""

    def __init__(self, text: str, *, answer: bytes = b"") -> None:
        super().__init__(text, code="HANDSHAKE", framing_lost=True)
        self.answer = answer


@mypyc_attr(allow_interpreted_subclasses=True)
class FrameCipher(ABC):
    """Protects the frames of one connection."""

    @abstractmethod
    def encrypt(self, flags: int, body: bytes) -> bytes:
        """The body of the frame that carries this frame."""

    @abstractmethod
    def decrypt(self, body: bytes) -> tuple[int, bytes]:
        """Flags and body of the frame that this one carries; raises PeerError."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ServerHandshake(ABC):
    """The server's side of a mechanism for one connection."""

    metadata: dict[bytes, bytes] | None = None  # the peer's metadata; None: the handshake is not complete
    cipher: FrameCipher | None = None  # for everything after the handshake
    peer_key: bytes = b""  # the public key that the peer has proved to own; empty: the mechanism has no keys

    @abstractmethod
    def begin(self) -> bytes:
        """The frames that follow the server's greeting."""

    @abstractmethod
    def receive(self, command: bytes) -> bytes:
        """The frames to answer this command with; raises PeerError."""


READY: Final = b"\5READY"
ERROR: Final = b"\5ERROR"


class NullHandshake(ServerHandshake):
    """The mechanism NULL: both sides send READY with their metadata, and nothing is protected."""

    def begin(self) -> bytes:
        return command_frame(READY + ROUTER_METADATA)

    def receive(self, command: bytes) -> bytes:
        if command.startswith(ERROR):
            raise MechanismRefusal("it refused: " + command[len(ERROR) + 1 :].decode("utf-8", "replace"))
        if not command.startswith(READY):
            raise MechanismRefusal("READY was expected")
        self.metadata = parse_metadata(command[len(READY) :])
        return b""
