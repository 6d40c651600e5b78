"""Words of strangers, made fit to be repeated."""

from __future__ import annotations

from typing import Final

__all__ = ["harmless"]

MOST_REPEATED: Final = 500


def harmless(text: str) -> str:
    """What a stranger may have had a say in, fit for an answer and for the log: one line, and not a long one."""
    if len(text) > MOST_REPEATED:
        text = text[:MOST_REPEATED] + "..."
    return "".join(c if c.isprintable() else "?" for c in text)
