"""Handlers of batches: many jobs in one request, each for itself, or all of them or none as one graph.

The jobs of an atomic batch may wait for each other: `"after": ["#1"]` names the first line.  Who has to know handles
before the jobs are submitted, because a payload names another job, has some reserved (`on_reserve_handles`).

A batch of few lines is submitted in one turn, and withdrawn if it cannot be stored.  One of very many lines is read,
checked and submitted in steps, as long graphs are (`GraphSubmission`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

import msgspec

from switchgear.access.permissions import Permissions
from switchgear.engine.engine import GraphSubmission, JobTemplate, SubmitOptions
from switchgear.errors import OptionError, PeerError, Refused
from switchgear.model import Delivery, Job
from switchgear.numbers import whole_number
from switchgear.protocols.handles import number_in_handle
from switchgear.protocols.http.long_lines import LONG_LINE_BYTES, LongLine
from switchgear.protocols.http.messages import NDJSON
from switchgear.protocols.http.problems import (
    HttpProblem,
    field_problem,
    option_problem,
    refusal_problem,
    refused_line,
    validation_problem,
)
from switchgear.protocols.http.routing import RouteCall
from switchgear.protocols.http.schemas import reservation_decoder
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.http.submitting import HttpSubmission, created_json, json_submission, long_submission
from switchgear.protocols.pending_read import Step

__all__ = ["MOST_BATCH_BYTES", "HandleReservations", "on_reserve_handles", "on_submit_batch"]

MOST_BATCH_LINES: Final = 10_000
MOST_BATCH_BYTES: Final = 8 * 1024 * 1024
MOST_ATOMIC_LINES: Final = 1_000_000
SHORT_LINES: Final = 1_000  # which are submitted in one turn
SHORT_BYTES: Final = 1024 * 1024
LINES_PER_STEP: Final = 50
EDGES_PER_STEP: Final = 500
MOST_PROBLEMS: Final = 1_000  # that are told
# Of a line of a batch that is submitted in one turn, in which no other peer is served. Other requests may have more.
MOST_PREDECESSORS_OF_LINE: Final = 10_000
# Stands for the first line among predecessors, until its job has a number.
FIRST_LINE: Final = 1 << 61
MOST_RESERVATIONS: Final = 1_000


# --- reserved handles ---


class HandleReservations:
    """Handles that were promised to submitters, by their first numbers; the oldest go if there are too many."""

    def __init__(self) -> None:
        self._owned: dict[int, tuple[range, Permissions]] = {}

    def add(self, ids: range, owner: Permissions) -> None:
        """Remember ids for a submitter."""
        if len(self._owned) >= MOST_RESERVATIONS:
            del self._owned[next(iter(self._owned))]
        self._owned[ids.start] = (ids, owner)

    def take(self, first_id: int, owner: Permissions | None) -> range:
        """The ids from this one on, which are given once; raises HttpProblem.  `None` owns everything."""
        found = self._owned.get(first_id)
        if found is None or (owner is not None and found[1] is not owner):
            text = (
                "no handles are reserved from this one on: they were used, or the server was restarted; reserve again"
            )
            raise HttpProblem(404, "reservation_not_found", text)
        del self._owned[first_id]
        return found[0]


def on_reserve_handles(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/jobs/handles"""
    try:
        wanted: Any = reservation_decoder.decode(call.body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise validation_problem(error) from None
    refusal = session.engine.refusal
    if refusal is not None:
        raise Refused(refusal.reason, str(refusal))
    ids = session.engine.reserve_ids(wanted.count)
    session.setup.shared.reservations.add(ids, session.permissions)
    session.respond_json(201, {"first": session.handle_text(ids.start), "count": len(ids)})


# --- batches ---


def on_submit_batch(session: HttpSession, call: RouteCall) -> None:
    """POST /v1/jobs/batch"""
    if b"idempotency-key" in call.request.head.headers:  # which would not keep a repeated batch from being a second one
        text = "a batch has none: give its lines unique keys, or submit an atomic batch with reserved handles"
        raise field_problem("header", "Idempotency-Key", text)
    first = call.option("first")
    if call.option("atomic"):
        session.work_off(submit_together(session, call, first or ""))
        return
    if first is not None:
        raise field_problem("parameter", "first", "only an atomic batch has reserved handles")
    count = line_count(call.body, MOST_BATCH_LINES)
    session.work_off(submit_each(session, call, count))


def line_count(body: bytes, most: int) -> int:
    """The number of lines of a batch; raises HttpProblem."""
    count = body.count(b"\n") + (not body.endswith(b"\n"))
    has_lines = body != b"" and not body.isspace()
    if not has_lines or count > most:
        raise HttpProblem(413 if has_lines else 422, "batch_size", f"such a batch has 1 to {most} lines")
    return count


def lines_of(body: bytes) -> Iterator[bytes]:
    """The lines of a batch: not all at once, because there may be very many."""
    for start, end in places_of_lines(body):
        yield body[start:end]


def places_of_lines(body: bytes) -> Iterator[tuple[int, int]]:
    """Where the lines of a batch begin and end: to copy a very long one takes long."""
    start = 0
    while start < len(body):
        end = body.find(b"\n", start)
        if end < 0:
            end = len(body)
        yield start, end
        start = end + 1


def submit_each(session: HttpSession, call: RouteCall, count: int) -> Iterator[Step]:
    """Submit each line for itself, and answer with what became of each.

    Each line of the answer is a piece of output of its own: should its job not be stored, it alone becomes a refusal.
    """
    session.begin_stream(200, NDJSON)
    for number, line in enumerate(lines_of(call.body), 1):
        if number % LINES_PER_STEP == 0:
            yield False
        try:
            submission = json_submission(session, line)
            if submission.edges is not None:
                read_edges(submission)
            submission.use_trace(call)
            job, is_joined = submission.submit(session)
            answer = created_line(session, number, job, is_joined=is_joined)
        except (PeerError, Refused) as error:
            answer = line_problem(session, number, error)
        session.send_piece(answer + b"\n")
    session.end_stream()


def read_edges(submission: HttpSubmission) -> None:
    """Read many predecessors at once; raises HttpProblem if there are too many for that."""
    assert submission.edges is not None
    assert submission.options is not None
    try:
        for _ in submission.edges:
            pass
    except OptionError as error:
        raise option_problem(error, "pointer") from None
    if len(submission.options.predecessors) > MOST_PREDECESSORS_OF_LINE:
        text = f"has at most {MOST_PREDECESSORS_OF_LINE} handles in such a batch"
        raise field_problem("pointer", "/after", text)


def created_line(session: HttpSession, number: int, job: Job, *, is_joined: bool) -> bytes:
    """The answer to a line that was submitted: `schemas.BatchLine`."""
    return b'{"line":%d,%b' % (number, created_json(session, job.id, is_joined=is_joined)[1:])


def line_problem(session: HttpSession, number: int, error: PeerError | Refused) -> bytes:
    """The answer to a line that was not submitted."""
    if isinstance(error, Refused):
        problem = refusal_problem(error, error.told(session.handle_text))
    elif isinstance(error, HttpProblem):
        problem = error
    else:
        problem = HttpProblem(400, error.code.lower(), str(error))
    return refused_line(number, problem)


def answer_batch(session: HttpSession, answers: list[bytes], status: int) -> None:
    answers.append(b"")
    session.respond(status, b"\n".join(answers), NDJSON)


# --- all or none ---


def submit_together(session: HttpSession, call: RouteCall, first: str) -> Iterator[Step]:
    """Submit all lines, or none if there is a problem with one.  `first` is a handle that was reserved, or empty."""
    count = line_count(call.body, MOST_ATOMIC_LINES)
    reserved = range(0)
    if first:
        owner = session.permissions if session.is_guarded else None
        reserved = session.setup.shared.reservations.take(number_in_handle(first.encode(), session.prefix), owner)
        if len(reserved) != count:
            raise HttpProblem(422, "batch_size", f"{len(reserved)} handles are reserved, and there are {count} lines")
    if count <= SHORT_LINES and len(call.body) <= SHORT_BYTES:
        yield from submit_short(session, call, reserved)
    else:
        yield from submit_long(session, call, reserved)


class LineReader:
    """Reads the lines of an atomic batch."""

    def __init__(self, session: HttpSession, call: RouteCall) -> None:
        self.problems: list[bytes] = []
        self._session = session
        self._call = call
        self._line = 0  # the number of the one that is being read
        self._named: Callable[[str], int] = self._predecessor

    def read(self, number: int, line: bytes) -> HttpSubmission | None:
        """The submission of a line; `None` if there is a problem, which is noted."""
        self._line = number
        try:
            return self._checked(json_submission(self._session, line, self._named))
        except (PeerError, Refused) as error:
            self.note(number, error)
            return None

    def read_long(self, number: int, line: LongLine) -> Generator[Step, None, HttpSubmission | None]:
        """The same for a very long line, in steps."""
        self._line = number
        try:
            submission = yield from long_submission(self._session, line, self._named)
            return self._checked(submission)
        except (PeerError, Refused) as error:
            self.note(number, error)
            return None

    def _checked(self, submission: HttpSubmission) -> HttpSubmission:
        if submission.unique:
            raise field_problem("pointer", "/unique", "jobs of an atomic batch have no unique keys")
        submission.use_trace(self._call)
        return submission

    def note(self, number: int, error: PeerError | Refused) -> None:
        """Note a problem with a line."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(line_problem(self._session, number, error))

    def _predecessor(self, word: str) -> int:
        if not word.startswith("#"):
            return self._session.predecessor(word)
        line = whole_number(word[1:].encode())
        if not line or line >= self._line:
            raise OptionError("after", f"names {word[:20]}, which is not a line before this one")
        return FIRST_LINE + line - 1


class BatchGraph:
    """Describes the jobs of an atomic batch to the engine."""

    def __init__(self, session: HttpSession, graph: GraphSubmission) -> None:
        self.graph = graph
        self.numbers: list[int] = []  # of the jobs in the graph, by line
        self._session = session
        self._template: JobTemplate | None = None  # of the last job: jobs of one batch are often alike

    def add(self, submission: HttpSubmission) -> None:
        """Add the job of the next line; raises Refused."""
        options = submission.options or SubmitOptions()
        name, edges = options.name, options.edges
        numbers = self.numbers
        predecessors = tuple(
            [numbers[each - FIRST_LINE] if each >= FIRST_LINE else each for each in options.predecessors]
        )
        options.name, options.predecessors, options.edges = b"", (), b""
        template = self._template
        if template is None or not (
            template.function.told_name == submission.function
            and template.priority == submission.priority
            and template.options == options
        ):
            function = self._session.engine.function_for_graph(submission.function)
            template = self.graph.template(function, options, submission.priority, Delivery.HANDLE)
            self._template = template
        numbers.append(self.graph.add(template, submission.payload, name, predecessors, (), edges))


def submit_short(session: HttpSession, call: RouteCall, reserved: range) -> Iterator[Step]:
    """Read all lines, and submit them in one turn."""
    reader = LineReader(session, call)
    submissions: list[HttpSubmission] = []
    for number, line in enumerate(lines_of(call.body), 1):
        if number % LINES_PER_STEP == 0:
            yield False
        submission = reader.read(number, line)
        if submission is not None:
            try:
                if submission.edges is not None:
                    read_edges(submission)
                submissions.append(submission)
            except (PeerError, Refused) as error:
                reader.note(number, error)
    if reader.problems:
        answer_batch(session, reader.problems, 422)
        return
    counts = Counter((submission.function, submission.priority) for submission in submissions)
    yield from session.await_room_elsewhere([(name, priority, count) for (name, priority), count in counts.items()])
    batch = BatchGraph(session, session.engine.new_graph(reserved=reserved))
    for submission in submissions:
        batch.add(submission)
    promised = len(session.promised_jobs)
    session.engine.submit_graph(batch.graph)
    session.answer_all_since(promised)
    answers = [line_of_job(session, place, batch) for place in range(len(batch.numbers))]
    answer_batch(session, answers, 200)


def submit_long(session: HttpSession, call: RouteCall, reserved: range) -> Iterator[Step]:
    """Read, check and submit the lines in steps, and answer when all are submitted."""
    graph = session.engine.new_graph(is_long=True, reserved=reserved)
    while not graph.begin():
        yield False
    try:
        reader = LineReader(session, call)
        batch = BatchGraph(session, graph)
        body = call.body
        for number, (start, end) in enumerate(places_of_lines(body), 1):
            if number % LINES_PER_STEP == 0:
                yield False
            if end - start > LONG_LINE_BYTES:
                submission = yield from reader.read_long(number, LongLine(body, start, end))
            else:
                submission = reader.read(number, body[start:end])
            if submission is None:
                continue
            try:
                if submission.edges is not None:
                    yield from submission.edges
            except OptionError as error:
                reader.note(number, option_problem(error, "pointer"))
            except Refused as refused:
                reader.note(number, refused)
            if not reader.problems:
                batch.add(submission)
        if reader.problems:
            answer_batch(session, reader.problems, 422)
            return
        yield from session.await_room_elsewhere(graph.counts_elsewhere())
        yield from some_of(graph.check(), EDGES_PER_STEP)
        yield from some_of(graph.apply(), LINES_PER_STEP)
    finally:
        graph.end()
    session.begin_stream(200, NDJSON)
    for first in range(0, len(batch.numbers), LINES_PER_STEP):
        places = range(first, min(first + LINES_PER_STEP, len(batch.numbers)))
        session.send_piece(b"".join([line_of_job(session, place, batch) + b"\n" for place in places]))
        yield False
    session.end_stream()


def some_of(steps: Iterator[None], count: int) -> Iterator[Step]:
    """The steps, grouped by this number."""
    for place, _ in enumerate(steps):
        if place % count == 0:
            yield False


def line_of_job(session: HttpSession, place: int, batch: BatchGraph) -> bytes:
    """The answer to the line of a job that was submitted."""
    job_id = batch.graph.id_of(batch.numbers[place])
    return b'{"line":%d,%b' % (place + 1, created_json(session, job_id, is_joined=False)[1:])
