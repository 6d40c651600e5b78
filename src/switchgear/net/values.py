"""Values that come from, or go to, a stranger's JSON.

Bytes are text where they are UTF-8, and otherwise an object with the one key `base64`.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

__all__ = ["bytes_of", "encoded", "plain", "whole"]

LARGEST: Final = 2**63 - 1


def plain(data: bytes) -> str | dict[str, str]:
    """The bytes, for JSON."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_of(value: object, name: str) -> bytes:
    """The bytes that a stranger's JSON stands for; raises ValueError."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None
    raise ValueError(f"{name} is a text, or an object with the one key base64")


def encoded(text: str | None) -> bytes | None:
    """A text as bytes; raises ValueError if it is none."""
    if text is not None and not isinstance(text, str):
        raise ValueError(f"expected a text, got {text!r}")
    return text.encode() if text is not None else None


def whole(number: int) -> int:
    """A whole number that a store can hold; raises ValueError if it is none."""
    if type(number) is not int or not 0 <= number <= LARGEST:  # a bool is not meant as a number
        raise ValueError(f"expected a whole number, got {number!r}")
    return number
