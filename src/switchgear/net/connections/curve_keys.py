"""`CurveServerKeys`: the CURVE key pair of a server that encrypts, and the public keys of peers that may connect."""

from __future__ import annotations

from pathlib import Path

import zmq.auth
from zmq.utils import z85

from switchgear.config import ZeromqConfig
from switchgear.errors import ConfigError

__all__ = ["CurveServerKeys", "check_client_keys", "load_server_keys"]


def load_server_keys(config: ZeromqConfig) -> tuple[bytes, bytes]:
    """The server's public and secret key, as text (Z85); raises ConfigError."""
    path = Path(config.curve_key_file)
    if not path.is_file():
        raise ConfigError(f"zeromq.curve_key_file: there is no file {path}")
    try:
        public_key, secret_key = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"zeromq.curve_key_file: cannot read a key from {path}: {error}") from error
    if secret_key is None:
        raise ConfigError(f"zeromq.curve_key_file: {path} has no secret key; the file that ends in .key_secret has")
    return public_key, secret_key


def check_client_keys(config: ZeromqConfig) -> tuple[Path, list[bytes]]:
    """The directory with the keys of clients that may connect, and the keys as text (Z85); raises ConfigError."""
    directory = Path(config.curve_clients_dir)
    if not directory.is_dir():
        raise ConfigError(f"zeromq.curve_clients_dir: {directory} is not a directory")
    try:
        keys = zmq.auth.load_certificates(directory)
    except (OSError, ValueError) as error:
        raise ConfigError(f"zeromq.curve_clients_dir: {directory}: {error}") from error
    return directory, list(keys)


class CurveServerKeys:
    """The CURVE keys of a listener. Raises ConfigError if a key cannot be read."""

    def __init__(self, config: ZeromqConfig) -> None:
        self._config = config
        public_key, secret_key = load_server_keys(config)
        self.public_key = z85.decode(public_key)
        self.secret_key = z85.decode(secret_key)
        self._admitted: frozenset[bytes] | None = None  # None: every client that has the server's public key
        self.admit_clients()

    def admit_clients(self) -> None:
        """Read the keys of clients that may connect; if one cannot be read, the keys read before stay valid."""
        if self._config.curve_clients_dir:
            self._admitted = frozenset(z85.decode(key) for key in check_client_keys(self._config)[1])

    def is_admitted(self, client_key: bytes) -> bool:
        """Whether the owner of this public key may connect."""
        return self._admitted is None or client_key in self._admitted
