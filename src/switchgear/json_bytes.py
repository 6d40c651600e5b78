"""Bytes in JSON: text where they are UTF-8, and otherwise an object with the one key `base64`."""

from __future__ import annotations

import base64
import binascii

__all__ = ["bytes_of", "plain"]


def plain(data: bytes) -> str | dict[str, str]:
    """The bytes as a JSON value."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_of(value: object, name: str) -> bytes:
    """The bytes of a JSON value that a peer has sent; raises ValueError, whose text names the value."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None
    raise ValueError(f"{name} is a text, or an object with the one key base64")
