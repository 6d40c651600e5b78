"""Converts optional text in operators' JSON to bytes, and re-exports `plain` and `told` for the other direction."""

from __future__ import annotations

from switchgear.json_bytes import plain, told

__all__ = ["encoded", "plain", "told"]


def encoded(text: str | None) -> bytes | None:
    """A text as bytes; `None` for no text."""
    return text.encode() if text is not None else None
