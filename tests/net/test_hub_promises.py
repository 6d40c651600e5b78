"""Nothing is said before it is kept: the hub with a store that commits, or fails to, when the test says so."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Sequence

import pytest

import switchgear.net.commits as commits_module
from switchgear.engine.engine import Engine
from switchgear.errors import StorageError
from switchgear.model import FINAL_STATES, Function, Job, Schedule
from switchgear.net import commits
from switchgear.net.clock import SystemClock
from switchgear.net.hub import Hub
from switchgear.protocols.gearman.admin import on_line
from switchgear.protocols.gearman.codec import RESPONSE, GearmanDecoder, request
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.packet_dispatch import handle_messages
from switchgear.protocols.gearman.session import GearmanSession, GearmanSetup
from switchgear.protocols.transport import PeerTransport
from switchgear.storage.base import JobQuery, Snapshot, Spare, Store
from switchgear.telemetry import Telemetry


class GatedStore(Store):
    """Keeps what is staged once the test opens the gate, or raises what the test puts there."""

    def __init__(self) -> None:
        self.durable = True
        self.url = "gated:"
        self.answers_at_once = False
        self.kept: dict[int, bool] = {}  # by id: whether the job is kept as finished
        self.next_job_id = 1
        self.gate: asyncio.Future[None] | None = None
        self.is_gated = False
        self.is_unreadable = False
        self._staged: dict[int, bool] = {}
        self._staged_next_id = 0

    def open(self) -> None:
        pass

    async def load(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        return Snapshot(self.next_job_id)

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        self._staged.update((job.id, job.state in FINAL_STATES) for job in jobs)
        self._staged_next_id = max(self._staged_next_id, next_job_id)

    def unstage(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._staged.pop(job.id, None)

    async def commit(self) -> Sequence[int]:
        batch, self._staged = self._staged, {}
        next_id = self._staged_next_id
        if self.is_gated:
            self.gate = asyncio.get_running_loop().create_future()
            try:
                await self.gate
            except StorageError:
                self._staged = batch | self._staged
                raise
        self.kept.update(batch)
        self.next_job_id = max(self.next_job_id, next_id)
        return ()

    @property
    def is_committing(self) -> bool:
        return self.gate is not None and not self.gate.done()

    def let_commit(self, *, fail: bool = False) -> None:
        assert self.gate is not None
        if fail:
            self.gate.set_exception(StorageError("no room"))
        else:
            self.gate.set_result(None)

    async def read_payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        if self.is_unreadable:
            raise StorageError("no answer from the disk")
        return dict.fromkeys(job_ids, b"payload")

    async def read_jobs(self, job_ids: Sequence[int]) -> dict[int, Job]:
        return {}

    async def find(self, query: JobQuery) -> list[Job]:
        return []

    async def find_named(self, names: Collection[bytes], since_us: int = 0) -> dict[bytes, Job]:
        return {}

    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset, now_us: int = 0) -> int:
        return 0

    async def close(self) -> None:
        pass


class Listener(PeerTransport):
    """The far end of a connection: cuts what it hears into packets, and looks whether the store has it already."""

    def __init__(self, store: GatedStore) -> None:
        self.store = store
        self.heard: list[tuple[Packet, bytes]] = []
        self.reported: set[int] = set()  # jobs whose end was reported; the echo that follows has the number
        self._decoder = GearmanDecoder(RESPONSE, 1 << 20)

    def write(self, out: list[bytes]) -> None:
        for kind, body in self._decoder.feed(b"".join(out)):
            packet = Packet(kind)
            self.heard.append((packet, body))
            if packet is Packet.JOB_CREATED:
                number = int(body.rpartition(b":")[2])
                assert number in self.store.kept, f"job {number} was acknowledged and not kept"
            elif packet is Packet.ECHO_RES:
                number = int(body)
                assert self.store.kept.get(number), f"the end of job {number} was acknowledged and not kept"
                self.reported.remove(number)

    def close(self) -> None:
        pass


class Harness:
    """A hub, its store, and some connections."""

    def __init__(self, payload_memory_bytes: int = 1_000_000) -> None:
        self.store = GatedStore()
        self.engine = Engine()
        telemetry = Telemetry(asyncio.get_running_loop().time)
        self.hub = Hub(self.engine, self.store, SystemClock(), telemetry, payload_memory_bytes)
        self.setup = GearmanSetup(handle_prefix=b"H:", version="0", on_messages=handle_messages, on_line=on_line)

    def connect(self) -> tuple[GearmanSession, Listener]:
        listener = Listener(self.store)
        return GearmanSession(self.hub, listener, self.setup), listener

    def say(self, session: GearmanSession, *packets: bytes) -> None:
        self.hub.begin_turn()
        session.receive(b"".join(packets))


SUBMIT = request(Packet.SUBMIT_JOB_BG, b"f", b"", b"payload")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAZY_COMMIT_SECONDS", "FIRST_RETRY_SECONDS", "LONGEST_RETRY_SECONDS"):
        monkeypatch.setattr(commits_module, name, 0.0)
    monkeypatch.setattr("switchgear.telemetry.log.disabled", True)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_an_answer_of_the_open_turn_waits_for_its_own_commit() -> None:
    async def story() -> None:
        harness = Harness()
        await harness.hub.load()
        harness.store.is_gated = True
        session, listener = harness.connect()
        harness.say(session, SUBMIT)
        await turns(3)
        assert harness.store.is_committing
        harness.store.let_commit()  # its end is noticed in the next turn,
        harness.say(session, SUBMIT)  # which this has opened by then
        await turns(3)
        assert [kind for kind, _ in listener.heard] == [Packet.JOB_CREATED]
        harness.store.let_commit()
        await turns(3)
        assert [kind for kind, _ in listener.heard] == [Packet.JOB_CREATED] * 2

    asyncio.run(story())


def test_a_submission_in_the_open_turn_is_refused_when_the_commit_before_it_fails() -> None:
    async def story() -> None:
        harness = Harness()
        await harness.hub.load()
        harness.store.is_gated = True
        session, listener = harness.connect()
        harness.say(session, SUBMIT)
        await turns(3)
        harness.store.let_commit(fail=True)
        harness.say(session, SUBMIT)
        await turns(3)
        assert [kind for kind, _ in listener.heard] == [Packet.ERROR] * 2
        assert not harness.engine.jobs

    asyncio.run(story())


def test_a_restart_never_hands_out_the_id_of_an_earlier_foreground_job() -> None:
    async def story() -> None:
        harness = Harness()
        await harness.hub.load()
        harness.store.is_gated = True  # nothing is kept from here on
        session, _ = harness.connect()
        harness.say(session, request(Packet.SUBMIT_JOB, b"f", b"", b"payload"))
        await turns(3)
        assert harness.store.next_job_id > harness.engine.next_job_id - 1

    asyncio.run(story())


def test_a_payload_that_cannot_be_read_leaves_the_job_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "FIRST_RETRY_SECONDS", 0.0)

    async def story() -> None:
        harness = Harness(payload_memory_bytes=0)
        await harness.hub.load()
        client, _ = harness.connect()
        harness.say(client, SUBMIT)
        await turns(5)
        assert harness.engine.jobs[1].payload is None
        harness.store.is_unreadable = True
        harness.store.is_gated = True
        worker, listener = harness.connect()
        harness.say(worker, request(Packet.CAN_DO, b"f"), request(Packet.GRAB_JOB))
        await turns(20)
        assert harness.hub.storage_error is not None
        harness.store.is_unreadable = False
        harness.store.let_commit()
        await turns(5)
        assert harness.hub.storage_error is None
        harness.store.is_gated = False
        harness.say(worker, request(Packet.GRAB_JOB))
        await turns(20)
        assert listener.heard == [(Packet.NO_JOB, b""), (Packet.JOB_ASSIGN, b"H:1\0f\0payload")]

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(150))
def test_in_whatever_order_things_happen_nothing_is_said_before_it_is_kept(seed: int) -> None:
    """Listeners check what they hear; here, that everybody gets an answer for every request in the end."""

    async def story() -> None:
        chance = random.Random(seed)
        harness = Harness()
        await harness.hub.load()
        harness.store.is_gated = True
        clients = [harness.connect() for _ in range(3)]
        worker, results = harness.connect()
        harness.say(worker, request(Packet.CAN_DO, b"f"))
        asked = [0, 0, 0]
        for _ in range(60):
            action = chance.random()
            if action < 0.4:
                number = chance.randrange(3)
                count = chance.randint(1, 3)
                asked[number] += count
                harness.say(clients[number][0], SUBMIT * count)
            elif action < 0.55:
                work(harness, worker, results, chance)
            elif action < 0.75 and harness.store.is_committing:
                harness.store.let_commit(fail=chance.random() < 0.3)
            else:
                await turns(chance.randint(1, 3))
        await heal(harness)
        for (_, listener), count in zip(clients, asked):
            assert len(listener.heard) == count
        assert not results.reported
        acknowledged = sum(kind is Packet.JOB_CREATED for _, listener in clients for kind, _ in listener.heard)
        assert harness.hub.storage_error is None
        assert acknowledged == len(harness.store.kept)

    asyncio.run(story())


def work(harness: Harness, worker: GearmanSession, results: Listener, chance: random.Random) -> None:
    """Take a job, or report on one."""
    running = worker.worker.running if worker.worker is not None else {}
    if running and chance.random() < 0.6:
        number, job = next(iter(running.items()))
        results.reported.add(number)
        complete = request(Packet.WORK_COMPLETE, worker.handle(job), b"")
        harness.say(worker, complete, request(Packet.ECHO_REQ, b"%d" % number))
    else:
        harness.say(worker, request(Packet.GRAB_JOB))


async def heal(harness: Harness) -> None:
    """From now on every commit works."""
    for _ in range(200):
        if harness.store.is_committing:
            harness.store.let_commit()
        await turns(2)
    harness.store.is_gated = False
    await harness.hub.close()
