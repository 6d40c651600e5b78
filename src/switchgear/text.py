"""Words: those of strangers, made fit to be repeated, and numbers with the right ending."""

from __future__ import annotations

from typing import Final

__all__ = ["bytes_in_words", "counted", "harmless"]

MOST_REPEATED: Final = 500


def counted(number: int, noun: str) -> str:
    """So many of them: "1 job", "2 jobs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def harmless(text: str) -> str:
    """What a stranger may have had a say in, fit for an answer and for the log: one line, and not a long one."""
    if len(text) > MOST_REPEATED:
        text = text[:MOST_REPEATED] + "..."
    return "".join(c if c.isprintable() else "?" for c in text)


def bytes_in_words(count: float) -> str:
    """Bytes with a unit that suits them."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"
