"""Encrypts payloads with AES-256-GCM, so that the server and its store hold nothing that can be read."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Any, Final

from switchgear.errors import ConfigError

__all__ = ["PayloadKeys", "new_payload_key"]

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12


def new_payload_key() -> str:
    """A random key for `PayloadCodec(keys=...)`, as text."""
    return base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode()


class PayloadKeys:
    """Keys by name.  The first one encrypts; all of them decrypt, so that keys can be replaced one after the other."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise ConfigError("encryption needs a package: pip install 'switchgear[encryption]'") from None
        if not keys:
            raise ConfigError("keys has no key; new_payload_key() makes one")
        self._ciphers: dict[str, Any] = {name: AESGCM(_decoded(name, text)) for name, text in keys.items()}
        self.current = next(iter(self._ciphers))

    def __repr__(self) -> str:
        return f"<PayloadKeys {', '.join(self._ciphers)}>"

    def encrypt(self, plain: bytes, function: str) -> tuple[bytes, str]:
        """The encrypted bytes, for jobs of this function, and the nonce as text."""
        nonce = os.urandom(NONCE_BYTES)
        encrypted: bytes = self._ciphers[self.current].encrypt(nonce, plain, function.encode())
        return encrypted, base64.b64encode(nonce).decode()

    def decrypt(self, body: bytes, key: str, nonce: str, function: str) -> bytes:
        """The plain bytes; raises ValueError."""
        from cryptography.exceptions import InvalidTag

        cipher = self._ciphers.get(key)
        if cipher is None:
            raise ValueError(f"is encrypted with the key {key!r}, which this app does not have")
        try:
            plain: bytes = cipher.decrypt(base64.b64decode(nonce), body, function.encode())
        except (InvalidTag, ValueError):
            raise ValueError(f"was changed, or was not encrypted with the key {key!r}") from None
        return plain


def _decoded(name: str, text: str) -> bytes:
    try:
        key = base64.urlsafe_b64decode(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(f"the key {name!r} is not one of 32 bytes in base64; new_payload_key() makes one")
    return key
