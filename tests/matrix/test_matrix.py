"""Every submitter with every worker.

Each test is one cell of the table and one thing that may pass in it: it is tried, and what came through is what both
sides declare in `sides.py`, no less and no more, and what docs/interop.md tells of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import pytest

from tests.matrix.page import PAGE, WRITES, Findings, degree_on_page, rendered
from tests.matrix.sides import CAPABILITIES, PAIRS, Capability, Degree, Pair, expected
from tests.matrix.stage import Stage
from tests.matrix.submitters import SUBMIT, Ending, GearMonkeyTicket, Ticket, failed
from tests.matrix.workers import Nursery, WorkerProcess
from tests.support.peers import require_program

SHORT_LEASE_SECONDS = 0.5
REASON = b"there is no such file"


class Cell:
    """A submitter and a worker, and what there is to find out about them."""

    def __init__(
        self,
        pair: Pair,
        capability: Capability,
        stage: Stage,
        nursery: Nursery,
        findings: Findings,
        closing: ExitStack,
    ) -> None:
        self.pair = pair
        self.payload = f"{pair.name} {capability}".encode()
        self.result = self.payload[::-1]
        self._capability = capability
        self._addresses = stage.addresses(pair, capability)
        self._nursery = nursery
        self._findings = findings
        self._closing = closing

    @property
    def submitter_can(self) -> Degree:
        return self.pair.submitter.degree(self._capability)

    @property
    def worker_can(self) -> Degree:
        return self.pair.worker.degree(self._capability)

    def start_worker(self) -> WorkerProcess:
        lease_seconds = SHORT_LEASE_SECONDS if self._capability is Capability.DEATH else 0.0
        worker = self._nursery.worker(self.pair.worker.key, self._addresses, lease_seconds)
        return self._closing.enter_context(worker)

    def submit(self, payload: bytes) -> Ticket:
        return SUBMIT[self.pair.submitter.key](self._addresses, payload, self._closing)

    def begin(self) -> tuple[Ticket, WorkerProcess]:
        """A job that was submitted, and the worker that has it now."""
        worker = self.start_worker()
        ticket = self.submit(self.payload)
        assert worker.take() == self.payload
        return ticket, worker

    def found(self, degree: Degree) -> None:
        """This is what the pair carries: it has to be what was declared, and what the page says."""
        assert degree is expected(self.pair, self._capability)
        self._findings[self.pair.name, self._capability] = degree
        if not WRITES:
            assert degree_on_page(self.pair, self._capability) is degree, f"{PAGE} is out of date: make interop"

    def degree_of(self, ending: Ending) -> Degree:
        """How much of a result came back: all of it, or that there is one."""
        assert ending.well, ending
        if ending.data == self.result:
            return Degree.ALL
        assert not ending.data, "no bytes, or the right ones"
        return Degree.PART

    def check_result(self, ending: Ending) -> None:
        assert self.degree_of(ending) is expected(self.pair, Capability.RESULT)


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as closing:
        yield closing


@pytest.fixture
def cell(
    pair: Pair, capability: Capability, stage: Stage, nursery: Nursery, findings: Findings, closing: ExitStack
) -> Cell:
    if pair.submitter.needs_redis or pair.worker.needs_redis:
        require_program("redis-server")
    return Cell(pair, capability, stage, nursery, findings, closing)


def each(capability: Capability, pairs: Iterable[Pair] = PAIRS) -> pytest.MarkDecorator:
    """A test for each of these pairs."""
    return pytest.mark.parametrize(
        ("pair", "capability"),
        [(pair, capability) for pair in pairs],
        ids=[f"{pair.submitter.key}-to-{pair.worker.key}" for pair in pairs],
    )


def pairs_that_can(capability: Capability) -> list[Pair]:
    """Those of which both sides have words for it."""
    return [pair for pair in PAIRS if pair.submitter.degree(capability) and pair.worker.degree(capability)]


# --- what passes ---


@pytest.mark.system
@each(Capability.RESULT)
def test_the_result_comes_back(cell: Cell) -> None:
    ticket, worker = cell.begin()
    worker.complete(cell.result)
    cell.found(cell.degree_of(ticket.ending()))


@pytest.mark.system
@each(Capability.PROGRESS)
def test_progress_comes_through(cell: Cell) -> None:
    """Where the submitter cannot hear of it, it does no harm."""
    ticket, worker = cell.begin()
    degree = Degree.NONE
    if cell.worker_can:
        worker.progress(3, 10)
    if cell.worker_can and cell.submitter_can:
        assert ticket.progress() == (3, 10)
        degree = Degree.ALL
    worker.complete(cell.result)
    cell.check_result(ticket.ending())
    if not cell.worker_can:
        assert ticket.last_progress() is None, "nobody has told any"
    cell.found(degree)


@pytest.mark.system
@each(Capability.FAILURE, pairs_that_can(Capability.FAILURE))
def test_a_failure_comes_through_with_its_reason(cell: Cell) -> None:
    ticket, worker = cell.begin()
    worker.fail(REASON)
    ending = ticket.ending()
    assert not ending.well
    if cell.pair.worker.key.startswith("python"):  # which says more than it was told to
        assert ending.data is not None
        assert ending.data.startswith(b"JobFailed: " + REASON + b"\n\nTraceback")
    else:
        assert ending == failed(REASON)
    cell.found(Degree.ALL)


@pytest.mark.system
@each(Capability.CANCEL, pairs_that_can(Capability.CANCEL))
def test_a_job_is_cancelled_while_it_runs(cell: Cell) -> None:
    ticket, worker = cell.begin()
    ticket.cancel()
    assert not ticket.ending().well
    if cell.worker_can is Degree.ALL:
        worker.wait_cancelled()
    worker.complete(cell.result)  # too late, and nobody is the worse for it
    another = cell.submit(b"another")
    assert worker.take() == b"another"
    worker.complete(b"")
    assert another.ending().well
    cell.found(cell.worker_can)


@pytest.mark.system
@each(Capability.DEATH)
def test_the_worker_dies_in_the_middle_of_the_job(cell: Cell) -> None:
    ticket, worker = cell.begin()
    worker.die()
    other = cell.start_worker()
    if cell.pair.never_leaves_redis:
        cell.submit(b"the next one")
        assert other.take() == b"the next one", "the one in the dead worker's hands is lost"
        assert isinstance(ticket, GearMonkeyTicket)
        assert ticket.status() == "busy"
        other.complete(b"")
        cell.found(Degree.NONE)
        return
    assert other.take() == cell.payload
    other.complete(cell.result)
    cell.check_result(ticket.ending())
    cell.found(Degree.ALL)


# --- the page ---


@pytest.mark.skipif(WRITES, reason="it is being written")
def test_the_page_tells_what_is_declared() -> None:
    declared = {(pair.name, capability): expected(pair, capability) for pair in PAIRS for capability in CAPABILITIES}
    assert PAGE.read_text() == rendered(declared), "make interop writes it anew"
