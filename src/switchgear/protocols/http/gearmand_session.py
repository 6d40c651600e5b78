"""`GearmandHttpSession`: the HTTP interface of gearmand (`gearmand -r http`).

`POST /FUNCTION` submits a job whose payload is the body. The answer has the result of the job, or for a background
job its handle. A connection has one request. docs/howto/replace-gearmand.md lists what differs from gearmand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchgear.errors import PeerError, Refused
from switchgear.model import DONE, FINAL_STATES, HIGH, LOW, NORMAL, Delivery, Job
from switchgear.protocols.context import Context
from switchgear.protocols.http.codec import CONTINUE, RequestDecoder, answer_head
from switchgear.protocols.http.identity import bearer_permissions
from switchgear.protocols.http.messages import HttpRequest
from switchgear.protocols.http.problems import HttpProblem, header_lines, refusal_problem
from switchgear.protocols.http.session import LONG_ANSWER_BYTES
from switchgear.protocols.http.session_setup import HttpSetup
from switchgear.protocols.pending_read import Step
from switchgear.protocols.session import ByteSession
from switchgear.protocols.submitted_unique_key import unique_key
from switchgear.protocols.transport import PeerTransport
from switchgear.refusals import REFUSALS
from switchgear.verbs.access import Role
from switchgear.version import VERSION

__all__ = ["GearmandHttpSession"]

SUBMIT: Final = frozenset({Role.SUBMIT})
METHODS: Final = ("GET", "HEAD", "POST", "PUT")
PRIORITIES: Final = {b"high": HIGH, b"low": LOW}
TEXT: Final = b"text/plain; charset=utf-8"
SERVER_LINE: Final = b"Server: Switchgear/%b\r\n" % VERSION.encode()


class GearmandHttpSession(ByteSession):
    """A connection that speaks gearmand's HTTP: one request and its answer."""

    protocol = "http"
    collects_data = True  # an answer has the whole result

    def __init__(self, context: Context, transport: PeerTransport, setup: HttpSetup, *, any_host: bool) -> None:
        super().__init__(context, transport)
        self.setup = setup
        self.any_host = any_host  # every name in the Host header is accepted
        self.client_id = b""
        self.decoder = RequestDecoder(setup.heads, setup.packet_bytes)
        self.request: HttpRequest | None = None  # the one that is being answered

    # --- the request ---

    def handle_data(self, data: bytes) -> None:
        if self.closing or self.request is not None:
            return  # gearmand closes the connection after one answer
        for request in self.decoder.feed(data):
            try:
                self._check(request)
                if request.is_announced:
                    self.send(CONTINUE)
                    continue
                self.request = request
                self._submit(request)
            except (PeerError, Refused) as error:
                self.answer_error(error)
            return
        if self.decoder.failure is not None:
            self.answer_error(self.decoder.failure)

    def awaited_input(self) -> tuple[int, float]:
        if self.request is not None or self.closing:
            return 0, 0.0
        return self.setup.awaited_of(self.decoder)

    def silence_timed_out(self) -> None:
        """Close the connection of a peer that does not send its request."""
        self.closing = True
        self.mark()

    def _check(self, request: HttpRequest) -> None:
        """Raise HttpProblem for a request that cannot be a submission."""
        problem = self.setup.router.guard.submission_problem(request.head, any_host=self.any_host)
        if problem is not None:
            raise problem
        if not self.transport.access.is_open:
            self.identify(bearer_permissions(self, request.head) or self.transport.permissions)
            self.require("a submission", SUBMIT)
        if request.head.method not in METHODS:
            allowed = ", ".join(METHODS)
            raise HttpProblem(405, "method_not_allowed", f"the methods here are {allowed}", headers={"Allow": allowed})

    def _submit(self, request: HttpRequest) -> None:
        name = request.head.target.lstrip(b"/")
        if not name:
            if request.head.method != "HEAD":
                raise HttpProblem(404, "function_missing", "the path is not /FUNCTION")
            self._answer(200, b"", b"")
            return
        if len(name) > self.setup.name_bytes:
            text = f"the name of the function has more than {self.setup.name_bytes} bytes (limits.name_bytes)"
            raise PeerError(text, code="ARGUMENT_TOO_LARGE")
        self.require("a submission", SUBMIT, name)
        payload = request.body
        unique = unique_key(self.engine, request.header(b"x-gearman-unique") or b"-", payload)
        priority = PRIORITIES.get(request.header(b"x-gearman-priority").lower(), NORMAL)
        is_background = request.header(b"x-gearman-background").lower() == b"true"
        delivery = Delivery.HANDLE if is_background else Delivery.WAIT
        job = self.engine.submit(name, unique, payload, priority, delivery, None if is_background else self)
        if is_background:
            self._answer_about(job, b"JOB_CREATED", b"")
        elif job.state in FINAL_STATES:
            self.work_off(self._answer_held_end(job))

    def _answer_held_end(self, held: Job) -> Iterator[Step]:
        """Answer a submission that joined a finished job, which still holds the unique key."""
        job = yield from self.held_end(held)
        self.job_finished(job)

    # --- the answer ---

    def job_finished(self, job: Job) -> None:
        most_bytes = self.engine.settings.collected_bytes
        if job.state is not DONE:
            self._answer_about(job, b"WORK_FAIL", b"")
        elif job.collected_bytes > most_bytes:
            text = f"the parts of the result have more than {most_bytes} bytes"
            self._answer(500, *error_content("RESULT_TOO_LARGE", text))
        else:
            self._answer_about(job, b"WORK_COMPLETE", job.whole_result)

    def _answer_about(self, job: Job, command: bytes, body: bytes) -> None:
        handle = b"%b%d" % (self.setup.handle_prefix, job.id)
        self._answer(200, b"X-Gearman-Job-Handle: %b\r\nX-Gearman-Command: %b\r\n" % (handle, command), body)

    def _answer(self, status: int, headers: bytes, body: bytes, content_type: bytes = b"") -> None:
        head = self._head(status, headers, len(body), content_type)
        if self.request is not None and self.request.head.method == "HEAD":
            body = b""
        if len(body) > LONG_ANSWER_BYTES:
            self.note_long_answer(len(body))
            self.send(head)
            self.send(body)
        else:
            self.send(head + body)
        self.closing = True

    def _head(self, status: int, headers: bytes, content_bytes: int, content_type: bytes) -> bytes:
        date = self.setup.date(self.engine.now_us)
        return answer_head(status, content_type, content_bytes, headers + SERVER_LINE, date, keeps_alive=False)

    def answer_error(self, error: PeerError | Refused) -> None:
        if isinstance(error, HttpProblem):
            if error.is_bad_input:
                self.context.count_bad_input(self, error.code, str(error))
            self._answer(*self._problem(error))
        elif isinstance(error, Refused):
            self._answer(*self._refused(error))
        else:
            self._answer(400, *error_content(error.code, str(error)))

    def _problem(self, problem: HttpProblem) -> tuple[int, bytes, bytes, bytes]:
        lines = header_lines(problem)
        return problem.status, lines, f"{problem}\n".encode(), TEXT

    def _refused(self, refused: Refused) -> tuple[int, bytes, bytes, bytes]:
        text = refused.told(lambda job_id: f"{self.setup.handle_prefix.decode(errors='replace')}{job_id}")
        problem = refusal_problem(refused, text)
        headers, body, content_type = error_content(REFUSALS[refused.reason].gearman, text)
        lines = header_lines(problem)
        return problem.status, lines + headers, body, content_type

    def refusal(self, refused: Refused) -> bytes:
        status, headers, body, content_type = self._refused(refused)
        return self._head(status, headers, len(body), content_type) + body

    # --- the connection ---

    @property
    def buffered_bytes(self) -> int:
        request = self.request
        return self.decoder.buffered_bytes if request is None else len(request.head.target)

    @property
    def awaited_bytes(self) -> int:
        return self.decoder.awaited_bytes

    def handle_deferred(self) -> None:
        if self.operation is not None:
            self.resume_operation()
        elif self.closing:
            self.transport.close()

    def closed(self) -> None:
        self.abandon_read()
        self.engine.unsubscribe(self)


def error_content(code: str, text: str) -> tuple[bytes, bytes, bytes]:
    """The headers, body and content type of an error that Gearman has a packet for."""
    return b"X-Gearman-Command: ERROR\r\n", f"{code} {text}\n".encode(), TEXT
