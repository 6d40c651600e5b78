"""A CurveZMQ client written from the specification, which can also be told to do single steps wrongly."""

from __future__ import annotations

import os
import struct

from nacl.bindings import crypto_box, crypto_box_keypair, crypto_box_open

from tests.protocols.zmtp.wire import GREETING, frame, metadata

CURVE_GREETING = GREETING.replace(b"NULL\0", b"CURVE", 1)


def key_pair() -> tuple[bytes, bytes]:
    """A public and a secret key."""
    public, secret = crypto_box_keypair()
    return public, secret


class CurveClient:
    """One connection of a client."""

    def __init__(self, server_key: bytes, own: tuple[bytes, bytes] | None = None) -> None:
        self.server_key = server_key  # S
        self.own = own or key_pair()  # C, c
        self.public, self.secret = key_pair()  # C', c'
        self.connection_key = b""  # S'
        self.cookie = b""
        self.vouched = (self.public, server_key)
        self.metadata = metadata(Socket_Type=b"DEALER", Identity=b"me")
        self.nonce = 0

    def _short_nonce(self) -> bytes:
        self.nonce += 1
        return struct.pack(">Q", self.nonce)

    def hello(self) -> bytes:
        nonce = self._short_nonce()
        box = crypto_box(bytes(64), b"CurveZMQHELLO---" + nonce, self.server_key, self.secret)
        return frame(b"\5HELLO\1\0" + bytes(72) + self.public + nonce + box, 4)

    def hear_welcome(self, welcome: bytes) -> None:
        assert len(welcome) == 170
        assert welcome.startswith(b"\4\xa8\7WELCOME")
        nonce, box = welcome[10:26], welcome[26:]
        opened = crypto_box_open(box, b"WELCOME-" + nonce, self.server_key, self.secret)
        self.connection_key, self.cookie = opened[:32], opened[32:]

    def initiate(self) -> bytes:
        vouch_nonce = os.urandom(16)
        vouch = crypto_box(b"".join(self.vouched), b"VOUCH---" + vouch_nonce, self.connection_key, self.own[1])
        plain = self.own[0] + vouch_nonce + vouch + self.metadata
        nonce = self._short_nonce()
        box = crypto_box(plain, b"CurveZMQINITIATE" + nonce, self.connection_key, self.secret)
        return frame(b"\x08INITIATE" + self.cookie + nonce + box, 4)

    def hear_ready(self, ready: bytes) -> bytes:
        assert ready[2:8] == b"\5READY"
        return crypto_box_open(ready[16:], b"CurveZMQREADY---" + ready[8:16], self.connection_key, self.secret)

    def message(self, body: bytes, flags: int = 0) -> bytes:
        nonce = self._short_nonce()
        box = crypto_box(bytes((flags,)) + body, b"CurveZMQMESSAGEC" + nonce, self.connection_key, self.secret)
        return frame(b"\7MESSAGE" + nonce + box)

    def read(self, received: bytes) -> list[tuple[int, bytes]]:
        """Flags and body of each frame that the server sent."""
        found = []
        while received:
            long = received[0] & 2
            start = 9 if long else 2
            stop = start + int.from_bytes(received[1:start], "big")
            body, received = received[start:stop], received[stop:]
            assert body.startswith(b"\7MESSAGE")
            plain = crypto_box_open(body[16:], b"CurveZMQMESSAGES" + body[8:16], self.connection_key, self.secret)
            found.append((plain[0], plain[1:]))
        return found
