"""The messages of HTTP: statuses, content types, and the head of a request."""

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
    "SUBMISSION_HEADERS",
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

# Headers that say something about the job that a request submits.
SUBMISSION_HEADERS: Final = frozenset({b"prefer", b"idempotency-key", b"traceparent"})

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
        self.is_simple = False  # no header has an option of a job
        self.alike: RequestHead | None = None  # an earlier one that differs in its target only
        self.is_admitted = False  # by the rules for headers, as all are that differ in their targets only
        # An earlier one that differs in the last number of its target only, so that its plan may be used again; and,
        # of such an earlier one, where in its target that number is.
        self.numbered: RequestHead | None = None
        self.number_start = self.number_end = 0
        self.entry: Any = None  # the row for the last of those that differ in their targets; see `routing.Router`
        self.attempt = -1  # what its header Switchgear-Attempt says, once that was looked at
        self.plan: Any = None  # what a listener found out about it; see `routing.RoutePlan`

    def with_target(self, target: bytes) -> RequestHead:
        """A head that is the same but for its target."""
        head = RequestHead(
            self.method, target, self.headers, is_version_1_0=self.is_version_1_0, keeps_alive=self.keeps_alive
        )
        head.content_bytes = self.content_bytes
        head.is_chunked = self.is_chunked
        head.expects_continue = self.expects_continue
        head.is_simple = self.is_simple
        head.alike = self.alike or self
        return head


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
