"""Clients that ask for the news of a job, whoever submitted it."""

from __future__ import annotations

import pytest

from switchgear.engine.function_placement import FunctionPlacement
from switchgear.model import DONE, NORMAL, Delivery, Function, Job
from switchgear.protocols.gearman.messages import Packet as Extension
from switchgear.protocols.pending_read import Reading
from tests.protocols.gearman.harness import Harness
from tests.protocols.gearman.transcript import MANNERS, Transcript, load, play
from tests.support.wire import Kind, Packet, request


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("transcript", load("watching"), ids=str)
def test_conversations(transcript: Transcript, manner: str) -> None:
    play(transcript, manner)


class AtAnotherNode(FunctionPlacement):
    """Another node owns all functions; jobs that are asked for are not passed on yet."""

    def is_ours(self, name: bytes) -> bool:
        return False

    def stand_in(self, job: Job) -> Job | None:
        return job


class HarnessOfEndingJob(Harness):
    """A job of another node ends between the first and the second time that the store is read."""

    reads = 0

    def find_job(self, job_id: int) -> Reading[Job | None]:
        yield from ()
        self.reads += 1
        if self.reads == 1:
            return None  # among finished jobs
        job = Job(job_id, Function(b"f"), b"", None, NORMAL, Delivery.HANDLE, 1)
        job.state = DONE
        job.result = b"result"
        return job


def test_a_job_of_another_node_that_ends_while_it_is_looked_for_is_known() -> None:
    harness = HarnessOfEndingJob()
    harness.engine.placement = AtAnotherNode()
    watcher = harness.talker("watcher")
    watcher.send(request(Extension.WATCH, b"H:t:5"))
    assert watcher.heard() == [
        Packet(Extension.WATCH_RES, b"H:t:5\0done"),
        Packet(Kind.WORK_COMPLETE, b"H:t:5\0result"),
    ]
    assert harness.reads == 2
