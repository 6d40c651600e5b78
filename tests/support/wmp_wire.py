"""A WMP manager of a few lines, on a real ROUTER socket: says what a test wants said, and hears everything."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
import zmq

from tests.support.servers import HOST
from tests.support.waiting import DEADLINE_SECONDS

__all__ = ["Heard", "RawManager"]


class Heard(NamedTuple):
    """A message, and the path to whoever sent it, the neighbour first."""

    path: list[bytes]
    command: str
    headers: dict[str, Any]
    payload: bytes | None


class RawManager:
    """Knows the wire format, and nothing of the rules."""

    def __init__(self, identity: bytes = b"raw", port: int = 0, secret_key: bytes = b"") -> None:
        self.identity = identity
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.set(zmq.LINGER, 0)
        self.socket.set(zmq.ROUTER_MANDATORY, 1)
        self.socket.set(zmq.ROUTER_HANDOVER, 1)
        if secret_key:
            self.socket.set(zmq.CURVE_SECRETKEY, secret_key)
            self.socket.set(zmq.CURVE_SERVER, 1)
        if port:
            self.socket.bind(f"tcp://{HOST}:{port}")
        self.port = port or self.socket.bind_to_random_port(f"tcp://{HOST}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()
        self.context.destroy(0)

    @property
    def url(self) -> str:
        return f"wmp://{HOST}:{self.port}"

    def hear(self, *commands: str, within_seconds: float = DEADLINE_SECONDS) -> Heard:
        """The next message that is one of these commands; what comes before it is passed over."""
        while True:
            if not self.socket.poll(int(within_seconds * 1000)):
                raise AssertionError(f"no {' or '.join(commands) or 'message'} within {within_seconds:g} s")
            envelope, empty, version, command, headers, *payload = self.socket.recv_multipart()
            assert (empty, version) == (b"", b"WMP1")
            decoded = msgspec.msgpack.decode(headers)
            path = [envelope, *decoded.get("path", [])]
            if not commands or command.decode() in commands:
                return Heard(path, command.decode(), decoded, payload[0] if payload else None)

    def hears_nothing(self, within_seconds: float = 0.1) -> bool:
        return not self.socket.poll(int(within_seconds * 1000))

    def say(self, path: list[bytes], command: str, payload: bytes | None = None, **headers: Any) -> None:
        encoded = msgspec.msgpack.encode({"path": [self.identity], "to": path[1:], **headers})
        frames = [path[0], b"", b"WMP1", command.encode(), encoded]
        self.socket.send_multipart(frames if payload is None else [*frames, payload])

    def give(self, payload: bytes = b"", *, job: bytes = b"1", role: str = "f", **headers: Any) -> list[bytes]:
        """The whole dance, until a worker has the job; returns the path to it."""
        heard = self.hear("READY")
        while heard.command != "GIVE":
            with suppress(zmq.ZMQError):  # it may have gone since it said READY
                self.say(heard.path, "WAKE")
            heard = self.hear("READY", "GIVE")  # it may have been busy, and is ready again
        self.say(heard.path, "TAKE", payload, job=job, role=role, manager=self.identity, **headers)
        return heard.path
