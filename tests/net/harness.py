"""A hub with real sessions, a store that commits when the test says so, and time that stands still.

@in_turns
async def test_something() -> None:
    harness = await open_harness()
    client = harness.connect()
    client.send(request(...))
    await idle()                    # let the event loop turn until nothing more happens by itself
    await harness.store.succeed()     # the commit under way is done
    assert client.heard() == [...]
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, ParamSpec

from switchgear.engine.engine import Engine, EngineSettings
from switchgear.errors import StorageError
from switchgear.model import FINAL_STATES, NORMAL, Delivery, Function, Job, Schedule
from switchgear.model.job_details import NO_DETAILS, Details
from switchgear.net.hub import Hub
from switchgear.net.operations.dispatcher import Operations
from switchgear.protocols.gearman.admin import on_line
from switchgear.protocols.gearman.packet_dispatch import handle_messages
from switchgear.protocols.gearman.session import GearmanSession, GearmanSetup
from switchgear.protocols.transport import PeerTransport
from switchgear.storage.base import JobQuery, Snapshot, Spare, Store
from switchgear.telemetry import Telemetry
from switchgear.testing import FakeClock
from switchgear.verbs.access import AccessRules
from tests.support.wire import Kind, Message, Packet, request, split_message

P = ParamSpec("P")


class StillLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when it is told so."""

    def __init__(self) -> None:
        self.now_seconds = 1000.0
        super().__init__()

    def time(self) -> float:
        return self.now_seconds


def in_turns(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test in a loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=StillLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


async def idle() -> None:
    """Turn until everything that can happen without time passing has happened."""
    for _ in range(10):
        await asyncio.sleep(0)


class ScriptedStore(Store):
    """Keeps what it is told to keep, and shows what it was told."""

    def __init__(self, durable: bool = True) -> None:
        self.durable = durable
        self.answers_at_once = False
        self.url = "scripted:"
        self.obedient = True  # commits succeed at once
        self.snapshot = Snapshot()
        self.commits = 0  # how many were begun
        self.staged: dict[int, tuple[str, bytes | None]] = {}  # job id: state and payload, for the next commit
        self.staged_functions: dict[bytes, bool] = {}  # name: paused
        self.kept: dict[int, str] = {}  # job id: state
        self.payloads: dict[int, bytes] = {}
        self.next_job_id = 0
        self.kept_next_job_id = 0
        self.log: dict[int, Job] = {}  # finished jobs
        self.read_error: StorageError | None = None
        self.reads: list[list[int]] = []
        self._under_way: asyncio.Future[Sequence[int]] | None = None

    # --- what tests ask ---

    @property
    def is_committing(self) -> bool:
        return self._under_way is not None

    async def succeed(self, refused: Sequence[int] = ()) -> None:
        self.succeed_soon(refused)
        await idle()

    def succeed_soon(self, refused: Sequence[int] = ()) -> None:
        """The commit is done, but the event loop has not turned yet."""
        assert self._under_way is not None, "no commit is under way"
        self._under_way.set_result(refused)

    async def fail(self, error: Exception | None = None) -> None:
        self.fail_soon(error)
        await idle()

    def fail_soon(self, error: Exception | None = None) -> None:
        assert self._under_way is not None, "no commit is under way"
        self._under_way.set_exception(error or StorageError("disk full"))

    def kept_job(self, job_id: int, payload: bytes, function: bytes = b"f") -> Job:
        """A ready job as an earlier server has left it here."""
        job = Job(job_id, Function(function), b"", payload, NORMAL, Delivery.HANDLE, 0)
        job.kept = True
        self.payloads[job_id] = payload
        self.kept[job_id] = "READY"
        return job

    # --- the contract ---

    def open(self) -> None:
        """Nothing to do."""

    async def load(self, function_named: Callable[[bytes], Function], now_us: int = 0) -> Snapshot:
        for job in self.snapshot.jobs:
            job.function = function_named(job.function.name)
        return self.snapshot

    def stage(
        self,
        jobs: Iterable[Job],
        functions: Iterable[Function] = (),
        next_job_id: int = 0,
        schedules: Iterable[Schedule] = (),
    ) -> None:
        for job in jobs:
            before = self.staged.get(job.id, ("", None))
            self.staged[job.id] = (job.state.name, job.payload if job.payload is not None else before[1])
            if job.state in FINAL_STATES:
                self.log[job.id] = snapshot_of(job)
        self.staged_functions.update((function.name, function.paused) for function in functions)
        self.next_job_id = max(self.next_job_id, next_job_id)

    def unstage(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.staged.pop(job.id, None)

    async def commit(self) -> Sequence[int]:
        assert self._under_way is None, "two commits at a time"
        self.commits += 1
        batch, self.staged = self.staged, {}
        next_job_id = self.next_job_id
        refused: Sequence[int] = ()
        if not self.obedient:
            self._under_way = asyncio.get_running_loop().create_future()
            try:
                refused = await self._under_way
            except BaseException:
                self.staged = {**batch, **self.staged}
                raise
            finally:
                self._under_way = None
        for job_id, (state, payload) in batch.items():
            self.kept[job_id] = state
            if payload is not None:
                self.payloads[job_id] = payload
        self.kept_next_job_id = next_job_id
        return refused

    async def read_payloads(self, job_ids: Sequence[int]) -> dict[int, bytes]:
        self.reads.append(list(job_ids))
        if self.read_error is not None:
            raise self.read_error
        return {job_id: self.payloads[job_id] for job_id in job_ids if job_id in self.payloads}

    async def read_jobs(self, job_ids: Sequence[int]) -> dict[int, Job]:
        if self.read_error is not None:
            raise self.read_error
        return {job_id: self.log[job_id] for job_id in job_ids if job_id in self.log}

    async def find(self, query: JobQuery) -> list[Job]:
        if self.read_error is not None:
            raise self.read_error
        return []

    async def find_named(self, names: Collection[bytes], since_us: int = 0) -> dict[bytes, Job]:
        if self.read_error is not None:
            raise self.read_error
        return {}

    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset, now_us: int = 0) -> int:
        return 0

    async def close(self) -> None:
        """Nothing to do."""


def snapshot_of(job: Job) -> Job:
    """The job as it is now; what becomes of it later changes nothing here."""
    snapshot = Job(job.id, job.function, job.unique, job.payload, job.priority, job.delivery, job.created_us)
    copy_fields(job, snapshot, "entry_bytes")
    if job.details is not NO_DETAILS:
        snapshot.details = Details()
        copy_fields(job.details, snapshot.details)
    return snapshot


def copy_fields(source: Job | Details, target: Job | Details, *excepted: str) -> None:
    """Set every field of one object as it is in another; `copy` cannot, if the class is compiled."""
    kind = type(source)
    for name in getattr(kind, "__mypyc_attrs__", None) or kind.__slots__:
        if name not in excepted:
            setattr(target, name, getattr(source, name))


class RecordingWire(PeerTransport):
    """Remembers every write."""

    def __init__(self) -> None:
        self.host = "10.0.0.1"
        self.port = 4711
        self.writes: list[bytes] = []
        self.is_closed = False
        self.go_on: Callable[[], None] | None = None  # to be called when the peer has read

    def write(self, out: list[bytes]) -> None:
        data = b"".join(out)
        assert not self.is_closed, "written to after it was closed"
        self.writes.append(data)

    def close(self) -> None:
        self.is_closed = True

    def when_taken(self, go_on: Callable[[], None]) -> None:
        self.go_on = go_on


class Connected:
    """One connection, seen from the other end.  `send` does what a TCP connection does with what it reads."""

    def __init__(self, harness: HubHarness) -> None:
        self.harness = harness
        self.wire = RecordingWire()
        self.session = GearmanSession(harness.hub, self.wire, harness.setup)

    def send(self, *packets: bytes) -> None:
        self.harness.hub.begin_turn()
        self.session.receive(b"".join(packets))

    def read(self) -> None:
        """Take what was sent, so that the server goes on with what it has put off."""
        go_on, self.wire.go_on = self.wire.go_on, None
        assert go_on is not None, "nothing was put off"
        self.harness.hub.begin_turn()
        go_on()

    def stop_sending(self) -> None:
        self.harness.hub.begin_turn()
        self.session.eof()

    def leave(self) -> None:
        self.harness.hub.begin_turn()
        self.session.closed()

    def heard(self) -> list[Message]:
        rest = b"".join(self.wire.writes)
        self.wire.writes.clear()
        messages: list[Message] = []
        while rest:
            whole = split_message(rest)
            assert whole is not None, f"half a message: {rest!r}"
            messages.append(whole[0])
            rest = whole[1]
        return messages


class HubHarness:
    """All parts, connected."""

    store: ScriptedStore  # unless it was given another

    def __init__(self, store: Store, payload_memory_bytes: int, settings: EngineSettings | None) -> None:
        self.loop = asyncio.get_running_loop()
        if isinstance(store, ScriptedStore):
            self.store = store
        self.clock = FakeClock()
        self.telemetry = Telemetry(self.loop.time)
        self.engine = Engine(settings, self.telemetry)
        self.hub = Hub(self.engine, store, self.clock, self.telemetry, payload_memory_bytes)
        self.hub.operator = Operations(self.hub, "H:t:").in_steps
        self.setup = GearmanSetup(b"H:t:", "test", handle_messages, on_line, access=AccessRules(shutdown="loopback"))

    def connect(self) -> Connected:
        return Connected(self)

    async def pass_time(self, seconds: float) -> None:
        assert isinstance(self.loop, StillLoop)
        self.loop.now_seconds += seconds
        self.clock.advance(seconds)
        await idle()


async def open_harness(
    *,
    durable: bool = True,
    payload_memory_bytes: int = 1_000_000,
    settings: EngineSettings | None = None,
    store: ScriptedStore | None = None,
) -> HubHarness:
    """A harness whose hub has loaded, and whose store waits for orders from now on.

    Unless the settings say otherwise there is no limit of attempts, and so no start that a worker has to wait for.
    """
    store = store or ScriptedStore(durable)
    harness = HubHarness(store, payload_memory_bytes, settings or EngineSettings(attempts=0))
    await harness.hub.load()
    await idle()
    assert not harness.store.is_committing
    harness.store.obedient = False
    harness.store.commits = 0
    return harness


async def grab_all(worker: Connected, count: int) -> list[Message]:
    """What a worker is given that asks for so many jobs; payloads may have to be read meanwhile."""
    worker.send(*[GRAB] * count)
    answers: list[Message] = []
    for _ in range(100 + 2 * count):
        await idle()
        answers += worker.heard()
        if worker.wire.go_on is not None:
            worker.read()
        if len(answers) >= count:
            break
    return answers


# --- what is said ---


def echo(text: bytes) -> bytes:
    return request(Kind.ECHO_REQ, text)


def echoed(text: bytes) -> Message:
    return Packet(Kind.ECHO_RES, text)


def created(job_id: int) -> Message:
    return Packet(Kind.JOB_CREATED, b"H:t:%d" % job_id)


BACKGROUND = request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x")
FOREGROUND = request(Kind.SUBMIT_JOB, b"f", b"", b"x")
GRAB = request(Kind.GRAB_JOB)
CAN_DO = request(Kind.CAN_DO, b"f")
NO_JOB = Packet(Kind.NO_JOB, b"")
NOOP = Packet(Kind.NOOP, b"")
