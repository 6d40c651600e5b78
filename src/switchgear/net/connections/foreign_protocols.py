"""Recognises protocols that a listener does not speak by their first bytes, and encodes an error for them.

A port that accepts lines of text is exposed to programs that an attacker can make connect to it: a browser, or a server
that fetches URLs for others (server-side request forgery). They send a request of their own protocol first, and text
chosen by the attacker only after it. So the first bytes decide.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Final

from switchgear.protocols.gearman import codec as gearman
from switchgear.protocols.gearman.messages import Packet as GearmanPacket
from switchgear.protocols.gearman_draft import codec as draft
from switchgear.protocols.gearman_draft.messages import ErrorCode, ErrorReport
from switchgear.protocols.gearman_draft.messages import Packet as DraftPacket
from switchgear.protocols.protocol_names import (
    AMQP,
    DRAFT,
    GEARMAN,
    HTTP,
    MEMCACHED,
    POSTGRESQL,
    REDIS,
    SMTP,
    SSH,
    SSL2,
    TLS,
    ZMTP,
)

__all__ = [
    "DRAFT",
    "GEARMAN",
    "HTTP",
    "MEMCACHED",
    "REDIS",
    "ZMTP",
    "foreign_protocol",
    "foreign_refusal",
    "is_too_short_to_tell",
    "looks_like_http",
    "unencrypted_refusal",
]

# Only the beginning is examined: a request line may be longer than the server is willing to hold.
_MOST_LOOKED_AT: Final = 8192

# Methods are recognised without waiting for the end of the line, which may be long; any word before " HTTP/" is one.
_METHOD: Final = re.compile(
    rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT|PRI|PROPFIND|M-SEARCH|NOTIFY) "
    rb"(?:/|\*[ \r\n]|[a-z][a-z0-9+.-]*://|[^ \n]+:[0-9]+ H)",
    re.IGNORECASE,
)
_HTTP_LINE: Final = re.compile(rb"[^\0\n][^\n]* (?:HTTP|RTSP|SIP|ICE)/[0-9]", re.IGNORECASE)
_HTTP_ONE_WORD: Final = re.compile(rb"POST ", re.IGNORECASE)  # whatever follows

# The first bytes are enough for these, and no other protocol begins with them.
_TLS: Final = re.compile(rb"[\x14-\x17]\x03[\x00-\x04]", re.DOTALL)
_SSL2: Final = re.compile(rb"[\x80-\xbf].\x01(?:\x00\x02|\x03[\x00-\x04])", re.DOTALL)
_POSTGRESQL: Final = re.compile(rb"\0\0.{2}(?:\x00\x03\x00.|\x04\xd2\x16[\x2e-\x30])", re.DOTALL)
_REDIS: Final = re.compile(rb"\*-?[0-9]+\r?\n")
_SMTP: Final = re.compile(rb"(?:EHLO|HELO|LHLO|MAIL FROM:)(?:[ \r\n])", re.IGNORECASE)
_REDIS_INLINE: Final = re.compile(
    rb"(?:PING|INFO|AUTH|HELLO|SELECT|CLIENT|CONFIG|COMMAND|SLAVEOF|REPLICAOF|FLUSHALL|FLUSHDB|EVAL|KEYS)"
    rb"(?: [^\n]*)?\r?\n",
    re.IGNORECASE,
)
_MEMCACHED: Final = re.compile(
    rb"(?:gets? [^\n]+|gats? [0-9]+ [^\n]+|(?:set|add|replace|append|prepend|cas) [^ \n]+ [0-9]+ -?[0-9]+ [0-9]+[^\n]*"
    rb"|stats(?: [^\n]*)?|m[gnsad] [^\n]+|mn|flush_all[^\n]*)\r?\n",
    re.IGNORECASE,
)

# A command of Gearman's text protocol.
_TEXT_LINE: Final = re.compile(rb"[\x20-\x7e]+\r?\n")

# How binary protocols begin, and how many bytes it takes to recognise them.
_FIXED_BEGINNINGS: Final = (
    (re.compile(rb"\0(?:RE?)?\Z"), 4, GEARMAN),
    (re.compile(rb"\0(?:JO?)?\Z"), 4, DRAFT),
    (re.compile(rb"\0\0"), 8, POSTGRESQL),
    (re.compile(rb"\xff"), 10, ZMTP),
    (re.compile(rb"[\x80-\xbf]"), 5, SSL2),
    (re.compile(rb"[\x14-\x17]"), 3, TLS),
)

_BY_BEGINNING: Final[tuple[tuple[re.Pattern[bytes], str], ...]] = (
    (_METHOD, HTTP),
    (_HTTP_LINE, HTTP),
    (_HTTP_ONE_WORD, HTTP),
    (_TLS, TLS),
    (_SSL2, SSL2),
    (re.compile(rb"SSH-[0-9]"), SSH),
    (_SMTP, SMTP),
    (_REDIS, REDIS),
    (_REDIS_INLINE, REDIS),
    (_MEMCACHED, MEMCACHED),
    (re.compile(rb"\x00RE[QS]"), GEARMAN),
    (re.compile(rb"\x00JOB"), DRAFT),
    (re.compile(rb"\xff.{8}\x7f", re.DOTALL), ZMTP),
    (re.compile(rb"AMQP"), AMQP),
    (_POSTGRESQL, POSTGRESQL),
)


def foreign_protocol(start: bytes, own: AbstractSet[str] = frozenset()) -> str | None:
    """The foreign protocol that this input begins; None if it is one of our `own`, unknown, or too early to say.

    Some protocols can be recognised only at the end of their first line, so a caller in doubt waits for that.
    """
    beginning = start[:_MOST_LOOKED_AT]
    for pattern, name in _BY_BEGINNING:
        if name not in own and pattern.match(beginning) is not None:
            return name
    return None


def is_too_short_to_tell(start: bytes, own: AbstractSet[str] = frozenset()) -> bool:
    """Whether this may be the beginning of a foreign protocol that is recognised by a fixed number of bytes.

    A line end among these bytes does not end the wait.
    """
    return any(
        len(start) < size and name not in own and pattern.match(start) is not None
        for pattern, size, name in _FIXED_BEGINNINGS
    )


def looks_like_http(start: bytes) -> bool:
    """Whether this is the beginning of an HTTP request, of whatever version and with whatever method."""
    beginning = start[:_MOST_LOOKED_AT]
    return any(name == HTTP and pattern.match(beginning) is not None for pattern, name in _BY_BEGINNING)


def foreign_refusal(protocol: str, spoken_here: str) -> bytes:
    """An error in a foreign protocol, if it has one; the connection is closed after it."""
    text = f"this port speaks {spoken_here}, not {protocol}"
    if protocol == HTTP:
        return _http_refusal(spoken_here)
    if protocol in (TLS, SSL2):
        return b"\x15\x03\x01\x00\x02\x02\x28"  # a fatal alert: handshake_failure
    if protocol == REDIS:
        return b"-ERR %b\r\n" % text.encode()
    if protocol == SMTP:
        return b"554 %b\r\n" % text.encode()
    if protocol == MEMCACHED:
        return b"CLIENT_ERROR %b\r\n" % text.encode()
    if protocol == GEARMAN:
        return gearman.response(GearmanPacket.ERROR, b"FOREIGN_PROTOCOL", text.encode())
    if protocol == DRAFT:
        return draft.packet(DraftPacket.ERROR, ErrorReport(ErrorCode.BAD_MAGIC, text).pack())
    if protocol in (ZMTP, POSTGRESQL, AMQP):
        return b""
    return b"ERR FOREIGN_PROTOCOL %b\r\n" % text.replace(" ", "+").encode()


def unencrypted_refusal(start: bytes) -> bytes:
    """An error for a peer that begins like this where TLS is needed, in its own protocol; empty if that is unknown."""
    protocol = foreign_protocol(start, frozenset({TLS, SSL2}))
    if protocol is None:
        return b"ERR FOREIGN_PROTOCOL this+port+speaks+TLS\r\n" if _TEXT_LINE.match(start) is not None else b""
    if protocol == HTTP:
        return _http_answer("This port speaks TLS: use https.  The request was not executed.\n")
    return foreign_refusal(protocol, "TLS")


def _http_refusal(spoken_here: str) -> bytes:
    return _http_answer(
        f"This port speaks {spoken_here}, not HTTP.  The request was not executed.\n"
        "The default port for HTTP is 4740.\n"
    )


def _http_answer(text: str) -> bytes:
    body = text.encode()
    return (
        b"HTTP/1.1 400 Bad Request\r\n"
        b"Content-Type: text/plain; charset=utf-8\r\n"
        b"X-Content-Type-Options: nosniff\r\n"
        b"Cache-Control: no-store\r\n"
        b"Content-Length: %d\r\n"
        b"Connection: close\r\n"
        b"\r\n" % len(body)
    ) + body
