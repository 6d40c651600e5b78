"""`HttpExchange`: one request to a server, what is done with its answer, and whether it may be sent again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from switchgear.client.http.answers import HttpAnswer
from switchgear.version import VERSION

__all__ = ["JSON", "HttpExchange", "request_start"]

JSON: Final = "application/json"


class HttpExchange:
    """A request, which is sent when a connection is free."""

    def __init__(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        on_answer: Callable[[HttpAnswer], None],
        on_failed: Callable[[], None] | None = None,
        content_type: str = JSON,
        attempt: int = 0,
        is_repeatable: bool = False,
        wait_seconds: float = 0.0,
        delay_seconds: float = 0.0,
    ) -> None:
        """`is_repeatable`: sending it twice does no harm.  `on_failed`: nobody has answered; without it, the whole
        stream ends then.  `wait_seconds` is how long the server may wait before it answers, and
        `delay_seconds` how long the request itself waits before it is sent."""
        self.method = method
        self.target = target
        self.body = body
        self.on_answer = on_answer
        self.on_failed = on_failed
        self.content_type = content_type
        self.attempt = attempt  # of the job that it reports on
        self.is_repeatable = is_repeatable
        self.wait_seconds = wait_seconds
        self.delay_seconds = delay_seconds
        self.tries = 0  # how often it was sent
        self.on_repeat: Callable[[], None] | None = None  # called before it is sent again

    def encode(self, start: str) -> bytes:
        """The bytes of the request; `start` is `request_start`."""
        path, _, lines = start.partition("\0")
        head = f"{self.method} {path}{self.target} HTTP/1.1\r\n{lines}"
        if self.attempt:
            head += f"Switchgear-Attempt: {self.attempt}\r\n"
        if self.body:
            head += f"Content-Type: {self.content_type}\r\n"
        if self.body or self.method != "GET":
            head += f"Content-Length: {len(self.body)}\r\n"
        return f"{head}\r\n".encode() + self.body


def request_start(path: str, host: str, token: str) -> str:
    """What all requests to one server have: the path before that of each, a NUL, and header lines."""
    lines = f"Host: {host}\r\nUser-Agent: switchgear/{VERSION}\r\nAccept-Encoding: identity\r\n"
    if token:
        lines += f"Authorization: Bearer {token}\r\n"
    return f"{path}\0{lines}"
