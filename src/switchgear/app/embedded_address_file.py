"""`server.json`: the address where the owner of an embedded directory listens, and a check that it is still valid."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from switchgear.client.address import ServerAddress
from switchgear.client.gearman.connection import GearmanConnection
from switchgear.errors import ServerUnreachable
from switchgear.net.connections.peer_user import is_same_user
from switchgear.protocols.gearman.codec import request
from switchgear.protocols.gearman.messages import Packet

__all__ = ["EmbeddedAddress"]

_NAME: Final = "server.json"
_HELLO_SECONDS: Final = 5.0


class _OwnerAnswer(msgspec.Struct):
    """The fields of a server's answer that identify it."""

    pid: int
    store: str


class EmbeddedAddress(msgspec.Struct):
    """The contents of `server.json`: the address and process of the owner."""

    url: str
    pid: int
    started: float  # seconds since the epoch
    store: str

    @classmethod
    def read(cls, directory: Path) -> EmbeddedAddress | None:
        """Read the file; None if there is none that can be read as such.  Raises OSError."""
        try:
            return msgspec.json.decode((directory / _NAME).read_bytes(), type=cls)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def write(self, directory: Path) -> None:
        """Write the file atomically: others read the old contents or the new ones; raises OSError."""
        path = directory / _NAME
        new = path.with_name(f"{_NAME}.new")
        new.unlink(missing_ok=True)  # left by a killed process, with whatever mode
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(self) + b"\n")
        new.replace(path)

    @staticmethod
    def remove(directory: Path) -> None:
        """Delete the file, so that the server cannot be found any more; raises OSError."""
        (directory / _NAME).unlink(missing_ok=True)

    def confirmed_address(self) -> ServerAddress:
        """The address, after the server there has proved to be the one that wrote the file; raises
        ServerUnreachable."""
        address = ServerAddress.parse(self.url)
        with GearmanConnection(address.host, address.port, _HELLO_SECONDS) as connection:
            connection.send(request(Packet.CONTROL, b"server", b"{}"))
            kind, body = connection.receive_answer()
            user = connection.find_user()
        if user is not None and not is_same_user(user):
            raise ServerUnreachable(f"at {address} there is a server of another user now")
        try:
            answer = msgspec.json.decode(body, type=_OwnerAnswer) if kind == Packet.CONTROL_RES else None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            answer = None
        if answer is None or (answer.pid, answer.store) != (self.pid, self.store):
            raise ServerUnreachable(f"at {address} there is another server now")
        return address
