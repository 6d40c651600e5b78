"""Reads HTTP/1.1 requests from a stream, and writes answers.

llhttp (httptools) takes the head of a request apart.  Where a message begins and ends is decided here, so that nothing
is held beyond the limits, a long body is copied once, and no second reader could find another message in the same
bytes: a head that a proxy might understand otherwise is refused (bare line feeds, folded lines, two lengths or hosts).
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import Final

import httptools

from switchgear.protocols.http.messages import REASONS, SINGLE_HEADERS, SUBMISSION_HEADERS, HttpRequest, RequestHead
from switchgear.protocols.http.problems import HttpProblem
from switchgear.protocols.http.recent_heads import USUAL_LINE, RecentHead

__all__ = ["CONTINUE", "LAST_CHUNK", "HeadCache", "RequestDecoder", "answer_head", "chunk"]

MOST_HEAD_BYTES: Final = 16_384
MOST_HEADERS: Final = 100
MOST_TARGET_BYTES: Final = 8_192
MOST_CHUNK_LINE_BYTES: Final = 256  # the length of a chunk, and extensions, which are ignored
MOST_TRAILER_BYTES: Final = 8_192
MOST_CHUNK_DIGITS: Final = 12

# A client sends the same head again and again.  So many are remembered, and none that is long.
MOST_REMEMBERED: Final = 512
LONGEST_REMEMBERED_BYTES: Final = 1_024

# What may follow the last chunk; it is ignored, but must be what every reader takes for a header.
TRAILER: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")

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
    """Receives the parts of a request head from httptools."""

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
    head.is_simple = SUBMISSION_HEADERS.isdisjoint(headers)
    return head


def shown(word: bytes) -> str:
    """A word of a peer's in an error."""
    return word[:60].decode("ascii", "replace")


class HeadCache:
    """Heads of requests that came before, by their bytes; and by all of their bytes but the target, because clients
    send the same method and headers for one job after the other."""

    def __init__(self) -> None:
        self._heads: dict[bytes, RequestHead] = {}
        self._without_target: dict[bytes, RequestHead] = {}
        self.generation = 0  # how often all were forgotten

    def head(self, data: bytes) -> RequestHead:
        """The head that has these bytes; raises HttpProblem."""
        head = self._heads.get(data)
        if head is not None:
            return head
        if len(data) > LONGEST_REMEMBERED_BYTES:
            return parse_head(data)
        line = USUAL_LINE.match(data)
        if line is None:
            head = parse_head(data)
        else:
            start, end = line.span(2)
            rest = data[:start] + data[end:]
            alike = self._without_target.get(rest)
            if alike is not None:
                head = alike.with_target(data[start:end])
            else:
                head = parse_head(data)
                if len(self._without_target) >= MOST_REMEMBERED:
                    self._without_target.clear()
                self._without_target[rest] = head
        if len(self._heads) >= MOST_REMEMBERED:
            self._heads.clear()
        self._heads[data] = head
        return head

    def clear(self) -> None:
        """Forget all: what was found out about them may be different now."""
        self.generation += 1
        self._heads.clear()
        self._without_target.clear()


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
        # The kinds of heads that came last and before, if they were short.
        self._recent: RecentHead | None = None
        self._earlier: RecentHead | None = None
        self._generation = 0  # of the cache when they were noted
        # A BytesIO gives its contents away without a copy, so a body of many megabytes is in memory once.
        self._body: BytesIO | None = None
        self._body_bytes = 0
        self._missing_bytes = 0  # of a body or of a chunk
        self._trailer_bytes = 0
        self._requests = 0  # how many heads were read
        self._read_bytes = 0  # of all bodies that came in several pieces

    @property
    def is_between_requests(self) -> bool:
        """Whether nothing of a next request is here."""
        return self._state == HEAD and not self._start

    @property
    def progress(self) -> int:
        """A number that changes with each head that is complete, and with each byte of a body."""
        return self._requests if self._state == HEAD else -1 - self._requests - self._read_bytes

    @property
    def is_in_head(self) -> bool:
        """Whether the head of a request is not complete."""
        return self._state == HEAD

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
            self._body = None
            self._body_bytes = self._missing_bytes = 0
        return requests

    def _read_head(self, data: bytes, start: int, requests: list[HttpRequest]) -> int:
        head = self._head_like_recent(data, start)
        if head is not None and self._recent is not None:
            self._requests += 1
            return self._read_after_head(head, data, self._recent.end, requests)
        if data[start] == 13 and data.startswith(b"\r\n", start):
            return start + 2  # an empty line ahead of a request is allowed
        end = data.find(b"\r\n\r\n", start, start + MOST_HEAD_BYTES)
        if end < 0:
            check_unfinished(data[start : start + MOST_HEAD_BYTES])
            if len(data) - start >= MOST_HEAD_BYTES:
                raise malformed(f"the head has more than {MOST_HEAD_BYTES} bytes", 431, "head_too_long")
            return start
        end += 4
        self._requests += 1
        head_bytes = data[start:end]
        head = self.heads.head(head_bytes)
        if len(head_bytes) <= LONGEST_REMEMBERED_BYTES:
            self._earlier = self._recent
            self._recent = RecentHead(head_bytes, head)
            self._generation = self.heads.generation
        return self._read_after_head(head, data, end, requests)

    def _head_like_recent(self, data: bytes, start: int) -> RequestHead | None:
        """The head that starts here, if it is of a kind that was here before; `_recent` is this kind then."""
        recent = self._recent
        if recent is None:
            return None
        if self._generation != self.heads.generation:
            self._recent = self._earlier = None
            return None
        head = recent.repeated(data, start)
        if head is not None:
            return head
        earlier = self._earlier
        if earlier is not None:
            head = earlier.repeated(data, start)
            if head is not None:
                self._recent, self._earlier = earlier, recent
                return head
        head = recent.with_other_target(data, start, MOST_TARGET_BYTES)
        if head is None and earlier is not None:
            head = earlier.with_other_target(data, start, MOST_TARGET_BYTES)
            if head is not None:
                self._recent, self._earlier = earlier, recent
        return head

    def _read_after_head(self, head: RequestHead, data: bytes, end: int, requests: list[HttpRequest]) -> int:
        """Begin with the body of a request whose head ends here; returns where to go on."""
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
        self._body = None
        self._body_bytes = self._missing_bytes = self._trailer_bytes = 0

    def _too_large(self) -> HttpProblem:
        text = f"the body has more than {self.most_body_bytes} bytes (limits.packet_bytes)"
        return malformed(text, 413, "body_too_large")

    def _keep(self, data: bytes, start: int) -> int:
        """Add what is there of the missing bytes to the body; returns where it ends."""
        end = min(len(data), start + self._missing_bytes)
        piece = data[start:end] if start or end < len(data) else data
        if self._body is None:
            self._body = BytesIO()
        self._body.write(piece)
        self._body_bytes += len(piece)
        self._missing_bytes -= len(piece)
        self._read_bytes += len(piece)
        return end

    def _finish(self, requests: list[HttpRequest]) -> None:
        head = self._head
        assert head is not None
        requests.append(HttpRequest(head, b"" if self._body is None else self._body.getvalue()))
        self._head = None
        self._body = None
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
            elif TRAILER.fullmatch(line) is None:
                raise malformed("a line after the last chunk is no header")
        return end + 1

    def _begin_chunk(self, line: bytes) -> None:
        digits, extension, _ = line.partition(b";")
        if not extension:
            digits = digits.rstrip(b" \t")
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

SHORT_BODY_BYTES: Final = 256
LENGTH_LINES: Final[list[bytes]] = [b"Content-Length: %d\r\n" % size for size in range(SHORT_BODY_BYTES)]
NOT_STORED: Final = b"no-store"

_STARTS: Final[dict[int, dict[bytes, bytes]]] = {}  # by status and type of content


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
    """The head of an answer.  `headers` and `date` are whole lines.

    A length of -1 says that the body comes in chunks, and one of -2 that it ends with the connection.

    What is told is of the moment and for the one who asked, so nobody may cache it, unless `caching` says otherwise.
    No browser may guess that it is something else than it says.
    """
    starts = _STARTS.get(status) if caching is NOT_STORED else None
    start = None if starts is None else starts.get(content_type)
    if start is None:
        start = b"HTTP/1.1 %d %b\r\nCache-Control: %b\r\nX-Content-Type-Options: nosniff\r\n" % (
            status,
            REASONS[status],
            caching,
        )
        if content_type:
            start += b"Content-Type: %b\r\n" % content_type
        if caching is NOT_STORED:
            _STARTS.setdefault(status, {})[content_type] = start
    if 0 <= content_bytes < SHORT_BODY_BYTES and status != 204 and status != 304:
        length = LENGTH_LINES[content_bytes]
    elif content_bytes == -2 or status == 204 or status == 304:
        length = b""
    elif content_bytes == -1:
        length = b"Transfer-Encoding: chunked\r\n"
    else:
        length = b"Content-Length: %d\r\n" % content_bytes
    # Joined, and not formatted, which takes five times as long.
    return b"".join([start, date, length, headers, b"\r\n" if keeps_alive else b"Connection: close\r\n\r\n"])


def chunk(data: bytes) -> bytes:
    """A piece of a body that comes in chunks."""
    return b"%x\r\n%b\r\n" % (len(data), data)
