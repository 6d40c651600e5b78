"""Handlers of the extension packets of graphs: jobs that are submitted together with their edges, all or none.

GRAPH_BEGIN    number of jobs                     -> GRAPH_IDS handle of the first job; the others follow it
GRAPH_PART     handle of the first job, records
GRAPH_COMMIT   handle of the first job            -> GRAPH_CREATED handle of the first job, number of jobs; or ERROR

A client knows the handles of its jobs from GRAPH_IDS on, so that payloads can refer to the results of other jobs of the
graph. Parts are only kept until GRAPH_COMMIT: a client that leaves before leaves nothing. Then the graph is read,
checked and submitted in steps (`GraphSubmission`), and the answer is held until all of it is stored.

A part is a sequence of records, all numbers big-endian and unsigned:

- `T`, 4 bytes length, function; 4 bytes length, options (JSON as in SUBMIT_JOB_OPTIONS): a template, numbered from 0
- `J`, 4 bytes template, 4 bytes number of predecessors, 1 byte policy, 4 bytes length of the payload; 8 bytes for the
  id of each predecessor; if the policy is 255, 1 byte policy for each predecessor; payload
- `P`, 4 bytes number of predecessors, 1 byte policy; 8 bytes for each id: more predecessors of the job before it
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from struct import Struct
from typing import Final

from switchgear.access.permissions import EVERYBODY
from switchgear.engine.engine import GraphSubmission, JobTemplate
from switchgear.errors import OptionError, PeerError, Refused
from switchgear.model import Delivery, EdgePolicy
from switchgear.numbers import whole_number
from switchgear.protocols.gearman.codec import response
from switchgear.protocols.gearman.job_options import JobOptions, given_options
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import GearmanSession, OpenGraph, first_argument, split
from switchgear.protocols.gearman.submit_and_control import bad_option, parsed, predecessor
from switchgear.protocols.gearman.watch_and_credit import MOST_WATCHED
from switchgear.protocols.option_reading import read_options
from switchgear.protocols.pending_read import Step
from switchgear.refusals import REFUSED_LIMIT

__all__ = ["on_graph_begin", "on_graph_commit", "on_graph_part", "take_part"]

# More jobs would not fit into the memory of most machines.
MOST_JOBS: Final = 10_000_000
# A client sends the parts of one graph after the other. Graphs that it never commits must not add up.
MOST_OPEN_GRAPHS: Final = 16
# A graph of at most this many bytes is submitted in one turn, in half a millisecond or so, and stored in one commit.
SHORT_BYTES: Final = 8_192
# The work of one step takes about half a millisecond.
RECORDS_PER_STEP: Final = 50
BYTES_PER_STEP: Final = 16_384
MOST_PREDECESSORS_OF_RECORD: Final = 1_000
EDGES_PER_STEP: Final = 500
# A very large graph takes longer than a client waits for a server that says nothing.
STEPS_PER_NOOP: Final = 1_000
TEMPLATE_BYTES: Final = 800  # approximate memory of a template without its texts

NOOP: Final = response(Packet.NOOP)
TEMPLATE: Final = 0x54  # T
JOB: Final = 0x4A  # J
PREDECESSORS: Final = 0x50  # P
LENGTH: Final = Struct(">I")
JOB_START: Final = Struct(">IIBI")
PREDECESSORS_START: Final = Struct(">IB")
POLICY_OF_EACH: Final = 255
WORST_POLICY: Final = max(EdgePolicy)


def on_graph_begin(session: GearmanSession, body: bytes) -> None:
    count = whole_number(first_argument(body), MOST_JOBS)
    if not count:
        raise PeerError(f"a graph has 1 to {MOST_JOBS} jobs", code="INVALID_ARGUMENT")
    refusal = session.engine.refusal
    if refusal is not None:
        raise Refused(refusal.reason, str(refusal))
    ids = session.engine.reserve_ids(count)
    graphs = session.graphs
    if len(graphs) == MOST_OPEN_GRAPHS:
        session.drop_graph(next(iter(graphs)))
    graphs[ids.start] = OpenGraph(ids)
    session.send(response(Packet.GRAPH_IDS, session.handle_text(ids.start).encode()))


def on_graph_part(session: GearmanSession, body: bytes) -> None:
    take_part(session, split(body, Packet.GRAPH_PART))


def take_part(session: GearmanSession, arguments: list[bytes]) -> None:
    """Keep a part. It has no answer: what is wrong with it, the answer to GRAPH_COMMIT says."""
    handle, records = arguments
    graph = session.graphs.get(session.job_id(handle))
    if graph is None or graph.refusal:
        return
    memory = session.engine.memory
    if not memory.has_room(graph.held_bytes + len(records)):  # they become jobs of at least that size
        session.drop_parts(graph)
        graph.refusal = f"no memory for the graph: limits.memory_bytes is {memory.limit_bytes}"
        return
    graph.parts.append(records)
    graph.held_bytes += len(records)
    memory.draft_bytes += len(records)


def on_graph_commit(session: GearmanSession, body: bytes) -> None:
    first_id = session.job_id(first_argument(body))
    graph = session.graphs.pop(first_id, None)
    if graph is None:
        session.send_error("GRAPH_NOT_FOUND", "This connection has begun no such graph, or too many others since")
        return
    session.work_off(commit(session, graph))


def commit(session: GearmanSession, graph: OpenGraph) -> Iterator[Step]:
    """Submit a graph, and answer."""
    try:
        if graph.refusal:
            raise Refused(REFUSED_LIMIT, graph.refusal)
        yield from submit_short(session, graph) if graph.held_bytes <= SHORT_BYTES else submit_long(session, graph)
    finally:
        session.drop_parts(graph)
    handle = session.handle_text(graph.ids.start).encode()
    session.send(response(Packet.GRAPH_CREATED, handle, b"%d" % len(graph.ids)))


def submit_short(session: GearmanSession, graph: OpenGraph) -> Iterator[Step]:
    parts = list(graph.parts)
    submission = described(session, graph)
    elsewhere = submission.counts_elsewhere()
    if elsewhere:
        yield from session.await_room_elsewhere(elsewhere)
        # Others may have submitted jobs meanwhile, so the graph is described anew.
        graph.parts = parts
        graph.held_bytes = sum(map(len, parts))
        session.engine.memory.draft_bytes += graph.held_bytes
        submission = described(session, graph)
    first = len(session.promised_jobs)
    session.engine.submit_graph(submission)
    session.answer_all_since(first)


def described(session: GearmanSession, graph: OpenGraph) -> GraphSubmission:
    """A short graph, read at once."""
    submission = session.engine.new_graph(reserved=graph.ids)
    reader = RecordReader(session, graph, submission)
    while reader.read_some():
        pass
    reader.check_complete()
    return submission


def submit_long(session: GearmanSession, graph: OpenGraph) -> Iterator[Step]:
    submission = session.engine.new_graph(is_long=True, reserved=graph.ids)
    while not submission.begin():
        yield False
    try:
        reader = RecordReader(session, graph, submission)
        while reader.read_some():
            yield False
        reader.check_complete()
        yield from session.await_room_elsewhere(submission.counts_elsewhere())
        yield from some_of(submission.check(), EDGES_PER_STEP)
        for number, step in enumerate(some_of(submission.apply(), RECORDS_PER_STEP), 1):
            if session.is_gone:
                reader.wait_for_none()
            elif number % STEPS_PER_NOOP == 0:
                session.transport.write([NOOP])  # past the output that waits for the store: it promises nothing
            yield step
    finally:
        submission.end()


def some_of(steps: Iterator[None], count: int) -> Iterator[Step]:
    """The steps, grouped by this number."""
    for place, _ in enumerate(steps):
        if place % count == 0:
            yield False


class RecordReader:
    """Reads the records of a graph, and describes the graph to the engine by them."""

    def __init__(self, session: GearmanSession, graph: OpenGraph, submission: GraphSubmission) -> None:
        self._session = session
        self._graph = graph
        self._submission = submission
        self._templates: list[JobTemplate] = []
        self._subscriptions = 0
        self._last = 0  # the number of the last job
        self._count = 0
        self._part = b""
        self._place = 0
        graph.parts.reverse()

    def read_some(self) -> bool:
        """Read some records; returns whether there may be more.  Raises PeerError or Refused."""
        records = 0
        end = self._place + BYTES_PER_STEP
        while records < RECORDS_PER_STEP and self._place < end:
            if self._place == len(self._part):
                if not self._next_part():
                    return False
                end = BYTES_PER_STEP
                continue
            try:
                self._read_record()
            except (IndexError, ValueError) as error:  # the record is cut off; struct raises its own error
                raise malformed() from error
            records += 1
        return True

    def check_complete(self) -> None:
        """Raise PeerError unless all jobs of the graph were described."""
        if self._count != len(self._graph.ids):
            text = f"the graph was begun with {len(self._graph.ids)} jobs, and {self._count} were described"
            raise PeerError(text, code="INVALID_ARGUMENT")

    def wait_for_none(self) -> None:
        """The client has disconnected: the jobs that are still to be submitted have no subscriber."""
        for template in self._templates:
            template.subscriber = None

    def _next_part(self) -> bool:
        graph = self._graph
        if self._part:
            graph.held_bytes -= len(self._part)
            self._session.engine.memory.draft_bytes -= len(self._part)
            self._part = b""
        self._place = 0
        while graph.parts and not self._part:
            self._part = graph.parts.pop()
        return bool(self._part)

    def _read_record(self) -> None:
        kind = self._part[self._place]
        self._place += 1
        if kind == JOB:
            self._read_job()
        elif kind == TEMPLATE:
            self._read_template()
        elif kind == PREDECESSORS:
            count, policy = self._start(PREDECESSORS_START)
            if not self._count or policy > WORST_POLICY:
                raise malformed()
            self._submission.extend(self._last, self._ids(count), (), policy)
        else:
            raise malformed()

    def _start(self, start: Struct) -> tuple[int, ...]:
        place = self._place
        if place + start.size > len(self._part):
            raise malformed()
        self._place = place + start.size
        return start.unpack_from(self._part, place)

    def _bytes(self, size: int) -> bytes:
        place = self._place
        if place + size > len(self._part):
            raise malformed()
        self._place = place + size
        return self._part[place : place + size]

    def _ids(self, count: int) -> tuple[int, ...]:
        if count > MOST_PREDECESSORS_OF_RECORD:
            raise malformed()
        return IDS[count].unpack(self._bytes(8 * count))

    def _read_job(self) -> None:
        number, count, policy, size = self._start(JOB_START)
        if number >= len(self._templates):
            raise malformed()
        template = self._templates[number]
        if template.subscriber is not None:
            self._subscribe()
        predecessors = self._ids(count) if count else ()
        edges = b""
        if policy == POLICY_OF_EACH:
            edges = self._bytes(count)
            if edges and max(edges) > WORST_POLICY:
                raise malformed()
        elif policy > WORST_POLICY:
            raise malformed()
        elif policy:
            edges = bytes([policy]) * count
        payload = self._bytes(size)
        self._last = self._submission.add(template, payload, b"", predecessors, (), edges)
        self._count += 1

    def _subscribe(self) -> None:
        """Count a job that the client waits for; raises PeerError."""
        session = self._session
        session.engine.refuse_subscription()
        self._subscriptions += 1
        if len(session.subscriptions) + self._subscriptions > MOST_WATCHED:
            raise PeerError(f"a connection may watch {MOST_WATCHED} jobs", code="ARGUMENT_TOO_LARGE")

    def _read_template(self) -> None:
        session = self._session
        function = session.name_of(self._bytes(*self._start(LENGTH)))
        text = self._bytes(*self._start(LENGTH))
        if session.is_guarded:
            session.require("GRAPH_COMMIT", EVERYBODY, function)
        given = given_options(parsed(text, JobOptions, "options"))
        wait = given.pop("wait", False)
        for name in ("after", "on_failure", "watch", "name"):
            if name in given:
                raise PeerError(f"options: {name} is not an option of several jobs", code="INVALID_ARGUMENT")
        try:
            read = read_options(
                given,
                has_unique=False,
                name_bytes=session.setup.name_bytes,
                predecessor=partial(predecessor, session),
            )
        except OptionError as error:
            raise bad_option(error) from error
        self._submission.held_bytes += TEMPLATE_BYTES + len(text)
        if not session.engine.memory.has_room(self._submission.held_bytes):
            raise Refused(REFUSED_LIMIT, "no memory for the options of the jobs of the graph")
        delivery = Delivery.WAIT if wait else Delivery.HANDLE
        subscriber = session if wait else None
        functions = session.engine.function_for_graph(function)
        self._templates.append(self._submission.template(functions, read.options, read.priority, delivery, subscriber))


IDS: Final = [Struct(f">{count}Q") for count in range(MOST_PREDECESSORS_OF_RECORD + 1)]


def malformed() -> PeerError:
    return PeerError("the records of the graph are malformed", code="INVALID_ARGUMENT")
