"""Handlers of requests that submit one job: as JSON, or with the payload as the body."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import UNSET

from switchgear.access.permissions import EVERYBODY
from switchgear.engine.engine import SubmitOptions
from switchgear.errors import OptionError
from switchgear.json_bytes import bytes_of, plain
from switchgear.model import DONE, FINAL_STATES, NORMAL, SECOND_US, Delivery, Job
from switchgear.numbers import whole_number
from switchgear.protocols.http.http_wait import HttpWait
from switchgear.protocols.http.job_error import told_error
from switchgear.protocols.http.long_answers import respond_json_in_steps
from switchgear.protocols.http.long_lines import LongLine
from switchgear.protocols.http.messages import BYTES
from switchgear.protocols.http.problems import (
    HttpProblem,
    field_problem,
    option_problem,
    validation_problem,
)
from switchgear.protocols.http.routing import RouteCall
from switchgear.protocols.http.schemas import (
    decode_plain_submission,
    given_options,
    job_submission_decoder,
    longest_list,
)
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.http.session_setup import ATTACHMENT
from switchgear.protocols.http.verb_answers import verb_answer
from switchgear.protocols.option_reading import ReadOptions, read_options
from switchgear.protocols.pending_read import Step
from switchgear.trace_context import is_traceparent

__all__ = [
    "MOST_WAIT_SECONDS",
    "HttpSubmission",
    "created_json",
    "end_headers",
    "json_submission",
    "long_submission",
    "not_done_problem",
    "on_submit_job",
    "on_submit_payload",
]

MOST_WAIT_SECONDS: Final = 600
IDEMPOTENCY_US: Final = 86_400 * SECOND_US
MOST_KEY_BYTES: Final = 255
NOT_GIVEN: Final = UNSET
decode_plain: Final = decode_plain_submission
HANDLE: Final = Delivery.HANDLE  # a global is cheaper to look up than a member of an enumeration
MOST_PLAIN_BYTES: Final = 4096  # a longer text is not read twice
# A longer text may have lists of so many values that to read them takes longer than a turn may.
LONG_JSON_BYTES = 100_000
MOST_LIST_VALUES = 100_000


class HttpSubmission:
    """A submission, read and checked as far as that can be done without the engine."""

    def __init__(self, function: bytes, unique: bytes, payload: bytes, read: ReadOptions | None) -> None:
        self.function = function
        self.unique = unique
        self.payload = payload
        self.priority = read.priority if read is not None else NORMAL
        self.options = read.options if read is not None else None
        self.edges = read.edges if read is not None else None  # reads very many predecessors in steps

    def use_idempotency_key(self, key: bytes, fingerprint: str) -> None:
        """Let the key stand for this job for a day, and remember what was submitted under it."""
        if self.unique:
            raise field_problem("header", "Idempotency-Key", "there is a unique key too; give one of them")
        if self.options is None:
            self.options = SubmitOptions()
        self.unique = b"Idempotency-Key " + key
        self.options.unique_for_us = IDEMPOTENCY_US
        self.options.origin = fingerprint

    def use_trace(self, call: RouteCall) -> None:
        """Take the trace of the request, unless the job has one; an invalid header is ignored, as its standard says."""
        header = call.request.head.headers.get(b"traceparent")
        if header is None or not is_traceparent(header):
            return
        if self.options is None:
            self.options = SubmitOptions()
        if not self.options.trace:
            self.options.trace = header

    def submit(self, session: HttpSession) -> tuple[Job, bool]:
        """The job, and whether it was there before; raises Refused or HttpProblem."""
        engine = session.engine
        first_id = engine.next_job_id
        job = engine.submit(
            self.function, self.unique, self.payload, self.priority, Delivery.HANDLE, None, self.options
        )
        is_joined = job.id < first_id or job.id >= engine.next_job_id
        if is_joined:
            self._refuse_other(job)
        return job, is_joined

    def relies_on_many(self, session: HttpSession) -> bool:
        """Whether so many foreground jobs become durable with this one that it has to be submitted in steps."""
        options = self.options
        return (
            options is not None and bool(options.predecessors) and session.engine.relies_on_many(options.predecessors)
        )

    def submit_in_steps(self, session: HttpSession, where: str) -> Generator[Step, None, tuple[Job, bool]]:
        """The same for a job of very many predecessors."""
        assert self.options is not None
        assert self.edges is not None
        try:
            yield from self.edges
        except OptionError as error:
            raise option_problem(error, where) from None
        job = yield from session.engine.submit_wide(
            self.function, self.unique, self.payload, self.priority, Delivery.HANDLE, None, self.options
        )
        is_joined = job.id != self.options.job_id
        if is_joined:
            self._refuse_other(job)
        return job, is_joined

    def _refuse_other(self, job: Job) -> None:
        """Raise HttpProblem if the job that was joined was submitted by another request with the same key."""
        if self.options is not None and self.options.origin and job.origin != self.options.origin:
            raise field_problem("header", "Idempotency-Key", "another request was made with this key")


# --- reading ---


def function_name(session: HttpSession, name: bytes, where: str, field: str) -> bytes:
    """A function's name that is not too long; raises HttpProblem."""
    if len(name) > session.setup.name_bytes:
        raise field_problem(where, field, f"it has more than {session.setup.name_bytes} bytes (limits.name_bytes)")
    if 0 in name:  # looking for b"\\0" takes twenty times as long
        raise field_problem(where, field, "it has a NUL")
    return name


def submission_of(
    session: HttpSession,
    function: bytes,
    key: bytes,
    payload: bytes,
    given: Mapping[str, Any],
    where: str,
    predecessor: Callable[[str], int] | None = None,
) -> HttpSubmission:
    """A submission with these options; raises HttpProblem.  `predecessor` finds jobs that are not named by handles."""
    read: ReadOptions | None = None
    if given:
        try:
            read = read_options(
                given,
                has_unique=bool(key),
                name_bytes=session.setup.name_bytes,
                predecessor=predecessor or session.predecessor,
            )
        except OptionError as error:
            raise option_problem(error, where) from None
    return HttpSubmission(function, key, payload, read)


def plain_submission(text: bytes) -> Any:
    """A submission without options as a struct, of which fields may be unset; `None` if it has some, or is wrong."""
    if len(text) <= MOST_PLAIN_BYTES:
        try:
            return decode_plain(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass  # the other decoder knows what there is to be said
    return None


def submission_with_options(text: bytes) -> Any:
    """A submission as a struct, of which fields may be unset; raises HttpProblem."""
    try:
        if len(text) > LONG_JSON_BYTES and longest_list(text) > MOST_LIST_VALUES:
            raise HttpProblem(413, "too_many_values", f"a list has more than {MOST_LIST_VALUES} values")
        return job_submission_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise validation_problem(error) from None


def allowed_function(session: HttpSession, wanted: Any) -> bytes:
    """The function of a submission, for which the peer may submit; raises HttpProblem or Refused."""
    name: str = wanted.function
    setup = session.setup
    if name == setup.last_function_text:  # which was checked
        function = setup.last_function
    else:
        function = function_name(session, name.encode(), "pointer", "/function")
        setup.last_function_text, setup.last_function = name, function
    if session.is_guarded:
        session.require("a submission", EVERYBODY, function)
    return function


def wanted_payload(wanted: Any) -> bytes:
    """The payload of a submission: a text, bytes in base64, or arguments; raises HttpProblem."""
    args = wanted.args
    payload = wanted.payload
    if args is not NOT_GIVEN:
        if payload is not NOT_GIVEN:
            raise field_problem("pointer", "/args", "there is a payload too; give one of them")
        data = bytes(args)
        if data[:1] not in (b"{", b"["):
            raise field_problem("pointer", "/args", "it is an object of arguments by name, or an array")
        if not data.isascii():
            try:
                data.decode()  # the decoder has left it as it is
            except UnicodeDecodeError as error:
                raise validation_problem(error, "/args") from None
        return data
    if isinstance(payload, str):
        return payload.encode()
    if payload is NOT_GIVEN:
        return b""
    try:
        return bytes_of({"base64": payload.base64}, "payload")
    except ValueError as error:
        raise field_problem("pointer", "/payload/base64", str(error).removeprefix("payload: ")) from None


def wanted_key(session: HttpSession, wanted: Any) -> bytes:
    """The unique key of a submission; empty if it has none. Raises HttpProblem."""
    unique = wanted.unique
    return function_name(session, unique.encode(), "pointer", "/unique") if isinstance(unique, str) else b""


def json_submission(
    session: HttpSession, text: bytes, predecessor: Callable[[str], int] | None = None
) -> HttpSubmission:
    """A submission as JSON; raises HttpProblem.  See `submission_of`."""
    wanted = plain_submission(text)
    if wanted is None:
        wanted = submission_with_options(text)
    return checked_submission(session, wanted, wanted_payload(wanted), predecessor)


def checked_submission(
    session: HttpSession, wanted: Any, payload: bytes, predecessor: Callable[[str], int] | None
) -> HttpSubmission:
    """A submission as a struct, whose payload was read; raises HttpProblem."""
    function = allowed_function(session, wanted)
    key = wanted_key(session, wanted)
    return submission_of(session, function, key, payload, given_options(wanted), "pointer", predecessor)


def long_submission(
    session: HttpSession, line: LongLine, predecessor: Callable[[str], int]
) -> Generator[Step, None, HttpSubmission]:
    """A submission as a very long line of JSON, read in steps; raises HttpProblem."""
    yield from line.read()
    wanted = submission_with_options(line.rest)
    payload = wanted_payload(wanted)
    long_payload = yield from line.payload(wanted)
    return checked_submission(session, wanted, payload if long_payload is None else long_payload, predecessor)


def idempotency_key(call: RouteCall) -> bytes:
    """The key of the request, with or without the quotes that the draft wants; empty if there is none."""
    header = call.request.head.headers.get(b"idempotency-key")
    if header is None:
        return b""
    key = header[1:-1] if len(header) >= 2 and header.startswith(b'"') and header.endswith(b'"') else header
    if not 0 < len(key) <= MOST_KEY_BYTES or not key.isascii() or not key.decode("ascii").isprintable():
        raise field_problem("header", "Idempotency-Key", f"it is a text of 1 to {MOST_KEY_BYTES} printable characters")
    return key


def fingerprint_of(call: RouteCall) -> str:
    """A digest of a request, by which different requests with the same Idempotency-Key are told apart."""
    head = call.request.head
    digest = blake2b(head.target.partition(b"?")[2], digest_size=16)
    digest.update(b"\0%b\0" % head.headers.get(b"content-type", b""))
    digest.update(call.body)
    return f"http {digest.hexdigest()}"


def preferred_wait(call: RouteCall) -> int:
    """For how many seconds the client would wait (`Prefer: wait=30`, RFC 7240); -1 if it does not say."""
    header = call.request.head.headers.get(b"prefer")
    if header is None:
        return -1
    for preference in header.split(b","):
        name, _, value = preference.partition(b";")[0].partition(b"=")
        if name.strip().lower() == b"wait":
            seconds = whole_number(value.strip(b' \t"'))
            if seconds is None:
                raise field_problem("header", "Prefer", "wait is a number of seconds", status=400)
            return min(seconds, MOST_WAIT_SECONDS)
    return -1


# --- one job ---


def on_submit_job(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/jobs"""
    if call.plan.is_simple:
        wanted = plain_submission(call.request.body)
        if wanted is not None:
            submit_simple(
                session, allowed_function(session, wanted), wanted_key(session, wanted), wanted_payload(wanted)
            )
            return
    wait_seconds = preferred_wait(call)
    submission = json_submission(session, call.body)
    submit(session, call, submission, wait_seconds, is_raw=False)


def on_submit_payload(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/functions/{function}/jobs"""
    function = function_name(session, call.argument("function"), "parameter", "function")
    if call.plan.is_simple:
        submit_simple(session, function, b"", call.request.body)
        return
    wait_seconds = preferred_wait(call)
    given = dict(call.plan.given)
    key = function_name(session, given.pop("unique", "").encode(), "parameter", "unique")
    submission = submission_of(session, function, key, call.body, given, "parameter")
    submit(session, call, submission, wait_seconds, is_raw=True)


def submit_simple(session: HttpSession, function: bytes, key: bytes, payload: bytes) -> None:
    """Submit a job without options, as most are, and answer at once; raises Refused."""
    engine = session.engine
    first_id = engine.next_job_id
    job = engine.submit(function, key, payload, NORMAL, HANDLE)
    is_joined = job.id < first_id or job.id >= engine.next_job_id
    session.tell_created(200 if is_joined else 201, job.id, is_joined=is_joined)


def submit(
    session: HttpSession, call: RouteCall, submission: HttpSubmission, wait_seconds: int, *, is_raw: bool
) -> None:
    submission.use_trace(call)
    key = idempotency_key(call)
    if key:
        submission.use_idempotency_key(key, fingerprint_of(call))
    if submission.relies_on_many(session):
        submission.edges = iter(())
    if submission.edges is not None:
        session.work_off(submit_wide(session, submission, wait_seconds, is_raw=is_raw))
        return
    job, is_joined = submission.submit(session)
    if wait_seconds >= 0 and job.state in FINAL_STATES:  # it holds its unique key beyond its end
        session.work_off(told_end(session, job, is_raw=is_raw))
    else:
        answer_submitted(session, job, wait_seconds, is_joined=is_joined, is_raw=is_raw)


def submit_wide(session: HttpSession, submission: HttpSubmission, wait_seconds: int, *, is_raw: bool) -> Iterator[Step]:
    """Submit a job of very many predecessors."""
    where = "parameter" if is_raw else "pointer"
    job, is_joined = yield from submission.submit_in_steps(session, where)
    if wait_seconds >= 0 and job.state in FINAL_STATES:
        yield from told_end(session, job, is_raw=is_raw)
    else:
        answer_submitted(session, job, wait_seconds, is_joined=is_joined, is_raw=is_raw)


def answer_submitted(session: HttpSession, job: Job, wait_seconds: int, *, is_joined: bool, is_raw: bool) -> None:
    """Answer at once, or when the job ends if the client waits for that."""
    if wait_seconds < 0:
        answer_created(session, job, is_joined=is_joined)
    elif wait_seconds == 0:
        answer_accepted(session, job, is_joined=is_joined)
    else:
        wait = SubmissionWait(is_raw=is_raw, is_joined=is_joined)
        session.wait_for_end(wait, job, wait_seconds)


def created_json(session: HttpSession, job_id: int, *, is_joined: bool) -> bytes:
    """The answer `schemas.JobCreated` as JSON, made without the general encoder."""
    return session.setup.created_json(str(job_id).encode(), is_joined=is_joined)


def answer_created(session: HttpSession, job: Job, *, is_joined: bool) -> None:
    """201 for a new job, 200 for one that was there."""
    session.tell_created(200 if is_joined else 201, job.id, is_joined=is_joined)


def answer_accepted(session: HttpSession, job: Job, *, is_joined: bool) -> None:
    """202: the job has not ended yet."""
    job_id = session.id_to_tell(job)
    answer = created_json(session, job_id, is_joined=is_joined or job_id != job.id)
    session.respond(202, answer, headers=session.location(job_id) + b"Preference-Applied: wait\r\n")


class SubmissionWait(HttpWait):
    """A submission whose client waits for the end of the job."""

    def __init__(self, *, is_raw: bool, is_joined: bool) -> None:
        self.job = None
        self.is_of_new_job = not is_joined
        self.is_raw = is_raw
        self.is_joined = is_joined

    def job_finished(self, session: HttpSession, job: Job) -> None:
        if self.is_raw:
            tell_result(session, job)
        else:
            session.continue_with(partial(tell_job, session, session.id_to_tell(job)))

    def timed_out(self, session: HttpSession) -> None:
        job = self.job
        assert job is not None
        answer_accepted(session, job, is_joined=self.is_joined)


def told_end(session: HttpSession, held: Job, *, is_raw: bool) -> Iterator[Step]:
    """Answer with the end of a job that has ended already."""
    if is_raw:
        job = yield from session.held_end(held)
        tell_result(session, job)
    else:
        yield from tell_job(session, held.id)


def tell_job(session: HttpSession, job_id: int) -> Iterator[Step]:
    """Answer the submitter with everything that is known of its job."""
    arguments = {"handle": session.handle_text(job_id)}
    answer = yield from verb_answer(session, "job", arguments, keeps_result=True)
    yield from respond_json_in_steps(session, 200, answer)


def end_headers(session: HttpSession, job: Job) -> bytes:
    """Which job an answer in bytes is about, and how it ended."""
    lines = b"Switchgear-Job: %b\r\nSwitchgear-State: %b\r\n" % (
        session.handle_text(session.id_to_tell(job)).encode("ascii", "replace"),
        job.state.name.lower().encode(),
    )
    return lines + ATTACHMENT


def tell_result(session: HttpSession, job: Job) -> None:
    """Answer with the result of a job that has ended, as bytes; 502 if it did not succeed."""
    if job.state is DONE:
        session.respond(200, job.whole_result, BYTES, end_headers(session, job))
    else:
        session.answer_problem(not_done_problem(session, job, 502))


def not_done_problem(session: HttpSession, job: Job, status: int) -> HttpProblem:
    """The problem for a job that ended without success."""
    state = job.state.name.lower()
    error = told_error(job, session.handle_text)
    more = {} if error is None else {"error": plain(error)}
    text = f"the job is {state}" if not error else error.decode("utf-8", "replace")
    headers = {"Switchgear-Job": session.handle_text(job.id), "Switchgear-State": state}
    return HttpProblem(status, f"job_{state}", text, headers=headers, more=more)
