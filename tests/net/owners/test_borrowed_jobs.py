"""Which of the jobs that an owner assigns to a node are entered there, and which are given back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from switchgear.engine.engine import Engine
from switchgear.engine.function_placement import FOREIGN_LIMIT, is_copy
from switchgear.model import NORMAL, Delivery, Job
from switchgear.net.owners.borrowed_jobs import BorrowedJobs
from switchgear.net.owners.messages import Assign, Give, Message, options_of
from switchgear.testing import RecordingPeer

FUNCTION = b"f"


class Link:
    """The link to an owner."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)


@pytest.fixture
def engine() -> Engine:
    """The engine of a node with a worker of a function of another node."""
    engine = Engine()
    function = engine.function_named(FUNCTION)
    function.limits = [FOREIGN_LIMIT] * 3
    engine.can_do(engine.add_worker(RecordingPeer(), "test"), function)
    return engine


@pytest.fixture
def borrowing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> BorrowedJobs:
    loop: Any = SimpleNamespace(time=lambda: 0.0, call_soon=lambda callback: None)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    hub: Any = SimpleNamespace(engine=engine, begin_turn=lambda: None)
    relay: Any = SimpleNamespace(links={}, partition_of=lambda name: 0, retries={}, told_name=lambda name: name)
    return BorrowedJobs(hub, relay)


def assign(borrowing: BorrowedJobs, link: Any, job_id: int = 7, start: int = 3) -> None:
    job = Job(job_id, borrowing._engine.function_named(FUNCTION), b"", b"x", NORMAL, Delivery.HANDLE, 0)
    details = options_of(job, is_lent=True)
    borrowing.assigned(link, Assign(job_id, start, FUNCTION, b"", b"x", NORMAL, 0, 0, 1, details, b"", Delivery.HANDLE))


def test_a_job_of_another_node_is_entered_as_a_copy(engine: Engine, borrowing: BorrowedJobs) -> None:
    link = Link()
    assign(borrowing, link)
    copy = engine.job(7)
    assert copy is not None
    assert is_copy(copy)
    assert link.sent == []


def test_a_job_that_comes_while_its_function_is_restored_here_is_given_back(
    engine: Engine, borrowing: BorrowedJobs
) -> None:
    """Its last owner had sent it before it let go of the function. The job itself is among those that are restored."""
    link = Link()
    borrowing.begin_restoring(lambda name: name == FUNCTION)
    assign(borrowing, link)
    assert link.sent == [Give(7, 3)]
    assert engine.job(7) is None
    assert borrowing.take_out() == []
    borrowing.end_restoring()
    engine.function_named(FUNCTION).limits = [0] * 3
    assign(borrowing, link, 8)
    assert link.sent == [Give(7, 3), Give(8, 3)]
    assert engine.job(8) is None


def test_a_copy_that_nobody_has_begun_is_given_up_when_its_function_is_restored_here(
    engine: Engine, borrowing: BorrowedJobs
) -> None:
    assign(borrowing, Link())
    borrowing.begin_restoring(lambda name: name == FUNCTION)
    assert engine.job(7) is None
    assert borrowing.take_out() == []
