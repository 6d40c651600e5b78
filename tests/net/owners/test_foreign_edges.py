"""How often other nodes and the database are asked about predecessors of jobs, by a fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

from switchgear.engine.engine import Engine, SubmitOptions
from switchgear.engine.function_placement import FunctionPlacement
from switchgear.model import DONE, NORMAL, READY, WAITING, Delivery, Function, Job, JobState
from switchgear.net.owners.foreign_edges import LONGEST_PAUSE_SECONDS, PAUSE_SECONDS, ForeignEdges
from switchgear.net.owners.messages import Await, Awaited, AwaitedEnded, Message
from switchgear.partitions import PARTITIONS, partition_of

PREDECESSORS = 300
BEFORE, AFTER = b"before", b"after"


class FakeClockLoop(asyncio.SelectorEventLoop):
    """When nothing is left to do, the time of the next timer has come."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        select: Callable[[float | None], Any] = selector.select

        def pass_time(timeout: float | None) -> Any:
            self._now_s += timeout or 0.0
            return select(0)

        selector.select = pass_time

    def time(self) -> float:
        return self._now_s


class Owner:
    """The link to the owner of the predecessors, which answers at once."""

    node_id = 2

    def __init__(self) -> None:
        self.has_function = False
        self.messages: list[Message] = []
        self.answer: Callable[[Any, Awaited], None] = lambda link, message: None

    def send(self, message: Message) -> None:
        self.messages.append(message)
        if isinstance(message, Await):
            found, missing = (message.ids, []) if self.has_function else ([], message.ids)
            answer = Awaited(found, missing, 0)
            asyncio.get_running_loop().call_soon(lambda: self.answer(self, answer))

    @property
    def questions(self) -> int:
        return sum(isinstance(message, Await) for message in self.messages)


class Rows:
    """The stored predecessors."""

    def __init__(self) -> None:
        self.state = READY
        self.reads = 0

    async def read_heads(self, job_ids: Sequence[int]) -> list[Job]:
        self.reads += 1
        await asyncio.sleep(0.001)
        heads = [Job(job_id, Function(BEFORE), b"", None, NORMAL, Delivery.HANDLE, 0) for job_id in job_ids]
        for head in heads:
            head.state = self.state
        return heads


class Links(FunctionPlacement):
    """This node has all partitions but that of the predecessors."""

    def __init__(self, owner: Owner) -> None:
        self.ready = set(range(PARTITIONS)) - {partition_of(BEFORE)}
        self.absent: set[bytes] = set()
        self.links: dict[int, Any] = {partition_of(BEFORE): owner}
        self.edges: ForeignEdges

    def partition_of(self, name: bytes) -> int:
        return partition_of(name)

    def is_ours(self, name: bytes) -> bool:
        return partition_of(name) in self.ready and name not in self.absent

    def await_job(self, job_id: int) -> None:
        self.edges.await_job(job_id)


class Stage:
    """A node with a job that waits for very many jobs of another one."""

    def __init__(self) -> None:
        self.owner, self.rows, self.engine = Owner(), Rows(), Engine()
        self.relay = self.engine.placement = Links(self.owner)
        hub: Any = SimpleNamespace(
            engine=self.engine, begin_turn=lambda: None, find_unkept_end=lambda job_id: None, soon=lambda call: None
        )
        relay: Any = self.relay
        self.edges = self.relay.edges = ForeignEdges(hub, self.rows, relay, list)
        self.owner.answer = self.edges.received
        self.edges.start()
        self.edges.use_links(self.relay.links)
        ids = tuple(range(1_000, 1_000 + PREDECESSORS))
        self.ids = ids
        options = SubmitOptions(predecessors=ids)
        self.job = self.engine.submit(AFTER, b"", b"x", NORMAL, Delivery.HANDLE, None, options)


def state_of(job: Job) -> JobState:
    return job.state


def on_fake_clock(test: Coroutine[Any, Any, None]) -> None:
    loop = FakeClockLoop()
    try:
        loop.run_until_complete(test)
    finally:
        loop.close()


def test_questions_do_not_become_more_while_no_node_has_the_function() -> None:
    """It is being moved: its last owner has let go of it, and the next one does not have its jobs yet."""

    async def wait_for_the_function() -> None:
        stage = Stage()
        await asyncio.sleep(20)
        most = 20 / LONGEST_PAUSE_SECONDS + LONGEST_PAUSE_SECONDS / PAUSE_SECONDS + 2 * 20  # each second it is swept
        assert stage.owner.questions < most
        assert stage.rows.reads < 2 * most
        stage.owner.has_function = True
        await asyncio.sleep(2 * LONGEST_PAUSE_SECONDS)
        questions, reads = stage.owner.questions, stage.rows.reads
        await asyncio.sleep(20)
        assert (stage.owner.questions, stage.rows.reads) == (questions, reads), "the owner tells when they have ended"
        assert state_of(stage.job) is WAITING
        stage.rows.state = DONE
        for job_id in stage.ids:
            link: Any = stage.owner
            stage.edges.received(link, AwaitedEnded(job_id))
        await asyncio.sleep(1)
        assert state_of(stage.job) is READY
        assert len(stage.edges) == 0
        stage.edges.close()

    on_fake_clock(wait_for_the_function())


def test_a_node_does_not_ask_itself_for_jobs_of_a_function_that_it_is_going_to_restore() -> None:
    async def restore() -> None:
        stage = Stage()
        stage.relay.ready.add(partition_of(BEFORE))
        stage.relay.absent.add(BEFORE)
        await asyncio.sleep(5)
        assert stage.owner.questions == 0
        reads = stage.rows.reads
        assert reads < 5 / LONGEST_PAUSE_SECONDS + LONGEST_PAUSE_SECONDS / PAUSE_SECONDS
        before = stage.engine.function_named(BEFORE)
        jobs = [Job(job_id, before, b"", b"x", NORMAL, Delivery.HANDLE, 0) for job_id in stage.ids]
        stage.engine.restore(jobs, {}, 0)
        stage.relay.absent.clear()
        stage.edges.functions_came()
        await asyncio.sleep(PAUSE_SECONDS / 10)
        assert len(stage.edges) == 0, "they are this node's own now"
        assert stage.rows.reads == reads
        assert state_of(stage.job) is WAITING
        stage.edges.close()

    on_fake_clock(restore())
