"""`HttpSetup`: what the sessions of one listener share: routes, limits, and the parts of common answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from switchgear.model import SECOND_US
from switchgear.protocols.http.codec import (
    HeadCache,
    RequestDecoder,
    answer_head,
)
from switchgear.protocols.http.messages import BYTES, JSON, RequestHead
from switchgear.protocols.http.redaction import Redaction
from switchgear.protocols.http.routing import AnswerCounts, RoutePlan, Router
from switchgear.protocols.http.workers import HttpWorkers

if TYPE_CHECKING:
    from switchgear.protocols.http.session import HttpSession

__all__ = ["ATTACHMENT", "COOKIE_NAME", "CREATED_END", "CREATED_ID", "JOINED_END", "HttpSetup"]

COOKIE_NAME: Final = b"switchgear_session"
CREATED_ID: Final = b'","id":'
CREATED_END: Final = b',"joined":false}'
JOINED_END: Final = b',"joined":true}'
LENGTHS_OF_STATUS: Final = 1_000_000  # more than the bytes of an answer to a submission
# What a peer has chosen is never shown by a browser as a page of this server.
ATTACHMENT: Final = b"Content-Disposition: attachment\r\nContent-Security-Policy: sandbox; default-src 'none'\r\n"


class HttpSetup:
    """What the sessions of one listener share."""

    def __init__(self, router: Router, handle_prefix: bytes, packet_bytes: int, name_bytes: int) -> None:
        self.router = router
        # Of the browser session: browsers give cookies to all ports of a host, so each server has a name of its own.
        self.cookie_name = COOKIE_NAME
        self.heads = HeadCache()
        self.handle_prefix = handle_prefix
        # The prefix of handles as texts, in a header and in JSON.
        self.handle_text = handle_prefix.decode(errors="replace")
        self.location_start = b"Location: /v1/jobs/" + quote(self.handle_text, safe=":").encode()
        self.job_line_start = b"Switchgear-Job: " + self.handle_text.encode("ascii", "replace")
        self.handle_json = msgspec.json.encode(self.handle_text)[1:-1]
        self.packet_bytes = packet_bytes
        self.name_bytes = name_bytes
        self.idle_seconds = 0.0  # see `HttpConfig`
        self.head_seconds = 0.0
        self.check_request: Callable[[HttpSession, RequestHead, RoutePlan], None] | None = None  # see `http.identity`
        self.redaction: Redaction | None = None  # see `use_redaction`
        self.streams = 0  # how many sessions watch; see `http.live_feed`
        self.request_counts: dict[str, AnswerCounts] = {}  # by route
        self.shared: Any = None  # what all listeners share: see `share`
        self.workers: HttpWorkers | None = None  # of those
        # The last function of a submission as JSON: one submission after the other has the same.
        self.last_function_text = ""
        self.last_function = b""
        self._date = b""
        self._date_seconds = -1
        # What begins and separates the parts of an answer to a submission; see `HttpSession.tell_created`.
        self.created_body = b'\r\n\r\n{"handle":"' + self.handle_json
        self._created_start = b""
        self._created_key = -1  # what that one depends on, besides the date
        self._given_start = b""
        self._given_bytes = -1  # of the payload
        self._no_content = b""
        self._until_us = 0  # when the date is another one

    def share(self, shared: Any) -> None:
        """Use what all HTTP listeners of a server share (`listener.HttpState`)."""
        self.shared = shared
        self.workers = shared.workers

    def use_redaction(self, rules: Sequence[str]) -> None:
        """Hide payloads and results by these rules from now on (`http.redact`)."""
        self.redaction = Redaction(rules) if rules else None

    def awaited_of(self, decoder: RequestDecoder) -> tuple[int, float]:
        """The input that is awaited from a peer whose requests are all answered; see `ByteSession.awaited_input`."""
        if decoder.is_between_requests:
            return 2 * decoder.progress + 2, self.idle_seconds
        if decoder.is_in_head:
            return 2 * decoder.progress + 3, self.head_seconds
        return decoder.progress, self.idle_seconds

    def date(self, now_us: int) -> bytes:
        """The header Date, as a whole line."""
        seconds = now_us // SECOND_US
        if seconds != self._date_seconds:
            self._date_seconds = seconds
            self._date = b"Date: %b\r\n" % formatdate(seconds, usegmt=True).encode()
        return self._date

    def created_json(self, number: bytes, *, is_joined: bool) -> bytes:
        """`schemas.JobCreated` of a job with this number."""
        end = JOINED_END if is_joined else CREATED_END
        return b"".join([b'{"handle":"', self.handle_json, number, CREATED_ID, number, end])

    def created_start(self, now_us: int, status: int, body_bytes: int) -> bytes:
        """An answer to a submission up to the number of the job in its header Location."""
        key = status * LENGTHS_OF_STATUS + body_bytes
        if key != self._created_key or not self._is_same_second(now_us):
            head = answer_head(status, JSON, body_bytes, self.location_start, self.date(now_us), keeps_alive=True)
            self._created_start = head[:-2]
            self._created_key = key
        return self._created_start

    def given_start(self, now_us: int, body_bytes: int) -> bytes:
        """An answer that gives a job, up to the number of the job in its header Switchgear-Job."""
        if body_bytes != self._given_bytes or not self._is_same_second(now_us):
            lines = ATTACHMENT + self.job_line_start
            head = answer_head(200, BYTES, body_bytes, lines, self.date(now_us), keeps_alive=True)
            self._given_start = head[:-2]
            self._given_bytes = body_bytes
        return self._given_start

    def no_content(self, now_us: int) -> bytes:
        """The answer that a request was carried out, and nothing more."""
        if not self._no_content or not self._is_same_second(now_us):
            self._no_content = answer_head(204, b"", 0, b"", self.date(now_us), keeps_alive=True)
        return self._no_content

    def _is_same_second(self, now_us: int) -> bool:
        """Whether what was written with a date is still right; otherwise it is forgotten."""
        if self._until_us - SECOND_US <= now_us < self._until_us:
            return True
        self._until_us = now_us - now_us % SECOND_US + SECOND_US
        self._created_key = -1
        self._given_bytes = -1
        self._no_content = b""
        return False

    def counts_of(self, plan: RoutePlan) -> AnswerCounts:
        """Counts of the answers to all requests of a plan's route."""
        entry = plan.entry
        counts = entry.counts
        if counts is None:
            entry.counts = counts = self.request_counts.setdefault(entry.name, AnswerCounts())
        return counts
