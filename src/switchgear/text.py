"""Text helpers: makes untrusted text safe for logs and messages, hides passwords in URLs, forms plurals."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

__all__ = ["TOKEN_PREFIX", "counted", "escaped_name", "harmless", "in_one_line", "printable", "without_secrets"]

# A password before the host of a URL.  It may itself have a slash or an at sign that should have been encoded.
_BEFORE_HOST: Final = re.compile(r"(?<=://)([^\s:/?#@\"']*):([^\s?#\"']*)@")
# Secret options after the question mark of a URL, and in the connection strings of libpq.
_OPTION: Final = re.compile(
    r"((?:^|[?&;\s])[\w.-]*(?:passw(?:or)?d|passwd|pwd|secret|token|api_?key)[\w.-]*(?<!_file)(?<!_dir)\s*=\s*)"
    r"('(?:[^'\\]|\\.)*'|[^&;\s\"']+)",
    re.IGNORECASE,
)

# Tokens of this package (access/tokens.py), wherever a peer or a user has put them.
TOKEN_PREFIX: Final = "swg_"
_TOKEN: Final = re.compile(r"swg_[A-Za-z0-9_-]{8,}")

MOST_REPEATED: Final = 500

# Characters of nearly all names. Tab is among them: libgearman puts one between a namespace and a name.
USUAL_IN_NAMES: Final = b"\t" + bytes(range(0x20, 0x7F))


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 job", "2 jobs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def harmless(text: str) -> str:
    """Text that a peer may have influenced, made safe for an answer or the log: one line of limited length."""
    if len(text) > MOST_REPEATED:
        text = text[:MOST_REPEATED] + "..."
    return "".join(c if c.isprintable() else "?" for c in text)


def printable(text: str) -> str:
    """Text that cannot control a terminal, in one line: the name of a function must not change the screen.

    Characters that are not printable, such as an escape, a line end or a mark that changes the writing direction, are
    written as in a Python string.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def in_one_line(text: str) -> str:
    """Text of another program without its line ends and indentation."""
    return " ".join(text.split())


def escaped_name(name: bytes) -> bytes:
    """A name as a line of the text protocol shows it: the same bytes, except that none of them ends the line.

    Characters that a terminal would interpret, or not show, are written as `\\xNN` for each of their bytes. Bytes that
    are not UTF-8 stay, if they are letters in older encodings.
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


def without_secrets(text: str, *urls: str) -> str:
    """Text with tokens, and passwords in the URLs that it quotes, replaced by three asterisks.

    `urls` are URLs whose passwords the text may quote without the rest.
    """
    for url in urls:
        for secret in _secrets_in(url):
            text = text.replace(secret, "***")
    if TOKEN_PREFIX in text:
        text = _TOKEN.sub(TOKEN_PREFIX + "***", text)
    text = _BEFORE_HOST.sub(r"\1:***@", text)
    return _OPTION.sub(r"\1***", text)


def _secrets_in(url: str) -> list[str]:
    found = [match[2] for match in _BEFORE_HOST.finditer(url)] + [match[2] for match in _OPTION.finditer(url)]
    return [secret for each in found for secret in (each, unquote(each)) if secret]
