"""Converts text in the JSON of operator verbs to bytes, and bytes in answers to text (`plain`, `told`)."""

from __future__ import annotations

from switchgear.json_bytes import plain, told

__all__ = ["encoded", "plain", "told"]


def encoded(text: str | None) -> bytes | None:
    """A text as bytes; `None` for no text."""
    return text.encode() if text is not None else None
