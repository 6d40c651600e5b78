"""The words of HTTP that the server uses: statuses, types of content, and the head of a request."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

__all__ = [
    "BYTES",
    "EVENT_STREAM",
    "JSON",
    "NDJSON",
    "PROBLEM",
    "REASONS",
    "SAFE_METHODS",
    "SINGLE_HEADERS",
    "HttpRequest",
    "RequestHead",
]

JSON: Final = b"application/json"
PROBLEM: Final = b"application/problem+json"
NDJSON: Final = b"application/x-ndjson"
BYTES: Final = b"application/octet-stream"
EVENT_STREAM: Final = b"text/event-stream"

REASONS: Final[dict[int, bytes]] = {status.value: status.phrase.encode() for status in HTTPStatus}

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

# Headers that decide what a request means; if one of these came twice, two readers could understand two requests.
SINGLE_HEADERS: Final = frozenset(
    {
        b"authorization", b"content-length", b"content-type", b"expect", b"host", b"idempotency-key", b"origin",
        b"sec-fetch-site", b"switchgear-attempt", b"transfer-encoding",
    }
)  # fmt: skip


class RequestHead:
    """A request without its body: method, target and headers.  Equal heads share an object, which nothing changes."""

    def __init__(
        self, method: str, target: bytes, headers: dict[bytes, bytes], *, is_version_1_0: bool, keeps_alive: bool
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers  # names in lower case
        self.is_version_1_0 = is_version_1_0
        self.keeps_alive = keeps_alive
        self.content_bytes = 0  # the length of the body, unless it is chunked
        self.is_chunked = False
        self.expects_continue = False
        self.plan: Any = None  # what a listener found out about it; see `routing.RoutePlan`


class HttpRequest:
    """A request: its head and its body.  One that announces its body with `Expect: 100-continue` comes twice, first
    without its body (`is_announced`)."""

    def __init__(self, head: RequestHead, body: bytes, *, is_announced: bool = False) -> None:
        self.head = head
        self.body = body
        self.is_announced = is_announced

    def header(self, name: bytes) -> bytes:
        """The value of a header, or nothing."""
        return self.head.headers.get(name, b"")
