"""The events of one job (`GET /v1/jobs/{handle}/events`).

Any number of clients may be told of one job, and its worker may send long data.  So an event is encoded once for all of
them, and they share it (`EventText`); and of longer data only the length is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec

from switchgear.access.permissions import EVERYBODY
from switchgear.errors import Refused
from switchgear.json_bytes import plain
from switchgear.model import SECOND_US, Job
from switchgear.protocols.http.http_wait import HttpWait
from switchgear.protocols.http.job_error import told_error
from switchgear.protocols.http.messages import EVENT_STREAM
from switchgear.protocols.http.redaction import MARK
from switchgear.protocols.http.request_problems import no_such_job
from switchgear.protocols.http.routing import RouteCall
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.pending_read import Step

__all__ = ["MOST_DATA_BYTES", "EventText", "on_get_events"]

COMMENT_SECONDS: Final = 15  # so that nobody in between takes a silent stream for a dead one
# Of a part of a result, or a warning. Encoding takes some milliseconds per MiB, and makes up to six times as much.
MOST_DATA_BYTES: Final = 1024 * 1024


class EventText:
    """The last event with data, encoded, for all clients that are told of it."""

    def __init__(self) -> None:
        self._data: bytes | None = None
        self._kind = ""
        self._text = b""

    def of(self, kind: str, data: bytes) -> bytes:
        """The event of this kind with this data."""
        if len(data) > MOST_DATA_BYTES:
            return event(kind, {"data": None, "bytes": len(data)})
        if data is not self._data or kind != self._kind:
            self._data = data
            self._kind = kind
            self._text = event(kind, {"data": plain(data)})
        return self._text


def event(kind: str, data: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(data))


def on_get_events(session: HttpSession, call: RouteCall) -> None:
    """GET /v1/jobs/{handle}/events"""
    job_id = session.job_id(call.argument("handle"))
    job = session.engine.job(job_id)
    if call.request.head.method == "HEAD":  # there would be no end of it
        session.respond(200, b"", EVENT_STREAM)
        return
    if job is None:
        session.work_off(send_last_event(session, job_id))
        return
    stream = EventStream()
    session.wait_for_end(stream, job, COMMENT_SECONDS)
    session.begin_stream(200, EVENT_STREAM)
    session.send_piece(event("state", {"handle": session.handle_text(job_id), "state": job.state.name.lower()}))
    if job.numerator or job.denominator or job.message:
        stream.job_event(session, job, "progress", b"")


def send_last_event(session: HttpSession, job_id: int) -> Iterator[Step]:
    """Tell of a job that has ended."""
    job = yield from session.ended_job(job_id)
    if job is None:
        raise no_such_job()
    session.require_job("a request about a job", EVERYBODY, job.function.told_name)
    session.begin_stream(200, EVENT_STREAM)
    session.send_piece(event("end", end_of(session, job)))
    session.end_stream()


def end_of(session: HttpSession, job: Job) -> dict[str, Any]:
    """What the last event tells of a job."""
    error = told_error(job, session.handle_text)
    told = None if error is None else plain(error)
    return {"handle": session.handle_text(job.id), "state": job.state.name.lower(), "error": told}


class EventStream(HttpWait):
    """A client that receives the events of a job until its end."""

    def job_finished(self, session: HttpSession, job: Job) -> None:
        session.send_piece(event("end", end_of(session, job)))
        session.end_stream()

    def job_event(self, session: HttpSession, job: Job, kind: str, data: bytes) -> None:
        if kind == "progress":
            figures = {"numerator": job.numerator, "denominator": job.denominator, "message": plain(job.message)}
            session.send_piece(event(kind, figures))
        elif self._is_hidden(session, job, kind):
            session.send_piece(event(kind, {"data": MARK}))
        else:
            texts: EventText = session.setup.shared.event_text
            session.send_piece(texts.of(kind, data))

    def _is_hidden(self, session: HttpSession, job: Job, kind: str) -> bool:
        """Whether the client may not see what the worker has sent: a part of a result need not be JSON even if the
        result is, so it is hidden as a whole."""
        redaction = session.redaction() if kind == "data" else None
        return redaction is not None and redaction.concerns(job.function.told_name)

    def timed_out(self, session: HttpSession) -> None:
        session.send_piece(b": still here\n\n")
        session.context.soon(partial(self.set_timer, session))

    def server_stops(self, session: HttpSession) -> None:
        session.end_stream()

    def set_timer(self, session: HttpSession) -> None:
        """Set the timer of the next comment."""
        if session.wait is not self:
            return
        try:
            session.engine.set_timer(session, session.engine.now_us + COMMENT_SECONDS * SECOND_US)
        except Refused:
            session.hang_up()
