"""A raw socket for tests of the 2005 draft, and its packets written down again, independent of the product's."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import NamedTuple, Self

from tests.support.waiting import DEADLINE_SECONDS

MAGIC = b"\0JOB"
_HEADER = struct.Struct(">4sBI")


class Kind(IntEnum):
    """The packet types of the draft, and the one that was added."""

    noop = 0x00
    worker_connect = 0x01
    worker_disconnect = 0x02
    worker_sleep = 0x03
    job_create_req = 0x04
    job_create_res = 0x05
    job_assign_req = 0x06
    job_assign_res = 0x07
    job_status_announce = 0x08
    job_status_req = 0x09
    job_status_res = 0x0A
    job_complete_announce = 0x0B
    job_complete_req = 0x0C
    job_complete_res = 0x0D
    error = 0x0E


class ErrorCode(IntEnum):
    malformed = 1
    unexpected = 2
    unknown_handle = 3
    busy = 4
    refused = 5
    too_large = 6
    bad_magic = 7


WAIT, HANDLE, THROW_AWAY = range(3)


class Packet(NamedTuple):
    """A packet as it was on the wire."""

    kind: int
    body: bytes = b""

    def __repr__(self) -> str:
        name = Kind(self.kind).name if self.kind in set(Kind) else str(self.kind)
        return f"<{name} {self.body!r}>"


def packet(kind: int, body: bytes = b"", magic: bytes = MAGIC) -> bytes:
    return _HEADER.pack(magic, kind, len(body)) + body


def create(name: bytes, args: bytes = b"", job_type: int = HANDLE, dupkey: bytes = b"", flags: int = 0) -> bytes:
    return packet(Kind.job_create_req, name + b"\0" + dupkey + b"\0" + bytes([flags, job_type]) + args)


def numbers(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def status(numerator: int, denominator: int, seconds_left: int) -> bytes:
    return packet(Kind.job_status_announce, numbers(numerator, denominator, seconds_left))


def complete(code: int, data: bytes = b"") -> bytes:
    return packet(Kind.job_complete_announce, bytes([code]) + data)


ASK = packet(Kind.job_assign_req)
SLEEP = packet(Kind.worker_sleep)
GOODBYE = packet(Kind.worker_disconnect)
NOOP = Packet(Kind.noop)


class BrokenFramingError(AssertionError):
    """The server sent something that is no packet."""


def split_packet(data: bytes) -> tuple[Packet, bytes] | None:
    """The first packet in ``data`` and the rest; None when it is not whole yet."""
    if not MAGIC.startswith(data[:4]):
        raise BrokenFramingError(f"expected \\0JOB, got {data[:64]!r}")
    if len(data) < _HEADER.size:
        return None
    _, kind, size = _HEADER.unpack_from(data)
    end = _HEADER.size + size
    return (Packet(kind, data[_HEADER.size : end]), data[end:]) if len(data) >= end else None


def split_packets(data: bytes) -> list[Packet]:
    """All packets in ``data``, the last of them whole."""
    packets = []
    while data:
        whole = split_packet(data)
        assert whole is not None, f"half a packet: {data!r}"
        packets.append(whole[0])
        data = whole[1]
    return packets


class DraftWire:
    """One connection."""

    def __init__(self, address: tuple[str, int], deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._deadline_seconds = deadline_seconds
        self._socket = socket.create_connection(address, timeout=deadline_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    @classmethod
    def over(cls, sock: socket.socket) -> DraftWire:
        """On a connection that is there."""
        wire = cls.__new__(cls)
        wire._deadline_seconds = DEADLINE_SECONDS
        wire._socket = sock
        wire._received = b""
        return wire

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, *packets: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(b"".join(packets))

    def receive(self) -> Packet | None:
        """The next packet; None: the other side has hung up."""
        deadline = time.monotonic() + self._deadline_seconds
        while True:
            whole = split_packet(self._received) if self._received else None
            if whole is not None:
                found, self._received = whole
                return found
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                assert not self._received, f"closed in the middle of {self._received!r}"
                return None
            self._received += data

    def ask(self, *packets: bytes) -> Packet:
        """Send, and the next packet that comes."""
        self.send(*packets)
        answer = self.receive()
        assert answer is not None, "the server has hung up"
        return answer

    def handle_of(self, created: bytes) -> bytes:
        """Create an async+handle job."""
        answer = self.ask(created)
        assert answer.kind == Kind.job_create_res, answer
        assert answer.body
        return answer.body

    def completion(self, handle: bytes) -> tuple[int, int, bytes]:
        """Elapsed seconds, result code and data."""
        answer = self.ask(packet(Kind.job_complete_req, handle))
        assert answer.kind == Kind.job_complete_res, answer
        elapsed, code = struct.unpack_from(">IB", answer.body)
        return elapsed, code, answer.body[5:]


@contextmanager
def listening() -> Iterator[socket.socket]:
    """A server that a test plays itself."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(DEADLINE_SECONDS)
        yield server
