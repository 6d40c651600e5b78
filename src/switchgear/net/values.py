"""Values that come from, or go to, a peer's JSON; bytes are written as `switchgear.json_bytes` says."""

from __future__ import annotations

from typing import Final

from switchgear.json_bytes import bytes_of, plain

__all__ = ["bytes_of", "encoded", "plain", "whole"]

LARGEST: Final = 2**63 - 1


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
