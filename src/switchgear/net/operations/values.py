"""Converts optional text in operators' JSON to bytes, and re-exports `plain` for the other direction."""

from __future__ import annotations

from switchgear.json_bytes import plain

__all__ = ["encoded", "plain"]


def encoded(text: str | None) -> bytes | None:
    """A text as bytes; `None` for no text."""
    return text.encode() if text is not None else None
