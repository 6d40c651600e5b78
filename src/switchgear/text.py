"""Words: those of strangers, made fit to be repeated, and numbers with the right ending."""

from __future__ import annotations

from typing import Final

__all__ = ["counted", "escaped_name", "harmless", "printable"]

MOST_REPEATED: Final = 500

# What names are made of nearly always.  A tab is within: libgearman puts one between a namespace and a name.
USUAL_IN_NAMES: Final = b"\t" + bytes(range(0x20, 0x7F))


def counted(number: int, noun: str) -> str:
    """So many of them: "1 job", "2 jobs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def harmless(text: str) -> str:
    """What a stranger may have had a say in, fit for an answer and for the log: one line, and not a long one."""
    if len(text) > MOST_REPEATED:
        text = text[:MOST_REPEATED] + "..."
    return "".join(c if c.isprintable() else "?" for c in text)


def printable(text: str) -> str:
    """One line that cannot do anything to a terminal: whoever names a function must not control the screen.

    What is not printable, such as an escape, a line's end or a mark that turns the direction of writing, is written as
    in a Python string.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def escaped_name(name: bytes) -> bytes:
    """A name as a line of the text protocol shows it: the same bytes, except that none of them ends the line.

    What a terminal would obey, or not show, is written as `\\xNN` for each of its bytes.  Bytes that are not UTF-8 stay
    as they are, if they are letters in the older encodings.
    """
    if not name.translate(None, USUAL_IN_NAMES):
        return name
    pieces: list[bytes] = []
    for character in name.decode("utf-8", "surrogateescape"):
        data = character.encode("utf-8", "surrogateescape")
        is_letter = len(data) == 1 and data[0] >= 0xA0  # of an older encoding
        if character.isprintable() or character == "\t" or is_letter:
            pieces.append(data)
        else:
            pieces.append(b"".join([b"\\x%02x" % byte for byte in data]))
    return b"".join(pieces)
