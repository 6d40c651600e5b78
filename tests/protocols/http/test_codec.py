"""Requests are cut out of a stream, however it comes; and what two readers might read differently is refused."""

from __future__ import annotations

import tracemalloc

import pytest

from switchgear.protocols.http.codec import (
    MOST_HEAD_BYTES,
    MOST_HEADERS,
    MOST_TARGET_BYTES,
    HeadCache,
    RequestDecoder,
    answer_head,
    chunk,
)
from switchgear.protocols.http.problems import HttpProblem

MOST_BODY = 1000
HOST = b"Host: localhost\r\n"


def decoder() -> RequestDecoder:
    return RequestDecoder(HeadCache(), MOST_BODY)


def read(data: bytes) -> list[tuple[str, bytes, bytes]]:
    """Method, target and body of each request, read at once and byte by byte."""
    whole, split = decoder(), decoder()
    found = [(r.head.method, r.head.target, r.body) for r in whole.feed(data) if not r.is_announced]
    in_pieces = [
        (r.head.method, r.head.target, r.body) for byte in data for r in split.feed(bytes([byte])) if not r.is_announced
    ]
    assert found == in_pieces
    assert str(whole.failure) == str(split.failure)
    assert whole.failure is None, whole.failure
    assert whole.buffered_bytes == split.buffered_bytes
    return found


def failure(data: bytes) -> tuple[int, str]:
    """Status and code of the error that ends the stream, read at once and byte by byte."""
    whole, split = decoder(), decoder()
    whole.feed(data)
    for byte in data:
        split.feed(bytes([byte]))
    assert whole.failure is not None
    assert split.failure is not None
    assert (whole.failure.status, str(whole.failure)) == (split.failure.status, str(split.failure))
    assert whole.failure.framing_lost
    assert whole.buffered_bytes == split.buffered_bytes == 0
    assert whole.feed(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n") == []
    return whole.failure.status, whole.failure.code


def test_requests_one_after_another() -> None:
    data = b"GET /a HTTP/1.1\r\n" + HOST + b"\r\nPOST /b?c=d HTTP/1.1\r\nContent-Length: 3\r\n" + HOST + b"\r\nxyz"
    data += b"\r\nDELETE /c HTTP/1.0\r\n\r\n"
    assert read(data) == [("GET", b"/a", b""), ("POST", b"/b?c=d", b"xyz"), ("DELETE", b"/c", b"")]


def test_a_body_in_chunks() -> None:
    data = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST + b"\r\n"
    data += b"3\r\nabc\r\n0A;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
    assert read(data * 2) == [("POST", b"/", b"abc0123456789")] * 2


def test_what_was_announced_comes_first_without_its_body() -> None:
    reader = decoder()
    (announced,) = reader.feed(b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n" + HOST + b"\r\n")
    assert announced.is_announced
    (request,) = reader.feed(b"ok")
    assert (request.is_announced, request.body) == (False, b"ok")


def test_nothing_is_announced_without_a_body() -> None:
    (request,) = decoder().feed(b"GET / HTTP/1.1\r\nExpect: 100-continue\r\n" + HOST + b"\r\n")
    assert not request.is_announced


@pytest.mark.parametrize(
    ("lines", "keeps_alive"),
    [
        (b"GET / HTTP/1.1\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n", False),
        (b"GET / HTTP/1.1\r\nConnection: keep-alive, Close\r\n", False),
        (b"GET / HTTP/1.0\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n", False),
    ],
)
def test_whether_the_connection_goes_on(lines: bytes, keeps_alive: bool) -> None:
    (request,) = decoder().feed(lines + HOST + b"\r\n")
    assert request.head.keeps_alive is keeps_alive


def test_headers_that_come_twice_are_joined() -> None:
    (request,) = decoder().feed(b"GET / HTTP/1.1\r\nPrefer: a\r\nPREFER:  wait=3 \r\n" + HOST + b"\r\n")
    assert request.header(b"prefer") == b"a, wait=3"


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"GET / HTTP/1.1\nHost: a\n\n", 400, "malformed_request"),
        (b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", 400, "malformed_request"),
        (b"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n", 400, "malformed_request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400, "malformed_request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", 400, "malformed_request"),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, "malformed_request"),
        (b"GET / HTTP/1.1\r\nHost: a\0\r\n\r\n", 400, "malformed_request"),
        (b"GET  / HTTP/1.1\r\n\r\n", 400, "malformed_request"),
        (b"GET /\r\n\r\n", 400, "malformed_request"),
        (b"GET / HTTP/2.0\r\n\r\n", 505, "unknown_version"),
        (b"PRI * HTTP/2.0\r\n\r\n", 505, "unknown_version"),
        (b"BREW / HTTP/1.1\r\n\r\n", 501, "unknown_method"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400, "malformed_request"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", 400, "malformed_request"),
        (b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400, "malformed_request"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "malformed_request"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n", 400, "malformed_request"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501, "unknown_coding"),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "malformed_request"),
        (b"POST / HTTP/1.1\r\nExpect: tea\r\n\r\n", 417, "unknown_expectation"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413, "body_too_large"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 400, "malformed_request"),
        (b"GET /" + b"a" * MOST_TARGET_BYTES + b" HTTP/1.1\r\n\r\n", 414, "target_too_long"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * (MOST_HEADERS + 1) + b"\r\n", 431, "too_many_headers"),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * MOST_HEAD_BYTES, 431, "head_too_long"),
        (b"\x16\x03\x01\x02\0" + b"x" * MOST_HEAD_BYTES, 431, "head_too_long"),
    ],
)
def test_what_two_readers_might_read_differently_is_refused(data: bytes, status: int, code: str) -> None:
    assert failure(data) == (status, code)


@pytest.mark.parametrize(
    ("chunks", "status"),
    [
        (b"3\nabc\n", 400),
        (b"3\r\nabcd\r\n", 400),
        (b"3\r\nabc\n", 400),
        (b"0x3\r\nabc\r\n", 400),
        (b"-3\r\nabc\r\n", 400),
        (b"\r\n", 400),
        (b"ffffffffffffffff\r\n", 400),
        (b"3e9\r\n", 413),
        (b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\n", 413),
        (b"3;" + b"x" * 300, 400),
        (b"0\r\nA: " + b"x" * 9000, 400),
    ],
)
def test_chunks_that_are_none(chunks: bytes, status: int) -> None:
    data = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST + b"\r\n" + chunks
    assert failure(data)[0] == status


def test_a_long_body_is_counted_as_it_comes() -> None:
    reader = RequestDecoder(HeadCache(), 10**7)
    reader.feed(b"POST / HTTP/1.1\r\nContent-Length: 300000\r\n" + HOST + b"\r\n")
    pieces = [bytes([number]) * 100_000 for number in range(3)]
    reader.feed(pieces[0])
    assert reader.awaited_bytes == 200_000
    assert reader.buffered_bytes == 100_000
    reader.feed(pieces[1])
    (request,) = reader.feed(pieces[2])
    assert request.body == b"".join(pieces)
    assert reader.buffered_bytes == 0


def test_a_body_is_in_memory_once() -> None:
    reader = RequestDecoder(HeadCache(), 10**8)
    reader.feed(b"POST / HTTP/1.1\r\nContent-Length: 30000000\r\n" + HOST + b"\r\n")
    piece = b"x" * 100_000
    tracemalloc.start()
    try:
        requests = [request for _ in range(300) for request in reader.feed(piece)]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(requests[0].body) == 30_000_000
    assert peak_bytes < 1.2 * 30_000_000


def test_many_small_pieces_are_not_many_objects() -> None:
    reader = RequestDecoder(HeadCache(), 10**7)
    reader.feed(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST + b"\r\n")
    chunks = b"2\r\nab\r\n" * 10_000
    tracemalloc.start()
    try:
        reader.feed(chunks)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 50_000


def test_equal_heads_are_read_once() -> None:
    heads = HeadCache()
    data = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
    first, second = RequestDecoder(heads, 10), RequestDecoder(heads, 10)
    assert first.feed(data)[0].head is second.feed(data)[0].head
    for number in range(2000):
        first.feed(b"GET /%d HTTP/1.1\r\n\r\n" % number)
    assert len(heads._heads) <= 512


def test_heads_that_differ_in_their_targets_share_what_is_known_of_the_rest() -> None:
    heads = HeadCache()
    lines = HOST + b"Content-Length: 2\r\nSwitchgear-Attempt: 3\r\nPrefer: wait=1\r\n\r\n"
    first = heads.head(b"PUT /v1/jobs/H:a:1/result HTTP/1.1\r\n" + lines)
    second = heads.head(b"PUT /v1/jobs/H:a:2/result?x=%20 HTTP/1.1\r\n" + lines)
    assert second.alike is first
    assert second.headers is first.headers
    assert (second.method, second.target, second.content_bytes) == ("PUT", b"/v1/jobs/H:a:2/result?x=%20", 2)
    assert heads.head(b"POST /v1/jobs/H:a:2/result HTTP/1.1\r\n" + lines).alike is None
    for number in range(2000):
        heads.head(b"GET /%d HTTP/1.1\r\nA: %d\r\n\r\n" % (number, number))
    assert len(heads._without_target) <= 512


@pytest.mark.parametrize(
    "line",
    [
        b"GET  / HTTP/1.1",
        b"GET / HTTP/1.2",
        b"GET / http/1.1",
        b"get / HTTP/1.1",
        b"GET /\x80 HTTP/1.1",
        b"GET /\0 HTTP/1.1",
        b"GET /a b HTTP/1.1",
        b"GET /\tHTTP/1.1",
        b"CONNECT / HTTP/1.1",
        b"GET http://other/ HTTP/1.1",
        b"GET / HTTP/1.0",
        b"GET /a\nb HTTP/1.1",
        b"GET /\r HTTP/1.1",
        b"GET",
        b"",
        b" GET / HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b"GET /#a HTTP/1.1",
    ],
)
def test_a_known_head_lets_no_other_first_line_pass(line: bytes) -> None:
    """What is read is the same whether the rest of the head is known or not."""

    def read(heads: HeadCache) -> tuple[str, bytes, bool] | str:
        try:
            head = heads.head(line + b"\r\n" + HOST + b"\r\n")
        except HttpProblem as problem:
            return str(problem)
        return head.method, head.target, head.keeps_alive

    warm = HeadCache()
    warm.head(b"GET /known HTTP/1.1\r\n" + HOST + b"\r\n")
    assert read(warm) == read(HeadCache())


@pytest.mark.parametrize(
    "body",
    [
        b"3 \t;x\r\nabc\r\n0\r\n\r\n",  # blanks before an extension
        b"0\r\nno trailer\r\n\r\n",
        b"0\r\nA : b\r\n\r\n",
        b"0\r\nA\x80: b\r\n\r\n",
        b"0\r\nA: \0\r\n\r\n",
        b"0\r\nA: b\r\n folded\r\n\r\n",
        b"0\r\n: b\r\n\r\n",
    ],
)
def test_lines_of_a_chunked_body_that_others_refuse(body: bytes) -> None:
    reader = decoder()
    head = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    assert not reader.feed(head + body)
    assert reader.failure is not None
    assert reader.failure.status == 400


def test_trailers_are_read_and_ignored() -> None:
    reader = decoder()
    head = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    (request,) = reader.feed(head + b"3;x=y\r\nabc\r\n0 \r\nX-Sum: 1 \xff\r\nB:\r\n\r\n")
    assert request.body == b"abc"


def test_answers() -> None:
    head = answer_head(200, b"text/plain", 3, b"A: b\r\n", b"Date: now\r\n", keeps_alive=False)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.endswith(b"Date: now\r\nContent-Length: 3\r\nA: b\r\nConnection: close\r\n\r\n")
    assert b"Content-Length" not in answer_head(204, b"", 0, b"", b"now", keeps_alive=True)
    assert chunk(b"x" * 17) == b"11\r\n" + b"x" * 17 + b"\r\n"


def test_the_same_head_again_is_recognised_until_heads_are_forgotten() -> None:
    heads = HeadCache()
    reader = RequestDecoder(heads, 100)
    data = b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n"
    first, second = reader.feed(data + b"ab" + data + b"cd")
    assert second.head is first.head
    assert [first.body, second.body] == [b"ab", b"cd"]
    heads.clear()
    (third,) = reader.feed(data + b"ef")
    assert third.head is not first.head
    (other,) = reader.feed(b"GET /b HTTP/1.1\r\n" + HOST + b"\r\n")
    assert other.head.target == b"/b"
