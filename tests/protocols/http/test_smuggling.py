"""Request smuggling: streams in which a proxy might see other requests than this server.

Each is refused, or read exactly as h11 reads it, in one piece and byte by byte.
"""

from __future__ import annotations

import pytest

from fuzz.http_targets import ours, theirs

POST = b"POST /a HTTP/1.1\r\nHost: a\r\n"
NEXT = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"

REFUSED = {
    # two lengths
    "length and chunks": CHUNKED + b"Content-Length: 6\r\n\r\n0\r\n\r\n" + NEXT,
    "chunks and length": POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + NEXT,
    "two equal lengths": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc" + NEXT,
    "two other lengths": POST + b"Content-Length: 3\r\ncontent-length: 30\r\n\r\nabc" + NEXT,
    "lengths with a comma": POST + b"Content-Length: 3, 30\r\n\r\nabc" + NEXT,
    "length with a sign": POST + b"Content-Length: +3\r\n\r\nabc" + NEXT,
    "negative length": POST + b"Content-Length: -3\r\n\r\nabc" + NEXT,
    "hexadecimal length": POST + b"Content-Length: 0x3\r\n\r\nabc" + NEXT,
    "length with an underscore": POST + b"Content-Length: 1_0\r\n\r\nabc" + NEXT,
    "length with words": POST + b"Content-Length: 3 30\r\n\r\nabc" + NEXT,
    "length of other digits": POST + b"Content-Length: \xd9\xa3\r\n\r\nabc" + NEXT,
    "empty length": POST + b"Content-Length: \r\n\r\n" + NEXT,
    "huge length": POST + b"Content-Length: 18446744073709551619\r\n\r\nabc" + NEXT,
    # codings in disguise
    "two codings": CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n" + NEXT,
    "a list of codings": POST + b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n" + NEXT,
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + NEXT,
    "another coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + NEXT,
    "a coding in quotes": POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n' + NEXT,
    "a coding with a parameter": POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n" + NEXT,
    "a coding with a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + NEXT,
    "a coding with a NUL": POST + b"Transfer-Encoding: chunked\0\r\n\r\n0\r\n\r\n" + NEXT,
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + NEXT,
    "a folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + NEXT,
    "a coding in version 1.0": b"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + NEXT,
    # lines
    "bare line feeds": b"GET /a HTTP/1.1\nHost: a\n\n" + NEXT,
    "one bare line feed": POST + b"X: y\nContent-Length: 3\r\n\r\nabc" + NEXT,
    "a bare carriage return": POST + b"X: y\rContent-Length: 3\r\n\r\nabc" + NEXT,
    "a folded header": POST + b"X: y\r\n z\r\n\r\n" + NEXT,
    "a header folded by a tab": POST + b"X: y\r\n\tz\r\n\r\n" + NEXT,
    "a space before the first header": b"GET /a HTTP/1.1\r\n Host: a\r\n\r\n" + NEXT,
    "a header without a name": POST + b": y\r\n\r\n" + NEXT,
    "a header without a colon": POST + b"Content-Length\r\n\r\n" + NEXT,
    "two hosts": b"GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + NEXT,
    "two spaces": b"GET  /a HTTP/1.1\r\nHost: a\r\n\r\n" + NEXT,
    "a tab between words": b"GET\t/a\tHTTP/1.1\r\nHost: a\r\n\r\n" + NEXT,
    "no version": b"GET /a\r\n\r\n" + NEXT,
    "version 1.2": b"GET /a HTTP/1.2\r\nHost: a\r\n\r\n" + NEXT,
    # chunks
    "a chunk with line feeds": CHUNKED + b"\r\n3\nabc\n0\n\n" + NEXT,
    "an extension with a line feed": CHUNKED + b"\r\n3;a\nb\r\nabc\r\n0\r\n\r\n" + NEXT,
    "an extension with a carriage return": CHUNKED + b"\r\n3;a\rb\r\nabc\r\n0\r\n\r\n" + NEXT,
    "a very long extension": CHUNKED + b"\r\n3;" + b"x" * 300 + b"\r\nabc\r\n0\r\n\r\n" + NEXT,
    "a chunk with a prefix": CHUNKED + b"\r\n0x3\r\nabc\r\n0\r\n\r\n" + NEXT,
    "a chunk with a sign": CHUNKED + b"\r\n+3\r\nabc\r\n0\r\n\r\n" + NEXT,
    "a negative chunk": CHUNKED + b"\r\n-3\r\nabc\r\n0\r\n\r\n" + NEXT,
    "a chunk with an underscore": CHUNKED + b"\r\n1_0\r\nabc\r\n0\r\n\r\n" + NEXT,
    "a chunk with a space ahead": CHUNKED + b"\r\n 3\r\nabc\r\n0\r\n\r\n" + NEXT,
    "a chunk that overflows 32 bits": CHUNKED + b"\r\n100000003\r\nabc\r\n0\r\n\r\n" + NEXT,
    "a chunk that overflows 64 bits": CHUNKED + b"\r\n10000000000000003\r\nabc\r\n0\r\n\r\n" + NEXT,
    "a chunk that is longer": CHUNKED + b"\r\n3\r\nabcd\r\n0\r\n\r\n" + NEXT,
    "a chunk that is shorter": CHUNKED + b"\r\n5\r\nabc\r\n0\r\n\r\n" + NEXT,
    "no length of a chunk": CHUNKED + b"\r\n\r\nabc\r\n0\r\n\r\n" + NEXT,
    "only an extension": CHUNKED + b"\r\n;a=b\r\nabc\r\n0\r\n\r\n" + NEXT,
}

READ_ALIKE = {
    "a body": POST + b"Content-Length: 3\r\n\r\nabc" + NEXT,
    "leading zeros": POST + b"Content-Length: 0003\r\n\r\nabc" + NEXT,
    "a request in a body": POST + b"Content-Length: %d\r\n\r\n" % len(NEXT) + NEXT,
    "chunks": CHUNKED + b"\r\n3\r\nabc\r\n0\r\n\r\n" + NEXT,
    "a coding in capitals": POST + b"transfer-encoding: CHUNKED\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + NEXT,
    "chunks with leading zeros": CHUNKED + b"\r\n0003\r\nabc\r\n000\r\n\r\n" + NEXT,
    "chunks with extensions": CHUNKED + b'\r\n3;a=b;c="d"\r\nabc\r\n0;e\r\n\r\n' + NEXT,
    "a request in a chunk": CHUNKED + b"\r\n%x\r\n" % len(NEXT) + NEXT + b"\r\n0\r\n\r\n" + NEXT,
    "trailers": CHUNKED + b"\r\n3\r\nabc\r\n0\r\nContent-Length: 30\r\n\r\n" + NEXT,
    "no body": POST + b"\r\n" + NEXT,
    "an underscore in a name": POST + b"Content_Length: 30\r\n\r\n" + NEXT,
    "a close": b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + NEXT,
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_refused(data: bytes) -> None:
    for in_pieces in (False, True):
        found, code, _ = ours(data, in_pieces=in_pieces)
        assert code
        assert not found, "something was taken before the error"


@pytest.mark.parametrize("data", READ_ALIKE.values(), ids=READ_ALIKE.keys())
def test_read_as_h11_reads_it(data: bytes) -> None:
    found, code, _ = ours(data, in_pieces=False)
    assert (found, code) == (theirs(data)[0], "")
    assert found
    assert ours(data, in_pieces=True)[0] == found
