"""Socket options, default timeouts, and the text of operating system errors, for clients of every TCP protocol."""

from __future__ import annotations

import os
import socket
from typing import Final

__all__ = [
    "CONNECT_SECONDS",
    "DEFAULT_TIMEOUT_SECONDS",
    "describe_os_error",
    "enable_keepalive",
    "is_certificate_error",
]

DEFAULT_TIMEOUT_SECONDS: Final = 10.0  # for connecting, and for answers that need no job to run
CONNECT_SECONDS: Final = 10.0  # for one attempt of a worker to connect
_KEEPALIVE_IDLE_SECONDS: Final = 60
_KEEPALIVE_INTERVAL_SECONDS: Final = 15
_KEEPALIVE_PROBES: Final = 4


def enable_keepalive(sock: socket.socket) -> None:
    """Have TCP find out within some minutes that a silent server is gone: a wait for a job may have no other end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):  # not every system has all three
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_certificate_error(error: BaseException) -> bool:
    """Whether the certificate of the server is not accepted."""
    return type(error).__name__ == "SSLCertVerificationError"  # by its name: most programs need no `ssl`


def describe_os_error(error: OSError | UnicodeError) -> str:
    """The text of an error of the operating system, without its number."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if type(error).__module__ == "ssl":  # whose numbers are not those of other errors
        text = getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
        return f"TLS: {str(text).lower().replace('_', ' ')}"
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)  # asyncio adds its own text to the number
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
