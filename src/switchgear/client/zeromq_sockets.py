"""CURVE keys and DEALER sockets, for all clients and workers over ZeroMQ."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import zmq
import zmq.auth
from zmq.utils import z85

from switchgear.client.address import Address
from switchgear.errors import ConfigError
from switchgear.units import MIB

__all__ = ["KEYS_HINT", "CurveKeys", "SocketSettings", "check_identity", "connect", "dealer", "load_key_pair"]

KEY_BYTES: Final = 40  # of a key as text
LONGEST_IDENTITY: Final = 255
KEYS_HINT: Final = "if the server uses CURVE, check the keys"

Key = str | bytes
File = str | Path


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """The keys for servers that encrypt: theirs, either one that all of them have or one for each, and our own two.

    All of them are text of 40 characters, in Z85, as in the files that `switchgear keys` writes.
    """

    server_keys: tuple[bytes, ...]
    public_key: bytes
    secret_key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not self.server_keys:
            raise ConfigError("the server's public key is missing; without it, keys of our own are of no use")
        for key in (*self.server_keys, self.public_key, self.secret_key):
            _check_key(key)

    @classmethod
    def of(cls, server_keys: Key | Iterable[Key], key_pair: tuple[Key, Key] | None = None) -> Self:
        """The public key of the server, or of each; and our own public and secret key.  Raises ConfigError.

        Without a key pair a new one is made: enough for servers that admit every client that knows their public key.
        """
        theirs = [server_keys] if isinstance(server_keys, str | bytes) else server_keys
        public_key, secret_key = key_pair or zmq.curve_keypair()
        return cls(tuple(_bytes(key) for key in theirs), _bytes(public_key), _bytes(secret_key))

    @classmethod
    def load(cls, server_key_files: File | Iterable[File], own_key_file: File = "") -> Self:
        """Load keys from files, as `switchgear keys` and `zmq.auth` write them."""
        files = [server_key_files] if isinstance(server_key_files, str | Path) else server_key_files
        key_pair = load_key_pair(own_key_file) if own_key_file else None
        return cls.of([_load(file)[0] for file in files], key_pair)

    def check(self, servers: int, whose: str) -> None:
        """Raise ConfigError if the number of keys does not fit the number of servers."""
        if len(self.server_keys) not in (1, servers):
            raise ConfigError(
                f"{len(self.server_keys)} public keys for {servers} {whose}; give one for all, or one for each"
            )

    def server_key(self, number: int = 0) -> bytes:
        """The public key of the server with this number in the list."""
        return self.server_keys[number if len(self.server_keys) > 1 else 0]


def load_key_pair(file: File) -> tuple[bytes, bytes]:
    """The public and the secret key in a file that ends in .key_secret; raises ConfigError."""
    public_key, secret_key = _load(file)
    if secret_key is None:
        raise ConfigError(f"{file} has no secret key; name the file that ends in .key_secret")
    return public_key, secret_key


def _load(file: File) -> tuple[bytes, bytes | None]:
    if not Path(file).exists():  # whose ZeroMQ message would not help
        raise ConfigError(f"cannot read a key from {file}: no such file")
    try:
        return zmq.auth.load_certificate(Path(file))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read a key from {file}: {error}") from error


def _bytes(key: Key) -> bytes:
    return key.encode() if isinstance(key, str) else key


def _check_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise ConfigError(f"a key has {KEY_BYTES} characters, not {len(key)}")
    try:
        z85.decode(key)
    except (KeyError, struct.error):
        raise ConfigError("a key has a character that no key has, or a number too large for one") from None


@dataclass(frozen=True, slots=True)
class SocketSettings:
    """Options of a DEALER socket."""

    message_bytes: int = 64 * MIB  # the largest frame that is taken, as servers take it by default; 0: any
    messages_waiting: int = 1000  # in each direction; 0: any number
    heartbeat_seconds: float = 5.0  # ZeroMQ's own; a connection is cut after three times as long; 0: never
    reconnect_first_seconds: float = 0.1
    reconnect_most_seconds: float = 2.0


def check_identity(identity: bytes) -> bytes:
    """Check a routing id; raises ValueError."""
    if not 0 < len(identity) <= LONGEST_IDENTITY or identity[0] == 0:
        raise ValueError(f"an identity has 1 to {LONGEST_IDENTITY} bytes and does not begin with a zero byte")
    return identity


def dealer(
    context: zmq.Context[zmq.Socket[bytes]],
    settings: SocketSettings,
    keys: CurveKeys | None = None,
    *,
    number: int = 0,
    identity: bytes = b"",
) -> zmq.Socket[bytes]:
    """A DEALER socket for the server with this number, of those that the keys are for.

    It is not connected yet, so that a monitor misses nothing; see `connect`.  Closing it drops what has not
    been sent, unless told otherwise.  Raises ConfigError.
    """
    socket = context.socket(zmq.DEALER)
    try:
        _prepare(socket, settings)
        if identity:
            socket.set(zmq.ROUTING_ID, identity)
        if keys is not None:
            socket.set(zmq.CURVE_SERVERKEY, keys.server_key(number))
            socket.set(zmq.CURVE_PUBLICKEY, keys.public_key)
            socket.set(zmq.CURVE_SECRETKEY, keys.secret_key)
    except zmq.ZMQError as error:
        socket.close()
        raise ConfigError(f"ZeroMQ cannot make such a connection: {error.strerror}") from error
    return socket


def _prepare(socket: zmq.Socket[bytes], settings: SocketSettings) -> None:
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.MAXMSGSIZE, settings.message_bytes or -1)
    socket.set(zmq.SNDHWM, settings.messages_waiting)
    socket.set(zmq.RCVHWM, settings.messages_waiting)
    socket.set(zmq.RECONNECT_IVL, int(settings.reconnect_first_seconds * 1000))
    socket.set(zmq.RECONNECT_IVL_MAX, int(settings.reconnect_most_seconds * 1000))
    if settings.heartbeat_seconds:
        heartbeat_ms = int(settings.heartbeat_seconds * 1000)
        socket.set(zmq.HEARTBEAT_IVL, heartbeat_ms)
        socket.set(zmq.HEARTBEAT_TIMEOUT, heartbeat_ms * 3)


def connect(socket: zmq.Socket[bytes], address: Address) -> None:
    """Start connecting, which ZeroMQ retries until it succeeds; raises ConfigError."""
    try:
        if address.is_six:
            socket.set(zmq.IPV6, 1)
        socket.connect(address.endpoint)
    except zmq.ZMQError as error:
        raise ConfigError(f"cannot connect to {address}: {error.strerror}") from error
