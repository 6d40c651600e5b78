"""Target: HTTP requests.  What our decoder takes for requests, h11 takes for the same requests.

Where the two differ ours must be the stricter one, except for what is listed here with its reason.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import h11

from fuzz.grammar import LINES
from fuzz.stream_codecs import pieces
from fuzz.target import Defect, Target, must
from switchgear.protocols.http.codec import HeadCache, RequestDecoder

__all__ = ["HTTP", "HTTP_WORDS", "check_http"]

BODY_BYTES: Final = 300
HEAD_BYTES: Final = 16_384

Read = tuple[str, bytes, bytes]


def ours(data: bytes, *, in_pieces: bool) -> tuple[list[Read], str, bool]:
    """The requests, the code of the error that ended the stream, and whether one was answered by hanging up."""
    decoder = RequestDecoder(HeadCache(), BODY_BYTES)
    found: list[Read] = []
    is_over = False
    for piece in pieces(data) if in_pieces else [data]:
        for request in decoder.feed(piece):
            if not request.is_announced and not is_over:
                found.append((request.head.method, request.head.target, request.body))
                is_over = not request.head.keeps_alive
        held = decoder.buffered_bytes
        if held > HEAD_BYTES + BODY_BYTES + len(piece):
            raise Defect(f"more is held than a request may have: {held}")
    failure = decoder.failure
    must(failure is None or failure.framing_lost, "a decoder that goes on after an error")
    return found, "" if failure is None else failure.code, is_over


def theirs(data: bytes) -> tuple[list[Read], str]:
    """The same as h11 reads it, and the error that it found."""
    connection: Any = h11.Connection(h11.SERVER, max_incomplete_event_size=10 * HEAD_BYTES)
    connection.receive_data(data)
    found: list[Read] = []
    method, target, body = "", b"", b""
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            return found, str(error)
        if isinstance(event, h11.Request):
            method, target, body = event.method.decode(), event.target, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            found.append((method, target, body))
            connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return found, ""
            connection.start_next_cycle()
        else:
            return found, ""


def run_http(data: bytes) -> Hashable:
    found, code, is_over = ours(data, in_pieces=False)
    must((found, code, is_over) == ours(data, in_pieces=True), "in pieces, something else is read", found)
    compare_with_h11(data, found)
    return len(found) > 2, code, tuple(method for method, _, _ in found[:2])


def compare_with_h11(data: bytes, found: list[Read]) -> None:
    """h11 reads the same requests, up to an error; after one that it alone refuses, it is asked to go on."""
    while found:
        others, error = theirs(data)
        both = min(len(found), len(others))
        must(found[:both] == others[:both], "h11 reads other requests", found, others)
        if len(found) <= len(others) or not error:
            return
        ends = [0, *ends_of_requests(data, both + 1)]
        must(is_only_h11_that_refuses(data[ends[both] : ends[both + 1]], error), error, found, others)
        data, found = data[ends[both + 1] :], found[both + 1 :]


def ends_of_requests(data: bytes, count: int) -> list[int]:
    """Where the first requests end."""
    decoder = RequestDecoder(HeadCache(), BODY_BYTES)
    ends: list[int] = []
    for position in range(len(data)):
        ends += [position + 1 for request in decoder.feed(data[position : position + 1]) if not request.is_announced]
        if len(ends) >= count:
            break
    return ends


def check_http(connections: list[bytes]) -> None:
    """Every answer is a whole one; the last may be an event stream that goes on."""
    for data in connections:
        if not data.startswith(b"HTTP/1.1 "):
            must(not data or data.startswith(b"\x15\x03") or data[:1].isalnum() or data[0] in b"-\0", "no answer", data)
            continue
        rest = data
        while rest:
            must(rest.startswith(b"HTTP/1.1 "), "something between two answers", rest[:200], data[-500:])
            head, end, rest = rest.partition(b"\r\n\r\n")
            must(bool(end), "half a head", head)
            headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            if b"transfer-encoding" in headers:
                rest = without_chunks(rest)
            elif not rest.startswith(b"HTTP/1.1 "):  # else it may be an answer to HEAD
                size = int(headers.get(b"content-length", b"0"))
                if b"content-length" not in headers and headers.get(b"connection") == b"close":
                    size = len(rest)  # to a client of version 1.0
                must(not rest or len(rest) >= size, "half a body", data[-500:])
                rest = rest[size:]


def without_chunks(data: bytes) -> bytes:
    """What follows a body in chunks."""
    while data:
        size, _, data = data.partition(b"\r\n")
        data = data[int(size, 16) :]
        must(data.startswith(b"\r\n"), "half a chunk", data[:100])
        data = data[2:]
        if size == b"0":
            break
    return data


def is_only_h11_that_refuses(request: bytes, error: str) -> bool:
    """Whether h11 refuses a request for one of three reasons: it wants a Host from clients of version 1.1, which here
    is asked for later and refused with a better text; it takes no empty lines ahead of a request; and it checks
    lengths and encodings also in the trailers of a body in chunks, which are dropped here."""
    head, _, rest = request.lower().partition(b"\r\n\r\n")
    if b"transfer-encoding" in error.lower().encode() or b"content-length" in error.lower().encode():
        return b"\r\ntransfer-encoding:" in rest or b"\r\ncontent-length:" in rest
    if error == "Missing mandatory Host: header":
        return b"\r\nhost:" not in head and b" http/1.1" in head
    return error == "no request line received" and request.startswith(b"\r\n")


HTTP_WORDS: Final = (
    b"GET / HTTP/1.1\r\n", b"POST ", b"PUT ", b"HEAD ", b" HTTP/1.0\r\n", b" HTTP/1.1\r\n", b"Host: localhost\r\n",
    b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n",
    b"Connection: keep-alive\r\n", b"Upgrade: h2c\r\n", b"\r\n", b"\r\n\r\n", b"\n", b" ", b"\t", b"3\r\nabc\r\n",
    b"0\r\n\r\n", b"0", b";x=y", b"\x80", b"\0",
)  # fmt: skip

HTTP: Final = (
    Target("http-codec", run_http, ("protocols.http.codec", "protocols.http.messages"), (LINES,), HTTP_WORDS, 1200),
)
