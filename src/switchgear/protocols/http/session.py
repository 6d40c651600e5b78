"""`HttpSession`: one HTTP connection; translates requests into engine calls and verbs, and events into responses.

Requests of a connection are answered in their order.  One that waits (for a job, or for a job's end) holds up those
behind it, which are kept in `requests`.  An answer that tells of a durable change waits for its commit like the answers
of every protocol: 201 means that the job is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from switchgear.errors import PeerError, Refused
from switchgear.model import SECOND_US, Job, Timer
from switchgear.protocols.context import Context
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.http.codec import (
    CONTINUE,
    LAST_CHUNK,
    NOT_STORED,
    RequestDecoder,
    answer_head,
    chunk,
)
from switchgear.protocols.http.held_answers import answer_with_id, refusal_answer, refusal_instead_of
from switchgear.protocols.http.http_wait import HttpWait
from switchgear.protocols.http.messages import BYTES, EVENT_STREAM, JSON, PROBLEM, HttpRequest, RequestHead
from switchgear.protocols.http.problems import HttpProblem, header_lines, problem_body, refusal_problem
from switchgear.protocols.http.redaction import Redaction
from switchgear.protocols.http.request_problems import (
    MOST_JSON_BYTES,
    announced_problem,
    check_length,
    no_such_job,
)
from switchgear.protocols.http.routing import AnswerCounts, RouteCall, RoutePlan
from switchgear.protocols.http.session_setup import ATTACHMENT, CREATED_END, CREATED_ID, JOINED_END, HttpSetup
from switchgear.protocols.pending_read import Step, close_steps
from switchgear.protocols.session import ByteSession
from switchgear.protocols.transport import PeerTransport
from switchgear.verbs.access import Role

__all__ = ["HttpSession"]

# When long answers of so many bytes wait to be sent, further requests wait until the peer has taken them.
LONG_BYTES: Final = 8 * 1024 * 1024
LONG_ANSWER_BYTES: Final = 4096
# Requests that are answered in steps, such as those for statistics, take up to some milliseconds each even if they need
# one step only. After so many, other peers are served.
MOST_OPERATIONS: Final = 4
# Requests behind one that waits, and what each takes in memory beside its body, about.
MOST_BEHIND: Final = 1_000
REQUEST_BYTES: Final = 500
KEEP_ALIVE_LINE: Final = b"Connection: keep-alive\r\n"  # which clients of version 1.0 do not take for granted
# nginx buffers answers, unless they say that they must not be.
UNBUFFERED_LINE: Final = b"X-Accel-Buffering: no\r\n"
ATTEMPT_LINE_START: Final = b"\r\nSwitchgear-Attempt: "
ONE: Final = b"1"


class HttpSession(ByteSession):
    """The session of one HTTP/1.1 connection."""

    protocol = "http"
    collects_data = True  # an answer has the whole result

    def __init__(self, context: Context, transport: PeerTransport, setup: HttpSetup) -> None:
        super().__init__(context, transport)
        self.setup = setup
        self.prefix = setup.handle_prefix
        self.client_id = b""
        self.decoder = RequestDecoder(setup.heads, setup.packet_bytes)
        self.requests: list[HttpRequest] = []  # not answered yet, the next one at the end
        self.queued_bytes = 0  # about what those take
        self.call: RouteCall | None = None  # the request that is being answered
        self.wait: HttpWait | None = None  # what it waits for
        self.is_chunked = False  # the body that is being sent in pieces
        self.has_no_body = False  # its request was HEAD
        self.is_open = transport.access.is_open  # everybody may do everything
        self.ended = False  # the peer will send no more
        # Workers of `take` that wait for the next request on this connection, by function; see `HttpWorkers.taker`.
        self.idle_takers: dict[bytes, list[Any]] = {}
        self.idle_takers_count = 0
        self.taker_number = 0  # tells connections that take jobs apart
        self.has_left = False  # the connection is closed
        self.unsent_wait: HttpWait | None = None  # see `give_back_if_unsent`
        self._unsent_call: RouteCall | None = None
        self._incomplete_call: RouteCall | None = None  # to which the answer lacks something, as these lines say
        self._incomplete_lines = b""
        self._next_steps: Callable[[], Iterator[Step]] | None = None  # see `continue_with`
        self._is_working = False

    # --- the wire side ---

    def handle_data(self, data: bytes) -> None:
        if self.closing:
            return
        requests = self.decoder.feed(data)
        if requests:
            for request in requests:
                self.queued_bytes += len(request.body) + REQUEST_BYTES
            requests.reverse()
            if self.requests:  # some wait, and never very many
                requests += self.requests
            self.requests = requests
        if self.long_bytes and not self.out:
            self.long_bytes = 0
        if self.call is None:
            self._work()
        if self.call is None or self.closing:
            return
        if len(self.requests) > MOST_BEHIND or self.queued_bytes > self.setup.packet_bytes + REQUEST_BYTES:
            self.context.count_bad_input(self, "too_much_behind", "too much is sent behind a request that waits")
            self.hang_up()

    def _work(self) -> None:
        """Handle requests until one has to wait."""
        requests = self.requests
        memory = self.engine.memory
        operations = 0
        self._is_working = True
        while requests and self.call is None and self.operation is None and not self.closing:
            operations += self.has_ended_operation
            if self.long_bytes > LONG_BYTES or memory.answers_must_wait or operations > MOST_OPERATIONS:
                self.deferred = [(len(requests), b"")]  # which is known here; that there are some is not
                self.mark()
                break
            request = requests.pop()
            self.queued_bytes -= len(request.body) + REQUEST_BYTES
            self._handle(request)
        self._is_working = False
        failure = self.decoder.failure
        if failure is not None and not requests and self.call is None and self.operation is None and not self.closing:
            self.answer_problem(failure)

    def _handle(self, request: HttpRequest) -> None:
        head = request.head
        plan: RoutePlan = head.plan if head.plan is not None else self.setup.router.plan(head)
        problem = plan.problem
        if problem is None and not self.is_open:
            problem = self._access_problem(head, plan)
        if request.is_announced and problem is None:
            problem = announced_problem(plan, head.content_bytes)
            if problem is None:
                self.send(CONTINUE)
                return
        self.call = call = RouteCall(request, plan)
        if problem is not None:
            if request.is_announced:
                self.decoder.failure = problem  # the body need not come any more
                self.closing = True
            self.answer_problem(problem)
            return
        assert plan.route is not None
        try:
            if len(request.body) > MOST_JSON_BYTES:
                check_length(plan, len(request.body))
            plan.route.handler(self, call)
        except (PeerError, Refused) as error:
            self.answer_error(error)

    def _access_problem(self, head: RequestHead, plan: RoutePlan) -> HttpProblem | None:
        """Why the peer may not make a request; `None` if it may."""
        check_request = self.setup.check_request
        assert check_request is not None
        try:
            check_request(self, head, plan)
        except HttpProblem as problem:
            return problem
        except Refused as refused:
            return refusal_problem(refused, str(refused))
        return None

    def handle_deferred(self) -> None:
        if self.operation is not None:
            self.resume_operation()
            return
        self.deferred = []
        self.long_bytes = 0
        if self.wait is None and (self.subscriptions or self.timers):
            self.engine.unsubscribe(self)
        steps, self._next_steps = self._next_steps, None
        if steps is not None:
            self.work_off(steps())
            return
        if self.call is None:
            self._work()
        if self.ended and not self.deferred and self.operation is None:
            super().eof()

    def continue_with(self, steps: Callable[[], Iterator[Step]]) -> None:
        """Stop waiting, and answer the request in steps: later, because the engine is at work, and when everything is
        stored that concerns this peer."""
        self.wait = None
        self._next_steps = steps
        self.has_ended_operation = True
        self.mark()

    def eof(self) -> None:
        self.ended = True
        if not self.deferred and self.operation is None and self._next_steps is None:
            super().eof()

    @property
    def buffered_bytes(self) -> int:
        return self.decoder.buffered_bytes + self.queued_bytes

    @property
    def awaited_bytes(self) -> int:
        return self.decoder.awaited_bytes

    def closed(self) -> None:
        self.has_left = True
        self.abandon_read()
        if self.operation is not None and self.is_paused:
            close_steps(self.operation)  # nobody would go on with it
        self.requests.clear()
        self.queued_bytes = 0
        wait, self.wait = self.wait, None
        self.engine.unsubscribe(self)
        if wait is not None:
            wait.end(self)
        unsent, self.unsent_wait = self.unsent_wait, None
        if unsent is not None:
            unsent.give_back()
        if self.idle_takers_count:
            self.setup.shared.workers.remove_idle(self)

    def awaited_input(self) -> tuple[int, float]:
        is_busy = self.call is not None or self.operation is not None or bool(self.requests) or bool(self.deferred)
        if is_busy or self.closing or self.ended or self.awaits_commit:
            return 0, 0.0
        return self.setup.awaited_of(self.decoder)

    def silence_timed_out(self) -> None:
        if self.decoder.is_between_requests:
            self.hang_up()
        else:
            text = "the request did not come in time (http.head_seconds, http.idle_seconds)"
            self.answer_problem(HttpProblem(408, "request_timeout", text, framing_lost=True, is_bad_input=True))

    def hang_up(self) -> None:
        """Close the connection when what there is to say is sent."""
        self.closing = True
        self.mark()

    def server_stops(self) -> bool:
        if self.has_left or self.closing:
            return False
        if self.wait is not None:
            self.ended = True  # so that the answer is the last one
            self.wait.server_stops(self)
        return self.call is not None

    def give_back_if_unsent(self, wait: HttpWait) -> None:
        """Have the jobs of this request given back if the peer leaves before the answer to it is sent."""
        self.unsent_wait = wait
        self._unsent_call = self.call

    def sent(self) -> None:
        if self.call is None or self.call is not self._unsent_call:
            self.unsent_wait = self._unsent_call = None
        super().sent()

    # --- answers ---

    def respond(
        self,
        status: int,
        body: bytes = b"",
        content_type: bytes = JSON,
        headers: bytes = b"",
        caching: bytes = NOT_STORED,
    ) -> None:
        """Answer the present request.  `headers` are whole lines, `caching` is the value of Cache-Control."""
        call = self.call
        self._count(status)
        request_head = call.request.head if call is not None else None
        keeps_alive = request_head is not None and request_head.keeps_alive and not self.closing and not self.ended
        date = self.setup.date(self.engine.now_us)
        if keeps_alive and request_head is not None and request_head.is_version_1_0:
            headers += KEEP_ALIVE_LINE
        head = answer_head(
            status,
            content_type if status != 204 else b"",
            len(body),
            headers,
            date,
            keeps_alive=keeps_alive,
            caching=caching,
        )
        if request_head is not None and request_head.method == "HEAD":
            body = b""
        if len(body) > LONG_ANSWER_BYTES:
            self.note_long_answer(len(body))
            self.send(head)
            self.send(body)
        else:
            self.send(head + body)
        self.end_call(keeps_alive=keeps_alive)

    def respond_no_content(self) -> None:
        """Answer that the present request was carried out."""
        call = self.call
        head = None if call is None else call.request.head
        if head is None or not head.keeps_alive or head.is_version_1_0 or self.closing or self.ended:
            self.respond(204)
            return
        self._count(204)
        self.send(self.setup.no_content(self.engine.now_us))
        self.end_call(keeps_alive=True)

    def tell_created(self, status: int, job_id: int, *, is_joined: bool) -> None:
        """Answer with `schemas.JobCreated` in one piece: every submission passes here."""
        call = self.call
        assert call is not None
        head = call.request.head
        number = str(job_id).encode()
        end = JOINED_END if is_joined else CREATED_END
        if not head.keeps_alive or head.is_version_1_0 or self.closing or self.ended:
            body = self.setup.created_json(number, is_joined=is_joined)
            self.respond(status, body, headers=self.location(job_id))
            return
        setup = self.setup
        self._count(status)
        body_bytes = len(setup.created_body) - 4 + 2 * len(number) + len(CREATED_ID) + len(end)
        start = setup.created_start(self.engine.now_us, status, body_bytes)
        self.send(b"".join([start, number, setup.created_body, number, CREATED_ID, number, end]))
        self.end_call(keeps_alive=True)

    def give_job(self, job_id: int, attempt: int, payload: bytes, trace: bytes) -> None:
        """Answer with a job, whose payload is the body: most jobs of workers over HTTP pass here."""
        call = self.call
        head = None if call is None else call.request.head
        number = str(job_id).encode()
        end = ONE if attempt == 1 else str(attempt).encode()
        if trace:
            end += b"\r\ntraceparent: " + trace
        usual = head is not None and head.keeps_alive and not head.is_version_1_0 and not self.closing
        if not usual or self.ended or len(payload) > LONG_ANSWER_BYTES:
            line = b"".join([ATTACHMENT, self.setup.job_line_start, number, ATTEMPT_LINE_START, end, b"\r\n"])
            self.respond(200, payload, BYTES, line)
            return
        self._count(200)
        start = self.setup.given_start(self.engine.now_us, len(payload))
        self.send(b"".join([start, number, ATTEMPT_LINE_START, end, b"\r\n\r\n", payload]))
        self.end_call(keeps_alive=True)

    def begin_stream(self, status: int, content_type: bytes) -> None:
        """Begin an answer whose body comes in pieces (`send_piece`) until `end_stream`."""
        assert self.call is not None
        self._count(status)
        head = self.call.request.head
        self.has_no_body = head.method == "HEAD"
        self.is_chunked = not head.is_version_1_0  # otherwise the body ends with the connection
        keeps_alive = self.is_chunked and head.keeps_alive and not self.ended
        date = self.setup.date(self.engine.now_us)
        size = -1 if self.is_chunked else -2
        lines = UNBUFFERED_LINE if content_type == EVENT_STREAM else b""
        self.send(answer_head(status, content_type, size, lines, date, keeps_alive=keeps_alive))

    def send_piece(self, data: bytes) -> None:
        """Send a piece of a body."""
        if self.has_no_body:
            return
        if not self.is_chunked:
            self.send(data)
        elif len(data) <= LONG_ANSWER_BYTES:
            self.send(chunk(data))
        else:  # which other peers may share
            self.send(b"%x\r\n" % len(data))
            self.send(data)
            self.send(b"\r\n")

    def end_stream(self) -> None:
        """End a response that was sent in pieces."""
        if self.is_chunked and not self.has_no_body:
            self.send(LAST_CHUNK)
        call = self.call
        self.end_call(keeps_alive=self.is_chunked and call is not None and call.request.head.keeps_alive)

    def _count(self, status: int) -> None:
        """Count an answer to the present request."""
        if self.call is None:
            self.setup.request_counts.setdefault("other", AnswerCounts()).add(status)
        else:
            self.setup.counts_of(self.call.plan).add(status)

    def end_call(self, *, keeps_alive: bool) -> None:
        """The present request is answered; the next one can be handled."""
        self.call = None
        self.wait = None
        if not keeps_alive:
            self.closing = True
            self.requests.clear()
            self.queued_bytes = 0
        elif not self._is_working:
            self.has_ended_operation = True  # so that it goes on when this is sent
        self.mark()

    def respond_json(self, status: int, answer: Any, headers: bytes = b"") -> None:
        """Answer the present request with a JSON body."""
        self.respond(status, msgspec.json.encode(answer), JSON, headers)

    @property
    def incomplete_lines(self) -> bytes:
        """The headers that say what the answers of verbs for the present request lack, if they do."""
        return self._incomplete_lines if self._incomplete_call is self.call else b""

    def note_incomplete(self, lines: bytes) -> None:
        """The answer to the present request lacks something, as these headers say."""
        self._incomplete_call = self.call
        self._incomplete_lines = lines

    def answer_error(self, error: PeerError | Refused) -> None:
        if isinstance(error, HttpProblem):
            self.answer_problem(error)
        elif isinstance(error, Refused):
            self.answer_problem(refusal_problem(error, error.told(self.handle_text)))
        else:
            self.answer_problem(HttpProblem(400, error.code.lower(), str(error)))

    def answer_problem(self, problem: HttpProblem) -> None:
        """Answer with a problem document."""
        if problem.is_bad_input:
            self.context.count_bad_input(self, problem.code, str(problem))
        if problem.framing_lost:
            self.closing = True
        lines = header_lines(problem)
        if problem.status == 204:
            self.respond(204, headers=lines)
        else:
            self.respond(problem.status, self._document(problem), PROBLEM, lines)

    def _document(self, problem: HttpProblem) -> bytes:
        call = self.call
        target = call.request.head.target.partition(b"?")[0] if call is not None else b""
        return problem_body(problem, target.decode("ascii", "replace"))

    def refusal(self, refused: Refused) -> bytes:
        return refusal_answer(self, refused)

    def refusal_instead_of(self, answer: Any, refused: Refused) -> Any:
        return refusal_instead_of(self, answer, refused)

    def answer_with_id(self, answer: Any, job_id: int) -> Any:
        return answer_with_id(self, answer, job_id)

    def follows_promise(self, job: Job) -> bool:
        wait = self.wait
        return wait is not None and wait.is_of_new_job and wait.job is job

    def refuse_withdrawn(self, refused: Refused) -> None:
        super().refuse_withdrawn(refused)
        wait = self.wait
        if wait is not None and wait.job is not None and wait.job.withdrawn:
            self.answer_error(refused)

    def release(self) -> list[bytes]:
        if self.call is None or self.call is not self._unsent_call:
            self.unsent_wait = self._unsent_call = None
        return super().release()

    # --- handles ---

    def handle_text(self, job_id: int) -> str:
        """The handle of a job."""
        return f"{self.setup.handle_text}{job_id}"

    def location(self, job_id: int) -> bytes:
        """The header that says where a job is."""
        return b"".join([self.setup.location_start, str(job_id).encode(), b"\r\n"])

    def job_id(self, handle: bytes) -> int:
        """The number of the job with this handle, or whose number this is; raises HttpProblem."""
        number = number_in_handle(handle, self.prefix) or number_in_handle(handle, b"")
        if not 0 < number < self.engine.ids_end:
            raise no_such_job()
        return number

    def predecessor(self, handle: str) -> int:
        """The id of a job that another is to wait for, by its handle or number; 0 if there never was one.

        Raises Refused if the peer may not see that job.
        """
        number = number_in_handle(handle.encode(), self.prefix) or number_in_handle(handle.encode(), b"")
        if not 0 < number < self.engine.ids_end:
            return 0
        self.require_predecessor(number)
        return number

    # --- redaction ---

    def redaction(self, exempt: Role = Role.ADMIN) -> Redaction | None:
        """What is hidden from the identity of the present request; `None` if nothing is.

        Nothing is hidden from identities with the role `exempt`.  Peers that have not identified themselves are no
        administrators, whatever they may do.
        """
        redaction = self.setup.redaction
        if redaction is None:
            return None
        permissions = self.permissions
        if exempt in permissions.roles and not (exempt is Role.ADMIN and permissions.is_anonymous):
            return None
        return redaction

    # --- waiting, and events of the engine ---

    def wait_for_end(self, wait: HttpWait, job: Job, seconds: float) -> None:
        """Let the present request wait for the end of an unfinished job; raises Refused."""
        self.engine.refuse_subscription()
        self.engine.set_timer(self, self.engine.now_us + int(seconds * SECOND_US))
        self.wait = wait
        wait.job = job
        self.engine.subscribe(job, self)
        self.mark()  # so that it is among those whose submissions are withdrawn if they cannot be stored

    def job_finished(self, job: Job) -> None:
        if self.wait is not None:
            self.wait.job_finished(self, job)

    def timer_fired(self, timer: Timer) -> None:
        if self.wait is not None:
            self.wait.timed_out(self)

    def job_progress(self, job: Job) -> None:
        if self.wait is not None:
            self.wait.job_event(self, job, "progress", b"")

    def job_data(self, job: Job, data: bytes) -> None:
        if self.wait is not None:
            self.wait.job_event(self, job, "data", data)

    def job_warning(self, job: Job, data: bytes) -> None:
        if self.wait is not None:
            self.wait.job_event(self, job, "warning", data)
