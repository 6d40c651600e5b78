"""`AnswerParser`: bytes of an HTTP connection to answers, by httptools; and the errors in answers."""

from __future__ import annotations

from typing import Any, Final

import httptools
import msgspec

from switchgear.client.gearman.error_codes import (
    ARGUMENT_TOO_LARGE,
    AUTHENTICATION_FAILED,
    GRAPH_NOT_FOUND,
    JOB_NOT_FOUND,
)
from switchgear.errors import PeerError
from switchgear.refusals import REFUSALS
from switchgear.text import harmless

__all__ = ["AnswerParser", "HttpAnswer", "error_code_of"]

MOST_HEAD_BYTES: Final = 64 * 1024
MOST_SHOWN: Final = 200  # characters of an error that is plain text
PROBLEM: Final = "application/problem+json"
# Between a client and its server there may be a proxy, which says by these that it cannot reach the server.
GATEWAY_STATUSES: Final = frozenset({502, 503, 504})

# The codes of problems that are not refusals, as Gearman has them.
_CODES: Final = {
    "job_not_found": JOB_NOT_FOUND,
    "not_held": JOB_NOT_FOUND,
    "reservation_not_found": GRAPH_NOT_FOUND,
    "not_found": "NOT_FOUND",
    "invalid_token": AUTHENTICATION_FAILED,
    "invalid_field": "INVALID_ARGUMENT",
    "invalid_parameter": "INVALID_ARGUMENT",
    "invalid_json": "INVALID_ARGUMENT",
    "body_too_large": ARGUMENT_TOO_LARGE,
    "batch_too_large": ARGUMENT_TOO_LARGE,
    "batch_size": ARGUMENT_TOO_LARGE,
    "too_many_values": ARGUMENT_TOO_LARGE,
}


class HttpAnswer:
    """One answer."""

    def __init__(self, status: int, reason: str, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers  # names in lower case
        self.body = body

    @property
    def is_good(self) -> bool:
        """Whether the request has succeeded."""
        return 200 <= self.status < 300

    @property
    def words(self) -> str:
        """The status and its text, for error messages, with the first line of an error that is plain text."""
        words = f"{self.status} {harmless(self.reason)}".strip()
        if self.status >= 400 and self.headers.get("content-type", "").startswith("text/plain"):
            line = self.body.strip().partition(b"\n")[0].decode("utf-8", "replace")
            words += f" ({harmless(line)[:MOST_SHOWN]})" if line else ""
        return words

    def json(self) -> Any:
        """The body as JSON; raises PeerError."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise PeerError(f"an answer that is not JSON: {error}") from None

    def problem(self) -> tuple[str, str] | None:
        """Code and text of the problem in an answer of this package's server; `None` if another program answered."""
        if not self.headers.get("content-type", "").startswith(PROBLEM):
            return None
        try:
            document = self.json()
            return str(document["code"]), str(document["detail"])
        except (PeerError, KeyError, TypeError):
            return None

    def obstacle(self) -> str:
        """Why the request has not reached a server of ours; empty if it has."""
        if 300 <= self.status < 400:
            where = harmless(self.headers.get("location", "another address"))[:500]
            return f"it redirects to {where}, and redirects are not followed; give the URL of the server itself"
        if self.status in GATEWAY_STATUSES and self.problem() is None:
            return f"a proxy cannot reach the server: {self.words}"
        return ""


def error_code_of(problem: tuple[str, str]) -> str:
    """The code that Gearman has for a problem."""
    code = problem[0]
    refusal = REFUSALS.get(code)
    return refusal.gearman if refusal is not None else _CODES.get(code, code.upper())


class AnswerParser:
    """The answers on one connection, one after the other."""

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self._complete: list[HttpAnswer] = []
        self._keeps_alive = True
        self._reset()

    def _reset(self) -> None:
        self._reason = b""
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._has_head = False
        self.has_begun = False  # bytes of an answer have come that is not complete

    @property
    def keeps_alive(self) -> bool:
        """Whether another request can follow the last answer."""
        return self._keeps_alive

    def feed(self, data: bytes) -> list[HttpAnswer]:
        """The answers that are complete with these bytes; raises PeerError."""
        self.has_begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise PeerError("the other side wants to speak another protocol") from None
        except httptools.HttpParserError as error:
            if not self._complete:
                cause = error.__context__ if isinstance(error.__context__, PeerError) else None
                raise cause or PeerError(f"this is not HTTP: {error}") from None
            self._keeps_alive = False  # what follows the answer cannot be read, but the answer can
        complete, self._complete = self._complete, []
        return complete

    def end(self) -> list[HttpAnswer]:
        """The connection has ended: an answer may end with it."""
        is_framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._has_head and not is_framed:
            self._keeps_alive = False
            self._add()
        complete, self._complete = self._complete, []
        return complete

    def _add(self) -> None:
        reason = self._reason.decode("latin-1")
        self._complete.append(
            HttpAnswer(self._parser.get_status_code(), reason, self._headers, b"".join(self._body)),
        )
        self._reset()

    # --- called by httptools ---

    def on_status(self, status: bytes) -> None:
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MOST_HEAD_BYTES:
            raise PeerError(f"the head of an answer has more than {MOST_HEAD_BYTES} bytes")
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # more of the answer follows
            self._reset()
            self.has_begun = True
            return
        self._keeps_alive = bool(self._parser.should_keep_alive())
        self._add()
