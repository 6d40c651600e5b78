"""Reads HTTP/1.1 requests from a stream, and writes answers.

llhttp (httptools) takes the head of a request apart.  Where a message begins and ends is decided here, so that nothing
is held beyond the limits, a long body is copied once, and no second reader could find another message in the same
bytes: a head that a proxy might understand otherwise is refused (bare line feeds, folded lines, two lengths or hosts).
"""

from __future__ import annotations

from typing import Final

import httptools

from switchgear.protocols.http.messages import REASONS, SINGLE_HEADERS, HttpRequest, RequestHead
from switchgear.protocols.http.problems import HttpProblem

__all__ = ["CONTINUE", "LAST_CHUNK", "HeadCache", "RequestDecoder", "answer_head", "chunk"]

MOST_HEAD_BYTES: Final = 16_384
MOST_HEADERS: Final = 100
MOST_TARGET_BYTES: Final = 8_192
MOST_CHUNK_LINE_BYTES: Final = 256  # the length of a chunk, and extensions, which are ignored
MOST_TRAILER_BYTES: Final = 8_192
MOST_CHUNK_DIGITS: Final = 12
SMALL_PIECE_BYTES: Final = 4_096

# A client sends the same head again and again.  So many are remembered, and none that is long.
MOST_REMEMBERED: Final = 512
LONGEST_REMEMBERED_BYTES: Final = 1_024

HEX: Final = b"0123456789abcdefABCDEF"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"

# What the rest of the stream is.
HEAD: Final = 0
BODY: Final = 1
CHUNK_LINE: Final = 2
CHUNK_DATA: Final = 3
CHUNK_END: Final = 4
TRAILERS: Final = 5


# --- heads ---


class _HeadParts:
    """What httptools finds in a head."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))


def malformed(detail: str, status: int = 400, code: str = "malformed_request") -> HttpProblem:
    """The stream is not HTTP any more, or not such that everybody would read the same requests in it."""
    return HttpProblem(status, code, detail, framing_lost=True, is_bad_input=True)


def parse_head(data: bytes) -> RequestHead:
    """The head of a request, with the empty line at its end; raises HttpProblem."""
    line_ends = data.count(b"\r\n")
    if data.count(b"\n") != line_ends or data.count(b"\r") != line_ends:
        raise malformed("a line of the head does not end with CR LF")
    if b"\r\n " in data or b"\r\n\t" in data:
        raise malformed("a header is folded over several lines")
    if line_ends > MOST_HEADERS + 2:
        raise malformed(f"there are more than {MOST_HEADERS} headers", 431, "too_many_headers")
    line = data[: data.index(b"\r\n")]
    words = line.split(b" ")
    if len(words) != 3:
        raise malformed("the first line is not METHOD TARGET HTTP/1.1, with single spaces")
    if words[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise malformed("only HTTP/1.1 and HTTP/1.0 are spoken here", 505, "unknown_version")
    if len(words[1]) > MOST_TARGET_BYTES:
        raise malformed(f"the target has more than {MOST_TARGET_BYTES} bytes", 414, "target_too_long")
    parts = _HeadParts()
    parser = httptools.HttpRequestParser(parts)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # who asks for another protocol is answered in this one; CONNECT has no route
    except httptools.HttpParserInvalidMethodError:
        raise malformed(f"{shown(words[0])} is no method that is known here", 501, "unknown_method") from None
    except httptools.HttpParserError as error:
        raise malformed(str(error)) from None
    headers: dict[bytes, bytes] = {}
    for name, value in parts.headers:
        name = name.lower()
        value = value.rstrip(b" \t")
        if name in headers:
            if name in SINGLE_HEADERS:
                raise malformed(f"the header {shown(name)} is there twice")
            value = headers[name] + b", " + value
        headers[name] = value
    return framed_head(words, headers)


def framed_head(words: list[bytes], headers: dict[bytes, bytes]) -> RequestHead:
    """The head, and how long its body is."""
    method, target, version = words
    is_version_1_0 = version == b"HTTP/1.0"
    connection = headers.get(b"connection", b"").lower()
    options = [option.strip() for option in connection.split(b",")] if connection else []
    keeps_alive = b"keep-alive" in options if is_version_1_0 else b"close" not in options
    if b"upgrade" in options or method == b"CONNECT":
        keeps_alive = False  # what follows may be in another protocol
    head = RequestHead(method.decode("ascii"), target, headers, is_version_1_0=is_version_1_0, keeps_alive=keeps_alive)
    coding = headers.get(b"transfer-encoding")
    length = headers.get(b"content-length")
    if coding is not None:
        if length is not None:
            raise malformed("there are both Content-Length and Transfer-Encoding")
        if is_version_1_0:
            raise malformed("HTTP/1.0 has no Transfer-Encoding")
        if coding.lower() != b"chunked":
            raise malformed(f"the transfer coding {shown(coding)} is not known here", 501, "unknown_coding")
        head.is_chunked = True
    elif length is not None:
        if not length.isdigit() or len(length) > 18:
            raise malformed("Content-Length is not a number of bytes")
        head.content_bytes = int(length)
    expectation = headers.get(b"expect")
    if expectation is not None and not is_version_1_0:
        if expectation.lower() != b"100-continue":
            raise malformed(f"the expectation {shown(expectation)} cannot be met", 417, "unknown_expectation")
        head.expects_continue = head.is_chunked or head.content_bytes > 0
    return head


def shown(word: bytes) -> str:
    """A word of a peer's in an error."""
    return word[:60].decode("ascii", "replace")


class HeadCache:
    """Heads of requests that came before, by their bytes."""

    def __init__(self) -> None:
        self._heads: dict[bytes, RequestHead] = {}

    def head(self, data: bytes) -> RequestHead:
        """The head that has these bytes; raises HttpProblem."""
        head = self._heads.get(data)
        if head is None:
            head = parse_head(data)
            if len(data) <= LONGEST_REMEMBERED_BYTES:
                if len(self._heads) >= MOST_REMEMBERED:
                    self._heads.clear()
                self._heads[data] = head
        return head

    def clear(self) -> None:
        """Forget all: what was found out about them may be different now."""
        self._heads.clear()


# --- requests ---


class RequestDecoder:
    """Cuts a stream into requests.  After an error (`failure`) nothing more is understood."""

    def __init__(self, heads: HeadCache, most_body_bytes: int) -> None:
        self.heads = heads
        self.most_body_bytes = most_body_bytes
        self.failure: HttpProblem | None = None
        self._state = HEAD
        self._start = b""  # of a head or of a line of the framing
        self._head: RequestHead | None = None  # of the request whose body is being read
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._missing_bytes = 0  # of a body or of a chunk
        self._trailer_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """How much of an unfinished request is being held."""
        return len(self._start) + self._body_bytes

    @property
    def awaited_bytes(self) -> int:
        """How many bytes are missing before a long request can be handled, if that is known."""
        return self._missing_bytes if self._state == BODY else 0

    def feed(self, data: bytes) -> list[HttpRequest]:
        """The requests that are complete now, or whose bodies are announced."""
        requests: list[HttpRequest] = []
        if self.failure is not None:
            return requests
        if self._start:
            data = self._start + data
            self._start = b""
        position = 0
        try:
            while position < len(data):
                before = position
                if self._state == HEAD:
                    position = self._read_head(data, position, requests)
                elif self._state == BODY:
                    position = self._read_body(data, position, requests)
                else:
                    position = self._read_chunked(data, position, requests)
                if position == before:
                    self._start = data[position:] if position else data
                    break
        except HttpProblem as problem:
            self.failure = problem
            self._start = b""
            self._body = []
            self._body_bytes = self._missing_bytes = 0
        return requests

    def _read_head(self, data: bytes, start: int, requests: list[HttpRequest]) -> int:
        if data.startswith(b"\r\n", start):
            return start + 2  # an empty line ahead of a request is allowed
        end = data.find(b"\r\n\r\n", start, start + MOST_HEAD_BYTES)
        if end < 0:
            check_unfinished(data[start : start + MOST_HEAD_BYTES])
            if len(data) - start >= MOST_HEAD_BYTES:
                raise malformed(f"the head has more than {MOST_HEAD_BYTES} bytes", 431, "head_too_long")
            return start
        end += 4
        head = self.heads.head(data[start:end])
        if head.content_bytes > self.most_body_bytes:
            raise self._too_large()
        if head.expects_continue:
            requests.append(HttpRequest(head, b"", is_announced=True))
        if head.is_chunked:
            self._begin(head, CHUNK_LINE)
        elif head.content_bytes:
            size = head.content_bytes
            if len(data) - end >= size:  # as most are: all of it is here
                requests.append(HttpRequest(head, data[end : end + size]))
                return end + size
            self._begin(head, BODY)
            self._missing_bytes = size
        else:
            requests.append(HttpRequest(head, b""))
        return end

    def _begin(self, head: RequestHead, state: int) -> None:
        self._head = head
        self._state = state
        self._body = []
        self._body_bytes = self._missing_bytes = self._trailer_bytes = 0

    def _too_large(self) -> HttpProblem:
        text = f"the body has more than {self.most_body_bytes} bytes (limits.packet_bytes)"
        return malformed(text, 413, "body_too_large")

    def _keep(self, data: bytes, start: int) -> int:
        """Add what is there of the missing bytes to the body; returns where it ends."""
        end = min(len(data), start + self._missing_bytes)
        piece = data[start:end] if start or end < len(data) else data
        body = self._body
        if body and len(body[-1]) + len(piece) <= SMALL_PIECE_BYTES:
            body[-1] += piece  # an object for each byte would take forty times as much
        else:
            body.append(piece)
        self._body_bytes += len(piece)
        self._missing_bytes -= len(piece)
        return end

    def _finish(self, requests: list[HttpRequest]) -> None:
        head = self._head
        assert head is not None
        requests.append(HttpRequest(head, self._body[0] if len(self._body) == 1 else b"".join(self._body)))
        self._head = None
        self._body = []
        self._body_bytes = 0
        self._state = HEAD

    def _read_body(self, data: bytes, start: int, requests: list[HttpRequest]) -> int:
        end = self._keep(data, start)
        if not self._missing_bytes:
            self._finish(requests)
        return end

    def _read_chunked(self, data: bytes, start: int, requests: list[HttpRequest]) -> int:
        if self._state == CHUNK_DATA:
            end = self._keep(data, start)
            if not self._missing_bytes:
                self._state = CHUNK_END
            return end
        if self._state == CHUNK_END:
            if len(data) - start < 2 and data[start:] == b"\r":
                return start
            if not data.startswith(b"\r\n", start):
                raise malformed("a chunk is longer than it says")
            self._state = CHUNK_LINE
            return start + 2
        most_bytes = MOST_CHUNK_LINE_BYTES if self._state == CHUNK_LINE else MOST_TRAILER_BYTES - self._trailer_bytes
        end = data.find(b"\n", start, start + most_bytes)
        if end < 0:
            if len(data) - start >= most_bytes:
                raise malformed("a line of the chunked body is too long")
            return start
        line = data[start:end]
        if not line.endswith(b"\r") or b"\r" in line[:-1]:
            raise malformed("a line of the chunked body does not end with CR LF")
        line = line[:-1]
        if self._state == CHUNK_LINE:
            self._begin_chunk(line)
        else:
            self._trailer_bytes += len(line) + 2
            if not line:
                self._finish(requests)
        return end + 1

    def _begin_chunk(self, line: bytes) -> None:
        digits = line.partition(b";")[0].rstrip(b" \t")
        if not digits or len(digits) > MOST_CHUNK_DIGITS or digits.strip(HEX):
            raise malformed("the length of a chunk is not a hexadecimal number")
        size = int(digits, 16)
        if self._body_bytes + size > self.most_body_bytes:
            raise self._too_large()
        self._missing_bytes = size
        self._state = CHUNK_DATA if size else TRAILERS


def check_unfinished(start: bytes) -> None:
    """Raise HttpProblem if the beginning of a head has lines that do not end as they must: its end would never come."""
    if start.count(b"\n") != start.count(b"\r\n"):
        raise malformed("a line of the head does not end with CR LF")


# --- answers ---

NOT_STORED: Final = b"no-store"

_STARTS: Final[dict[tuple[int, bytes], bytes]] = {}


def answer_head(
    status: int,
    content_type: bytes,
    content_bytes: int,
    headers: bytes,
    date: bytes,
    *,
    keeps_alive: bool,
    caching: bytes = NOT_STORED,
) -> bytes:
    """The head of an answer.  `headers` are whole lines.

    A length of -1 says that the body comes in chunks, and one of -2 that it ends with the connection.

    What is told is of the moment and for the one who asked, so nobody may cache it, unless `caching` says otherwise.
    No browser may guess that it is something else than it says.
    """
    start = _STARTS.get((status, content_type)) if caching is NOT_STORED else None
    if start is None:
        start = b"HTTP/1.1 %d %b\r\nCache-Control: %b\r\nX-Content-Type-Options: nosniff\r\n" % (
            status,
            REASONS[status],
            caching,
        )
        if content_type:
            start += b"Content-Type: %b\r\n" % content_type
        if caching is NOT_STORED:
            _STARTS[status, content_type] = start
    if status in (204, 304) or content_bytes == -2:
        length = b""
    elif content_bytes == -1:
        length = b"Transfer-Encoding: chunked\r\n"
    else:
        length = b"Content-Length: %d\r\n" % content_bytes
    end = b"\r\n" if keeps_alive else b"Connection: close\r\n\r\n"
    return b"%bDate: %b\r\n%b%b%b" % (start, date, length, headers, end)


def chunk(data: bytes) -> bytes:
    """A piece of a body that comes in chunks."""
    return b"%x\r\n%b\r\n" % (len(data), data)
