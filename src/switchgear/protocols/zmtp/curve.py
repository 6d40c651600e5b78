"""CurveZMQ, the server's side (rfc.zeromq.org/spec/26): authenticates the peer and encrypts frames.

The names in brackets are those of the specification. C is the client's permanent public key, C' the one of this
connection; S and S' are the server's; the small letters are the secret keys. A handshake is HELLO, WELCOME, INITIATE,
READY. With INITIATE the client proves that it has c (the vouch), and the server checks whether C is admitted.

Each direction numbers its frames (the nonces), and a number that is not larger than the last one is refused, so that
nothing can be replayed.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from typing import Final

from nacl.bindings import (
    crypto_box_beforenm,
    crypto_box_easy_afternm,
    crypto_box_keypair,
    crypto_box_open_easy,
    crypto_box_open_easy_afternm,
    crypto_secretbox_easy,
)
from nacl.exceptions import CryptoError

from switchgear.errors import PeerError
from switchgear.protocols.zmtp.codec import COMMAND, MORE, command_frame
from switchgear.protocols.zmtp.mechanism import FrameCipher, MechanismRefusal, ServerHandshake
from switchgear.protocols.zmtp.metadata import ROUTER_METADATA, parse_metadata

__all__ = ["CurveCipher", "CurveServerHandshake"]

HELLO: Final = b"\5HELLO\1\0"  # with the version, 1.0
WELCOME: Final = b"\7WELCOME"
INITIATE: Final = b"\x08INITIATE"
READY: Final = b"\5READY"
MESSAGE: Final = b"\7MESSAGE"

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 8  # the transmitted part of a counting nonce
LONG_NONCE_BYTES: Final = 16  # and of a random one
HELLO_BYTES: Final = 200
HELLO_KEY: Final = 80  # where in HELLO the client's key is; before it is padding
COOKIE_BYTES: Final = 96
VOUCH_BYTES: Final = 96
LEAST_INITIATE_BYTES: Final = len(INITIATE) + COOKIE_BYTES + NONCE_BYTES + 16 + KEY_BYTES + VOUCH_BYTES
LEAST_MESSAGE_BYTES: Final = len(MESSAGE) + NONCE_BYTES + 16 + 1

# The encoded flags inside a MESSAGE.
INNER_MORE: Final = 1
INNER_COMMAND: Final = 2

NOT_ADMITTED: Final = b"\5ERROR\x03400"  # ZeroMQ's status code for a peer that is not admitted


class CurveCipher(FrameCipher):
    """Encrypts the frames of one connection with the negotiated key."""

    def __init__(self, shared_key: bytes, peer_nonce: int) -> None:
        self._key = shared_key
        self._nonce = 1  # of the last sent frame: READY
        self._peer_nonce = peer_nonce

    def encrypt(self, flags: int, body: bytes) -> bytes:
        self._nonce += 1
        nonce = self._nonce.to_bytes(NONCE_BYTES, "big")
        inner = (INNER_MORE if flags & MORE else 0) | (INNER_COMMAND if flags & COMMAND else 0)
        box = crypto_box_easy_afternm(bytes((inner,)) + body, b"CurveZMQMESSAGES" + nonce, self._key)
        return b"".join((MESSAGE, nonce, box))

    def decrypt(self, body: bytes) -> tuple[int, bytes]:
        if len(body) < LEAST_MESSAGE_BYTES or not body.startswith(MESSAGE):
            raise PeerError("an encrypted MESSAGE was expected", code="MALFORMED", framing_lost=True)
        start = len(MESSAGE) + NONCE_BYTES
        nonce = body[len(MESSAGE) : start]
        number = int.from_bytes(nonce, "big")
        if number <= self._peer_nonce:
            raise PeerError("a MESSAGE was repeated", code="REPLAYED", framing_lost=True)
        try:
            plain = crypto_box_open_easy_afternm(body[start:], b"CurveZMQMESSAGEC" + nonce, self._key)
        except CryptoError:
            raise PeerError("a MESSAGE cannot be decrypted", code="MALFORMED", framing_lost=True) from None
        self._peer_nonce = number
        inner = plain[0]
        return (MORE if inner & INNER_MORE else 0) | (COMMAND if inner & INNER_COMMAND else 0), plain[1:]


class CurveServerHandshake(ServerHandshake):
    """The mechanism CURVE for one connection."""

    def __init__(self, secret_key: bytes, public_key: bytes, is_admitted: Callable[[bytes], bool]) -> None:
        self._secret_key = secret_key  # s
        self._public_key = public_key  # S
        self._is_admitted = is_admitted  # whether the client with this permanent key is admitted
        self._client_key = b""  # C'
        self._connection_secret = b""  # s'
        self._cookie = b""
        self._peer_nonce = 0

    def begin(self) -> bytes:
        return b""

    def receive(self, command: bytes) -> bytes:
        try:
            if not self._cookie:
                return command_frame(self._welcome(command))
            return command_frame(self._ready(command))
        except CryptoError:
            raise MechanismRefusal("its keys do not fit; does it know this server's public key?") from None

    def _welcome(self, hello: bytes) -> bytes:
        """The answer to HELLO: S' and a cookie, for a client that knows S."""
        if len(hello) != HELLO_BYTES or not hello.startswith(HELLO):
            raise MechanismRefusal("HELLO was expected, of version 1.0 and 200 bytes")
        key_end = HELLO_KEY + KEY_BYTES
        nonce_end = key_end + NONCE_BYTES
        self._client_key = hello[HELLO_KEY:key_end]
        nonce = hello[key_end:nonce_end]
        shared_key = crypto_box_beforenm(self._client_key, self._secret_key)
        if crypto_box_open_easy_afternm(hello[nonce_end:], b"CurveZMQHELLO---" + nonce, shared_key).strip(b"\0"):
            raise MechanismRefusal("HELLO is malformed")
        self._peer_nonce = int.from_bytes(nonce, "big")
        connection_key, self._connection_secret = crypto_box_keypair()
        cookie_nonce = os.urandom(LONG_NONCE_BYTES)
        # The state is kept here as well, so the returned cookie is only compared.
        secret = crypto_secretbox_easy(
            self._client_key + self._connection_secret, b"COOKIE--" + cookie_nonce, os.urandom(KEY_BYTES)
        )
        self._cookie = cookie_nonce + secret
        welcome_nonce = os.urandom(LONG_NONCE_BYTES)
        box = crypto_box_easy_afternm(connection_key + self._cookie, b"WELCOME-" + welcome_nonce, shared_key)
        return WELCOME + welcome_nonce + box

    def _ready(self, initiate: bytes) -> bytes:
        """The answer to INITIATE: the client is authenticated, and gets the server's metadata."""
        if self.metadata is not None or len(initiate) < LEAST_INITIATE_BYTES or not initiate.startswith(INITIATE):
            raise MechanismRefusal("INITIATE was expected")
        cookie_end = len(INITIATE) + COOKIE_BYTES
        nonce_end = cookie_end + NONCE_BYTES
        if not hmac.compare_digest(initiate[len(INITIATE) : cookie_end], self._cookie):
            raise MechanismRefusal("INITIATE has another cookie than it was sent")
        nonce = initiate[cookie_end:nonce_end]
        number = int.from_bytes(nonce, "big")
        if number <= self._peer_nonce:
            raise MechanismRefusal("INITIATE was repeated")
        shared_key = crypto_box_beforenm(self._client_key, self._connection_secret)
        plain = crypto_box_open_easy_afternm(initiate[nonce_end:], b"CurveZMQINITIATE" + nonce, shared_key)
        permanent_key = plain[:KEY_BYTES]
        self._check_vouch(permanent_key, plain[KEY_BYTES : KEY_BYTES + VOUCH_BYTES])
        if not self._is_admitted(permanent_key):
            raise MechanismRefusal("its key is not among those that are admitted", answer=command_frame(NOT_ADMITTED))
        metadata = parse_metadata(plain[KEY_BYTES + VOUCH_BYTES :])
        self.cipher = CurveCipher(shared_key, number)
        self.metadata = metadata
        self.peer_key = permanent_key
        ready_nonce = (1).to_bytes(NONCE_BYTES, "big")
        return (
            READY
            + ready_nonce
            + crypto_box_easy_afternm(ROUTER_METADATA, b"CurveZMQREADY---" + ready_nonce, shared_key)
        )

    def _check_vouch(self, permanent_key: bytes, vouch: bytes) -> None:
        """Check the vouch: the client with this permanent key confirms C' and S."""
        nonce = b"VOUCH---" + vouch[:LONG_NONCE_BYTES]
        opened = crypto_box_open_easy(vouch[LONG_NONCE_BYTES:], nonce, permanent_key, self._connection_secret)
        if not hmac.compare_digest(opened, self._client_key + self._public_key):
            raise MechanismRefusal("its vouch is for another connection or another server")
