"""ZMTP as a peer puts it together: written from the specification, and not with the codec that is tested."""

from __future__ import annotations

import struct

from switchgear.protocols.zmtp.server_protocol import ZmtpProtocol

SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
GREETING = SIGNATURE + b"\3\0" + b"NULL".ljust(20, b"\0") + bytes(32)
GREETING_2_0 = SIGNATURE + b"\1\5"  # a DEALER socket

SERVER_GREETING = b"\xff\0\0\0\0\0\0\0\1\x7f\3\1" + b"NULL".ljust(20, b"\0") + bytes(32)
SERVER_READY = b"\4\x44\5READY\x0bSocket-Type\0\0\0\6ROUTER\x08Identity\0\0\0\0\x0cX-Switchgear\0\0\0\x0aextensions"


def frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) < 256:
        return bytes((flags, len(body))) + body
    return bytes((flags | 2,)) + struct.pack(">Q", len(body)) + body


def message(*bodies: bytes) -> bytes:
    return b"".join(frame(body, 1) for body in bodies[:-1]) + frame(bodies[-1])


def metadata(**properties: bytes) -> bytes:
    pieces = []
    for name, value in properties.items():
        told = name.replace("_", "-").encode()
        pieces.append(bytes((len(told),)) + told + struct.pack(">I", len(value)) + value)
    return b"".join(pieces)


def ready(socket_type: bytes = b"DEALER", identity: bytes = b"me") -> bytes:
    return frame(b"\5READY" + metadata(Socket_Type=socket_type, Identity=identity), 4)


def frame_1_0(body: bytes, more: bool = False) -> bytes:
    if len(body) < 254:
        return bytes((len(body) + 1, more)) + body
    return b"\xff" + struct.pack(">QB", len(body) + 1, more) + body


def play(conversation: bytes, slice_bytes: int, protocol: ZmtpProtocol) -> tuple[list[list[bytes]], bytes]:
    """What the server understands of a conversation that arrives in such slices, and what it answers."""
    messages: list[list[bytes]] = []
    for start in range(0, len(conversation), slice_bytes):
        messages += protocol.receive(conversation[start : start + slice_bytes])
        while protocol.has_more and protocol.failure is None:
            messages += protocol.receive(b"")
    return messages, b"".join(protocol.outgoing)
