"""`ServiceManager`: sends the state of the server to systemd or another service manager (sd_notify).

The service manager names a datagram socket in NOTIFY_SOCKET, a path or an abstract name that begins with `@`. It is
told when the server is ready, reloads or stops, and twice in the interval of its watchdog that the server is well. It
starts the server anew when it is not told that in time.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

from switchgear.numbers import whole_number

__all__ = ["MOST_SILENT_SECONDS", "ServiceManager"]

log = logging.getLogger("switchgear")

LONGEST_ADDRESS: Final = 107  # of a local socket, in bytes
BEATS_PER_INTERVAL: Final = 2
MOST_SILENT_SECONDS: Final = 60.0  # that it should wait before it gives a server up that starts or stops


class ServiceManager:
    """The service manager that started the server, if one did; otherwise the methods do nothing."""

    def __init__(self, address: str = "", watchdog_seconds: float = 0.0) -> None:
        self.watchdog_seconds = watchdog_seconds  # 0: there is no watchdog
        self._socket: socket.socket | None = None
        self._address: str | bytes = b"\0" + os.fsencode(address[1:]) if address.startswith("@") else address
        if not address:
            return
        if not address.startswith(("/", "@")) or len(os.fsencode(address)) > LONGEST_ADDRESS:
            log.warning("no notifications to the service manager: NOTIFY_SOCKET is not a local socket")
            return
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> ServiceManager:
        """The one that the environment of this process names, if any."""
        interval_us = whole_number(environ.get("WATCHDOG_USEC", "").encode()) or 0
        owner = environ.get("WATCHDOG_PID", "")
        is_ours = not owner or owner == str(os.getpid())
        return cls(environ.get("NOTIFY_SOCKET", ""), interval_us / 1_000_000 if is_ours else 0.0)

    @property
    def beat_seconds(self) -> float:
        """The interval of the signs of life for the watchdog; 0: none are sent."""
        return self.watchdog_seconds / BEATS_PER_INTERVAL if self._socket is not None else 0.0

    def ready(self, status: str) -> None:
        """The server serves, for the first time or after a reload."""
        self._tell(f"READY=1\nMAINPID={os.getpid()}\nSTATUS={status}")

    def starting(self, status: str, seconds: float) -> None:
        """The server is not ready yet, and may take this long until it is or says so again."""
        self._tell(f"STATUS={status}\nEXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def reloading(self) -> None:
        """The server reads its configuration again; `ready` follows."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def stopping(self, seconds: float) -> None:
        """The server stops, which may take this long."""
        self._tell(f"STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def beat(self) -> None:
        """Send `WATCHDOG=1`: the event loop and the store work."""
        self._tell("WATCHDOG=1")

    def close(self) -> None:
        """Close the notification socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, text: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError as error:  # its socket is gone or full; the jobs matter more
            log.debug("cannot send %s to the service manager: %s", text.partition("=")[0], error)
