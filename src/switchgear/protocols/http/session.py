"""`HttpSession`: one HTTP connection; requests to engine calls and operator verbs, events to answers.

Requests of a connection are answered in their order.  One that waits (for a job, or for a job's end) holds up those
behind it, which are kept in `requests`.  An answer that tells of a durable change waits for its commit like the answers
of every protocol: 201 means that the job is on disk.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any, Final
from urllib.parse import quote

import msgspec

from switchgear.errors import PeerError, Refused
from switchgear.model import SECOND_US, Job, Timer
from switchgear.protocols.context import Context
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.http.codec import (
    CONTINUE,
    LAST_CHUNK,
    NOT_STORED,
    HeadCache,
    RequestDecoder,
    answer_head,
    chunk,
)
from switchgear.protocols.http.messages import JSON, PROBLEM, HttpRequest, RequestHead
from switchgear.protocols.http.problems import HttpProblem, problem_body, refusal_problem, refused_line
from switchgear.protocols.http.routing import RouteCall, RoutePlan, Router
from switchgear.protocols.http.waiting import HttpWait
from switchgear.protocols.pending_read import Step
from switchgear.protocols.session import ByteSession
from switchgear.protocols.transport import PeerTransport
from switchgear.verbs.table import VERBS, Keeps

__all__ = ["HttpSession", "HttpSetup"]

# When long answers of so many bytes wait to be sent, further requests wait until the peer has taken them.
LONG_BYTES: Final = 8 * 1024 * 1024
LONG_ANSWER_BYTES: Final = 4096
# Requests behind one that waits, and what each takes in memory beside its body, about.
MOST_BEHIND: Final = 1_000
REQUEST_BYTES: Final = 500
KEEP_ALIVE_LINE: Final = b"Connection: keep-alive\r\n"  # which clients of version 1.0 do not take for granted
CLOSE_LINE: Final = b"\r\nConnection: close\r\n"
# How the answer to a line of a batch begins, in a chunk or without.
LINE_OF_BATCH: Final = re.compile(rb'\{"line":([0-9]+)')
LONGEST_LINE_START: Final = 40


class HttpSetup:
    """What the sessions of one listener share."""

    def __init__(self, router: Router, handle_prefix: bytes, packet_bytes: int, name_bytes: int) -> None:
        self.router = router
        self.heads = HeadCache()
        self.handle_prefix = handle_prefix
        # The prefix of handles as texts, in a header and in JSON.
        self.handle_text = handle_prefix.decode(errors="replace")
        self.location_start = b"Location: /v1/jobs/" + quote(self.handle_text, safe=":").encode()
        self.handle_json = msgspec.json.encode(self.handle_text)[1:-1]
        self.packet_bytes = packet_bytes
        self.name_bytes = name_bytes
        self.idle_seconds = 0.0  # see `HttpConfig`
        self.head_seconds = 0.0
        self.check_request: Callable[[HttpSession, RequestHead, RoutePlan], None] | None = None  # see `http.identity`
        self.streams = 0  # how many sessions watch; see `http.live_feed`
        self.request_counts: dict[tuple[str, int], int] = {}  # answers by route and status
        self.shared: Any = None  # what all listeners share: workers and bulk actions; see `http.listener_state`
        self._date = b""
        self._date_seconds = -1

    def awaited_of(self, decoder: RequestDecoder) -> tuple[int, float]:
        """What is awaited of a peer whose requests are all answered; see `ByteSession.awaited_input`."""
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


class HttpSession(ByteSession):
    """A conversation in HTTP/1.1."""

    protocol = "http"
    collects_data = True  # an answer has the whole result

    def __init__(self, context: Context, transport: PeerTransport, setup: HttpSetup) -> None:
        super().__init__(context, transport)
        self.setup = setup
        self.prefix = setup.handle_prefix
        self.client_id = b""
        self.decoder = RequestDecoder(setup.heads, setup.packet_bytes)
        self.requests: deque[HttpRequest] = deque()
        self.queued_bytes = 0  # about what those take
        self.call: RouteCall | None = None  # the request that is being answered
        self.wait: HttpWait | None = None  # what it waits for
        self.is_chunked = False  # the body that is being sent in pieces
        self.has_no_body = False  # its request was HEAD
        self.ended = False  # the peer will send no more
        self.on_unsent: Callable[[], None] | None = None  # if the peer leaves before its answer is sent
        self._next_steps: Callable[[], Iterator[Step]] | None = None  # see `continue_with`
        self._is_working = False

    # --- the wire side ---

    def handle_data(self, data: bytes) -> None:
        if self.closing:
            return
        requests = self.decoder.feed(data)
        if requests:
            self.requests.extend(requests)
            for request in requests:
                self.queued_bytes += len(request.body) + REQUEST_BYTES
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
        self._is_working = True
        while requests and self.call is None and self.operation is None and not self.closing:
            if self.long_bytes > LONG_BYTES or memory.answers_must_wait:
                self.deferred = [(len(requests), b"")]  # which is known here; that there are some is not
                self.mark()
                break
            request = requests.popleft()
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
        if problem is None and not self.transport.access.is_open:
            problem = self._access_problem(head, plan)
        if request.is_announced and problem is None:
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
        self.abandon_read()
        self.requests.clear()
        self.queued_bytes = 0
        wait, self.wait = self.wait, None
        self.engine.unsubscribe(self)
        if wait is not None:
            wait.end(self)
        on_unsent, self.on_unsent = self.on_unsent, None
        if on_unsent is not None:
            on_unsent()

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

    def sent(self) -> None:
        self.on_unsent = None
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
        self.send(answer_head(status, content_type, size, b"", date, keeps_alive=keeps_alive))

    def send_piece(self, data: bytes) -> None:
        """Send a piece of a body."""
        if not self.has_no_body:
            self.send(chunk(data) if self.is_chunked else data)

    def end_stream(self) -> None:
        """The body is complete."""
        if self.is_chunked and not self.has_no_body:
            self.send(LAST_CHUNK)
        call = self.call
        self.end_call(keeps_alive=self.is_chunked and call is not None and call.request.head.keeps_alive)

    def _count(self, status: int) -> None:
        """Count an answer to the present request."""
        counts = self.setup.request_counts
        key = ("other" if self.call is None else self.call.plan.name, status)
        counts[key] = counts.get(key, 0) + 1

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
        """Answer with JSON."""
        self.respond(status, msgspec.json.encode(answer), JSON, headers)

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
        lines = b"".join([b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in problem.headers.items()])
        if problem.status == 204:
            self.respond(204, headers=lines)
        else:
            self.respond(problem.status, self._document(problem), PROBLEM, lines)

    def _document(self, problem: HttpProblem) -> bytes:
        call = self.call
        target = call.request.head.target.partition(b"?")[0] if call is not None else b""
        return problem_body(problem, target.decode("ascii", "replace"))

    def refusal(self, refused: Refused) -> bytes:
        problem = refusal_problem(refused, refused.told(self.handle_text))
        body = problem_body(problem, "")
        lines = b"".join([b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in problem.headers.items()])
        date = self.setup.date(self.engine.now_us)
        return answer_head(problem.status, PROBLEM, len(body), lines, date, keeps_alive=True) + body

    def refusal_instead_of(self, answer: Any, refused: Refused) -> Any:
        line = LINE_OF_BATCH.search(answer, 0, LONGEST_LINE_START)
        if line is not None and not answer.startswith(b"HTTP/"):
            problem = refusal_problem(refused, refused.told(self.handle_text))
            text = refused_line(int(line[1]), problem) + b"\n"
            return chunk(text) if line.start() else text
        refusal = self.refusal(refused)
        if CLOSE_LINE in answer[: answer.find(b"\r\n\r\n") + 4]:
            refusal = refusal.replace(b"\r\n\r\n", CLOSE_LINE + b"\r\n", 1)
        return refusal

    def follows_promise(self, job: Job) -> bool:
        wait = self.wait
        return wait is not None and wait.is_of_new_job and wait.job is job

    def refuse_withdrawn(self, refused: Refused) -> None:
        super().refuse_withdrawn(refused)
        wait = self.wait
        if wait is not None and wait.job is not None and wait.job.withdrawn:
            self.answer_error(refused)

    def release(self) -> list[bytes]:
        self.on_unsent = None
        return super().release()

    # --- handles ---

    def handle_text(self, job_id: int) -> str:
        """The handle of a job."""
        return f"{self.setup.handle_text}{job_id}"

    def location(self, job: Job) -> bytes:
        """The header that says where a job is."""
        return b"".join([self.setup.location_start, str(job.id).encode(), b"\r\n"])

    def job_id(self, handle: bytes) -> int:
        """The number of the job with this handle, or whose number this is; raises HttpProblem."""
        number = number_in_handle(handle, self.prefix) or number_in_handle(handle, b"")
        if not 0 < number < self.engine.next_job_id:
            raise no_such_job()
        return number

    def predecessor(self, handle: str) -> int:
        """The id of a job that another is to wait for; 0 if there never was one."""
        number = number_in_handle(handle.encode(), self.prefix)
        return number if 0 < number < self.engine.next_job_id else 0

    # --- operator verbs ---

    def use_verb(self, verb: str, arguments: dict[str, Any]) -> Iterator[Step]:
        """Use an operator verb in steps, and answer with what it answers."""
        answer = yield from self.verb_answer(verb, arguments)
        self.respond_json(200, answer)

    def verb_answer(self, verb: str, arguments: dict[str, Any]) -> Any:
        """The answer of an operator verb, in steps; raises HttpProblem or Refused."""
        answers: list[Any] = []
        try:
            yield from self.context.operate_in_steps(verb, arguments, answers)
        except LookupError as error:
            raise HttpProblem(404, "not_found", str(error.args[0])) from None
        except (TypeError, ValueError) as error:
            raise verb_problem(verb, arguments, str(error)) from None
        if VERBS[verb].keeps is Keeps.EARLIER:
            self.await_commit()
        return answers[0]

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


def no_such_job() -> HttpProblem:
    """There is no job of that handle."""
    text = "there is no such job, or it finished so long ago that it was dropped from the history"
    return HttpProblem(404, "job_not_found", text)


def verb_problem(verb: str, arguments: dict[str, Any], text: str) -> HttpProblem:
    """What a verb says is wrong with one of its arguments."""
    text = text.removeprefix(f"{verb}: ")
    name, colon, detail = text.partition(": ")
    if colon and name in arguments:
        return HttpProblem(422, "invalid_field", text, errors=[("pointer", f"/{name}", detail)])
    return HttpProblem(422, "invalid_field", text)
